//! What is kept of a run that failed: the logs, the faults, and every topic as text, one line
//! a record, since the brokers go with the run.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;

use super::plan::{NODES, hub_name};
use super::stage::Stage;
use crate::internal::{Internal, RETRY_TIERS};
use crate::reader::Record;

/// Keeps it, in a directory named by the seed.
///
/// # Errors
/// When the directory cannot be written.
pub fn keep(seed: u64, stage: &Stage, faults: &[String]) -> Result<PathBuf> {
    let place = std::env::temp_dir().join(format!("streaming-hub-chaos-{seed}"));
    std::fs::create_dir_all(&place)?;
    for (number, hub) in stage.hubs.iter().enumerate() {
        let log = place.join(format!("hub-{}.log", hub_name(number)));
        std::fs::copy(hub.config().log(), log)?;
    }
    for node in 1..=NODES {
        std::fs::copy(stage.broker.log(node), place.join(format!("node-{node}.log")))?;
    }
    std::fs::write(place.join("faults.txt"), faults.join("\n"))?;
    let mut requests = String::new();
    for request in stage.receiver.requests() {
        let text = |name| request.text(name).unwrap_or_default();
        let (event, delivery) = (text("X-Lerian-Event-Id"), text("X-Lerian-Delivery-Id"));
        writeln!(requests, "{} {} {event} {delivery}", request.at_ms, request.target)?;
    }
    std::fs::write(place.join("requests.txt"), requests)?;
    let internal = stage.internal()?;
    let tiers = (1..=RETRY_TIERS).map(|tier| format!("retry-{tier:02}"));
    let names = ["inbox", "deliveries", "attempts", "dead-letters", "quarantine", "instances"];
    for name in names.map(str::to_owned).into_iter().chain(tiers) {
        // A topic that cannot be read may be what failed.
        let text = lines(&internal, &name).unwrap_or_else(|error| format!("{error:#}"));
        std::fs::write(place.join(format!("{name}.txt")), text)?;
    }
    Ok(place)
}

fn lines(internal: &Internal, name: &str) -> Result<String> {
    let mut text = String::new();
    for record in internal.read(name)? {
        let Record { partition, offset, timestamp_ms, .. } = record;
        write!(text, "{partition}/{offset} {timestamp_ms} {}", record.key_text())?;
        for (name, value) in &record.headers {
            let value = value.as_deref().unwrap_or_default();
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            if name.starts_with("hub-") {
                write!(text, " {name}={value}")?;
            }
        }
        let value = record.value.as_deref().map(String::from_utf8_lossy);
        writeln!(text, " {}", value.as_deref().unwrap_or("-"))?;
    }
    Ok(text)
}
