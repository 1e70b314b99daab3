//! Sealing anew: what an older key sealed, and nothing else; a dry run changes nothing.

use std::time::Duration;

use axum::http::Method;
use base64::engine::general_purpose::STANDARD as BASE64;
use streaming_hub_model::secret::Keyring;

use super::*;
use crate::testing::{ACME, EVIL, Harness, LONG, OPERATOR, body};
use crate::{Limits, router};

fn key(byte: u8) -> SecretString {
    SecretString::from(BASE64.encode([byte; 32]))
}

/// The hub after it was restarted with another key, the old one beside it if it still has that.
fn restarted(before: &Harness, old: Option<u8>, within: Duration) -> Harness {
    let (_, _, mut api) = Harness::parts(Limits::default(), within);
    let keyring = Keyring::new("k2", &key(8)).unwrap();
    let keyring = Arc::new(match old {
        Some(byte) => keyring.with_old("k1", &key(byte)).unwrap(),
        None => keyring,
    });
    (api.table, api.changes) = (before.hub.clone(), before.hub.clone());
    api.keyring = Arc::clone(&keyring);
    Harness { hub: Arc::clone(&before.hub), keyring, router: router(api) }
}

async fn rewrapped(harness: &Harness, query: &str) -> Value {
    let path = format!("/admin/secrets/rewrap{query}");
    harness.call(Method::POST, &path, Some(OPERATOR), None).await.json()
}

fn said(dry_run: bool, rewrapped: u64, failed: u64, left: u64) -> Value {
    json!({"dry_run": dry_run, "rewrapped": rewrapped, "failed": failed, "left": left})
}

/// The signing secret of this subscription, if this keyring opens it.
fn opened(harness: &Harness, keyring: &Keyring, id: &str) -> Option<String> {
    let record = harness.hub.record(id).unwrap();
    let owner = Owner { tenant: &record.tenant, subscription: record.id };
    let secret = keyring.open(owner, &secrets(&record.sink)[0].sealed).ok()?;
    Some(secret.expose_secret().to_owned())
}

#[tokio::test]
async fn what_an_older_key_sealed_is_sealed_with_the_current_one() {
    let before = Harness::new();
    let first = before.post("/v1/subscriptions", &body()).await.json();
    before.call(Method::POST, "/v1/subscriptions", Some(EVIL), Some(&body())).await;
    let id = first["id"].as_str().unwrap();
    let secret = first["signing_secret"].as_str().unwrap();
    let version = before.hub.record(id).unwrap().version;

    let after = restarted(&before, Some(7), LONG);
    assert_eq!(rewrapped(&after, "?dry_run=true").await, said(true, 2, 0, 0));
    let only_new = Keyring::new("k2", &key(8)).unwrap();
    assert_eq!(opened(&after, &only_new, id), None, "a dry run changed something");
    assert_eq!(rewrapped(&after, "").await, said(false, 2, 0, 0));
    assert_eq!(opened(&after, &only_new, id).as_deref(), Some(secret));
    assert_eq!(opened(&before, &before.keyring, id), None, "the old key opens it still");
    // Again there is nothing to do, and what a tenant sees of it is a version at most.
    let sealed = before.hub.record(id).unwrap();
    assert!(sealed.version >= version);
    assert_eq!(rewrapped(&after, "").await, said(false, 0, 0, 0));
    assert_eq!(before.hub.record(id).unwrap().version, sealed.version);
    assert_eq!(rewrapped(&after, "?dry_run=true").await, said(true, 0, 0, 0));
}

#[tokio::test]
async fn a_secret_that_no_key_opens_is_counted_and_left_alone() {
    let before = Harness::new();
    let id = before.created().await;
    // Without the old key, and with another one under its name.
    for old in [None, Some(9)] {
        let after = restarted(&before, old, LONG);
        assert_eq!(rewrapped(&after, "").await, said(false, 0, 1, 0));
    }
    assert!(opened(&before, &before.keyring, &id).is_some());
}

#[tokio::test]
async fn what_there_is_no_time_for_is_left_for_the_next_request() {
    let before = Harness::new();
    before.created().await;
    // Nothing here waits, so the limit itself does not end the request.
    let after = restarted(&before, Some(7), Duration::from_nanos(1));
    let answer = after.call(Method::POST, "/admin/secrets/rewrap", Some(OPERATOR), None).await;
    assert_eq!(answer.json(), said(false, 0, 0, 1));
    let after = restarted(&before, Some(7), LONG);
    assert_eq!(rewrapped(&after, "").await, said(false, 1, 0, 0));
}

#[tokio::test]
async fn it_takes_an_operator_and_a_query_that_is_right() {
    let harness = Harness::new();
    let call = async |query: &str, token| {
        let path = format!("/admin/secrets/rewrap{query}");
        harness.call(Method::POST, &path, Some(token), None).await
    };
    call("", ACME).await.assert_problem(403, "forbidden");
    call("?dry_run=maybe", OPERATOR).await.assert_problem(400, "invalid_query");
    call("?dry-run=true", OPERATOR).await.assert_problem(400, "invalid_query");
}
