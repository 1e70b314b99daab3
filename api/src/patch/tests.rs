//! PATCH over the whole router: what it sets, what it probes first, what it refuses.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::change::Action;
use streaming_hub_model::subscription::DisabledReason;

use crate::testing::{ACME, Answer, Harness, OPERATOR, full_body};

async fn patch(harness: &Harness, id: &str, body: &Value) -> Answer {
    let path = format!("/v1/subscriptions/{id}");
    harness.call(Method::PATCH, &path, Some(ACME), Some(body)).await
}

async fn patch_if(harness: &Harness, id: &str, version: &str, body: &Value) -> Answer {
    let path = format!("/v1/subscriptions/{id}");
    harness.call_with(Method::PATCH, &path, &[("if-match", version)], Some(body)).await
}

async fn active(harness: &Harness) -> String {
    let id = harness.created().await;
    let verified = harness.post(&format!("/v1/subscriptions/{id}/verify"), &json!(null)).await;
    assert_eq!(verified.json()["verification_state"], "active");
    harness.hub.attempts.lock().unwrap().clear();
    id
}

#[tokio::test]
async fn a_patch_sets_what_it_names_and_null_is_the_default() {
    let harness = Harness::new();
    let id = harness.post("/v1/subscriptions", &full_body()).await.json()["id"].clone();
    let id = id.as_str().unwrap();
    let body = json!({
        "name": "new", "origin": null, "retry_schedule": null, "max_in_flight": null,
        "ordering": "strict", "paused": true, "enabled": true, "event_types": ["a.*"],
    });
    let answer = patch(&harness, id, &body).await;
    assert_eq!((answer.status, answer.header("etag")), (StatusCode::OK, Some("\"2\"")));
    let now = answer.json();
    assert!(now.get("origin").is_none() && now.get("retry_schedule").is_none(), "{now}");
    assert!(now.get("disabled_reason").is_none(), "{now}");
    let table = [
        ("name", json!("new")),
        ("event_types", json!(["a.*"])),
        ("max_in_flight", json!(1)),
        ("ordering", json!("strict")),
        ("paused", json!(true)),
        ("enabled", json!(true)),
        ("schema_major", json!(2)),
    ];
    for (field, value) in table {
        assert_eq!(now[field], value, "{field}");
    }
    let mut read = harness.get(&format!("/v1/subscriptions/{id}")).await.json();
    read.as_object_mut().unwrap().remove("delivery");
    assert_eq!(now, read);
}

#[tokio::test]
async fn a_patch_without_a_change_is_no_new_version() {
    let harness = Harness::new();
    let id = harness.created().await;
    for body in [json!({}), json!({"paused": false}), json!({"sink": {}})] {
        let answer = patch(&harness, &id, &body).await;
        assert_eq!((answer.status, answer.header("etag")), (StatusCode::OK, Some("\"1\"")));
    }
}

#[tokio::test]
async fn every_wrong_field_is_named_and_nothing_changes() {
    let harness = Harness::new();
    let id = harness.created().await;
    let wrong = json!({
        "name": null, "event_types": [], "sink": {"url": 1, "colour": 1}, "verify": true,
        "version": 7, "ordering": "strict", "max_in_flight": 2,
    });
    let answer = patch(&harness, &id, &wrong).await;
    answer.assert_problem(422, "validation_failed");
    let body = answer.json();
    let errors = body["errors"].as_array().unwrap().iter();
    let mut found: Vec<_> =
        errors.map(|e| (e["pointer"].as_str().unwrap(), e["code"].as_str().unwrap())).collect();
    found.sort_unstable();
    let expected = [
        ("/event_types", "too_short"),
        ("/max_in_flight", "not_allowed"),
        ("/name", "required"),
        ("/sink/colour", "unknown_field"),
        ("/sink/url", "wrong_type"),
        ("/verify", "unknown_field"),
        ("/version", "read_only"),
    ];
    assert_eq!(found, expected);
    patch(&harness, &id, &json!([])).await.assert_problem(422, "validation_failed");
    let kind = json!({"sink": {"type": "sqs"}});
    patch(&harness, &id, &kind).await.assert_problem(409, "sink_type_immutable");
    assert_eq!(harness.hub.record(&id).unwrap().version, 1);
}

#[tokio::test]
async fn a_stale_condition_is_refused_and_a_fitting_one_is_not() {
    let harness = Harness::new();
    let id = harness.created().await;
    for stale in ["\"7\"", "W/\"1\"", "1", "\"0\""] {
        let answer = patch_if(&harness, &id, stale, &json!({"name": "x"})).await;
        answer.assert_problem(412, "precondition_failed");
    }
    let fits = patch_if(&harness, &id, "\"1\"", &json!({"name": "x"})).await;
    assert_eq!(fits.header("etag"), Some("\"2\""));
    patch_if(&harness, &id, "\"1\"", &json!({"name": "y"}))
        .await
        .assert_problem(412, "precondition_failed");
    let path = format!("/v1/subscriptions/{id}");
    let stale = harness.call_with(Method::DELETE, &path, &[("if-match", "\"1\"")], None).await;
    stale.assert_problem(412, "precondition_failed");
    let gone = harness.call_with(Method::DELETE, &path, &[("if-match", "\"2\"")], None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn an_active_destination_is_probed_before_it_is_replaced() {
    let harness = Harness::new();
    let id = active(&harness).await;
    let good = harness.hub.outcome.lock().unwrap().clone();
    let new = json!({"sink": {"url": "https://example.com/b"}, "name": "moved"});
    *harness.hub.outcome.lock().unwrap() = Outcome::failed(ErrorClass::Http5xx, "answered 500");
    let failed = patch(&harness, &id, &new).await;
    failed.assert_problem(422, "verification_failed");
    assert_eq!(failed.json()["detail"], "http_5xx: answered 500");
    let record = harness.hub.record(&id).unwrap();
    assert_eq!((&*record.name, record.sink_generation), ("accounts", 1));

    *harness.hub.outcome.lock().unwrap() = Outcome::not_attempted("no resolver");
    patch(&harness, &id, &new).await.assert_problem(503, "cannot_probe");

    *harness.hub.outcome.lock().unwrap() = good;
    harness.hub.attempts.lock().unwrap().clear();
    let moved = patch(&harness, &id, &new).await.json();
    assert_eq!((&moved["verification_state"], &moved["name"]), (&json!("active"), &json!("moved")));
    assert_eq!(moved["sink"]["url"], "https://example.com/b");
    let attempts = harness.hub.attempts.lock().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].subscription.sink, harness.hub.record(&id).unwrap().sink);
}

#[tokio::test]
async fn a_pending_destination_is_replaced_without_a_probe_and_is_pending() {
    let harness = Harness::new();
    let id = harness.created().await;
    let answer = patch(&harness, &id, &json!({"sink": {"url": "https://example.com/b"}})).await;
    assert_eq!(answer.json()["verification_state"], "pending");
    assert!(harness.hub.attempts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_destination_that_changed_while_another_was_probed_is_not_overwritten() {
    let harness = Harness::new();
    let id = active(&harness).await;
    *harness.hub.changes_meanwhile.lock().unwrap() = true;
    let answer = patch(&harness, &id, &json!({"sink": {"url": "https://example.com/b"}})).await;
    answer.assert_problem(409, "destination_changed");
}

#[tokio::test]
async fn what_failures_switched_off_a_verification_enables_and_what_an_operator_did_an_operator() {
    let harness = Harness::new();
    let id = active(&harness).await;
    let (reason, sink_generation) = (DisabledReason::Failing, 1);
    harness.hub.apply(&id, Action::Disable { reason, sink_generation });
    let enable = json!({"enabled": true});
    patch(&harness, &id, &enable).await.assert_problem(409, "verification_required");
    let verified = harness.post(&format!("/v1/subscriptions/{id}/verify"), &json!(null)).await;
    assert_eq!(verified.json()["enabled"], true);

    let path = format!("/admin/subscriptions/{id}");
    let off = json!({"enabled": false});
    let off = harness.call(Method::PATCH, &path, Some(OPERATOR), Some(&off)).await.json();
    assert_eq!((&off["disabled_reason"], &off["tenant"]), (&json!("operator"), &json!("acme")));
    patch(&harness, &id, &enable).await.assert_problem(409, "disabled_by_operator");
    let on = harness.call(Method::PATCH, &path, Some(OPERATOR), Some(&enable)).await;
    assert_eq!(on.json()["enabled"], true);
}
