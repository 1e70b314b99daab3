//! What follows from an outcome: a job that is delivered ends, one that failed moves to the next
//! tier or to the dead letters, each with a record of the attempt, all in one transaction (I3, I4).

use serde::Serialize;
use streaming_hub_model::attempt::{AttemptResult, ErrorClass, Outcome};
use streaming_hub_model::headers::HeaderRef;
use streaming_hub_model::internal;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::Place;

use super::ends::EndReason;
use super::places::{self, StoredJob};
use super::{Claimed, Delivery, HUB_FAULT_MS, Returned};
use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Step};
use crate::topics::Topic;

/// What is counted once it has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Delivered,
    Dead(EndReason),
    Unreadable,
}

impl Counted {
    pub(super) fn tell(self, metrics: &Metrics) {
        match self {
            Self::Delivered => metrics.delivered(),
            Self::Dead(reason) => metrics.dead_letter(reason.as_str()),
            Self::Unreadable => metrics.unreadable("delivery"),
        }
    }
}

/// One line of the attempt log, `<app>-attempts`.
#[derive(Debug, Serialize)]
struct AttemptRecord<'a> {
    job: String,
    delivery_id: String,
    subscription: String,
    tenant: &'a str,
    event_id: &'a str,
    /// Which attempt of the job, from 1.
    attempt: u32,
    /// Unix milliseconds.
    started_at: i64,
    duration_ms: u64,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<ErrorClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_excerpt: Option<String>,
}

impl Delivery {
    /// Records what became of an attempt.
    pub(super) fn take_outcome(
        &mut self,
        returned: &Returned,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        // An outcome that comes again after an abort is of no use to a later attempt.
        let of_it = |claimed: &&mut Claimed| claimed.attempt == Some(returned.delivery_id);
        let Some(claimed) = self.claimed.get_mut(&returned.job).filter(of_it) else {
            return Ok(());
        };
        let job = claimed.stored.clone();
        if !std::mem::replace(&mut claimed.returned, true) {
            self.lanes.returned(job.facts.subscription);
        }
        let failure = match &returned.outcome.result {
            AttemptResult::NotAttempted { .. } => {
                self.not_attempted(&job, step.now);
                return Ok(());
            }
            AttemptResult::Delivered => None,
            AttemptResult::Failed { class, detail } => Some((*class, detail.as_str())),
        };
        claimed.recorded = true;
        self.recorded.push(job.id);
        log_attempt(&job, returned, failure, step);
        match failure {
            None => {
                self.tally.push(Counted::Delivered);
                leave(&job, step)
            }
            Some(failure) => self.failed(&job, failure, &returned.outcome, step),
        }
    }

    /// The hub's own fault uses no step: the job stays where it is and is tried again later.
    fn not_attempted(&mut self, job: &StoredJob, now: UnixMillis) {
        self.claimed.remove(&job.id);
        let id = job.facts.subscription;
        if job.is_first() {
            self.lanes.unpass(id, job.order);
        }
        self.lanes.hold_until(id, now.plus(HUB_FAULT_MS));
    }

    fn failed(
        &mut self,
        job: &StoredJob,
        (class, detail): (ErrorClass, &str),
        outcome: &Outcome,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let attempts = job.facts.attempts + 1;
        if class.is_terminal() {
            let end = End { reason: EndReason::Terminal(class), class: Some(class), detail };
            end_job(job, JobFacts { attempts, ..job.facts }, &end, outcome.status, step)?;
            self.tally.push(Counted::Dead(end.reason));
            return Ok(());
        }
        let subscription = self.settings.table.get(job.facts.subscription);
        let default = &self.settings.retry_schedule;
        let schedule = match &subscription {
            Some(subscription) => subscription.retry_schedule_or(default),
            None => std::borrow::Cow::Borrowed(default),
        };
        let shares = (self.jitter(), self.jitter());
        let next_ms = schedule.next_delay_after_ms(attempts, shares, outcome.retry_after_ms);
        let tier = u8::try_from(attempts).ok().and_then(Place::tier);
        match (next_ms, tier) {
            (Some(delay_ms), Some(tier)) => {
                let due = step.now.plus(delay_ms);
                retry(job, JobFacts { attempts, due, ..job.facts }, tier, step)
            }
            _ => {
                let facts = JobFacts { attempts, ..job.facts };
                let end = End { reason: EndReason::Exhausted, class: Some(class), detail };
                end_job(job, facts, &end, outcome.status, step)?;
                self.tally.push(Counted::Dead(EndReason::Exhausted));
                Ok(())
            }
        }
    }

    /// Uniform in `0.0..1.0`.
    fn jitter(&self) -> f64 {
        let mut bytes = [0; 4];
        self.settings.entropy.fill(&mut bytes);
        f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// How a job ended.
pub(super) struct End<'a> {
    pub(super) reason: EndReason,
    pub(super) class: Option<ErrorClass>,
    pub(super) detail: &'a str,
}

/// Ends a job in its place: a tombstone in that topic, its entries gone from the store.
fn leave(job: &StoredJob, step: &mut Step<'_>) -> Result<(), Error> {
    step.outputs.emit(Output {
        topic: places::topic_of(job.place),
        partition: step.partition,
        key: Some(job.id.to_string().as_bytes()),
        headers: &[],
        value: None,
    });
    places::remove(step.state, job.place, job.id)
}

/// Moves a job to a tier.
fn retry(job: &StoredJob, facts: JobFacts, tier: Place, step: &mut Step<'_>) -> Result<(), Error> {
    leave(job, step)?;
    let texts = facts.headers();
    let old = job.headers();
    let headers = with_facts(&old, &texts);
    step.outputs.emit(Output {
        topic: places::topic_of(tier),
        partition: step.partition,
        key: Some(job.id.to_string().as_bytes()),
        headers: &headers,
        value: Some(&job.payload),
    });
    if let Some(moved) = job.rewritten(&headers)? {
        // An event that came again beyond the horizon made its job again: it may lie there too.
        places::remove(step.state, tier, job.id)?;
        places::put(step.state, &moved.at(tier))?;
    }
    Ok(())
}

/// Moves a job to the dead letters.
pub(super) fn end_job(
    job: &StoredJob,
    facts: JobFacts,
    end: &End<'_>,
    status: Option<u16>,
    step: &mut Step<'_>,
) -> Result<(), Error> {
    leave(job, step)?;
    let texts = facts.headers();
    let mut more = vec![
        (internal::REASON, end.reason.as_str().to_owned()),
        (internal::AT, step.now.0.to_string()),
    ];
    if let Some(class) = end.class {
        more.push((internal::CLASS, class.to_string()));
        more.push((internal::DETAIL, end.detail.to_owned()));
    }
    if let Some(status) = status {
        more.push((internal::STATUS, status.to_string()));
    }
    let old = job.headers();
    let mut headers = with_facts(&old, &texts);
    headers.extend(internal::refs(&more));
    step.outputs.emit(Output {
        topic: Topic::DeadLetters,
        partition: step.partition,
        key: Some(job.id.to_string().as_bytes()),
        headers: &headers,
        value: Some(&job.payload),
    });
    Ok(())
}

/// The event's headers and the hub's, with these facts in place of the old ones.
fn with_facts<'a>(
    old: &'a [HeaderRef<'a>],
    facts: &'a [(&'static str, String)],
) -> Vec<HeaderRef<'a>> {
    let carried = old.iter().filter(|header| internal::is_carried(header)).copied();
    carried.chain([internal::version()]).chain(internal::refs(facts)).collect()
}

fn log_attempt(
    job: &StoredJob,
    returned: &Returned,
    failure: Option<(ErrorClass, &str)>,
    step: &mut Step<'_>,
) {
    let headers = job.headers();
    let view = streaming_hub_model::headers::Headers::new(&headers);
    let outcome = &returned.outcome;
    let excerpt = failure.filter(|_| !outcome.excerpt.is_empty());
    let record = AttemptRecord {
        job: job.id.to_string(),
        delivery_id: returned.delivery_id.to_string(),
        subscription: job.facts.subscription.to_string(),
        tenant: &job.tenant,
        event_id: internal::text(view, internal::ID).unwrap_or_default(),
        attempt: job.facts.attempts + 1,
        started_at: returned.started.0,
        duration_ms: outcome.duration_ms,
        outcome: if failure.is_some() { "failed" } else { "delivered" },
        error_class: failure.map(|(class, _)| class),
        detail: failure.map(|(_, detail)| detail),
        status: outcome.status,
        response_excerpt: excerpt.map(|_| String::from_utf8_lossy(&outcome.excerpt).into_owned()),
    };
    // The log never drives a delivery: a line that cannot be written is left out.
    let Ok(value) = serde_json::to_vec(&record) else { return };
    step.outputs.emit(Output {
        topic: Topic::Attempts,
        partition: step.partition,
        key: Some(record.subscription.as_bytes()),
        headers: &[],
        value: Some(&value),
    });
}
