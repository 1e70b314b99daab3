//! Replays over a log in memory: counted first, at a capped rate, with their progress told.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use axum::http::Method;
use streaming_hub_model::delivery_calls::DeliveryStats;
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::Deliveries;
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::stored::{Found, Log, Query, StoredLogs, Unreadable};

use super::*;
use crate::testing::{ACME, Answer as Heard, EVIL, Harness, LONG, body};
use crate::{Limits, router};

/// The time of the first event.
const T0: i64 = 1_780_000_000_000;

/// One partition of stored events, and a task that makes jobs of them.
#[derive(Default)]
struct Hub {
    log: Vec<StoredRecord>,
    /// One read passes so many at the most; 0 for all.
    passes: usize,
    batches: Mutex<Vec<(String, Vec<ReplayedEvent>)>>,
    /// The task takes so many batches, then it is nobody's.
    takes: AtomicUsize,
}

impl StoredLogs for Hub {
    fn partitions(&self) -> i32 {
        1
    }

    fn of_tenant(&self, _: &str) -> Vec<i32> {
        vec![0]
    }

    fn read(&self, query: Query) -> SinkFuture<'_, Result<Found, Unreadable>> {
        assert_eq!(query.log, Log::Inbox);
        let mut found = Found::default();
        let starts = |record: &&StoredRecord| match query.from[0].1 {
            Start::Offset(offset) => record.offset >= offset,
            Start::Time(ms) => record.timestamp_ms >= ms,
        };
        for (passed, record) in self.log.iter().filter(starts).enumerate() {
            let is_full = found.records.len() == query.records_max;
            if is_full || (self.passes > 0 && passed == self.passes) {
                found.rest = vec![(0, record.offset)];
                break;
            }
            match (query.judge)(record) {
                Look::Keep | Look::Last => found.records.push(record.clone()),
                Look::Skip => {}
                Look::Beyond => break,
            }
        }
        Box::pin(async { Ok(found) })
    }
}

impl Deliveries for Hub {
    fn partitions(&self) -> u32 {
        1
    }

    fn ask(&self, _: i32, question: Question) -> SinkFuture<'_, Result<Answer, CallError>> {
        let Question::Replay { nonce, events, .. } = question else {
            return Box::pin(async { Ok(Answer::Stats(DeliveryStats::default())) });
        };
        let left =
            self.takes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        let answer = left.map_err(|_| CallError::Unknown).map(|_| {
            let jobs = events.len() as u64;
            self.batches.lock().unwrap().push((nonce, events));
            Answer::Replayed { jobs, refused: false }
        });
        Box::pin(async move { answer })
    }
}

/// The `n`-th stored event, a second after the one before.
fn record(n: u8, tenant: &str, (resource, event): (&str, &str)) -> StoredRecord {
    let header = |name: &str, value: &str| (name.into(), Some(value.into()));
    StoredRecord {
        partition: 0,
        offset: n.into(),
        timestamp_ms: T0 + i64::from(n) * 1_000,
        key: None,
        headers: vec![
            header("ce-source", "ledger"),
            header("ce-resourcetype", resource),
            header("ce-eventtype", event),
            header(internal::TENANT, tenant),
            header(internal::MAJOR, "1"),
        ],
        value: None,
    }
}

fn accounts(count: u8) -> Vec<StoredRecord> {
    (0..count).map(|n| record(n, "acme", ("account", "created"))).collect()
}

async fn harness(own: Hub) -> (Harness, Arc<Hub>, String) {
    let (hub, keyring, mut api) = Harness::parts(Limits::default(), LONG);
    let own = Arc::new(own);
    (api.stored, api.deliveries) = (own.clone(), own.clone());
    let harness = Harness { hub, keyring, router: router(api) };
    let id = harness.created().await;
    (harness, own, format!("/v1/subscriptions/{id}/replay"))
}

fn from(seconds: i64) -> Value {
    json!({"from": UnixMillis(T0 + seconds * 1_000).to_rfc3339()})
}

async fn post(harness: &Harness, path: &str, body: &Value) -> Heard {
    harness.call(Method::POST, path, Some(ACME), Some(body)).await
}

/// Waits until the replay has ended.
async fn ended(harness: &Harness, path: &str) -> Value {
    loop {
        let progress = harness.get(path).await.json();
        if progress["state"] != "running" {
            return progress;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_dry_run_counts_what_the_subscription_wants_and_makes_no_job() {
    let mut log = accounts(5);
    log.push(record(5, "evil", ("account", "created")));
    log.push(record(6, "acme", ("account", "deleted")));
    let (harness, own, path) = harness(Hub { log, ..Hub::default() }).await;
    for (seconds, to, count) in [(0, None, 5), (2, None, 3), (0, Some(2), 2), (9, None, 0)] {
        let mut wish = from(seconds);
        wish["dry_run"] = true.into();
        if let Some(to) = to {
            wish["to"] = from(to)["from"].take();
        }
        let counted = post(&harness, &path, &wish).await.json();
        assert_eq!((&counted["count"], &counted["complete"]), (&json!(count), &json!(true)));
    }
    let mut wish = from(0);
    (wish["dry_run"], wish["event_types"]) = (true.into(), json!(["transfer.*"]));
    assert_eq!(post(&harness, &path, &wish).await.json()["count"], 0);
    assert!(own.batches.lock().unwrap().is_empty());
    harness.get(&path).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_count_that_did_not_reach_the_end_says_up_to_where_it_came() {
    let (harness, _, path) = harness(Hub { log: accounts(5), passes: 3, ..Hub::default() }).await;
    let mut wish = from(0);
    wish["dry_run"] = true.into();
    let counted = post(&harness, &path, &wish).await.json();
    assert_eq!((&counted["count"], &counted["complete"]), (&json!(3), &json!(false)));
    assert_eq!(counted["counted_to"], from(2)["from"]);
}

#[tokio::test]
async fn no_more_jobs_than_the_rate_are_made_in_a_second() {
    let own = Hub { log: accounts(15), takes: AtomicUsize::new(9), ..Hub::default() };
    let (harness, own, path) = harness(own).await;
    let mut wish = from(0);
    wish["rate_per_second"] = 10.into();
    let begun = post(&harness, &path, &wish).await;
    assert_eq!((begun.status.as_u16(), &begun.json()["state"]), (202, &json!("running")));
    let too_early = tokio::time::timeout(Duration::from_millis(800), ended(&harness, &path));
    assert!(too_early.await.is_err(), "it ended before its time");
    assert!(own.batches.lock().unwrap().len() <= 1, "a second batch came too early");
    post(&harness, &path, &wish).await.assert_problem(409, "replay_running");
    let progress = ended(&harness, &path).await;
    assert_eq!((&progress["state"], &progress["jobs"]), (&json!("done"), &json!(15)));
    assert_eq!(progress["replayed_to"], from(14)["from"]);
    let batches = own.batches.lock().unwrap();
    let sizes: Vec<_> = batches.iter().map(|(_, events)| events.len()).collect();
    assert_eq!(sizes, [10, 5]);
    assert_eq!(batches[0].0, batches[1].0, "all of it has one nonce");
}

#[tokio::test]
async fn a_replay_whose_task_moves_ends_and_says_up_to_where_it_came() {
    let own = Hub { log: accounts(3), takes: AtomicUsize::new(2), ..Hub::default() };
    let (harness, own, path) = harness(own).await;
    let mut wish = from(0);
    wish["rate_per_second"] = 1.into();
    post(&harness, &path, &wish).await;
    let progress = ended(&harness, &path).await;
    assert_eq!((&progress["state"], &progress["jobs"]), (&json!("failed"), &json!(2)));
    assert_eq!(progress["replayed_to"], from(1)["from"]);
    assert!(progress["detail"].as_str().unwrap().contains("start again"), "{progress}");
    // Another may start there, under a nonce of its own.
    own.takes.store(2, Ordering::Relaxed);
    let mut wish = from(2);
    wish["rate_per_second"] = 1_000.into();
    post(&harness, &path, &wish).await;
    assert_eq!(ended(&harness, &path).await["state"], "done");
    let nonces: Vec<_> = own.batches.lock().unwrap().iter().map(|(n, _)| n.clone()).collect();
    assert_eq!(nonces.len(), 3);
    assert!(nonces[0] == nonces[1] && nonces[1] != nonces[2], "{nonces:?}");
}

#[tokio::test]
async fn who_takes_no_jobs_is_not_replayed_to_and_every_wrong_field_is_named() {
    let (harness, _, path) = harness(Hub::default()).await;
    let wrong =
        json!({"to": 5, "event_types": [], "rate_per_second": 1_001, "dry_run": "no", "x": 1});
    let answer = post(&harness, &path, &wrong).await;
    answer.assert_problem(422, "validation_failed");
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 6);
    let other = harness.call(Method::POST, &path, Some(EVIL), Some(&from(0))).await;
    other.assert_problem(404, "not_found");
    let disable = json!({"enabled": false});
    let subscription = path.trim_end_matches("/replay");
    harness.call(Method::PATCH, subscription, Some(ACME), Some(&disable)).await;
    post(&harness, &path, &from(0)).await.assert_problem(409, "not_enabled");
    let mut log = body();
    log["sink"] = json!({"type": "pull"});
    let made = post(&harness, "/v1/subscriptions", &log).await.json();
    let path = format!("/v1/subscriptions/{}/replay", made["id"].as_str().unwrap());
    post(&harness, &path, &from(0)).await.assert_problem(409, "not_enabled");
}
