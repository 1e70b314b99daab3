//! What follows from an outcome: a job that is delivered ends, one that failed moves to the next
//! tier or to the dead letters, each with a record of the attempt, all in one transaction (I3, I4).

use streaming_hub_model::attempt::{AttemptResult, EXCERPT_BYTES_MAX, ErrorClass, Outcome};
use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::delivery_calls::{AttemptLine, AttemptOutcome};
use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::internal;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::subscription::DisabledReason;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::Record as Stored;
use streaming_hub_state::family::Place;

use super::attempt_log::DETAIL_MAX;
use super::places::{self, StoredJob};
use super::{Claimed, Delivery, HUB_FAULT_MS, Returned, dead_letters};
use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Step};
use crate::topics::Topic;

/// What is counted once it has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Delivered,
    Dead(EndReason),
    /// A subscription is to be disabled, and why.
    Disabled(DisabledReason),
    /// A dead letter is gone, and why.
    LetterGone(&'static str),
    Unreadable,
}

impl Counted {
    pub(super) fn tell(self, metrics: &Metrics) {
        match self {
            Self::Delivered => metrics.delivered(),
            Self::Dead(reason) => metrics.dead_letter(reason.as_str()),
            Self::Disabled(reason) => metrics.auto_disabled(match reason {
                DisabledReason::Gone => "gone",
                _ => "failing",
            }),
            Self::LetterGone(cause) => metrics.dead_letter_gone(cause),
            Self::Unreadable => metrics.unreadable("delivery"),
        }
    }
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
        let comes_first = !std::mem::replace(&mut claimed.returned, true);
        if comes_first {
            self.pass_on(job.id, &returned.outcome, step.now);
            self.lanes.returned(job.facts.subscription);
        }
        let failure = match &returned.outcome.result {
            AttemptResult::NotAttempted { .. } => {
                self.not_attempted(&job, step.now);
                return Ok(());
            }
            AttemptResult::Failed { class: ErrorClass::Panic, .. } => {
                self.panicked(&job, step.now);
                return Ok(());
            }
            AttemptResult::Delivered => None,
            AttemptResult::Failed { class, detail } => Some((*class, detail.as_str())),
        };
        if let Some(claimed) = self.claimed.get_mut(&job.id) {
            claimed.recorded = true;
        }
        self.recorded.push(job.id);
        self.claims.end(job.id, step);
        self.log_attempt(&job, returned, failure, step)?;
        match failure {
            None => {
                self.tally.push(Counted::Delivered);
                self.span_cleared(job.facts.subscription, step)?;
                leave(&job, step)
            }
            Some(failure) => {
                self.tell_health(&job, failure.0, returned, step)?;
                self.failed(&job, failure, &returned.outcome, step)
            }
        }
    }

    /// What a failure says about its destination. A terminal one says nothing: it was not called.
    fn tell_health(
        &mut self,
        job: &StoredJob,
        class: ErrorClass,
        returned: &Returned,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let (id, generation) = (job.facts.subscription, returned.sink_generation);
        match class {
            ErrorClass::Gone => self.gone(id, generation, step),
            class if class.is_terminal() => Ok(()),
            _ => self.span_grows(id, generation, step),
        }
    }

    /// The hub's own fault uses no step: the job stays where it is and is tried again later.
    fn not_attempted(&mut self, job: &StoredJob, now: UnixMillis) {
        self.claimed.remove(&job.id);
        self.claims.not_attempted(job.id);
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
            let reason = EndReason::Terminal(class);
            let end = End { reason, failure: Some((class, detail, outcome)) };
            end_job(job, JobFacts { attempts, ..job.facts }, &end, step)?;
            self.tally.push(Counted::Dead(reason));
            return self.bound_letters(job.facts.subscription, step);
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
                self.claims.proves(job.id);
                retry(job, JobFacts { attempts, due, ..job.facts }, tier, step)
            }
            _ => {
                let facts = JobFacts { attempts, ..job.facts };
                let failure = Some((class, detail, outcome));
                end_job(job, facts, &End { reason: EndReason::Exhausted, failure }, step)?;
                self.tally.push(Counted::Dead(EndReason::Exhausted));
                self.bound_letters(facts.subscription, step)
            }
        }
    }

    fn log_attempt(
        &mut self,
        job: &StoredJob,
        returned: &Returned,
        failure: Option<(ErrorClass, &str)>,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let headers = job.headers();
        let view = Headers::new(&headers);
        let outcome = &returned.outcome;
        let excerpt = failure.filter(|_| !outcome.excerpt.is_empty());
        let kept = &outcome.excerpt[..outcome.excerpt.len().min(EXCERPT_BYTES_MAX)];
        let line = AttemptLine {
            job: job.id,
            delivery_id: returned.delivery_id,
            subscription: job.facts.subscription,
            tenant: job.tenant.clone(),
            event_id: internal::text(view, internal::ID).unwrap_or_default().to_owned(),
            attempt: job.facts.attempts + 1,
            step: job.facts.attempts,
            tier: job.place.number(),
            started_at: returned.started,
            duration_ms: outcome.duration_ms,
            outcome: failure.map_or(AttemptOutcome::Delivered, |_| AttemptOutcome::Failed),
            error_class: failure.map(|(class, _)| class),
            detail: failure.map(|(_, detail)| shortened(detail).to_owned()),
            status: outcome.status,
            response_excerpt: excerpt.map(|_| String::from_utf8_lossy(kept).into_owned()),
            number: 0,
        };
        // The log never drives a delivery: a line that cannot be written is left out.
        let Some(value) = self.attempt_log.add(line, step)? else { return Ok(()) };
        step.outputs.emit(Output {
            topic: Topic::Attempts,
            partition: step.partition,
            key: Some(job.facts.subscription.to_string().as_bytes()),
            headers: &[],
            value: Some(&value),
        });
        Ok(())
    }

    /// Uniform in `0.0..1.0`.
    pub(super) fn jitter(&self) -> f64 {
        let mut bytes = [0; 4];
        self.settings.entropy.fill(&mut bytes);
        f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// How a job ended.
pub(super) struct End<'a> {
    pub(super) reason: EndReason,
    /// Of a job that ends with an attempt: its class, in words, and what the destination said.
    pub(super) failure: Option<(ErrorClass, &'a str, &'a Outcome)>,
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
    step: &mut Step<'_>,
) -> Result<(), Error> {
    leave(job, step)?;
    let texts = facts.headers();
    let mut more = vec![
        (internal::REASON, end.reason.as_str().to_owned()),
        (internal::AT, step.now.0.to_string()),
    ];
    if let Some((class, detail, outcome)) = end.failure {
        more.push((internal::CLASS, class.to_string()));
        more.push((internal::DETAIL, shortened(detail).to_owned()));
        more.extend(outcome.status.map(|status| (internal::STATUS, status.to_string())));
    }
    let old = job.headers();
    let mut headers = with_facts(&old, &texts);
    headers.extend(internal::refs(&more));
    if let Some((.., outcome)) = end.failure.filter(|(.., outcome)| !outcome.excerpt.is_empty()) {
        let kept = &outcome.excerpt[..outcome.excerpt.len().min(EXCERPT_BYTES_MAX)];
        headers.push((internal::EXCERPT.as_bytes(), Some(kept)));
    }
    step.outputs.emit(Output {
        topic: Topic::DeadLetters,
        partition: step.partition,
        key: Some(job.id.to_string().as_bytes()),
        headers: &headers,
        value: Some(&job.payload),
    });
    let encoded = Stored::encode_parts(headers.iter().copied(), Some(&job.payload))?;
    dead_letters::put(step.state, job.id, &encoded).map(|_| ())
}

/// A failure's words, cut where they would grow without bound.
fn shortened(detail: &str) -> &str {
    detail.char_indices().nth(DETAIL_MAX).map_or(detail, |(end, _)| &detail[..end])
}

/// The event's headers and the hub's, with these facts in place of the old ones.
pub(super) fn with_facts<'a>(
    old: &'a [HeaderRef<'a>],
    facts: &'a [(&'static str, String)],
) -> Vec<HeaderRef<'a>> {
    let carried = old.iter().filter(|header| internal::is_carried(header)).copied();
    carried.chain([internal::version()]).chain(internal::refs(facts)).collect()
}
