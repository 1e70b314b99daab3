//! `inbox grep`: finds accepted events by tenant, id, type and time.

use std::io::{self, Write as _};
use std::ops::ControlFlow;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use streaming_hub_model::id::EventId;
use streaming_hub_model::internal::Accepted;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::runtime::processor::Record;
use streaming_hub_topology::tools::scan::{Scan, scan};
use streaming_hub_topology::topics::Topic;

use super::time;
use crate::cli::{GrepCommand, InboxCommand};
use crate::config::Config;
use crate::settings;

/// How far the clocks of two machines may differ, milliseconds.
const SLACK_MS: i64 = 600_000;

/// What is looked for.
struct Wanted<'a> {
    command: &'a GrepCommand,
    id: Option<EventId>,
    since: Option<UnixMillis>,
    until: Option<UnixMillis>,
}

impl Wanted<'_> {
    fn admits(&self, event: &Accepted<'_>) -> bool {
        let key = format!("{}.{}", event.resource, event.event);
        let is_of_type = |wanted: &str| match wanted.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == wanted,
        };
        self.command.tenant.as_deref().is_none_or(|tenant| tenant == event.tenant)
            && self.id.is_none_or(|id| id == event.id)
            && self.command.event_type.as_deref().is_none_or(is_of_type)
            && self.since.is_none_or(|since| event.arrival >= since)
            && self.until.is_none_or(|until| event.arrival < until)
    }
}

/// Prints what is found.
pub(super) fn run(config: &Config, command: &InboxCommand) -> anyhow::Result<()> {
    let InboxCommand::Grep(command) = command;
    let id = command.id.as_deref().map(|id| EventId::parse(id).context("--id")).transpose()?;
    let wanted = Wanted {
        command,
        id,
        since: time("--since", command.since.as_deref())?,
        until: time("--until", command.until.as_deref())?,
    };
    let topic = Topic::Inbox.name(&config.application_id);
    // A record is written after its arrival, but perhaps by another machine's clock.
    let from = wanted.since.map(|since| UnixMillis(since.0.saturating_sub(SLACK_MS)));
    let what = Scan { topic: &topic, partition: None, since: from };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut found, mut failed) = (0, None);
    scan(&settings::kafka(config), &config.application_id, what, &mut |record| {
        let Ok(event) = Accepted::read(record.view()) else { return ControlFlow::Continue(()) };
        if !wanted.admits(&event) {
            return ControlFlow::Continue(());
        }
        found += 1;
        if let Err(error) = writeln!(out, "{}", line(command, record, &event)) {
            failed = Some(error);
        }
        if failed.is_some() || found >= command.limit {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    out.flush()?;
    Ok(failed.map_or(Ok(()), Err)?)
}

fn line(command: &GrepCommand, record: &Record<'_>, event: &Accepted<'_>) -> String {
    let place = format!("{}/{}", record.partition, record.offset);
    let arrival = event.arrival.to_rfc3339();
    let value = record.value.unwrap_or_default();
    if command.common.json {
        let mut line = json!({
            "place": place, "arrival": arrival, "id": event.id.to_string(),
            "tenant": event.tenant, "origin": event.origin, "major": event.major,
            "type": format!("{}.{}", event.resource, event.event), "payload_bytes": value.len(),
        });
        if command.payload {
            line["payload_base64"] = BASE64.encode(value).into();
        }
        return line.to_string();
    }
    let (id, tenant, origin) = (event.id, event.tenant, event.origin);
    let (resource, kind, bytes) = (event.resource, event.event, value.len());
    let mut line = format!("{place} {arrival} {id} {tenant} {origin} {resource}.{kind} {bytes} B");
    if command.payload {
        line += &format!(" {}", String::from_utf8_lossy(value));
    }
    line
}
