//! A chosen few of librdkafka's statistics as gauges: how far the brokers are, what waits for
//! them, what timed out. Of stream threads' clients only, every 10 s; a process has one set of
//! them, since the client hands statistics to contexts that know nothing else.

use std::sync::OnceLock;

use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};
use rdkafka::Statistics;

/// How often, milliseconds.
pub(crate) const INTERVAL_MS: &str = "10000";
/// The sub-topologies that a client's name may hold; any other client is not shown.
const KNOWN: [&str; 5] = ["ingest", "match", "delivery", "pull", "registry"];
/// Who the numbers are of.
const LABELS: [&str; 2] = ["sub_topology", "client"];

static GAUGES: OnceLock<Gauges> = OnceLock::new();

struct Gauges {
    round_trip: GaugeVec,
    waiting: IntGaugeVec,
    queued: IntGaugeVec,
    timed_out: IntGaugeVec,
    brokers: IntGaugeVec,
}

impl Gauges {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let round_trip = GaugeVec::new(
            Opts::new(
                "streaming_hub_kafka_round_trip_seconds",
                "Mean round trip to the slowest broker",
            ),
            &LABELS,
        )?;
        let waiting = IntGaugeVec::new(
            Opts::new(
                "streaming_hub_kafka_waiting_requests_count",
                "Requests that wait to be sent or answered",
            ),
            &LABELS,
        )?;
        let queued = IntGaugeVec::new(
            Opts::new("streaming_hub_kafka_queued_bytes", "Produced bytes that wait for brokers"),
            &LABELS,
        )?;
        let timed_out = IntGaugeVec::new(
            Opts::new(
                "streaming_hub_kafka_timed_out_requests_count",
                "Requests that timed out since the client was made",
            ),
            &LABELS,
        )?;
        let brokers = IntGaugeVec::new(
            Opts::new("streaming_hub_kafka_connected_brokers_count", "Brokers connected to"),
            &LABELS,
        )?;
        registry.register(Box::new(round_trip.clone()))?;
        for gauge in [&waiting, &queued, &timed_out, &brokers] {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(Self { round_trip, waiting, queued, timed_out, brokers })
    }

    fn set(&self, of: &Statistics) {
        let Some(sub_topology) = sub_topology(&of.client_id) else { return };
        let labels = [sub_topology, of.client_type.as_str()];
        let brokers = || of.brokers.values();
        let connected = brokers().filter(|broker| broker.state == "UP").count();
        let means = brokers().filter_map(|broker| broker.rtt.as_ref()).map(|window| window.avg);
        let waiting = brokers().map(|broker| broker.outbuf_cnt + broker.waitresp_cnt).sum::<i64>();
        let timed_out = brokers().map(|broker| broker.req_timeouts).sum::<u64>();
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.round_trip.with_label_values(&labels).set(seconds(means.max().unwrap_or(0)));
        self.waiting.with_label_values(&labels).set(waiting);
        self.queued.with_label_values(&labels).set(whole(of.msg_size));
        self.timed_out.with_label_values(&labels).set(whole(timed_out));
        let connected = i64::try_from(connected).unwrap_or(i64::MAX);
        self.brokers.with_label_values(&labels).set(connected);
    }
}

/// Registers the gauges; a second registration changes nothing.
///
/// # Errors
/// When a name is taken in this registry.
pub fn register(registry: &Registry) -> prometheus::Result<()> {
    if GAUGES.get().is_none() {
        let _ = GAUGES.set(Gauges::new(registry)?);
    }
    Ok(())
}

/// Takes what a client says of itself.
pub(crate) fn observe(of: &Statistics) {
    if let Some(gauges) = GAUGES.get() {
        gauges.set(of);
    }
}

/// Whose client this is: names are `<app>-<sub-topology>-<instance>-<thread>`.
fn sub_topology(client_id: &str) -> Option<&'static str> {
    KNOWN.into_iter().find(|name| client_id.contains(&format!("-{name}-")))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a round trip are far below 2^52")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_of_stream_threads_have_a_label() {
        assert_eq!(sub_topology("streaming-hub-match-a-0"), Some("match"));
        assert_eq!(sub_topology("streaming-hub-admin"), None);
    }

    #[test]
    fn what_a_client_says_becomes_its_gauges() {
        let registry = Registry::new();
        let gauges = Gauges::new(&registry).unwrap();
        let of = Statistics {
            client_id: "streaming-hub-ingest-a-0".to_owned(),
            client_type: "producer".to_owned(),
            msg_size: 7,
            ..Statistics::default()
        };
        gauges.set(&of);
        assert_eq!(gauges.queued.with_label_values(&["ingest", "producer"]).get(), 7);
        assert_eq!(registry.gather().len(), 5);
    }
}
