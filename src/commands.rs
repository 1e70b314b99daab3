//! Commands about the hub's shape: `topology`, `topics plan|create|verify`, `salt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use serde_json::json;
use streaming_hub_model::ports::Clock as _;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::clock::SystemClock;
use streaming_hub_topology::kafka::admin::Administrator;
use streaming_hub_topology::topics::Topic;
use streaming_hub_topology::topology;

use crate::cli::{SaltCommand, TopicsCommand};
use crate::config::Config;
use crate::operator::Report;
use crate::settings;

/// The least time before a salting begins, seconds: instances hear of it within two.
const SALT_AFTER_MIN_S: u32 = 60;

/// The topology as text, as a chart, and for programs.
pub(crate) fn topology(config: &Config, mermaid: bool) -> anyhow::Result<Report> {
    let (application, follow) = (&config.application_id, settings::follow(config)?);
    let names = |topics: &[Topic]| -> Vec<_> {
        topics.iter().map(|topic| topic.name(application)).collect()
    };
    let specs = topology::all(follow.clone()).into_iter().map(|spec| {
        json!({
            "sub_topology": spec.name,
            "group": spec.group(application),
            "sources": spec.source.subscription(application),
            "restores": names(&spec.restores),
            "writes": names(&spec.writes),
        })
    });
    let json = specs.collect();
    let text = if mermaid { topology::mermaid } else { topology::describe };
    Ok(Report::good(text(application, follow), json))
}

/// What is asked about the internal topics.
pub(crate) fn topics(config: &Config, command: &TopicsCommand) -> anyhow::Result<Report> {
    if matches!(command, TopicsCommand::Create(_)) {
        runtime()?.block_on(administrator(config)?.ensure(true))?;
        let text = "all internal topics are as planned\n".to_owned();
        return Ok(Report::good(text, json!({ "as_planned": true })));
    }
    let found = runtime()?.block_on(administrator(config)?.compare())?;
    let plan = settings::topics(config);
    let (mut text, mut planned) = (String::new(), Vec::new());
    for topic in Topic::all() {
        let is_missing = found.missing.contains(&topic);
        let settings = topic.config(&plan);
        let shown: Vec<_> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (name, partitions) = (topic.name(&plan.application), topic.partitions(&plan));
        writeln!(
            text,
            "{} {name:<40} partitions={partitions} replication={} {}",
            if is_missing { "create" } else { "keep  " },
            plan.replication,
            shown.join(" ")
        )?;
        planned.push(json!({
            "topic": name, "missing": is_missing, "partitions": partitions,
            "replication": plan.replication,
            "settings": settings.into_iter().collect::<BTreeMap<_, _>>(),
        }));
    }
    for difference in &found.differences {
        writeln!(text, "differs {difference}")?;
    }
    let as_planned = found.missing.is_empty() && found.differences.is_empty();
    let json = json!({
        "as_planned": as_planned, "topics": planned, "differences": found.differences,
    });
    let mut report = Report::good(text, json);
    if matches!(command, TopicsCommand::Verify(_)) && !as_planned {
        let (missing, differences) = (found.missing.len(), found.differences.len());
        report.wrong = Some(format!("{missing} topics are missing, {differences} settings differ"));
    }
    Ok(report)
}

/// Records that a tenant is salted.
pub(crate) fn salt(config: &Config, command: &SaltCommand) -> anyhow::Result<Report> {
    let tenant = TenantId::parse(&command.tenant).context("--tenant")?;
    if command.after < SALT_AFTER_MIN_S {
        bail!("--after: at least {SALT_AFTER_MIN_S} s, so that every instance knows before");
    }
    let since = SystemClock.now().plus(u64::from(command.after) * 1_000);
    let administrator = administrator(config)?;
    let report = |text: String, recorded: bool, since: UnixMillis| {
        let (tenant, since) = (tenant.as_str(), since.to_rfc3339());
        Report::good(text, json!({ "tenant": tenant, "since": since, "recorded": recorded }))
    };
    if let Some(since) = administrator.salted(&tenant)? {
        let text = format!("tenant {tenant} is salted since {}\n", since.to_rfc3339());
        return Ok(report(text, true, since));
    }
    let when = since.to_rfc3339();
    if command.dry_run {
        let text = format!("would record: tenant {tenant} is salted from {when} on\n");
        return Ok(report(text, false, since));
    }
    administrator.salt(&tenant, since)?;
    let text = format!(
        "tenant {tenant} is salted from {when} on: ids made from then on are spread over all \
         partitions, and the order of its events is given up\n"
    );
    Ok(report(text, true, since))
}

fn administrator(config: &Config) -> anyhow::Result<Administrator> {
    Administrator::new(settings::kafka(config), settings::topics(config))
        .context("kafka: no client can be made of these settings")
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
