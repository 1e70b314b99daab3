//! Verification: the event that is sent, and what each outcome of the probe becomes.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use streaming_hub_model::attempt::{ErrorClass, Outcome};

use crate::testing::{ACME, Answer, Harness};

async fn verify(harness: &Harness, id: &str) -> Answer {
    let path = format!("/v1/subscriptions/{id}/verify");
    harness.call(Method::POST, &path, Some(ACME), None).await
}

#[tokio::test]
async fn a_destination_that_takes_the_test_event_is_active() {
    let harness = Harness::new();
    let id = harness.created().await;
    let answer = verify(&harness, &id).await;
    assert_eq!((answer.status, answer.header("etag")), (StatusCode::OK, Some("\"2\"")));
    let body = answer.json();
    assert_eq!((&body["verification_state"], &body["version"]), (&json!("active"), &json!(2)));
    assert!(body.get("verification_failure").is_none());
    let mut read = harness.get(&format!("/v1/subscriptions/{id}")).await.json();
    read.as_object_mut().unwrap().remove("delivery");
    assert_eq!(body, read);
}

#[tokio::test]
async fn a_destination_that_fails_is_an_answer_with_the_reason_and_may_recover() {
    let harness = Harness::new();
    let id = harness.created().await;
    let delivered = harness.hub.outcome.lock().unwrap().clone();
    let detail = format!("the destination answered 500{}", "!".repeat(1000));
    *harness.hub.outcome.lock().unwrap() = Outcome::failed(ErrorClass::Http5xx, detail);
    let answer = verify(&harness, &id).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["verification_state"], "failed");
    let reason = body["verification_failure"].as_str().unwrap();
    assert!(reason.starts_with("http_5xx: the destination answered 500"), "{reason}");
    assert_eq!(reason.len(), 300);

    *harness.hub.outcome.lock().unwrap() = delivered;
    let body = verify(&harness, &id).await.json();
    assert_eq!((&body["verification_state"], &body["version"]), (&json!("active"), &json!(3)));
    assert!(body.get("verification_failure").is_none());
}

#[tokio::test]
async fn the_test_event_is_well_formed_and_new_each_time() {
    let harness = Harness::new();
    let id = harness.created().await;
    verify(&harness, &id).await;
    verify(&harness, &id).await;
    let attempts = harness.hub.attempts.lock().unwrap();
    assert_eq!(attempts.len(), 2);
    let (first, second) = (&attempts[0], &attempts[1]);
    assert_ne!(first.event.id, second.event.id);
    assert_ne!(first.delivery_id, second.delivery_id);
    let event = &first.event;
    assert_eq!(event.key(), "subscription.verification");
    assert_eq!(event.tenant.as_str(), "acme");
    let (event_id, time) = (event.id.to_string(), first.at.to_rfc3339());
    let table = [
        ("ce-specversion", "1.0"),
        ("ce-id", &event_id),
        ("ce-source", "streaming-hub"),
        ("ce-type", "studio.lerian.streaming-hub.subscription.verification"),
        ("ce-time", &time),
        ("ce-schemaversion", "1.0.0"),
        ("ce-tenantid", "acme"),
        ("ce-datacontenttype", "application/json"),
    ];
    for (name, value) in table {
        assert_eq!(event.header(name), Some(value), "{name}");
    }
    let body: Value = serde_json::from_slice(&event.payload).unwrap();
    assert_eq!(body["subscription_id"], *id);
    assert!(event.payload.len() < 300);
}

#[tokio::test]
async fn a_result_for_a_destination_that_changed_meanwhile_does_not_count() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.changes_meanwhile.lock().unwrap() = true;
    verify(&harness, &id).await.assert_problem(409, "destination_changed");
    let body = harness.get(&format!("/v1/subscriptions/{id}")).await.json();
    assert_eq!(body["verification_state"], "pending");
}

#[tokio::test]
async fn a_subscription_that_is_deleted_while_it_is_verified_is_gone_and_stays_gone() {
    for outcome in [None, Some(Outcome::failed(ErrorClass::Connect, "refused"))] {
        let harness = Harness::new();
        let id = harness.created().await;
        if let Some(outcome) = outcome {
            *harness.hub.outcome.lock().unwrap() = outcome;
        }
        *harness.hub.attempt_takes.lock().unwrap() = Duration::from_millis(100);
        let path = format!("/v1/subscriptions/{id}");
        let delete = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            harness.call(Method::DELETE, &path, Some(ACME), None).await
        };
        let (verified, deleted) = tokio::join!(verify(&harness, &id), delete);
        assert_eq!(deleted.status.as_u16(), 204);
        verified.assert_problem(404, "not_found");
        harness.get(&path).await.assert_problem(404, "not_found");
    }
}

#[tokio::test]
async fn two_verifications_at_once_both_probe_and_agree() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.attempt_takes.lock().unwrap() = Duration::from_millis(50);
    let (one, other) = tokio::join!(verify(&harness, &id), verify(&harness, &id));
    for answer in [one, other] {
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
        assert_eq!(answer.json()["verification_state"], "active");
    }
    assert_eq!(harness.hub.attempts.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_probe_that_the_hub_could_not_make_says_nothing_about_the_destination() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.outcome.lock().unwrap() = Outcome::not_attempted("no key k9");
    let answer = verify(&harness, &id).await;
    answer.assert_problem(503, "cannot_probe");
    assert_eq!(answer.header("retry-after"), Some("30"));
    assert!(!answer.text.contains("k9"), "{answer:?}");
    let body = harness.get(&format!("/v1/subscriptions/{id}")).await.json();
    assert_eq!(body["verification_state"], "pending");
}

#[tokio::test]
async fn what_another_instance_created_can_be_verified_here() {
    let harness = Harness::new();
    let id = harness.created().await;
    harness.hub.hide(&id);
    assert_eq!(verify(&harness, &id).await.status, StatusCode::OK);
}
