//! Who may read what and how often, and what a read answers.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use serde_json::json;
use streaming_hub_model::peer::{CallError, Peer};
use streaming_hub_model::ports::{PullAnswer, PullStanding};
use streaming_hub_model::pull::Ask;
use streaming_hub_model::time::UnixMillis;
use tower::ServiceExt as _;

use super::ReadQuery;
use crate::Limits;
use crate::testing::{ACME, EVIL, Harness, OPERATOR, body};

const PAGE: &str = r#"{"events":[],"next_cursor":null,"cursor":7}"#;

/// A pull subscription of `acme`; its id.
async fn created(harness: &Harness) -> String {
    let mut body = body();
    body["sink"] = json!({"type": "pull"});
    let answer = harness.post("/v1/subscriptions", &body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let shown = answer.json();
    assert_eq!(shown["verification_state"], "active");
    assert_eq!(shown["sink"], json!({"type": "pull"}));
    assert!(shown.get("signing_secret").is_none());
    shown["id"].as_str().unwrap().to_owned()
}

fn path(id: &str, more: &str) -> String {
    format!("/v1/events?subscription_id={id}{more}")
}

#[tokio::test]
async fn a_page_is_answered_as_it_is_with_the_limit_in_its_headers() {
    let harness = Harness::new();
    let id = created(&harness).await;
    harness.hub.answer_reads(Ok(PullAnswer::Page(PAGE.into())));
    let answer = harness.get(&path(&id, "&after=5&limit=9&wait=3")).await;
    assert_eq!((answer.status, &*answer.text), (StatusCode::OK, PAGE));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"pull\";q=200;w=2"));
    assert_eq!(answer.header("ratelimit"), Some("\"pull\";r=199;t=1"));
    let (ask, wait) = harness.hub.last_read().unwrap();
    assert_eq!((ask, wait), (Ask { after: Some(5), limit: 9 }, Duration::from_secs(3)));
    harness.get(&path(&id, "")).await;
    let (ask, wait) = harness.hub.last_read().unwrap();
    assert_eq!((ask, wait), (Ask { after: None, limit: 100 }, Duration::ZERO));
}

#[tokio::test]
async fn a_large_page_is_compressed_only_for_who_takes_gzip() {
    let harness = Harness::new();
    let id = created(&harness).await;
    let page = format!("{{\"events\":[\"{}\"]}}", "x".repeat(5_000));
    harness.hub.answer_reads(Ok(PullAnswer::Page(page.clone().into())));
    let plain = harness.get(&path(&id, "")).await;
    assert_eq!((&plain.text, plain.header("vary")), (&page, Some("accept-encoding")));
    let request = Request::builder().uri(path(&id, "")).header("accept-encoding", "br, gzip");
    let request = request.header("authorization", format!("Bearer {ACME}"));
    let response = harness.router.clone().oneshot(request.body(Body::empty()).unwrap());
    let response = response.await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert!(bytes.starts_with(&[0x1f, 0x8b]) && bytes.len() < 500);
}

#[tokio::test]
async fn head_is_refused_because_a_read_acknowledges() {
    let harness = Harness::new();
    let id = created(&harness).await;
    harness.hub.answer_reads(Ok(PullAnswer::Page(PAGE.into())));
    let answer = harness.call(Method::HEAD, &path(&id, ""), Some(ACME), None).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.header("allow"), Some("GET"));
    assert_eq!(harness.hub.last_read(), None);
}

#[tokio::test]
async fn only_its_owner_reads_a_subscription_and_only_one_of_the_right_kind() {
    let harness = Harness::new();
    let id = created(&harness).await;
    harness.hub.answer_reads(Ok(PullAnswer::Page(PAGE.into())));
    let read =
        async |id: &str, token| harness.call(Method::GET, &path(id, ""), Some(token), None).await;
    read(&id, EVIL).await.assert_problem(404, "not_found");
    read(&id, OPERATOR).await.assert_problem(403, "forbidden");
    let unknown = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
    read(unknown, ACME).await.assert_problem(404, "not_found");
    let push = harness.created().await;
    read(&push, ACME).await.assert_problem(409, "not_a_pull_subscription");
    assert_eq!(harness.hub.last_read(), None);
    let verify = format!("/v1/subscriptions/{id}/verify");
    harness.post(&verify, &json!({})).await.assert_problem(409, "pull_subscription");
    harness.call(Method::DELETE, &format!("/v1/subscriptions/{id}"), Some(ACME), None).await;
    read(&id, ACME).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_disabled_subscription_can_still_be_read() {
    let harness = Harness::new();
    let mut body = body();
    (body["sink"], body["enabled"]) = (json!({"type": "pull"}), json!(false));
    let answer = harness.post("/v1/subscriptions", &body).await.json();
    harness.hub.answer_reads(Ok(PullAnswer::Page(PAGE.into())));
    let answer = harness.get(&path(answer["id"].as_str().unwrap(), "")).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_read_that_failed_says_whether_anything_moved() {
    let harness = Harness::new();
    let id = created(&harness).await;
    harness.hub.answer_reads(Ok(PullAnswer::Failed));
    let failed = harness.get(&path(&id, "")).await;
    failed.assert_problem(503, "read_failed");
    assert_eq!(failed.header("retry-after"), Some("1"));
    harness.hub.answer_reads(Ok(PullAnswer::Undecided));
    let undecided = harness.get(&path(&id, "")).await;
    undecided.assert_problem(503, "read_undecided");
    assert_eq!(undecided.header("retry-after"), None);
}

#[tokio::test]
async fn a_task_without_an_owner_is_waited_for_and_then_503() {
    let harness = Harness::new();
    let id = created(&harness).await;
    harness.hub.answer_reads(Err(CallError::Unknown));
    let answer = harness.get(&path(&id, "")).await;
    answer.assert_problem(503, "no_owner");
    assert_eq!(answer.header("retry-after"), Some("2"));
    // Without a cluster key nothing can be sent on.
    let peer = Peer { instance: "b".into(), url: "http://127.0.0.1:1/".into() };
    harness.hub.answer_reads(Err(CallError::Elsewhere(peer)));
    harness.get(&path(&id, "")).await.assert_problem(503, "no_owner");
}

#[tokio::test]
async fn a_tenant_that_reads_too_often_is_told_when_to_come_again() {
    let harness = Harness::with(Limits::default(), crate::testing::LONG);
    let id = created(&harness).await;
    harness.hub.answer_reads(Ok(PullAnswer::Page(PAGE.into())));
    let mut limited = None;
    for _ in 0..400 {
        let answer = harness.get(&path(&id, "")).await;
        if answer.status != StatusCode::OK {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("nobody was limited");
    limited.assert_problem(429, "rate_limited");
    assert_eq!(limited.header("retry-after"), Some("1"));
    assert_eq!(limited.header("ratelimit"), Some("\"pull\";r=0;t=2"));
}

#[tokio::test]
async fn a_subscription_shows_how_far_it_was_read() {
    let harness = Harness::new();
    let id = created(&harness).await;
    let one = format!("/v1/subscriptions/{id}");
    assert!(harness.get(&one).await.json().get("pull").is_none(), "nobody knows it now");
    let oldest_unread_at = Some(UnixMillis(1_790_000_000_000));
    let standing = PullStanding { cursor: 3, high_watermark: 9, backlog: 4, oldest_unread_at };
    harness.hub.stand(standing);
    let shown = harness.get(&one).await;
    let expected = json!({
        "cursor": 3, "high_watermark": 9, "backlog": 4,
        "oldest_unread_at": "2026-09-21T14:13:20.000Z",
    });
    assert_eq!(shown.json()["pull"], expected);
    assert_eq!(shown.header("etag"), Some("\"1\""));
}

#[test]
fn a_query_is_read_or_refused_by_name() {
    let id = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
    let good = |more: &str| ReadQuery::parse(&format!("subscription_id={id}{more}")).unwrap();
    assert_eq!(good("").ask, Ask { after: None, limit: 100 });
    assert_eq!(good("&after=0&limit=1000").ask, Ask { after: Some(0), limit: 1000 });
    assert_eq!(good("&wait=30").wait, Duration::from_secs(30));
    for bad in [
        "&after=-1",
        "&after=9007199254740992",
        "&limit=0",
        "&limit=1001",
        "&wait=31",
        "&cursor=1",
        &format!("&subscription_id={id}"),
    ] {
        assert!(ReadQuery::parse(&format!("subscription_id={id}{bad}")).is_err(), "{bad}");
    }
    for bad in ["", "subscription_id=17", "limit=5"] {
        assert!(ReadQuery::parse(bad).is_err(), "{bad}");
    }
}
