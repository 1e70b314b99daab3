//! Commands that look and change things, and end: `topology`, `topics plan`, `topics create`.

use std::fmt::Write as _;

use anyhow::Context as _;
use streaming_hub_topology::kafka::admin::Administrator;
use streaming_hub_topology::topics::Topic;
use streaming_hub_topology::topology;

use crate::config::Config;
use crate::settings;

/// The topology as text.
pub(crate) fn topology(config: &Config) -> anyhow::Result<String> {
    Ok(topology::describe(&config.application_id, settings::follow(config)?))
}

/// What of the internal topics is missing and what differs.
pub(crate) fn topics_plan(config: &Config) -> anyhow::Result<String> {
    let found = runtime()?.block_on(administrator(config)?.compare())?;
    let plan = settings::topics(config);
    let mut text = String::new();
    for topic in Topic::all() {
        let missing = found.missing.contains(&topic);
        let settings: Vec<String> =
            topic.config(&plan).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        writeln!(
            text,
            "{} {:<40} partitions={} replication={} {}",
            if missing { "create" } else { "keep  " },
            topic.name(&plan.application),
            topic.partitions(&plan),
            plan.replication,
            settings.join(" ")
        )?;
    }
    for difference in &found.differences {
        writeln!(text, "differs {difference}")?;
    }
    Ok(text)
}

/// Makes the missing internal topics.
pub(crate) fn topics_create(config: &Config) -> anyhow::Result<String> {
    runtime()?.block_on(administrator(config)?.ensure(true))?;
    Ok("all internal topics are as planned\n".to_owned())
}

fn administrator(config: &Config) -> anyhow::Result<Administrator> {
    Administrator::new(settings::kafka(config), settings::topics(config))
        .context("kafka: no client can be made of these settings")
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
