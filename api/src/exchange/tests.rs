//! What all answers share: ids, log lines, time limits, numbers.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use streaming_hub_model::attempt::Outcome;
use streaming_hub_model::ports::Unavailable;
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

use crate::Limits;
use crate::testing::{Harness, body};

/// A log that a test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_of_its_own_and_is_not_cached() {
    let harness = Harness::new();
    let mut ids = HashSet::new();
    for path in ["/healthz", "/nowhere", "/v1/subscriptions", "/v1/subscriptions/17"] {
        let answer = harness.get(path).await;
        let id = answer.header("x-request-id").unwrap();
        assert!(ids.insert(Uuid::parse_str(id).unwrap()), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
    }
}

#[tokio::test]
async fn a_failure_of_ours_is_one_log_line_with_the_request_id_that_the_caller_has() {
    let (harness, log) = (Harness::new(), Log::default());
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let id = harness.created().await;
    *harness.hub.outcome.lock().unwrap() = Outcome::not_attempted("the resolver is down");
    let verify = format!("/v1/subscriptions/{id}/verify");
    let failed = harness.post(&verify, &json!(null)).await;
    harness.get("/v1/subscriptions/17").await.assert_problem(404, "not_found");
    drop(guard);
    failed.assert_problem(503, "cannot_probe");
    assert!(!failed.text.contains("resolver"), "{failed:?}");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in [failed.header("x-request-id").unwrap(), "cannot_probe", "the resolver is down"] {
        assert!(lines[0].contains(part), "{part}: {log}");
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_a_problem() {
    let harness = Harness::with(Limits::default(), Duration::from_millis(50));
    let id = harness.created().await;
    *harness.hub.attempt_takes.lock().unwrap() = Duration::from_secs(60);
    let answer = harness.post(&format!("/v1/subscriptions/{id}/verify"), &json!(null)).await;
    answer.assert_problem(503, "timeout");
    assert_eq!(answer.header("retry-after"), None, "what may have happened is not repeated");
}

#[tokio::test]
async fn health_and_readiness_are_two_questions() {
    let harness = Harness::new();
    assert_eq!(harness.get("/healthz").await.json(), json!({"status": "alive"}));
    assert_eq!(harness.get("/readyz").await.json(), json!({"status": "ready"}));
    let missing = ["task match 0_3 is restoring", "the table is behind"].map(str::to_owned);
    *harness.hub.missing.lock().unwrap() = missing.to_vec();
    assert_eq!(harness.get("/healthz").await.status, 200);
    let answer = harness.get("/readyz").await;
    answer.assert_problem(503, "not_ready");
    assert_eq!(answer.json()["missing"], json!(missing));
}

#[tokio::test]
async fn requests_are_counted_by_template_and_never_by_id() {
    let harness = Harness::new();
    let id = harness.created().await;
    harness.get(&format!("/v1/subscriptions/{id}")).await;
    harness.get("/v1/subscriptions/17").await;
    harness.get("/nowhere/at/all").await;
    harness.call(Method::PUT, "/healthz", None, None).await;
    *harness.hub.outage.lock().unwrap() = Some(Unavailable::NotRecorded);
    harness.post("/v1/subscriptions", &body()).await;
    let answer = harness.get("/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let table = [
        ("POST", "/v1/subscriptions", "2xx"),
        ("POST", "/v1/subscriptions", "5xx"),
        ("GET", "/v1/subscriptions/{id}", "2xx"),
        ("GET", "/v1/subscriptions/{id}", "4xx"),
        ("PUT", "/healthz", "4xx"),
        ("GET", "unmatched", "4xx"),
    ];
    for (method, route, status) in table {
        let name = "streaming_hub_http_requests_total";
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        let line = format!("{name}{{{labels}}} 1\n");
        assert!(answer.text.contains(&line), "{line}{}", answer.text);
    }
    assert!(answer.text.contains("streaming_hub_http_request_duration_seconds_bucket"));
    assert!(!answer.text.contains(&id) && !answer.text.contains("acme"), "{}", answer.text);
}
