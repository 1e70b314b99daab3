//! `reset`: moves the hub back. It says first what will be done again, changes nothing without
//! `--execute`, and refuses while anybody runs.
//!
//! What may be moved alone is where ingest reads, and what is on this disk. Matching and the
//! registry are at positions that belong exactly to their stores (design 4), so they go back only
//! as a whole: their topics are made anew.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::kafka::admin::Administrator;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::tools::groups::Groups;
use streaming_hub_topology::topics::{Kind, Topic};
use streaming_hub_topology::topology;

use super::{Report, block_on, local, time};
use crate::cli::{ResetCommand, Scope};
use crate::config::Config;
use crate::settings;

/// What will be done.
struct Plan {
    positions: Vec<(String, i32, i64)>,
    /// Records that ingest reads again, transaction markers included.
    again: i64,
    /// Topics that are made anew.
    topics: Vec<Topic>,
    /// Whether the stores on this machine go.
    stores: bool,
}

/// Says what would be done, or does it.
pub(super) fn reset(config: &Config, command: &ResetCommand) -> anyhow::Result<Report> {
    let ingest = topology::ingest(settings::follow(config)?);
    let groups = Groups::new(settings::kafka(config), &config.application_id);
    let plan = plan(config, command, (&groups, &ingest))?;
    let running = running(config, command.scope, &groups)?;
    if command.execute {
        if !running.is_empty() {
            bail!("nothing was changed, since the hub runs: {}", running.join("; "));
        }
        execute(config, &plan, (&groups, &ingest))?;
    }
    let text = text(config, command, &plan, &running);
    let stores: Vec<_> = local::stores(config)?.into_iter().map(|(path, _)| path).collect();
    let json = json!({
        "executed": command.execute,
        "running": running,
        "records_again": plan.again,
        "positions": plan.positions.iter().map(|(topic, partition, offset)| {
            json!({ "topic": topic, "partition": partition, "offset": offset })
        }).collect::<Vec<Value>>(),
        "topics_made_anew":
            plan.topics.iter().map(|t| t.name(&config.application_id)).collect::<Vec<_>>(),
        "stores_removed": plan.stores,
        "stores_left": stores,
    });
    Ok(Report::good(text, json))
}

fn plan(
    config: &Config,
    command: &ResetCommand,
    (groups, ingest): (&Groups, &SubTopology),
) -> anyhow::Result<Plan> {
    if command.scope == Scope::Local {
        return Ok(Plan { positions: Vec::new(), again: 0, topics: Vec::new(), stores: true });
    }
    let to = match command.to.as_deref() {
        Some("beginning") => None,
        other => Some(time("--to", other)?.unwrap_or(UnixMillis(0))),
    };
    let positions = groups.at(ingest, to)?;
    let ends = groups.at(ingest, Some(UnixMillis(i64::MAX / 2)))?;
    let again = positions.iter().zip(&ends).map(|(own, end)| (end.2 - own.2).max(0)).sum();
    let whole = command.scope == Scope::Application;
    let topics = if whole { topics_of_events(config)? } else { Vec::new() };
    Ok(Plan { positions, again, topics, stores: whole })
}

/// Topics that hold events on their way, and what is known of them: everything that matching and
/// delivery restore or write. Subscriptions, salts, the quarantine and the layout stay, and so
/// does what pull subscriptions have been given: its numbers must never be given twice.
fn topics_of_events(config: &Config) -> anyhow::Result<Vec<Topic>> {
    let all = topology::all(settings::follow(config)?);
    let own = |name: &str| all.iter().find(|spec| spec.name == name);
    let mut topics = vec![Topic::IngestRepartition];
    for spec in ["match", "delivery"].into_iter().filter_map(own) {
        topics.extend(&spec.restores);
        topics.extend(&spec.writes);
    }
    topics.retain(|topic| topic.kind() != Kind::Published || *topic == Topic::Inbox);
    let restored_by_others = |topic: &Topic| {
        let others = all.iter().filter(|spec| spec.name != "match" && spec.name != "delivery");
        others.into_iter().any(|spec| spec.restores.contains(topic))
    };
    topics.retain(|topic| !restored_by_others(topic) && *topic != Topic::SubscriptionChanges);
    topics.sort_unstable();
    topics.dedup();
    Ok(topics)
}

/// Who runs, in words.
fn running(config: &Config, scope: Scope, groups: &Groups) -> anyhow::Result<Vec<String>> {
    let mut running = Vec::new();
    if local::is_in_use(&config.state_dir)? {
        running.push(format!("a process uses {}", config.state_dir.display()));
    }
    if scope == Scope::Local {
        return Ok(running);
    }
    for spec in topology::all(settings::follow(config)?) {
        let state = groups.state(&spec)?;
        if !state.members.is_empty() {
            let members: Vec<_> = state.members.into_iter().collect();
            running.push(format!("{} has the members {}", state.group, members.join(", ")));
        }
    }
    Ok(running)
}

fn execute(
    config: &Config,
    plan: &Plan,
    (groups, ingest): (&Groups, &SubTopology),
) -> anyhow::Result<()> {
    if plan.stores {
        local::remove(config)?;
    }
    if !plan.topics.is_empty() {
        let names: Vec<_> =
            plan.topics.iter().map(|topic| topic.name(&config.application_id)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (kafka, topics) = (settings::kafka(config), settings::topics(config));
        block_on(async {
            groups.delete_topics(&names).await?;
            let administrator = Administrator::new(kafka, topics).context("kafka")?;
            Ok(administrator.ensure(true).await?)
        })?;
    }
    // Last: a run that ends before leaves ingest where it was, and is repeated as a whole.
    groups.move_to(ingest, &plan.positions).context("the positions of ingest")
}

fn text(config: &Config, command: &ResetCommand, plan: &Plan, running: &[String]) -> String {
    let mut text = String::new();
    let done = command.execute;
    let say = |now: &'static str, then: &'static str| if done { then } else { now };
    if plan.stores {
        let _ = writeln!(
            text,
            "{} the stores in {}; every other machine needs `reset --scope local` of its own",
            say("would remove", "removed"),
            config.state_dir.join(&config.application_id).display()
        );
    }
    for topic in &plan.topics {
        let name = topic.name(&config.application_id);
        let _ = writeln!(text, "{} {name}", say("would make anew", "made anew"));
    }
    for (topic, partition, offset) in &plan.positions {
        let moved = say("would move", "moved");
        let _ = writeln!(text, "{moved} ingest of {topic}/{partition} to {offset}");
    }
    let _ = match command.scope {
        Scope::Local => writeln!(text, "the next start restores the stores from Kafka"),
        Scope::Ingest => writeln!(
            text,
            "{} records are read again; ids that are known (dedup.horizon_hours) are dropped, \
             others are taken in as new and delivered",
            plan.again
        ),
        Scope::Application => writeln!(
            text,
            "{} records are read again and every event in them is new: it is delivered again to \
             every subscription that matches it today. Waiting jobs, attempts and dead letters \
             are gone. Subscriptions, salts and the quarantine stay",
            plan.again
        ),
    };
    for who in running {
        let _ = writeln!(text, "in the way: {who}");
    }
    if !done {
        let _ = writeln!(text, "nothing was changed; --execute does it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn what_is_made_anew_holds_events_and_nothing_that_outlives_them() {
        let config = Sources::default().load().unwrap().config;
        let topics = topics_of_events(&config).unwrap();
        for topic in [
            Topic::IngestRepartition,
            Topic::Inbox,
            Topic::Dedup,
            Topic::Deliveries,
            Topic::Retry(1),
            Topic::Retry(11),
            Topic::Attempts,
            Topic::DeadLetters,
        ] {
            assert!(topics.contains(&topic), "{topic}");
        }
        for topic in [
            Topic::Subscriptions,
            Topic::SubscriptionChanges,
            Topic::SubscriptionReplies,
            Topic::Instances,
            Topic::Salts,
            Topic::Quarantine,
        ] {
            assert!(!topics.contains(&topic), "{topic}");
        }
    }
}
