//! Subscriptions over the whole router: creation, secrets, lists, outages.

use std::collections::HashSet;

use axum::http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::change::Action;
use streaming_hub_model::ports::Unavailable;
use streaming_hub_model::secret::Owner;
use streaming_hub_model::subscription::SinkConfig;

use crate::Limits;
use crate::testing::{ACME, EVIL, GIVEN, Harness, LONG, body, full_body};

const ALL: &str = "/v1/subscriptions";

fn one(id: &str) -> String {
    format!("{ALL}/{id}")
}

/// The signing secret that is stored for a subscription, opened.
fn stored_secret(harness: &Harness, id: &str) -> String {
    let record = harness.hub.record(id).unwrap();
    let SinkConfig::Webhook(webhook) = &record.sink else { panic!("no webhook") };
    assert_eq!(webhook.secrets.len(), 1);
    let owner = Owner { tenant: &record.tenant, subscription: record.id };
    let opened = harness.keyring.open(owner, &webhook.secrets[0].sealed).unwrap();
    opened.expose_secret().to_owned()
}

#[tokio::test]
async fn a_created_subscription_is_answered_whole_with_its_place_and_its_version() {
    let harness = Harness::new();
    let answer = harness.post(ALL, &full_body()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let body = answer.json();
    let id = body["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(&*one(id)));
    assert_eq!(answer.header("etag"), Some("\"1\""));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let record = harness.hub.record(id).unwrap();
    let expected = json!({
        "id": id,
        "name": "accounts of the ledger",
        "event_types": ["account.created", "transfer.*"],
        "origin": "//lerian.midaz/ledger",
        "schema_major": 2,
        "sink": {"type": "webhook", "url": "https://example.com:8443/a?b=c"},
        "enabled": false,
        "disabled_reason": "tenant",
        "paused": false,
        "verification_state": "pending",
        "retry_schedule": [0, 5000, 36_000_000],
        "max_in_flight": 64,
        "ordering": "arrival",
        "created_at": record.created_at.to_rfc3339(),
        "updated_at": record.updated_at.to_rfc3339(),
        "version": 1,
    });
    assert_eq!(body, expected);
    let read = harness.get(&one(id)).await;
    assert_eq!((read.status, read.header("etag")), (StatusCode::OK, Some("\"1\"")));
    let mut expected = expected;
    expected["delivery"] = Value::Null;
    assert_eq!(read.json(), expected);
}

#[tokio::test]
async fn a_secret_that_the_hub_made_is_shown_once_and_stands_nowhere_else_in_clear() {
    let harness = Harness::new();
    let answer = harness.post(ALL, &body()).await;
    let body = answer.json();
    let (id, secret) = (body["id"].as_str().unwrap(), body["signing_secret"].as_str().unwrap());
    assert_eq!(secret.len(), "whsec_".len() + 43, "256 bits in base64");
    assert_eq!(stored_secret(&harness, id), secret);

    let verify = format!("{}/verify", one(id));
    let later = [
        harness.get(&one(id)).await,
        harness.get(ALL).await,
        harness.post(&verify, &json!(null)).await,
        harness.get("/metrics").await,
        harness.call(Method::DELETE, &one(id), Some(ACME), None).await,
    ];
    for answer in later {
        assert!(answer.status.is_success(), "{answer:?}");
        assert!(!format!("{answer:?}").contains(secret), "{answer:?}");
    }
    let changes = harness.hub.changes.lock().unwrap();
    let attempts = harness.hub.attempts.lock().unwrap();
    assert_eq!((changes.len(), attempts.len()), (3, 1));
    for text in [format!("{changes:?}{attempts:?}"), serde_json::to_string(&*changes).unwrap()] {
        assert!(!text.contains(secret) && !text.contains("whsec_"), "{text}");
    }
}

#[tokio::test]
async fn every_made_secret_and_every_nonce_is_new() {
    let harness = Harness::new();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let body = harness.post(ALL, &body()).await.json();
        assert!(seen.insert(body["signing_secret"].as_str().unwrap().to_owned()));
        let record = harness.hub.record(body["id"].as_str().unwrap()).unwrap();
        let SinkConfig::Webhook(webhook) = &record.sink else { panic!("no webhook") };
        // Twelve bytes of nonce are the first sixteen characters.
        assert!(seen.insert(webhook.secrets[0].sealed.data[..16].to_owned()));
    }
}

#[tokio::test]
async fn a_secret_that_the_tenant_brought_is_never_echoed() {
    let harness = Harness::new();
    let answer = harness.post(ALL, &full_body()).await;
    assert!(!answer.text.contains(GIVEN) && !answer.text.contains("signing_secret"));
    assert_eq!(stored_secret(&harness, answer.json()["id"].as_str().unwrap()), GIVEN);
    assert!(!format!("{:?}", harness.hub.changes.lock().unwrap()).contains(GIVEN));
}

#[tokio::test]
async fn an_invalid_body_is_answered_with_every_error_and_changes_nothing() {
    let harness = Harness::new();
    let wrong = json!({"name": "", "event_types": ["a"], "sink": {"type": "webhook"}, "x/y": 1});
    let answer = harness.post(ALL, &wrong).await;
    answer.assert_problem(422, "validation_failed");
    let expected = [
        ("/name", "too_short"),
        ("/event_types/0", "invalid"),
        ("/sink/url", "required"),
        ("/x~1y", "unknown_field"),
    ];
    let body = answer.json();
    let errors = body["errors"].as_array().unwrap();
    let found: Vec<_> = errors
        .iter()
        .map(|error| (error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap()))
        .collect();
    assert_eq!(found, expected);
    assert!(errors.iter().all(|error| error["message"].is_string()));
    assert!(harness.hub.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_limit_of_event_types_is_the_configured_one() {
    let harness = Harness::with(Limits { event_types_max: 1, ..Limits::default() }, LONG);
    let mut body = body();
    body["event_types"] = json!(["a.b", "c.d"]);
    harness.post(ALL, &body).await.assert_problem(422, "validation_failed");
}

#[tokio::test]
async fn a_destination_that_the_guard_refuses_is_not_created() {
    let harness = Harness::new();
    *harness.hub.refusal.lock().unwrap() = Some("10.0.0.1 is a private address".into());
    let answer = harness.post(ALL, &body()).await;
    answer.assert_problem(422, "destination_refused");
    let body = answer.json();
    assert_eq!(body["detail"], "10.0.0.1 is a private address");
    assert_eq!(body["errors"][0]["pointer"], "/sink/url");
    assert!(harness.hub.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_tenant_at_its_limit_gets_no_more() {
    let harness = Harness::new();
    for _ in 0..5 {
        harness.created().await;
    }
    harness.post(ALL, &body()).await.assert_problem(409, "too_many_subscriptions");
    let other = harness.call(Method::POST, ALL, Some(EVIL), Some(&body())).await;
    assert_eq!(other.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_write_that_kafka_did_not_take_may_be_repeated() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.outage.lock().unwrap() = Some(Unavailable::NotRecorded);
    for answer in [
        harness.post(ALL, &body()).await,
        harness.call(Method::DELETE, &one(&id), Some(ACME), None).await,
        harness.post(&format!("{}/verify", one(&id)), &json!(null)).await,
    ] {
        answer.assert_problem(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(!answer.text.contains("whsec_"));
    }
    assert_eq!(harness.get(&one(&id)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_undecided_write_says_how_to_find_out() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.outage.lock().unwrap() = Some(Unavailable::Undecided);
    let deleted = harness.call(Method::DELETE, &one(&id), Some(ACME), None).await;
    let created = harness.post(ALL, &body()).await;
    let new = harness.hub.changes.lock().unwrap().last().unwrap().subscription.to_string();
    for (answer, id) in [(&deleted, id), (&created, new)] {
        answer.assert_problem(503, "undecided");
        assert_eq!(answer.header("retry-after"), None);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("may still take effect"), "{detail}");
        assert!(detail.contains(&format!("GET {}", one(&id))), "{detail}");
    }
    assert!(created.text.contains("secret") && !deleted.text.contains("secret"));
}

#[tokio::test]
async fn a_deleted_subscription_is_gone_and_a_second_deletion_finds_none() {
    let harness = Harness::new();
    let id = harness.created().await;
    let deleted = harness.call(Method::DELETE, &one(&id), Some(ACME), None).await;
    assert_eq!((deleted.status, &*deleted.text), (StatusCode::NO_CONTENT, ""));
    harness.get(&one(&id)).await.assert_problem(404, "not_found");
    let again = harness.call(Method::DELETE, &one(&id), Some(ACME), None).await;
    again.assert_problem(404, "not_found");
}

#[tokio::test]
async fn what_another_instance_wrote_is_found_after_catching_up() {
    let harness = Harness::new();
    let id = harness.created().await;
    harness.hub.hide(&id);
    assert!(harness.hub.record(&id).is_none());
    assert_eq!(harness.get(&one(&id)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_list_is_read_page_by_page_and_holds_nobody_elses() {
    let harness = Harness::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(harness.created().await);
        harness.call(Method::POST, ALL, Some(EVIL), Some(&body())).await;
    }
    let whole = harness.get(ALL).await.json();
    assert_eq!((listed(&whole), &whole["next_cursor"]), (ids.clone(), &Value::Null));

    let (mut read, mut path) = (Vec::new(), format!("{ALL}?limit=2"));
    for left in [true, true, false] {
        let page = harness.get(&path).await.json();
        read.extend(listed(&page));
        match page["next_cursor"].as_str() {
            Some(cursor) if left => path = format!("{ALL}?limit=2&cursor={cursor}"),
            next => assert!(next.is_none() && !left, "{page}"),
        }
    }
    assert_eq!(read, ids);

    let last = harness.get(&format!("{ALL}?cursor={}", ids[4])).await.json();
    assert_eq!(last, json!({"subscriptions": [], "next_cursor": null}));
}

fn listed(page: &Value) -> Vec<String> {
    let subscriptions = page["subscriptions"].as_array().unwrap();
    subscriptions.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_wrong_query_is_answered_with_every_error() {
    let answer = Harness::new().get(&format!("{ALL}?limit=0&cursor=x&page=3")).await;
    answer.assert_problem(400, "invalid_query");
    let body = answer.json();
    let errors = body["errors"].as_array().unwrap().iter();
    let found: Vec<_> = errors.map(|error| error["parameter"].as_str().unwrap()).collect();
    assert_eq!(found, ["limit", "cursor", "page"]);
}

#[tokio::test]
async fn a_creation_that_is_to_be_verified_is_answered_with_what_the_probe_found() {
    let mut body = full_body();
    body["verify"] = json!(true);
    let failed = Outcome::failed(ErrorClass::Connect, "refused");
    let table = [
        (None, "active", 2),
        (Some(failed), "failed", 2),
        // It exists all the same, and can be verified later.
        (Some(Outcome::not_attempted("no key")), "pending", 1),
    ];
    for (outcome, state, version) in table {
        let harness = Harness::new();
        if let Some(outcome) = outcome {
            *harness.hub.outcome.lock().unwrap() = outcome;
        }
        let answer = harness.post(ALL, &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        let answered = answer.json();
        assert_eq!(answered["verification_state"], state);
        assert_eq!(answered["version"], version);
        assert_eq!(answer.header("etag"), Some(&*format!("\"{version}\"")));
        let record = harness.hub.record(answered["id"].as_str().unwrap()).unwrap();
        assert_eq!(record.version, version);
    }
}

#[tokio::test]
async fn a_creation_is_not_probed_unless_it_asks_for_it() {
    let harness = Harness::new();
    harness.created().await;
    assert!(harness.hub.attempts.lock().unwrap().is_empty());
    let changes = harness.hub.changes.lock().unwrap();
    assert!(matches!(&changes[..], [change] if matches!(change.action, Action::Create { .. })));
}

#[tokio::test]
async fn credentials_are_stored_sealed_and_never_shown() {
    let harness = Harness::new();
    let sinks = [
        json!({
            "type": "sqs", "queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/q",
            "credentials": {
                "mode": "keys", "access_key_id": "AKIA", "secret_access_key": "confidential",
                "session_token": "confidential",
            },
        }),
        json!({
            "type": "rabbitmq", "host": "mq.example.com", "exchange": "events",
            "routing_key": "{type}", "username": "hub", "password": "confidential",
        }),
    ];
    for sink in sinks {
        let mut wanted = body();
        wanted["sink"] = sink;
        let answer = harness.post(ALL, &wanted).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        let created = answer.json();
        assert!(created.get("signing_secret").is_none(), "nothing is signed");
        let id = created["id"].as_str().unwrap();
        let shown = harness.get(&one(id)).await.json();
        let stored = serde_json::to_string(&*harness.hub.record(id).unwrap()).unwrap();
        for text in [created.to_string(), shown.to_string(), stored] {
            assert!(!text.contains("confidential"), "{text}");
        }
        assert!(!shown.to_string().contains("key_id\":\"k"), "nor what is sealed: {shown}");
    }
}

#[tokio::test]
async fn a_role_is_assumed_with_an_external_id_of_the_tenants_own() {
    let harness = Harness::new();
    let mut wanted = body();
    wanted["sink"] = json!({
        "type": "eventbridge",
        "event_bus": "arn:aws:events:eu-west-1:123456789012:event-bus/orders",
        "credentials": {"mode": "role", "role_arn": "arn:aws:iam::123456789012:role/hub"},
    });
    let created = harness.post(ALL, &wanted).await.json();
    let record = harness.hub.record(created["id"].as_str().unwrap()).unwrap();
    let expected = harness.keyring.external_id(&record.tenant).unwrap();
    assert_eq!(created["sink"]["credentials"]["external_id"], expected);
}
