//! `secrets rewrap`: has a running instance seal anew what older keys sealed, until nothing is
//! left. Each request does what it has time for, and what it did stays done when it fails midway.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Report, block_on};
use crate::cli::RewrapCommand;
use crate::config::Config;

/// How long the hub may take beyond the limit of its requests.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// What one request did.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Answer {
    rewrapped: u64,
    failed: u64,
    left: u64,
}

/// Asks until nothing is left, and reports.
pub(super) fn rewrap(config: &Config, command: &RewrapCommand) -> anyhow::Result<Report> {
    let base = command.url.clone().unwrap_or_else(|| config.api.advertised_url.to_string());
    let base = base.trim_end_matches('/');
    let limit = Duration::from_millis(config.api.request_timeout_ms) + ANSWER_MARGIN;
    let client = super::http_client(limit)?;
    let url = format!("{base}/admin/secrets/rewrap?dry_run={}", command.dry_run);
    let (mut rewrapped, mut last) = (0, block_on(ask(&client, &url, &command.token))?);
    while last.left > 0 {
        ensure!(last.rewrapped > 0, "{base} gets no further: {} are left", last.left);
        rewrapped += last.rewrapped;
        last = block_on(ask(&client, &url, &command.token))?;
    }
    Ok(report(command.dry_run, rewrapped + last.rewrapped, last.failed))
}

fn report(dry_run: bool, rewrapped: u64, failed: u64) -> Report {
    let text = match (dry_run, rewrapped) {
        (_, 0) if failed == 0 => "nothing is sealed with an older key\n".to_owned(),
        (true, _) => format!("the secrets of {rewrapped} subscriptions would be sealed anew\n"),
        (false, _) => format!("the secrets of {rewrapped} subscriptions were sealed anew\n"),
    };
    let json = json!({ "dry_run": dry_run, "rewrapped": rewrapped, "failed": failed });
    let wrong = (failed > 0).then(|| {
        format!(
            "{failed} subscriptions have a secret that no configured key opens; the hub's log \
             names them"
        )
    });
    Report { text, json, wrong }
}

async fn ask(client: &reqwest::Client, url: &str, token: &str) -> anyhow::Result<Answer> {
    let answer = client.post(url).bearer_auth(token).send().await.context("no answer")?;
    let (status, body) = (answer.status(), answer.text().await?);
    if status.is_success() {
        return serde_json::from_str(&body).context("not the answer of a hub");
    }
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let title = body["title"].as_str().unwrap_or("no problem document");
    anyhow::bail!("{status}: {title} (request {})", body["request_id"].as_str().unwrap_or("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_secret_that_does_not_open_is_wrong() {
        assert!(report(false, 3, 0).wrong.is_none());
        assert!(report(false, 3, 1).wrong.unwrap().starts_with("1 subscriptions"));
        assert_eq!(report(false, 0, 0).text, "nothing is sealed with an older key\n");
        assert!(report(true, 2, 0).text.contains("would be"));
    }
}
