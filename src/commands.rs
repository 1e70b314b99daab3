//! Commands that look and change things, and end: `topology`, `topics plan`, `topics create`,
//! `salt`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use streaming_hub_model::ports::Clock as _;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_topology::clock::SystemClock;
use streaming_hub_topology::kafka::admin::Administrator;
use streaming_hub_topology::topics::Topic;
use streaming_hub_topology::topology;

use crate::cli::SaltCommand;
use crate::config::Config;
use crate::settings;

/// The least time before a salting begins, seconds: instances hear of it within two.
const SALT_AFTER_MIN_S: u32 = 60;

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

/// Records that a tenant is salted.
pub(crate) fn salt(config: &Config, command: &SaltCommand) -> anyhow::Result<String> {
    let tenant = TenantId::parse(&command.tenant).context("--tenant")?;
    if command.after < SALT_AFTER_MIN_S {
        bail!("--after: at least {SALT_AFTER_MIN_S} s, so that every instance knows before");
    }
    let since = SystemClock.now().plus(u64::from(command.after) * 1_000);
    let administrator = administrator(config)?;
    if let Some(since) = administrator.salted(&tenant)? {
        return Ok(format!("tenant {tenant} is salted since {}\n", since.to_rfc3339()));
    }
    let when = since.to_rfc3339();
    if command.dry_run {
        return Ok(format!("would record: tenant {tenant} is salted from {when} on\n"));
    }
    administrator.salt(&tenant, since)?;
    Ok(format!(
        "tenant {tenant} is salted from {when} on: ids made from then on are spread over all \
         partitions, and the order of its events is given up\n"
    ))
}

fn administrator(config: &Config) -> anyhow::Result<Administrator> {
    Administrator::new(settings::kafka(config), settings::topics(config))
        .context("kafka: no client can be made of these settings")
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
