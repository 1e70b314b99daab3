//! Destinations as the table, the topic of open breakers and their owners' tasks have them.

use std::collections::BTreeMap;

use streaming_hub_model::breaker::{Opening, Phase};
use streaming_hub_model::destination::{
    DestinationId, DestinationKey, DestinationRecord, GateState, SpanState,
};
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use super::*;
use crate::testing::{EVIL, body};

/// The clock of these tests.
const NOW: i64 = 1_790_000_000_000;
const PATH: &str = "/admin/destinations";

fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn name_of(url: &str) -> DestinationId {
    let sink = json!({"type": "webhook", "url": url, "secrets": []});
    DestinationKey::new([1; 32]).id(&serde_json::from_value::<SinkConfig>(sink).unwrap())
}

fn opening(until: i64) -> Opening {
    Opening { until: UnixMillis(until), openings: 2 }
}

fn told(destination: DestinationId, until: i64, partition: i32) -> DestinationRecord {
    DestinationRecord {
        tenant: acme(),
        destination,
        sink: "webhook".into(),
        host: "example.com".into(),
        opening: opening(until),
        partition,
        at: UnixMillis(NOW - 1),
    }
}

fn gate(of: &(TenantId, DestinationId), phase: Phase) -> GateState {
    GateState {
        tenant: of.0.clone(),
        destination: of.1,
        phase,
        opening: (phase != Phase::Closed).then(|| opening(NOW + 5_000)),
        throttled_until: None,
        waiting: 1,
    }
}

/// Tasks that know nothing to tell.
fn quiet(_: i32, question: Question) -> Result<Said, CallError> {
    let Question::Destinations { .. } = question else { return Err(CallError::Unknown) };
    Ok(Said::Destinations { gates: Vec::new(), spans: Vec::new() })
}

async fn create(harness: &Harness, token: &str, url: &str) -> String {
    let mut wanted = body();
    wanted["sink"]["url"] = url.into();
    let answer = harness.call(Method::POST, "/v1/subscriptions", Some(token), Some(&wanted)).await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn list(harness: &Harness, query: &str) -> Value {
    let answer = operator(harness, Method::GET, &format!("{PATH}{query}"), None).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    answer.json()
}

fn entries(page: &Value) -> &Vec<Value> {
    page["destinations"].as_array().unwrap()
}

#[tokio::test]
async fn each_destination_of_each_tenant_is_listed_once_page_by_page_and_never_by_its_target() {
    let (harness, _) = harness(quiet);
    for (token, url) in [
        (ACME, "https://a.example.com/secret-path"),
        (ACME, "https://a.example.com/secret-path"),
        (ACME, "https://b.example.com/secret-path"),
        (EVIL, "https://a.example.com/secret-path"),
    ] {
        create(&harness, token, url).await;
    }
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&harness, &format!("?limit=1{cursor}")).await;
        assert!(!page.to_string().contains("secret-path"), "{page}");
        all.extend(entries(&page).clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut found = BTreeMap::new();
    for one in &all {
        let key = (one["tenant"].as_str().unwrap(), one["host"].as_str().unwrap());
        found.insert(key, one["subscriptions"].as_array().unwrap().len());
        assert_eq!(one["breaker"], json!({"state": "closed", "until": null, "openings": 0}));
    }
    assert_eq!(all.len(), 3);
    let expected =
        [("acme", "a.example.com"), ("acme", "b.example.com"), ("evil", "a.example.com")];
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        expected.into_iter().zip([2, 1, 1]).collect::<Vec<_>>()
    );
    assert_eq!(entries(&list(&harness, "?tenant=evil").await).len(), 1);
    assert_eq!(entries(&list(&harness, "?tenant=nobody").await).len(), 0);
}

#[tokio::test]
async fn what_only_owners_know_is_asked_of_each_of_them_and_put_together() {
    let url = "https://example.com/hook";
    let of = (acme(), name_of(url));
    let (harness, _) = harness(move |partition, question| {
        let Question::Destinations { destinations, subscriptions } = question else {
            return Err(CallError::Unknown);
        };
        assert_eq!(destinations, std::slice::from_ref(&of));
        let mut gate = gate(&of, Phase::Closed);
        gate.throttled_until = Some(UnixMillis(NOW + i64::from(partition)));
        let span = |id: &streaming_hub_model::id::SubscriptionId| SpanState {
            subscription: *id,
            first: UnixMillis(NOW - 7_200_000),
            last: UnixMillis(NOW),
        };
        let spans = subscriptions.iter().map(span).collect();
        Ok(Said::Destinations { gates: vec![gate], spans })
    });
    let mut homes = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let id = create(&harness, ACME, url).await;
        let id = id.parse().unwrap();
        homes.insert(streaming_hub_model::routing::partition_for_subscription(id, 4));
    }
    let page = list(&harness, "").await;
    let one = &entries(&page)[0];
    assert_eq!(one["waiting"], homes.len());
    let last = NOW + i64::from(*homes.last().unwrap());
    assert_eq!(one["throttled_until"], UnixMillis(last).to_rfc3339());
    let failing = json!({"first": "2026-09-21T12:13:20.000Z", "last": "2026-09-21T14:13:20.000Z"});
    let all = one["subscriptions"].as_array().unwrap();
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|own| own["failing"] == failing), "{one}");
    for (state, count) in
        [("throttled", 1), ("failing", 1), ("closed", 1), ("open", 0), ("held", 0)]
    {
        let page = list(&harness, &format!("?state={state}")).await;
        assert_eq!(entries(&page).len(), count, "{state}");
    }
}

#[tokio::test]
async fn an_owners_breaker_counts_before_what_was_told_and_that_where_the_owner_is_away() {
    let url = "https://example.com/hook";
    let of = (acme(), name_of(url));
    for (owner, told_until, state, partial) in [
        (Some(Phase::Open), NOW + 5_000, "open", false),
        (Some(Phase::HalfOpen), NOW - 5_000, "half_open", false),
        (Some(Phase::Closed), NOW + 5_000, "closed", false),
        (None, NOW + 5_000, "open", true),
        (None, NOW - 5_000, "half_open", true),
    ] {
        let of = of.clone();
        let (harness, _) = harness(move |_, _| {
            let phase = owner.ok_or(CallError::Unknown)?;
            Ok(Said::Destinations { gates: vec![gate(&of, phase)], spans: Vec::new() })
        });
        let id = create(&harness, ACME, url).await;
        let home = streaming_hub_model::routing::partition_for_subscription(id.parse().unwrap(), 4);
        *harness.hub.open.lock().unwrap() = vec![told(name_of(url), told_until, home)];
        let page = list(&harness, "").await;
        assert_eq!(entries(&page)[0]["breaker"]["state"], state, "{page}");
        assert_eq!(page["partial"], partial, "{page}");
        let missing = partial.then(|| json!([format!("delivery/{home}")]));
        assert_eq!(page.get("missing"), missing.as_ref());
        let page = list(&harness, &format!("?state={state}")).await;
        assert_eq!(entries(&page).len(), 1, "{page}");
    }
}

#[tokio::test]
async fn an_open_breaker_without_a_subscription_is_listed_as_long_as_it_is_told_of() {
    let (harness, _) = harness(quiet);
    let gone = name_of("https://gone.example.com/");
    *harness.hub.open.lock().unwrap() = vec![told(gone, NOW + 5_000, 0)];
    for query in ["", "?state=open", "?tenant=acme"] {
        let page = list(&harness, query).await;
        let one = &entries(&page)[0];
        assert_eq!(one["destination"], gone.to_string(), "{page}");
        assert_eq!(one["breaker"]["until"], "2026-09-21T14:13:25.000Z");
        assert_eq!(one["subscriptions"], json!([]));
    }
    assert_eq!(entries(&list(&harness, "?tenant=evil").await).len(), 0);
}

#[tokio::test]
async fn holds_and_pauses_are_shown_with_the_destinations_that_they_are_about() {
    let (harness, _) = harness(quiet);
    let id = create(&harness, ACME, "https://example.com/hook").await;
    let other = create(&harness, EVIL, "https://example.com/hook").await;
    let hold = json!({"scope": "destination", "destination": name_of("https://example.com/hook")});
    let paths = [hold, json!({"scope": "subscription", "subscription": id})];
    for hold in &paths {
        operator(&harness, Method::PUT, "/admin/holds", Some(hold)).await;
    }
    let pause = json!({"paused": true});
    let path = format!("/v1/subscriptions/{other}");
    harness.call(Method::PATCH, &path, Some(EVIL), Some(&pause)).await;
    let page = list(&harness, "?state=held").await;
    assert_eq!(entries(&page)[0]["holds"], json!(["destination", "subscription"]));
    assert_eq!(entries(&page)[1]["holds"], json!(["destination"]));
    let page = list(&harness, "?state=paused").await;
    assert_eq!(entries(&page).len(), 1);
    assert_eq!(entries(&page)[0]["subscriptions"][0]["id"], other);
}

#[tokio::test]
async fn a_question_about_destinations_that_is_none_is_refused_by_name() {
    let (harness, _) = harness(quiet);
    for query in ["?state=tired", "?limit=0", "?limit=201", "?cursor=x", "?tenant=", "?host=a"] {
        let answer = operator(&harness, Method::GET, &format!("{PATH}{query}"), None).await;
        answer.assert_problem(400, "invalid_query");
    }
}
