//! One answer for one key: repeated, in progress, another body, resumed, and never a secret kept.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use streaming_hub_model::change::Action;
use streaming_hub_model::idempotency::Wish;
use streaming_hub_model::ports::Unavailable;

use crate::testing::{Answer, Harness, OPERATOR, body};

const ALL: &str = "/v1/subscriptions";

async fn post(harness: &Harness, path: &str, key: &str, body: &Value) -> Answer {
    harness.call_with(Method::POST, path, &[("idempotency-key", key)], Some(body)).await
}

fn count(harness: &Harness) -> usize {
    let changes = harness.hub.changes.lock().unwrap();
    changes.iter().filter(|change| matches!(change.action, Action::Create { .. })).count()
}

#[tokio::test]
async fn a_repeated_creation_is_the_same_answer_and_one_subscription() {
    let harness = Harness::new();
    let first = post(&harness, ALL, "k", &body()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    assert_eq!(first.header("idempotency-replayed"), None);
    for key in ["k", "\"k\"", " k "] {
        let again = post(&harness, ALL, key, &body()).await;
        assert_eq!((again.status, again.json()), (first.status, first.json()));
        for name in ["etag", "location", "content-type"] {
            assert_eq!(again.header(name), first.header(name));
        }
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!(count(&harness), 1);
    let other = post(&harness, ALL, "another", &body()).await;
    assert_ne!(other.json()["id"], first.json()["id"]);
}

#[tokio::test]
async fn what_is_kept_holds_no_secret_and_a_repetition_shows_it_while_it_is_that_one() {
    let harness = Harness::new();
    let first = post(&harness, ALL, "k", &body()).await.json();
    let secret = first["signing_secret"].as_str().unwrap();
    let kept = serde_json::to_string(&*harness.hub.keys.lock().unwrap()).unwrap();
    assert!(kept.contains("event_types") && !kept.contains("whsec_"), "{kept}");
    let rotate = format!("{ALL}/{}/rotate-secret", first["id"].as_str().unwrap());
    let rotated = post(&harness, &rotate, "r", &json!({"overlap_seconds": 60})).await.json();
    assert_ne!(rotated["signing_secret"], secret);
    // Within the overlap it is still one of the subscription's.
    assert_eq!(post(&harness, ALL, "k", &body()).await.json()["signing_secret"], secret);
    post(&harness, &rotate, "s", &json!({"overlap_seconds": 0})).await;
    let late = post(&harness, ALL, "k", &body()).await.json();
    assert!(late.get("signing_secret").is_none(), "{late}");
    assert_eq!(late["id"], first["id"]);
}

#[tokio::test]
async fn a_repeated_rotation_rotates_once() {
    let harness = Harness::new();
    let id = harness.created().await;
    let path = format!("{ALL}/{id}/rotate-secret");
    let first = post(&harness, &path, "r", &json!({})).await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    assert_eq!(post(&harness, &path, "r", &json!({})).await.json(), first.json());
    assert_eq!(harness.hub.record(&id).unwrap().version, 2);
    // Without a key and without a body it rotates again.
    let again = harness.call(Method::POST, &path, Some(crate::testing::ACME), None).await;
    assert_ne!(again.json()["signing_secret"], first.json()["signing_secret"]);
    assert_eq!(harness.hub.record(&id).unwrap().version, 3);
    harness
        .post(&path, &json!({"overlap_seconds": 86_401}))
        .await
        .assert_problem(422, "validation_failed");
}

#[tokio::test]
async fn another_body_is_refused_and_another_scope_is_another_key() {
    let harness = Harness::new();
    post(&harness, ALL, "k", &body()).await;
    let mut other = body();
    other["name"] = json!("other");
    post(&harness, ALL, "k", &other).await.assert_problem(422, "idempotency_mismatch");
    let evil = crate::testing::EVIL;
    let headers = [("idempotency-key", "k")];
    let answer = harness.call_as(evil, (Method::POST, ALL), &headers, Some(&other)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "another tenant's key");
    let id = harness.created().await;
    let answer = post(&harness, &format!("{ALL}/{id}/verify"), "k", &json!({})).await;
    assert_eq!(answer.status, StatusCode::OK, "another path's key");
}

#[tokio::test]
async fn an_error_of_the_request_is_kept_and_one_of_ours_is_not() {
    let harness = Harness::new();
    let wrong = json!({"name": ""});
    let first = post(&harness, ALL, "k", &wrong).await;
    first.assert_problem(422, "validation_failed");
    let again = post(&harness, ALL, "k", &wrong).await;
    again.assert_problem(422, "validation_failed");
    assert_eq!(again.json()["errors"], first.json()["errors"]);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));

    *harness.hub.write_outage.lock().unwrap() = Some(Unavailable::NotRecorded);
    post(&harness, ALL, "l", &body()).await.assert_problem(503, "unavailable");
    *harness.hub.write_outage.lock().unwrap() = None;
    let repeated = post(&harness, ALL, "l", &body()).await;
    assert_eq!(repeated.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_creation_whose_decision_was_lost_is_found_by_its_repetition() {
    let harness = Harness::new();
    *harness.hub.lost_decisions.lock().unwrap() = true;
    let lost = post(&harness, ALL, "k", &body()).await;
    lost.assert_problem(503, "undecided");
    assert_eq!(lost.header("retry-after"), Some("5"));
    *harness.hub.lost_decisions.lock().unwrap() = false;
    let repeated = post(&harness, ALL, "k", &body()).await;
    assert_eq!(repeated.status, StatusCode::CREATED, "{repeated:?}");
    assert!(repeated.json()["signing_secret"].as_str().unwrap().starts_with("whsec_"));
    let listed = harness.get(ALL).await.json();
    assert_eq!(listed["subscriptions"].as_array().unwrap().len(), 1, "made once");
}

#[tokio::test]
async fn a_request_under_way_is_waited_for() {
    let harness = Harness::new();
    let mut first = Some(post(&harness, ALL, "k", &body()).await);
    // As if its answer had not come yet.
    for entry in harness.hub.keys.lock().unwrap().values_mut() {
        entry.answer = None;
    }
    let second = post(&harness, ALL, "k", &body()).await;
    second.assert_problem(409, "idempotency_in_progress");
    assert_eq!(second.header("retry-after"), Some("1"));
    assert!(first.take().is_some());
}

#[tokio::test]
async fn a_key_is_visible_ascii_and_only_a_posts() {
    let harness = Harness::new();
    for key in ["", "\"\"", "a b", &"x".repeat(256), "ключ"] {
        post(&harness, ALL, key, &body()).await.assert_problem(400, "invalid_header");
    }
    assert_eq!(count(&harness), 0);
    let headers = [("idempotency-key", "k")];
    harness.call_with(Method::GET, ALL, &headers, None).await;
    let changes = harness.hub.changes.lock().unwrap();
    let claims =
        |action: &Action| matches!(action, Action::Idempotency { wish: Wish::Claim { .. } });
    assert!(!changes.iter().any(|change| claims(&change.action)));
}

#[tokio::test]
async fn a_stranger_claims_nothing() {
    let harness = Harness::new();
    let headers = [("idempotency-key", "k")];
    for (token, status) in [("token-of-nobody", 401), (OPERATOR, 403)] {
        let answer = harness.call_as(token, (Method::POST, ALL), &headers, Some(&body())).await;
        assert_eq!(answer.status.as_u16(), status);
    }
    assert!(harness.hub.changes.lock().unwrap().is_empty());
}
