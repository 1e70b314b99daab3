//! Replays (contract section 7): stored events of a time span are delivered to a subscription once
//! more, as new jobs. A dry run counts them first. The replay runs on the instance that owns the
//! subscription, since its task writes the jobs, at a capped rate, one at a time for a
//! subscription.
//!
//! A replay ends with its process or when the subscription moves to another instance; it is not
//! resumed. Its progress says up to where it came, and a new one may start there. Under the same
//! `Idempotency-Key` a replay makes the same job ids, so that what still waits is not doubled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use streaming_hub_model::delivery_calls::{Answer, Question, ReplayedEvent};
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::internal;
use streaming_hub_model::stored::{Log, Look, Query as Read, Start, StoredRecord};
use streaming_hub_model::subscription::{Subscription, Wanted};
use streaming_hub_model::time::UnixMillis;
use tokio::runtime::Handle;
use tokio::time::{Duration, sleep};

use crate::admin::dead_letters::parsed;
use crate::admin::quarantine::{unreadable, within_ms};
use crate::admin::{TIME, time};
use crate::ask::{home, shown};
use crate::auth::TenantCaller;
use crate::body::{IdInPath, JsonBody};
use crate::fields::{self, Fields};
use crate::forward::{Inbound, owned};
use crate::idempotency::key;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The most jobs that a replay makes in a second.
pub(crate) const RATE_MAX: u64 = 1_000;
/// How many when the caller does not say.
pub(crate) const RATE_DEFAULT: u64 = 100;
/// The most events that become jobs in one transaction.
const BATCH_MAX: usize = 200;
/// Their bytes.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// How long one read of the log may take, milliseconds.
const READ_MS: u64 = 5_000;
/// Event types that one replay may name.
const TYPES_MAX: usize = 50;

/// How far the replays of this instance are, the last one of each subscription.
#[derive(Debug, Default)]
pub struct Replays(Mutex<BTreeMap<SubscriptionId, Progress>>);

/// What a replay came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Running,
    Done,
    Failed,
}

/// How far one is.
#[derive(Debug, Clone, Serialize)]
struct Progress {
    id: String,
    state: Stage,
    started_at: UnixMillis,
    /// Jobs made so far.
    jobs: u64,
    /// The time of the last event that became a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed_to: Option<String>,
    /// Why it ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Replays {
    fn with<R>(&self, change: impl FnOnce(&mut BTreeMap<SubscriptionId, Progress>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a new one, unless one runs.
    fn begin(&self, id: SubscriptionId, progress: Progress) -> Result<(), Problem> {
        self.with(|all| match all.get(&id) {
            Some(last) if last.state == Stage::Running => Err(Code::ReplayRunning.into()),
            _ => {
                all.insert(id, progress);
                Ok(())
            }
        })
    }

    fn change(&self, id: SubscriptionId, change: impl FnOnce(&mut Progress)) {
        self.with(|all| all.get_mut(&id).map(change));
    }

    fn get(&self, id: SubscriptionId) -> Option<Progress> {
        self.with(|all| all.get(&id).cloned())
    }
}

/// What is replayed.
#[derive(Debug, Clone)]
struct Wish {
    from: UnixMillis,
    to: Option<UnixMillis>,
    event_types: Option<Vec<KeyPattern>>,
    rate: u64,
    dry_run: bool,
}

/// `POST /v1/subscriptions/{id}/replay`.
pub(crate) async fn start(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let subscription = api.find(&tenant, id).await?;
    let nonce = key(inbound.headers())?.unwrap_or_else(|| api.operations.uuid().to_string());
    let inbound = inbound.with_json(body.to_string());
    let wish = Wish::parse(body)?;
    let to = wish.to.unwrap_or_else(|| api.operations.clock.now());
    let wish = Wish { to: Some(to), ..wish };
    if wish.dry_run {
        return count(&api, &inbound, &subscription, &wish).await;
    }
    if !subscription.enabled || subscription.sink.is_pull() {
        return Err(Code::NotEnabled.into());
    }
    // Whether its task runs here; elsewhere the whole request is the owner's.
    let partition = home(&api, id);
    let question = Question::Stats { subscription: id };
    let asked = owned(&api, &inbound, || api.deliveries.ask(partition, question.clone())).await?;
    let started = || -> Result<Response, Problem> {
        let progress = Progress {
            id: nonce.clone(),
            state: Stage::Running,
            started_at: api.operations.clock.now(),
            jobs: 0,
            replayed_to: None,
            detail: None,
        };
        api.replays.begin(id, progress.clone())?;
        let run = Run { api: Arc::clone(&api), subscription, wish, nonce: nonce.clone() };
        Handle::current().spawn(run.run());
        Ok((StatusCode::ACCEPTED, Json(shown(progress))).into_response())
    };
    match asked {
        crate::forward::Owned::Here(_) => started(),
        crate::forward::Owned::There(response) => Ok(response),
    }
}

/// `GET /v1/subscriptions/{id}/replay`: the last one.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    api.find(&tenant, id).await?;
    let partition = home(&api, id);
    let question = Question::Stats { subscription: id };
    let asked = owned(&api, &inbound, || api.deliveries.ask(partition, question.clone())).await?;
    match asked {
        crate::forward::Owned::Here(_) => {
            let progress = api.replays.get(id).ok_or(Code::NotFound)?;
            Ok(Json(shown(progress)).into_response())
        }
        crate::forward::Owned::There(response) => Ok(response),
    }
}

/// How many events there are, without making a job.
async fn count(
    api: &Api,
    inbound: &Inbound,
    subscription: &Arc<Subscription>,
    wish: &Wish,
) -> Result<Response, Problem> {
    let (counted, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(i64::MIN)));
    let judge = {
        let (counted, seen) = (Arc::clone(&counted), Arc::clone(&seen));
        let judge = judge(subscription, wish);
        move |record: &StoredRecord| {
            seen.fetch_max(record.timestamp_ms, Ordering::Relaxed);
            match judge(record) {
                Look::Keep => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    Look::Skip
                }
                other => other,
            }
        }
    };
    let found = api
        .stored
        .read(Read {
            log: Log::Inbox,
            from: places(api, subscription, wish),
            judge: Arc::new(judge),
            records_max: usize::MAX,
            bytes_max: usize::MAX,
            within_ms: within_ms(inbound),
        })
        .await
        .map_err(unreadable)?;
    let seen = Some(seen.load(Ordering::Relaxed)).filter(|ms| *ms > i64::MIN);
    Ok(Json(json!({
        "dry_run": true,
        "count": counted.load(Ordering::Relaxed),
        "complete": found.rest.is_empty(),
        "counted_to": seen.map(|ms| UnixMillis(ms).to_rfc3339()),
    }))
    .into_response())
}

fn places(api: &Api, subscription: &Subscription, wish: &Wish) -> Vec<(i32, Start)> {
    let start = Start::Time(wish.from.0);
    let partitions = api.stored.of_tenant(subscription.tenant.as_str());
    partitions.into_iter().map(|partition| (partition, start)).collect()
}

/// Keeps the tenant's events within the time that the subscription wants as it stands.
fn judge(
    subscription: &Arc<Subscription>,
    wish: &Wish,
) -> impl Fn(&StoredRecord) -> Look + Send + Sync + use<> {
    let (subscription, to, types) = (Arc::clone(subscription), wish.to, wish.event_types.clone());
    move |record| {
        if to.is_some_and(|to| record.timestamp_ms >= to.0) {
            return Look::Beyond;
        }
        let text = |name| record.text(name).unwrap_or_default();
        let (resource, event) = (text("ce-resourcetype"), text("ce-eventtype"));
        let major = record.text(internal::MAJOR).and_then(|major| major.parse().ok());
        let wants = major.is_some_and(|major| {
            subscription.wants(&Wanted { origin: text("ce-source"), resource, event, major })
        });
        let of_types =
            types.as_ref().is_none_or(|types| types.iter().any(|key| key.matches(resource, event)));
        let own = record.text(internal::TENANT) == Some(subscription.tenant.as_str());
        if own && wants && of_types { Look::Keep } else { Look::Skip }
    }
}

/// One replay under way.
struct Run {
    api: Arc<Api>,
    subscription: Arc<Subscription>,
    wish: Wish,
    nonce: String,
}

impl Run {
    async fn run(self) {
        let id = self.subscription.id;
        let ended = self.all().await;
        self.api.replays.change(id, |progress| match ended {
            Ok(()) => progress.state = Stage::Done,
            Err(detail) => {
                progress.state = Stage::Failed;
                progress.detail = Some(detail);
            }
        });
    }

    async fn all(&self) -> Result<(), String> {
        let mut from = places(&self.api, &self.subscription, &self.wish);
        let batch = usize::try_from(self.wish.rate).unwrap_or(BATCH_MAX).min(BATCH_MAX);
        loop {
            let read = Read {
                log: Log::Inbox,
                from,
                judge: Arc::new(judge(&self.subscription, &self.wish)),
                records_max: batch,
                bytes_max: BATCH_BYTES_MAX,
                within_ms: READ_MS,
            };
            let found = self.api.stored.read(read).await.map_err(|error| {
                tracing::warn!(%error, "a replay ends");
                "the log could not be read".to_owned()
            })?;
            if !found.records.is_empty() {
                let count = u32::try_from(found.records.len()).unwrap_or(u32::MAX);
                self.make(found.records).await?;
                let rate = u32::try_from(self.wish.rate).unwrap_or(u32::MAX).max(1);
                sleep(Duration::from_secs(1) * count / rate).await;
            }
            if found.rest.is_empty() {
                return Ok(());
            }
            from = found.rest.into_iter().map(|(p, at)| (p, Start::Offset(at))).collect();
        }
    }

    async fn make(&self, records: Vec<StoredRecord>) -> Result<(), String> {
        let id = self.subscription.id;
        let last = records.iter().map(|record| record.timestamp_ms).max().unwrap_or_default();
        let event = |record: StoredRecord| ReplayedEvent {
            headers: record.headers,
            payload: record.value.map(|value| value.to_vec()).unwrap_or_default(),
        };
        let events = records.into_iter().map(event).collect();
        let question = Question::Replay { subscription: id, nonce: self.nonce.clone(), events };
        match self.api.deliveries.ask(home(&self.api, id), question).await {
            Ok(Answer::Replayed { jobs, refused: false }) => {
                self.api.replays.change(id, |progress| {
                    progress.jobs += jobs;
                    progress.replayed_to = Some(UnixMillis(last).to_rfc3339());
                });
                Ok(())
            }
            Ok(_) => Err("the subscription is disabled or deleted".to_owned()),
            Err(error) => {
                tracing::warn!(%error, "a replay ends");
                Err("the subscription moves to another instance: start again".to_owned())
            }
        }
    }
}

impl Wish {
    fn parse(body: Value) -> Result<Self, Problem> {
        fields::read(body, Self::read).map_err(Problem::validation)
    }

    fn read(mut fields: Fields<'_>) -> Option<Self> {
        let message = format!("must be {TIME}");
        let from = fields.required("from", |value, at| parsed(value, at, &message, time));
        let to = fields.optional("to", |value, at| parsed(value, at, &message, time));
        let event_types = fields.optional("event_types", |value, at| {
            let entries = at.list(value, 1, TYPES_MAX)?;
            let mut types = Vec::with_capacity(entries.len());
            for (index, entry) in entries.into_iter().enumerate() {
                let mut at = at.child(&index.to_string());
                types.push(parsed(entry, &mut at, "must be an event type", |text| {
                    KeyPattern::parse(text).ok()
                })?);
            }
            Some(types)
        });
        let rate = fields.optional("rate_per_second", |value, at| at.integer(&value, 1, RATE_MAX));
        let dry_run = fields.optional("dry_run", |value, at| at.boolean(&value));
        fields.finish();
        Some(Self {
            from: from?,
            to: to?,
            event_types: event_types?,
            rate: rate?.unwrap_or(RATE_DEFAULT),
            dry_run: dry_run?.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests;
