//! An operator's routes over delivery tasks that answer what a test says.

mod destinations;

use std::sync::{Arc, Mutex};

use axum::http::Method;
use serde_json::{Value, json};
use streaming_hub_model::delivery_calls::{
    Answer as Said, AttemptsPage, DeadLettersPage, DeliveryStats, Question, Redelivered,
};
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::Deliveries;
use streaming_hub_model::sink::SinkFuture;

use crate::testing::{ACME, Answer, Harness, LONG, OPERATOR};
use crate::{Limits, router};

type Ask = dyn Fn(i32, Question) -> Result<Said, CallError> + Send + Sync;

/// Tasks of four partitions.
struct Tasks {
    answer: Box<Ask>,
    asked: Mutex<Vec<(i32, Question)>>,
}

impl Deliveries for Tasks {
    fn partitions(&self) -> u32 {
        4
    }

    fn ask(&self, partition: i32, question: Question) -> SinkFuture<'_, Result<Said, CallError>> {
        self.asked.lock().unwrap().push((partition, question.clone()));
        Box::pin(async move { (self.answer)(partition, question) })
    }
}

fn harness(
    answer: impl Fn(i32, Question) -> Result<Said, CallError> + Send + Sync + 'static,
) -> (Harness, Arc<Tasks>) {
    let (hub, keyring, mut api) = Harness::parts(Limits::default(), LONG);
    let tasks = Arc::new(Tasks { answer: Box::new(answer), asked: Mutex::default() });
    api.deliveries = tasks.clone();
    (Harness { hub, keyring, router: router(api) }, tasks)
}

async fn operator(harness: &Harness, method: Method, path: &str, body: Option<&Value>) -> Answer {
    harness.call(method, path, Some(OPERATOR), body).await
}

fn letter(partition: i32) -> Value {
    json!({
        "job": format!("b8ab169b-ae68-8628-bc67-b3d0fe8949a{partition}"),
        "subscription": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", "tenant": "acme",
        "event_id": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de002", "event_type": "t", "matched_at": 5,
        "ended_at": 1_790_000_000_000i64, "reason": "exhausted", "attempts": 8, "payload_bytes": 2,
    })
}

fn page(partition: i32) -> Said {
    let letters = vec![serde_json::from_value(letter(partition)).unwrap()];
    Said::DeadLetters(DeadLettersPage { letters, next: None })
}

#[tokio::test]
async fn dead_letters_of_all_partitions_come_page_by_page() {
    let (harness, _) = harness(|partition, _| Ok(page(partition)));
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/admin/dead-letters?limit=3{cursor}");
        let answer = operator(&harness, Method::GET, &path, None).await.json();
        assert_eq!(answer["partial"], false);
        for letter in answer["dead_letters"].as_array().unwrap() {
            assert_eq!(letter["ended_at"], "2026-09-21T14:13:20.000Z");
            jobs.push(letter["job"].as_str().unwrap().to_owned());
        }
        match answer["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<_> = (0..4).map(|p| letter(p)["job"].as_str().unwrap().to_owned()).collect();
    assert_eq!(jobs, expected);
}

#[tokio::test]
async fn a_part_that_is_away_is_named_and_the_rest_is_shown() {
    let (harness, _) = harness(|partition, _| match partition {
        2 => Err(CallError::Unknown),
        partition => Ok(page(partition)),
    });
    let answer = operator(&harness, Method::GET, "/admin/dead-letters", None).await.json();
    assert_eq!(answer["dead_letters"].as_array().unwrap().len(), 3);
    assert_eq!((&answer["partial"], &answer["missing"]), (&json!(true), &json!(["delivery/2"])));
}

#[tokio::test]
async fn a_letter_that_no_partition_has_is_not_found_only_if_all_were_asked() {
    let job = letter(0)["job"].as_str().unwrap().to_owned();
    let path = format!("/admin/dead-letters/{job}");
    let nowhere = |_, _| Ok(Said::DeadLetter { letter: None });
    let (all, _) = harness(nowhere);
    operator(&all, Method::GET, &path, None).await.assert_problem(404, "not_found");
    let (some, _) = harness(move |partition, question| match partition {
        3 => Err(CallError::Unknown),
        partition => nowhere(partition, question),
    });
    operator(&some, Method::GET, &path, None).await.assert_problem(503, "no_owner");
    operator(&all, Method::GET, "/admin/dead-letters/17", None)
        .await
        .assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_redelivery_by_filter_is_bounded_and_says_where_it_goes_on() {
    let redelivered = |partition: i32| {
        let job = letter(partition)["job"].clone();
        serde_json::from_value(json!({"dead_letter": job, "job": job})).unwrap()
    };
    let (harness, tasks) = harness(move |partition, _| {
        let redelivered = vec![redelivered(partition)];
        Ok(Said::Redelivered(Redelivered { redelivered, ..Redelivered::default() }))
    });
    let path = "/admin/dead-letters/redeliver";
    let body = json!({"tenant": "acme", "reason": "exhausted", "limit": 3});
    let answer = operator(&harness, Method::POST, path, Some(&body)).await.json();
    assert_eq!(answer["redelivered"].as_array().unwrap().len(), 3);
    let body = json!({"tenant": "acme", "reason": "exhausted", "cursor": answer["next_cursor"]});
    let answer = operator(&harness, Method::POST, path, Some(&body)).await.json();
    assert_eq!(answer["redelivered"].as_array().unwrap().len(), 1);
    assert_eq!(answer["next_cursor"], Value::Null);
    assert_eq!(tasks.asked.lock().unwrap().len(), 4);
    let bad = json!({"tenant": "", "reason": "tired", "from": "soon", "limit": 0, "x": 1});
    let answer = operator(&harness, Method::POST, path, Some(&bad)).await;
    answer.assert_problem(422, "validation_failed");
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_hold_is_set_listed_and_lifted() {
    let (harness, _) = harness(|_, _| Err(CallError::Unknown));
    let path = "/admin/holds";
    let hold = json!({"scope": "tenant", "tenant": "a/b", "reason": "maintenance"});
    let set = operator(&harness, Method::PUT, path, Some(&hold)).await.json();
    assert_eq!((&set["by"], &set["tenant"]), (&json!("o"), &json!("a/b")));
    let list = operator(&harness, Method::GET, path, None).await.json();
    assert_eq!(list["holds"], json!([set]));
    let lift = format!("{path}?scope=tenant&tenant=a%2Fb");
    assert_eq!(operator(&harness, Method::DELETE, &lift, None).await.status.as_u16(), 204);
    assert_eq!(operator(&harness, Method::GET, path, None).await.json(), json!({"holds": []}));
    for body in [
        json!({}),
        json!({"scope": "world"}),
        json!({"scope": "tenant"}),
        json!({"scope": "everything", "tenant": "acme"}),
        json!({"scope": "destination", "destination": "https://x"}),
        json!({"scope": "subscription", "subscription": "17"}),
    ] {
        let answer = operator(&harness, Method::PUT, path, Some(&body)).await;
        answer.assert_problem(422, "validation_failed");
    }
    for query in ["", "?scope=tenant", "?scope=everything&tenant=acme", "?scope=x"] {
        let answer = operator(&harness, Method::DELETE, &format!("{path}{query}"), None).await;
        answer.assert_problem(400, "invalid_query");
    }
}

#[tokio::test]
async fn a_subscription_shows_what_waits_or_that_it_is_not_known() {
    let stats = DeliveryStats {
        backlog: 3,
        or_more: false,
        oldest_waiting_at: Some(super::time("2026-01-31T00:00:00Z").unwrap()),
    };
    let (known, _) = harness(move |_, _| Ok(Said::Stats(stats)));
    let id = known.created().await;
    let path = format!("/v1/subscriptions/{id}");
    let expected = json!({"backlog": 3, "oldest_waiting_at": "2026-01-31T00:00:00.000Z"});
    assert_eq!(known.get(&path).await.json()["delivery"], expected);
    let (unknown, _) = harness(|_, _| Err(CallError::Unknown));
    let id = unknown.created().await;
    let answer = unknown.get(&format!("/v1/subscriptions/{id}")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["delivery"]), (200, &Value::Null));
}

#[tokio::test]
async fn attempts_are_asked_of_the_subscriptions_own_partition() {
    let (harness, tasks) = harness(|_, _| Ok(Said::Attempts(AttemptsPage::default())));
    let id = harness.created().await;
    let answer = harness.get(&format!("/v1/subscriptions/{id}/attempts?limit=7")).await;
    assert_eq!(answer.json(), json!({"attempts": [], "next_cursor": null}));
    let asked = tasks.asked.lock().unwrap();
    let (partition, Question::Attempts { limit, .. }) = &asked[0] else { panic!("{asked:?}") };
    let home = streaming_hub_model::routing::partition_for_subscription(id.parse().unwrap(), 4);
    assert_eq!((*partition, *limit), (home, 7));
}

#[tokio::test]
async fn what_only_instances_ask_is_there_for_nobody_else() {
    let (harness, _) = harness(|_, _| Ok(Said::Attempts(AttemptsPage::default())));
    let question =
        json!({"question": "stats", "subscription": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001"});
    for token in [None, Some(ACME), Some(OPERATOR)] {
        let path = "/internal/delivery/0";
        let answer = harness.call(Method::POST, path, token, Some(&question)).await;
        answer.assert_problem(404, "unknown_path");
        let path = "/internal/pull/0";
        let answer = harness.call(Method::POST, path, token, Some(&json!([]))).await;
        answer.assert_problem(404, "unknown_path");
        let answer = harness.call(Method::GET, "/internal/instance", token, None).await;
        answer.assert_problem(404, "unknown_path");
    }
}

#[tokio::test]
async fn an_erasure_deletes_forgets_and_says_when_the_rest_is_gone() {
    // Twice a deleted subscription still has jobs, then they have become letters.
    let ending = std::sync::atomic::AtomicU64::new(2);
    let (harness, tasks) = harness(move |partition, question| {
        let Question::Forget { after, .. } = question else {
            return Ok(Said::Stats(DeliveryStats::default()));
        };
        let before = |left: u64| (partition == 3).then(|| left.checked_sub(1)).flatten();
        let order = std::sync::atomic::Ordering::Relaxed;
        let next = letter_cursor().filter(|_| partition == 1 && after.is_none());
        let letters = u64::from(next.is_some());
        let ending = ending.fetch_update(order, order, before).unwrap_or(0);
        Ok(Said::Forgotten { letters, next, ending })
    });
    let id = harness.created().await;
    harness.hub.leave_over(2);
    let path = "/admin/tenants/erase";
    let body = json!({"tenant": "acme"});
    let answer = operator(&harness, Method::POST, path, Some(&body)).await.json();
    assert_eq!((&answer["subscriptions_deleted"], &answer["complete"]), (&json!(1), &json!(true)));
    assert_eq!(answer["partial"], false);
    assert!(answer["last_copy_gone_at"].as_str().unwrap().starts_with("2026-10-01"));
    assert!(harness.hub.record(&id).is_none());
    let asked = tasks.asked.lock().unwrap().clone();
    let is_forget = |(_, question): &&(i32, Question)| matches!(question, Question::Forget { .. });
    // Three rounds over four partitions, each time with a second batch of one of them.
    assert_eq!(asked.iter().filter(is_forget).count(), 3 * (4 + 1));
    let answer = operator(&harness, Method::POST, path, Some(&json!({}))).await;
    answer.assert_problem(422, "validation_failed");
}

fn letter_cursor() -> Option<streaming_hub_model::delivery_calls::Cursor> {
    let letter = letter(1);
    let text = |name: &str| letter[name].as_str().unwrap_or_default().to_owned();
    format!("{}.5.{}", text("subscription"), text("job")).parse().ok()
}
