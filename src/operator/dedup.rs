//! `dedup print`: the packed log of known event ids, readable (design 14).

use std::io::{self, Write as _};
use std::ops::ControlFlow;

use anyhow::Context as _;
use serde_json::json;
use streaming_hub_model::id::EventId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::dedup;
use streaming_hub_topology::tools::scan::{Scan, scan};
use streaming_hub_topology::topics::Topic;

use crate::cli::DedupCommand;
use crate::config::Config;
use crate::settings;

/// Prints what is asked for.
pub(super) fn run(config: &Config, command: &DedupCommand) -> anyhow::Result<()> {
    let DedupCommand::Print { tenant, id, partition, common } = command;
    let id = id.as_deref().map(|id| EventId::parse(id).context("--id")).transpose()?;
    let topic = Topic::Dedup.name(&config.application_id);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut failed = None;
    let what = Scan { topic: &topic, partition: *partition, since: None };
    scan(&settings::kafka(config), &config.application_id, what, &mut |record| {
        let place = (record.partition, record.offset);
        let mut print = |entry: dedup::Entry<'_>| -> anyhow::Result<()> {
            let own = String::from_utf8_lossy(entry.tenant);
            let found = EventId::from_bytes(entry.id).context("an id that is none")?;
            let wanted = tenant.as_deref().is_none_or(|wanted| *wanted == own)
                && id.is_none_or(|wanted| wanted == found);
            if !wanted {
                return Ok(());
            }
            let arrival = UnixMillis(entry.arrival_ms).to_rfc3339();
            if common.json {
                let line = json!({
                    "partition": place.0, "offset": place.1, "tenant": own,
                    "id": found.to_string(), "arrival": arrival,
                });
                Ok(writeln!(out, "{line}")?)
            } else {
                Ok(writeln!(out, "{}/{} {arrival} {found} {own}", place.0, place.1)?)
            }
        };
        let entries = record.value.map(dedup::unpack).transpose();
        let printed = entries
            .context("a record that does not unpack")
            .and_then(|entries| entries.into_iter().flatten().try_for_each(|entry| print(entry?)));
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error.context(format!("{topic}/{}/{}", place.0, place.1)));
                ControlFlow::Break(())
            }
        }
    })?;
    out.flush()?;
    failed.map_or(Ok(()), Err)
}
