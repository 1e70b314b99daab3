//! The EventBridge sink (contract section 5). `request` says what an entry is and how large the
//! service counts it; this file sends those that are due together in one `PutEvents`, whose answer
//! may be a success that holds failures, and asks for the bus when it is verified.

mod request;

use std::sync::Arc;

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::config::{BehaviorVersion, Region, StalledStreamProtectionConfig};
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_smithy_types::retry::RetryConfig;
use streaming_hub_model::attempt::{Attempt, ErrorClass, Outcome};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::sink_config::{EventBridgeConfig, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;
use tokio::time::Instant;

use crate::aws::failure::{self, Failure};
use crate::aws::{Aws, Called, Identity, REQUESTS_PER_CLIENT_MAX, Service};
use crate::batch::{BatchLimits, Batcher};
use crate::leased::{self, Leased};
use crate::outcome::{delivered, duration_ms, unanswered};
use crate::pool::{Key, Lease, Pools};

/// Entries of one request, the service's limit.
const ENTRIES_MAX: usize = 10;
/// What a look-up needs.
const PERMISSION: &str = "events:DescribeEventBus (and events:PutEvents to deliver)";

/// Delivers to buses of Amazon EventBridge.
pub struct EventBridge {
    aws: Arc<Aws>,
    pools: Pools<Arc<Batcher<Bus>>>,
}

impl EventBridge {
    pub(crate) fn new(aws: Arc<Aws>, clock: Arc<dyn Clock>) -> Self {
        let pools = Pools::new(aws.settings.limits(), clock);
        Self { aws, pools }
    }

    fn client(
        &self,
        config: &EventBridgeConfig,
        identity: Identity,
    ) -> Result<Arc<Batcher<Bus>>, reqwest::Error> {
        let settings = &self.aws.settings;
        let sdk = aws_sdk_eventbridge::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(config.region.clone()))
            .credentials_provider(identity.provider)
            .http_client(self.aws.http_client()?)
            .retry_config(RetryConfig::disabled())
            .timeout_config(settings.timeouts())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let sdk = match &config.endpoint {
            Some(endpoint) => sdk.endpoint_url(endpoint),
            None => sdk,
        };
        let bus = Bus { client: Client::from_conf(sdk.build()), arn: config.event_bus.clone() };
        let limits = BatchLimits {
            entries: ENTRIES_MAX,
            bytes: settings.eventbridge_entry_bytes_max,
            linger: settings.linger(),
            requests: REQUESTS_PER_CLIENT_MAX,
        };
        Ok(Arc::new(Batcher::new(bus, limits)))
    }
}

impl Leased for EventBridge {
    type Config = EventBridgeConfig;
    type Client = Arc<Batcher<Bus>>;

    fn config(sink: &SinkConfig) -> Option<&EventBridgeConfig> {
        if let SinkConfig::EventBridge(config) = sink { Some(config) } else { None }
    }

    fn verify_with(config: &EventBridgeConfig) -> VerifyWith {
        config.verify_with
    }

    async fn lease(
        &self,
        attempt: &Attempt,
        config: &EventBridgeConfig,
    ) -> Result<Lease<Arc<Batcher<Bus>>>, Outcome> {
        let identity = self.aws.identity(&attempt.subscription, &called(config))?;
        let sink = &attempt.subscription.sink;
        let key = Key::of(&attempt.subscription, identity.generation);
        let make = || self.client(config, identity);
        let lease = self.pools.lease(&key, (sink.host(), 0), make).await;
        lease.map_err(|error| Outcome::not_attempted(error.to_string()))
    }

    async fn deliver(&self, attempt: &Attempt, config: &EventBridgeConfig) -> Outcome {
        let entry = request::entry(&attempt.event);
        let limit = self.aws.settings.eventbridge_entry_bytes_max;
        if entry.bytes > limit {
            let detail = format!("the entry has {} bytes as JSON, more than {limit}", entry.bytes);
            return Outcome::failed(ErrorClass::TooLarge, detail);
        }
        let lease = match self.lease(attempt, config).await {
            Ok(lease) => lease,
            Err(outcome) => return outcome,
        };
        self.aws.in_time(lease.client.deliver(entry)).await
    }

    async fn look_up(&self, bus: &Arc<Batcher<Bus>>, _: &EventBridgeConfig) -> Outcome {
        let bus = bus.carrier();
        match bus.client.describe_event_bus().name(&bus.arn).send().await {
            Ok(_) => delivered(),
            Err(error) => failure::of(&error).outcome_of_asking(PERMISSION),
        }
    }
}

impl Sink for EventBridge {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::attempt(self, attempt)
    }

    fn verify(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::verify(self, attempt)
    }

    fn admit<'a>(
        &'a self,
        tenant: &'a TenantId,
        sink: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        Box::pin(async move {
            let config = leased::admitted::<Self>(sink)?;
            self.aws.admit(tenant, &called(config)).await
        })
    }
}

fn called(config: &EventBridgeConfig) -> Called<'_> {
    Called {
        credentials: &config.credentials,
        arn: Some(&config.event_bus),
        region: &config.region,
        endpoint: config.endpoint.as_deref(),
    }
}

/// One bus under one identity.
pub(crate) struct Bus {
    client: Client,
    arn: String,
}

impl Bus {
    /// One request; each entry has an outcome of its own.
    async fn put(&self, entries: &[request::Entry]) -> Result<Vec<Outcome>, Failure> {
        let began = Instant::now();
        let part = |entry: &request::Entry| {
            PutEventsRequestEntry::builder()
                .source(&entry.source)
                .detail_type(&entry.detail_type)
                .detail(&*entry.detail)
                .event_bus_name(&self.arn)
                .build()
        };
        let parts = entries.iter().map(part).collect();
        let answer = self.client.put_events().set_entries(Some(parts)).send().await;
        let answer = answer.map_err(|error| failure::of(&error))?;
        let mut results = answer.entries().iter();
        let duration_ms = duration_ms(began.elapsed());
        let outcome = |_: &request::Entry| {
            // In the order of the request's entries.
            let outcome = match results.next() {
                None => unanswered(),
                Some(result) => match result.error_code() {
                    None => delivered(),
                    Some(code) => {
                        Failure::entry(Some(code), result.error_message(), true).outcome()
                    }
                },
            };
            Outcome { duration_ms, ..outcome }
        };
        Ok(entries.iter().map(outcome).collect())
    }
}

impl Service for Bus {
    type Entry = request::Entry;

    fn bytes(&self, entry: &Self::Entry) -> usize {
        entry.bytes
    }

    fn request<'a>(
        &'a self,
        entries: &'a [Self::Entry],
    ) -> SinkFuture<'a, Result<Vec<Outcome>, Failure>> {
        Box::pin(self.put(entries))
    }
}
