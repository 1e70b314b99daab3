//! `status`: what a running instance says of itself (`/readyz`, `/metrics`, and with an operator's
//! token `/admin/tasks` and `/admin/destinations`), and where the consumer groups stand according
//! to Kafka. Status 1 when the instance does not answer or is not ready.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use streaming_hub_topology::tools::groups::{GroupState, Groups};
use streaming_hub_topology::topology;

use super::{Report, block_on};
use crate::cli::StatusCommand;
use crate::config::Config;
use crate::settings;

/// How long an instance may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Metrics that the text shows, without their common beginning.
const SHOWN: [&str; 13] = [
    "aborts_total",
    "attempts_in_flight_count",
    "client_rebuilds_total",
    "dead_letters_total",
    "lag_records",
    "lost_records_total",
    "overdue_age_ms",
    "producer_dlq_lag_records",
    "quarantined_total",
    "stalled_tasks_count",
    "standby_lag_records",
    "subscriptions_count",
    "waiting_jobs_count",
];
/// The common beginning.
const PREFIX: &str = "streaming_hub_";
/// What only an operator is told.
const ADMIN: [&str; 2] = ["tasks", "destinations"];

/// A client that trusts what the operating system trusts.
pub(crate) fn client(timeout: Duration) -> anyhow::Result<reqwest::Client> {
    // An error means that it was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().timeout(timeout).no_proxy().build()?)
}

/// Asks and reports.
pub(super) fn status(config: &Config, command: &StatusCommand) -> anyhow::Result<Report> {
    let url = command.url.clone().unwrap_or_else(|| config.api.advertised_url.to_string());
    let base = url.trim_end_matches('/').to_owned();
    let instance = block_on(ask(&base, command.token.as_deref()))?;
    let groups = groups(config);
    let mut text = format!("instance {base}\n");
    let missing = instance["missing"].as_array().cloned().unwrap_or_default();
    let wrong = match (&instance["error"], instance["ready"].as_bool()) {
        (Value::String(error), _) => Some(format!("{base} does not answer: {error}")),
        (_, Some(true)) => None,
        _ => Some(format!("{base} is not ready: {} things are missing", missing.len())),
    };
    let _ = writeln!(text, "  {}", wrong.as_deref().unwrap_or("ready"));
    for line in missing.iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "  missing: {line}");
    }
    for (name, value) in instance["metrics"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "  {name} {value}");
    }
    for name in ADMIN {
        if !instance[name].is_null() {
            let _ = writeln!(text, "{name}");
            lines(&instance[name], &mut text);
        }
    }
    describe(&groups, &mut text);
    Ok(Report { text, json: json!({ "instance": instance, "groups": groups }), wrong })
}

async fn ask(base: &str, token: Option<&str>) -> anyhow::Result<Value> {
    let client = client(ANSWER)?;
    let mut found = Map::new();
    let ready = client.get(format!("{base}/readyz")).send().await;
    let ready = match ready {
        Ok(answer) => answer,
        Err(error) => {
            let reason = std::error::Error::source(&error)
                .map_or(error.to_string(), |source| format!("{error}: {source}"));
            return Ok(json!({ "url": base, "error": reason }));
        }
    };
    found.insert("url".into(), base.into());
    found.insert("ready".into(), ready.status().is_success().into());
    let body: Value = serde_json::from_str(&ready.text().await?).unwrap_or_default();
    found.insert("missing".into(), body["missing"].clone());
    let metrics = client.get(format!("{base}/metrics")).send().await?.text().await?;
    found.insert("metrics".into(), json!(shown(&metrics)));
    for name in ADMIN {
        let Some(token) = token else { break };
        let url = format!("{base}/admin/{name}");
        let answer = client.get(&url).bearer_auth(token).send().await.context(url.clone())?;
        let (status, body) = (answer.status(), answer.text().await?);
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        if status.is_success() {
            found.insert(name.into(), body);
        } else {
            let said = body["title"].as_str().unwrap_or("no problem document").to_owned();
            found.insert(name.into(), json!({ "error": format!("{status}: {said}") }));
        }
    }
    Ok(found.into())
}

/// The series that the text shows, with their labels.
fn shown(metrics: &str) -> BTreeMap<String, f64> {
    let series = metrics.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
        let plain = name.split('{').next().unwrap_or(name);
        SHOWN.contains(&plain).then(|| Some((name.to_owned(), value.parse().ok()?)))?
    });
    series.collect()
}

/// Each group, or why it could not be asked.
fn groups(config: &Config) -> Value {
    let groups = Groups::new(settings::kafka(config), &config.application_id);
    let Ok(follow) = settings::follow(config) else { return Value::Null };
    let all = topology::all(follow);
    let states = all.iter().map(|spec| match groups.state(spec) {
        Ok(state) => json_of(&state),
        Err(error) => json!({
            "group": spec.group(&config.application_id), "error": error.to_string(),
        }),
    });
    states.collect()
}

fn json_of(state: &GroupState) -> Value {
    let position = |own: &streaming_hub_topology::tools::groups::PositionState| {
        json!({
            "topic": own.topic, "partition": own.partition, "committed": own.committed,
            "end": own.high, "lag": own.lag(),
        })
    };
    json!({
        "group": state.group,
        "stable": state.is_stable,
        "members": state.members,
        "lag": state.positions.iter().map(|own| own.lag()).sum::<i64>(),
        "positions": state.positions.iter().map(position).collect::<Vec<_>>(),
    })
}

fn describe(groups: &Value, text: &mut String) {
    for group in groups.as_array().into_iter().flatten() {
        let name = group["group"].as_str().unwrap_or_default();
        if let Some(error) = group["error"].as_str() {
            let _ = writeln!(text, "group {name}: {error}");
            continue;
        }
        let members = group["members"].as_array().map_or(0, Vec::len);
        let positions = group["positions"].as_array().map_or(0, Vec::len);
        let state = if group["stable"] == true { "stable" } else { "not stable" };
        let _ = writeln!(
            text,
            "group {name}: {state}, {members} members, {positions} partitions, {} records behind",
            group["lag"]
        );
    }
}

/// A list of objects, one a line; whatever it is, it is shown.
fn lines(value: &Value, text: &mut String) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| lines(one, text)),
        Value::Object(fields) if fields.values().any(|v| v.is_array() || v.is_object()) => {
            for (name, value) in fields {
                let _ = writeln!(text, "  {name}");
                lines(value, text);
            }
        }
        Value::Object(fields) => {
            let pairs: Vec<_> = fields.iter().map(|(name, v)| format!("{name}={v}")).collect();
            let _ = writeln!(text, "  {}", pairs.join(" "));
        }
        Value::Null => {}
        other => {
            let _ = writeln!(text, "  {other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chosen_series_are_shown_with_their_labels() {
        let text = "# HELP streaming_hub_lag_records x\nstreaming_hub_lag_records{a=\"b\"} 7\n\
                    streaming_hub_jobs_total 9\nprocess_x 1\nstreaming_hub_lag_records nonsense\n";
        let found = shown(text);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("lag_records{a=\"b\"}".into(), 7.0)]);
        assert!(SHOWN.is_sorted());
    }

    #[test]
    fn whatever_an_instance_answers_is_shown_line_by_line() {
        let mut text = String::new();
        lines(&json!({ "tasks": [{ "a": 1, "b": "x" }, { "a": 2 }] }), &mut text);
        assert_eq!(text, "  tasks\n  a=1 b=\"x\"\n  a=2\n");
    }
}
