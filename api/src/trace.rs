//! What became of an event (contract section 7, `GET /v1/events/{ceId}/trace`): its verdict, where
//! it is stored, which of the tenant's subscriptions matched and which did not and why, their jobs
//! and attempts.
//!
//! There is no index by id: the event is looked for in the log from the time in its id on, within
//! bounds. What was not found is said to be not found *there*, never to have been dropped or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use streaming_hub_model::delivery_calls::{Answer, JobState, PAGE_MAX, Question};
use streaming_hub_model::id::{EventId, SubscriptionId};
use streaming_hub_model::stored::{Log, Look, Query as Read, Start, StoredRecord};
use streaming_hub_model::subscription::{Subscription, VerificationState, Wanted};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_model::{internal, routing};

use crate::admin::quarantine::{unreadable, within_ms};
use crate::ask::{Missing, ask, home, misfit, shown};
use crate::auth::TenantCaller;
use crate::forward::Inbound;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// How much earlier than its id says an event may have arrived, by the clocks of its producer and
/// of the broker, milliseconds.
const EARLIER_MS: i64 = 5 * 60_000;
/// The largest record that is taken out of a log, bytes.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Subscriptions whose attempts are looked up.
const ATTEMPTS_OF_MAX: usize = 20;

/// `GET /v1/events/{ceId}/trace`.
pub(crate) async fn trace(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    inbound: Inbound,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = EventId::parse(&id).map_err(|_| Code::NotFound)?;
    let search = Search { api: &api, inbound: &inbound, tenant: &tenant, id };
    let (stored, searched) = search.inbox().await?;
    let mut missing = Missing::default();
    let mut body = json!({"ce_id": id, "searched": searched});
    match stored {
        Some(record) => {
            body["verdict"] = "accepted".into();
            body["stored"] = json!({
                "topic": format!("{}-inbox", api.overview.application()),
                "partition": record.partition,
                "offset": record.offset,
                "at": UnixMillis(record.timestamp_ms).to_rfc3339(),
            });
            body["subscriptions"] = search.subscriptions(&record, &mut missing).await?;
        }
        None => match search.quarantine().await? {
            Some(record) => {
                body["verdict"] = "quarantined".into();
                body["reason"] = record.text(internal::REASON).into();
                body["detail"] = record.text(internal::DETAIL).into();
            }
            None => {
                body["verdict"] = "not_found".into();
                body["detail"] = "It was not found where it was looked for. It may not have \
                                  arrived yet, be a system event, be older than what is kept, \
                                  or lie behind what could be searched in one request."
                    .into();
            }
        },
    }
    missing.mark(&mut body);
    Ok(Json(body).into_response())
}

struct Search<'a> {
    api: &'a Api,
    inbound: &'a Inbound,
    tenant: &'a TenantId,
    id: EventId,
}

impl Search<'_> {
    /// From when on logs are searched, Unix milliseconds.
    fn since_ms(&self) -> i64 {
        self.id.unix_millis().saturating_sub(EARLIER_MS)
    }

    /// The event in the inbox, and how far it was searched. A salted tenant's event lies in its own
    /// partition, any other in its tenant's.
    async fn inbox(&self) -> Result<(Option<StoredRecord>, Value), Problem> {
        let partitions = self.api.stored.partitions().unsigned_abs();
        let places = BTreeSet::from([
            routing::partition_for_tenant(self.tenant.as_str(), partitions),
            routing::partition_for_event(self.tenant.as_str(), self.id, partitions),
        ]);
        let (id, tenant) = (self.id.to_string(), self.tenant.clone());
        let is_it = move |record: &StoredRecord| {
            record.key.as_deref() == Some(id.as_bytes())
                && record.text(internal::TENANT) == Some(tenant.as_str())
        };
        let (found, to_end, until_ms) = self.first(Log::Inbox, places, is_it).await?;
        let searched = json!({
            "from": UnixMillis(self.since_ms().max(0)).to_rfc3339(),
            "to": until_ms.map(|ms| UnixMillis(ms).to_rfc3339()),
            "to_the_end": to_end,
        });
        Ok((found, searched))
    }

    /// A record that names this event and this tenant, and was refused.
    async fn quarantine(&self) -> Result<Option<StoredRecord>, Problem> {
        let (id, tenant) = (self.id.to_string(), self.tenant.clone());
        let is_it = move |record: &StoredRecord| {
            record.text("ce-id").is_some_and(|text| text.eq_ignore_ascii_case(&id))
                && record.text("ce-tenantid") == Some(tenant.as_str())
        };
        let all = (0..self.api.stored.partitions()).collect();
        Ok(self.first(Log::Quarantine, all, is_it).await?.0)
    }

    /// The first record that `is_it` names, whether the logs were read to their ends, and the time
    /// of the last record that was looked at.
    async fn first(
        &self,
        log: Log,
        partitions: BTreeSet<i32>,
        is_it: impl Fn(&StoredRecord) -> bool + Send + Sync + 'static,
    ) -> Result<(Option<StoredRecord>, bool, Option<i64>), Problem> {
        let seen = Arc::new(AtomicI64::new(i64::MIN));
        let seeing = Arc::clone(&seen);
        let judge = move |record: &StoredRecord| {
            seeing.fetch_max(record.timestamp_ms, Ordering::Relaxed);
            if is_it(record) { Look::Last } else { Look::Skip }
        };
        let start = Start::Time(self.since_ms());
        let read = Read {
            log,
            from: partitions.into_iter().map(|partition| (partition, start)).collect(),
            judge: Arc::new(judge),
            records_max: 1,
            bytes_max: BYTES_MAX,
            within_ms: within_ms(self.inbound) / 2,
        };
        let found = self.api.stored.read(read).await.map_err(unreadable)?;
        let until = Some(seen.load(Ordering::Relaxed)).filter(|ms| *ms > i64::MIN);
        Ok((found.records.into_iter().next(), found.rest.is_empty(), until))
    }

    /// Every subscription of the tenant: whether it has a job of this event, or why it has none.
    async fn subscriptions(
        &self,
        record: &StoredRecord,
        missing: &mut Missing,
    ) -> Result<Value, Problem> {
        let all = self.api.table.of_tenant(self.tenant);
        let mut jobs = self.jobs(&all, missing).await?;
        let mut views = Vec::with_capacity(all.len());
        let mut with_attempts = 0;
        for subscription in &all {
            let job = jobs.remove(&subscription.id);
            let mut view = json!({"subscription": subscription.id, "name": subscription.name});
            match job {
                Some(job) => {
                    view["matched"] = true.into();
                    if with_attempts < ATTEMPTS_OF_MAX {
                        with_attempts += 1;
                        view["attempts"] = self.attempts(&job, missing).await?;
                    }
                    view["job"] = shown(job);
                }
                None => {
                    view["matched"] = Value::Null;
                    view["why"] = why_not(subscription, record).into();
                }
            }
            views.push(view);
        }
        Ok(views.into())
    }

    async fn jobs(
        &self,
        all: &[Arc<Subscription>],
        missing: &mut Missing,
    ) -> Result<BTreeMap<SubscriptionId, JobState>, Problem> {
        let mut by_partition = BTreeMap::<i32, Vec<SubscriptionId>>::new();
        for subscription in all {
            by_partition.entry(home(self.api, subscription.id)).or_default().push(subscription.id);
        }
        let (hasty, mut found) = (self.inbound.hasty(), BTreeMap::new());
        for (partition, ids) in by_partition {
            for ids in ids.chunks(usize::from(PAGE_MAX)) {
                let question = Question::Jobs {
                    tenant: self.tenant.clone(),
                    event: self.id,
                    subscriptions: ids.to_vec(),
                };
                let answer = ask(self.api, &hasty, partition, question).await;
                match missing.note(|| format!("delivery/{partition}"), answer)? {
                    Some(Answer::Jobs { jobs }) => {
                        found.extend(jobs.into_iter().map(|job| (job.subscription, job)));
                    }
                    Some(_) => return Err(misfit()),
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// The attempts of a job among the last ones of its subscription.
    async fn attempts(&self, job: &JobState, missing: &mut Missing) -> Result<Value, Problem> {
        let partition = home(self.api, job.subscription);
        let question =
            Question::Attempts { subscription: job.subscription, before: None, limit: PAGE_MAX };
        let answer = ask(self.api, &self.inbound.hasty(), partition, question).await;
        match missing.note(|| format!("delivery/{partition}"), answer)? {
            Some(Answer::Attempts(page)) => {
                let own: Vec<_> =
                    page.attempts.into_iter().filter(|attempt| attempt.job == job.job).collect();
                Ok(shown(own))
            }
            Some(_) => Err(misfit()),
            None => Ok(Value::Null),
        }
    }
}

/// Why no job is known, as the subscription stands now.
fn why_not(subscription: &Subscription, record: &StoredRecord) -> &'static str {
    let major = record.text(internal::MAJOR).and_then(|text| text.parse().ok()).unwrap_or(0);
    let wanted = Wanted {
        origin: record.text("ce-source").unwrap_or_default(),
        resource: record.text("ce-resourcetype").unwrap_or_default(),
        event: record.text("ce-eventtype").unwrap_or_default(),
        major,
    };
    let matches = |key: &streaming_hub_model::event_key::KeyPattern| {
        key.matches(wanted.resource, wanted.event)
    };
    if !subscription.event_types.iter().any(matches) {
        "event_type"
    } else if subscription.origin.as_deref().is_some_and(|origin| origin != wanted.origin) {
        "origin"
    } else if subscription.schema_major != wanted.major {
        "schema_major"
    } else if subscription.created_at.0 > record.timestamp_ms {
        "created_later"
    } else if !subscription.enabled {
        "disabled"
    } else if subscription.verification_state != VerificationState::Active {
        "not_verified"
    } else {
        // It wants it now, and no job is in sight.
        "no_job_known"
    }
}
