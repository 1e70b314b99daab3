//! What `doctor` sees of the cluster: brokers, transactions, clocks, topics, replicas, groups.

use streaming_hub_model::ports::Clock as _;
use streaming_hub_topology::clock::SystemClock;
use streaming_hub_topology::kafka::admin::Administrator;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::tools::groups::{GroupState, Groups};
use streaming_hub_topology::tools::probe;
use streaming_hub_topology::topology;

use super::super::block_on;
use super::Findings;
use crate::config::Config;
use crate::settings;

/// Clocks that differ by more than this disturb due times and retention, milliseconds.
const SKEW_WARNING_MS: u64 = 1_000;
/// By more than this signatures and tokens are refused, milliseconds.
const SKEW_PROBLEM_MS: u64 = 60_000;

/// Looks, and answers whether the cluster is there at all.
pub(super) fn look(config: &Config, findings: &mut Findings) -> anyhow::Result<bool> {
    let kafka = settings::kafka(config);
    let servers = &config.kafka.bootstrap_servers;
    match probe::brokers(&kafka, &config.application_id) {
        Ok(count) => {
            let what = format!("{count} brokers answer behind {servers}");
            let wanted = usize::try_from(config.topics.replication_factor).unwrap_or(usize::MAX);
            if count < wanted {
                findings.problem(
                    "kafka",
                    format!("{what}, and topics.replication_factor is {wanted}"),
                    "start the others: topics cannot be made, and writes may be refused",
                );
            } else {
                findings.ok("kafka", what);
            }
        }
        Err(error) => {
            findings.problem(
                "kafka",
                format!("{servers} does not answer: {error}"),
                "is it running, reachable from here, and are kafka.properties right (TLS, SASL)?",
            );
            return Ok(false);
        }
    }
    let specs = topology::all(settings::follow(config)?);
    // Side by side: each waits for the cluster, most of the time for new connections.
    let looks: Vec<Look<'_>> = vec![
        Box::new(|own| transactions(config, own)),
        Box::new(|own| topics(config, own)),
        Box::new(|own| replicas(config, own)),
    ];
    let of_groups = specs.iter().map(|spec| -> Look<'_> {
        Box::new(move |own| {
            group(config, spec, own);
            Ok(())
        })
    });
    let found = std::thread::scope(|scope| {
        let running = looks.into_iter().chain(of_groups).map(|look| {
            scope.spawn(move || {
                let mut own = Findings::default();
                look(&mut own).map(|()| own)
            })
        });
        let running: Vec<_> = running.collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for own in found {
        let own = own.map_err(|_| anyhow::anyhow!("a look at the cluster panicked"))??;
        findings.0.extend(own.0);
    }
    Ok(true)
}

/// One look, with findings of its own.
type Look<'a> = Box<dyn FnOnce(&mut Findings) -> anyhow::Result<()> + Send + 'a>;

fn transactions(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let (kafka, application) = (settings::kafka(config), &config.application_id);
    let replication = config.topics.replication_factor;
    let made = block_on(async { Ok(probe::ensure_topic(&kafka, application, replication).await) })?;
    let remedy = "grant what `streaming-hub acls --principal …` prints; a transaction that cannot \
                  begin also means that __transaction_state has too few replicas";
    let before = SystemClock.now();
    match made.and_then(|()| probe::transaction(&kafka, application)) {
        Err(error) => findings.problem("transactions", error.to_string(), remedy),
        Ok(done) => {
            findings.ok("transactions", format!("one of one record took {} ms", done.took_ms));
            clock(done, before.0, findings);
        }
    }
    Ok(())
}

fn clock(done: probe::Transaction, before_ms: i64, findings: &mut Findings) {
    let after_ms = SystemClock.now().0;
    // The broker's stamp lies between the two on equal clocks.
    let skew = match done.broker_ms {
        None => return findings.warning("clock", "the broker gave no time", "look by hand"),
        Some(broker) if broker < before_ms => before_ms - broker,
        Some(broker) => (broker - after_ms).max(0),
    };
    let skew = skew.unsigned_abs();
    let what = format!("this clock and the broker's differ by {skew} ms at least");
    let remedy = "run a time service (chrony) on both machines";
    if skew > SKEW_PROBLEM_MS {
        findings.problem("clock", what, remedy);
    } else if skew > SKEW_WARNING_MS {
        findings.warning("clock", what, remedy);
    } else {
        findings.ok("clock", "this clock and the broker's agree");
    }
}

fn topics(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let (kafka, plan) = (settings::kafka(config), settings::topics(config));
    let administrator = Administrator::new(kafka.clone(), plan.clone())?;
    let compared = block_on(async { Ok(administrator.compare().await) })?;
    match compared {
        Err(error) => {
            findings.problem("topics", error.to_string(), "grant what `streaming-hub acls` prints")
        }
        Ok(found) => {
            if !found.missing.is_empty() {
                let names: Vec<_> =
                    found.missing.iter().map(|topic| topic.name(&plan.application)).collect();
                let what = format!("{} are missing: {}", names.len(), names.join(", "));
                findings.warning("topics", what, "streaming-hub topics create");
            }
            for difference in &found.differences {
                findings.problem(
                    "topics",
                    difference.clone(),
                    "a start is refused: change the topic with kafka-configs, or the configuration",
                );
            }
            if found.missing.is_empty() && found.differences.is_empty() {
                findings.ok("topics", "all internal topics are as planned");
            }
        }
    }
    Ok(())
}

fn replicas(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let (kafka, plan) = (settings::kafka(config), settings::topics(config));
    match block_on(async { Ok(probe::replication(&kafka, &plan).await) })? {
        Err(error) => findings.problem("replicas", error.to_string(), "ask again"),
        Ok(found) => judge_replicas(config, &found, findings),
    }
    Ok(())
}

fn judge_replicas(config: &Config, found: &[probe::Replicated], findings: &mut Findings) {
    let wanted = usize::try_from(config.topics.replication_factor).unwrap_or(0);
    let mut sound = true;
    for own in found {
        let topic = &own.topic;
        let least = own.min_in_sync.unwrap_or(1);
        let found = [
            (
                own.leaderless > 0,
                format!("{topic}: {} partitions have no leader", own.leaderless),
                "start the brokers that hold them",
            ),
            (
                own.in_sync < least,
                format!("{topic}: {} in sync, {least} must be", own.in_sync),
                "writes are refused until brokers come back",
            ),
            (
                own.replicas < wanted,
                format!("{topic}: {} replicas, planned are {wanted}", own.replicas),
                "kafka-reassign-partitions, or topics.replication_factor",
            ),
            (
                own.replicas > 1 && least >= own.replicas,
                format!("{topic}: min.insync.replicas is {least} of {} replicas", own.replicas),
                "every broker that is away stops the hub: set it to one less",
            ),
            (
                own.replicas > 2 && least < 2,
                format!("{topic}: min.insync.replicas is {least}"),
                "what one broker alone has is lost with it: kafka-configs … \
                 min.insync.replicas=2",
            ),
        ];
        for (_, what, remedy) in found.into_iter().filter(|(is_wrong, ..)| *is_wrong) {
            sound = false;
            findings.problem("replicas", what, remedy);
        }
    }
    if sound && wanted == 1 {
        let what = "topics.replication_factor is 1";
        findings.warning("replicas", what, "3 where losing a broker must not lose events");
    } else if sound {
        findings.ok("replicas", format!("{} topics have theirs in sync", found.len()));
    }
}

fn group(config: &Config, spec: &SubTopology, findings: &mut Findings) {
    let groups = Groups::new(settings::kafka(config), &config.application_id);
    match groups.state(spec) {
        Err(error) => findings.problem(
            "groups",
            format!("{}: {error}", spec.group(&config.application_id)),
            "a pending transaction holds a position back for runtime.transaction_timeout_ms and \
             10 s more; a right may be missing (`streaming-hub acls`)",
        ),
        Ok(state) => judge_group(&state, findings),
    }
}

fn judge_group(state: &GroupState, findings: &mut Findings) {
    let lag: i64 = state.positions.iter().map(|own| own.lag()).sum();
    let name = &state.group;
    if state.members.is_empty() && lag > 0 {
        findings.warning(
            "groups",
            format!("{name} has no member and is {lag} records behind"),
            "start an instance with this role",
        );
    } else if !state.members.is_empty() && !state.is_stable {
        findings.warning(
            "groups",
            format!("{name} is between two rebalances"),
            "ask again in a minute; if it stays so, instances come and go: see their logs",
        );
    } else {
        let members = state.members.len();
        findings.ok("groups", format!("{name}: {members} members, {lag} records behind"));
    }
}
