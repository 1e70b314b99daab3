//! What may be asked of the delivery task that owns a subscription, and what it answers. Both are
//! data (JSON), so that a question can be handed on to the instance that has the task (design 24).
//!
//! Not here: who may ask (the API), and how an answer is found (the delivery processor). Every
//! answer is bounded: a page, or a batch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::attempt::ErrorClass;
use crate::dead_letter::EndReason;
use crate::destination::{DestinationId, GateState, SpanState};
use crate::id::{EventId, JobId, SubscriptionId};
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// The most entries of one page, whatever is asked for.
pub const PAGE_MAX: u16 = 200;

/// A question to the task of one partition of subscriptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// The last attempts of a subscription, newest first.
    Attempts {
        /// The subscription.
        subscription: SubscriptionId,
        /// Only those numbered below: the `next` of the page before.
        before: Option<u64>,
        /// How many at the most.
        limit: u16,
    },
    /// Dead letters of this partition, by subscription, then oldest first.
    DeadLetters {
        /// Which.
        filter: Filter,
        /// Those behind this one: the `next` of the page before.
        after: Option<Cursor>,
        /// How many at the most.
        limit: u16,
    },
    /// One dead letter in full.
    DeadLetter {
        /// The job.
        job: JobId,
    },
    /// Makes new jobs of dead letters, which end.
    Redeliver {
        /// Which.
        what: Chosen,
        /// The caller's idempotency key: the ids of the new jobs derive from it, so that the same
        /// call made twice cannot make two jobs of one dead letter.
        key: Option<String>,
    },
    /// Makes jobs of stored events, a bounded batch. Asked on the task's own instance only.
    Replay {
        /// The subscription.
        subscription: SubscriptionId,
        /// What tells this replay's jobs from all others.
        nonce: String,
        /// The events, as the inbox has them.
        events: Vec<ReplayedEvent>,
    },
    /// Throws away dead letters of a tenant, a batch at a time.
    Forget {
        /// The tenant.
        tenant: TenantId,
        /// Those behind this one: the `next` of the batch before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Cursor>,
    },
    /// What waits for a subscription.
    Stats {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// Where the jobs of an event stand.
    Jobs {
        /// The event's tenant.
        tenant: TenantId,
        /// The event.
        event: EventId,
        /// The subscriptions of this partition to look at.
        subscriptions: Vec<SubscriptionId>,
    },
    /// How destinations and the subscriptions to them are doing.
    Destinations {
        /// The destinations, with their tenants.
        destinations: Vec<(TenantId, DestinationId)>,
        /// The subscriptions of this partition whose failure spans are asked for.
        subscriptions: Vec<SubscriptionId>,
    },
}

/// The answer to a [`Question`], of the same name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// A page of attempts.
    Attempts(AttemptsPage),
    /// A page of dead letters.
    DeadLetters(DeadLettersPage),
    /// One dead letter; none when there is none of that id here.
    DeadLetter {
        /// The letter.
        letter: Option<Box<DeadLetter>>,
    },
    /// What was redelivered.
    Redelivered(Redelivered),
    /// What was replayed.
    Replayed {
        /// How many jobs were made.
        jobs: u64,
        /// Whether the subscription takes none: it is disabled or gone.
        refused: bool,
    },
    /// How many dead letters were thrown away; ask again until it is none and there is no `next`.
    Forgotten {
        /// How many.
        letters: u64,
        /// `after` of the next batch, when so many were looked at that there may be more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Cursor>,
        /// On the last batch: how many deleted subscriptions, whoever's, have jobs that did not end
        /// yet, and will be dead letters.
        #[serde(default)]
        ending: u64,
    },
    /// What waits.
    Stats(DeliveryStats),
    /// Where jobs stand.
    Jobs {
        /// The jobs that there are.
        jobs: Vec<JobState>,
    },
    /// How destinations are doing; what is not named here is in order.
    Destinations {
        /// The gates that there are.
        gates: Vec<GateState>,
        /// The failure spans that there are.
        spans: Vec<SpanState>,
    },
}

/// A stored event that is to be delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedEvent {
    /// Its headers in order, the hub's own ones included.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Its data.
    pub payload: Vec<u8>,
}

/// Which dead letters; what is absent does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Of this subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionId>,
    /// Ended for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// Ended at or after this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<UnixMillis>,
    /// Ended before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<UnixMillis>,
}

/// Which dead letters to redeliver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "chosen", rename_all = "snake_case")]
pub enum Chosen {
    /// This one.
    One {
        /// The job.
        job: JobId,
    },
    /// A batch of those that a filter names.
    Filtered {
        /// Which.
        filter: Filter,
        /// Those behind this one: the `next` of the batch before.
        after: Option<Cursor>,
        /// How many at the most.
        limit: u16,
    },
}

/// Where a listing of dead letters goes on: text to callers, subscription, time and job inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// The last letter's subscription.
    pub subscription: SubscriptionId,
    /// When it ended, Unix milliseconds.
    pub at_ms: u64,
    /// Its job.
    pub job: JobId,
}

/// A text that no listing gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of a listing")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.subscription, self.at_ms, self.job)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(BadCursor);
        Ok(Self {
            subscription: SubscriptionId::parse(part()?).map_err(|_| BadCursor)?,
            at_ms: part()?.parse().map_err(|_| BadCursor)?,
            job: JobId::parse(part()?).map_err(|_| BadCursor)?,
        })
    }
}

impl TryFrom<String> for Cursor {
    type Error = BadCursor;
    fn try_from(text: String) -> Result<Self, BadCursor> {
        text.parse()
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

/// One line of the attempt log: the value of a record of `<app>-attempts`, and an entry of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLine {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub delivery_id: uuid::Uuid,
    /// The job's subscription.
    pub subscription: SubscriptionId,
    /// Its tenant.
    pub tenant: String,
    /// Its event.
    pub event_id: String,
    /// Which attempt of the job, from 1.
    pub attempt: u32,
    /// The step of the back-off curve that it was made at, from 0.
    #[serde(default)]
    pub step: u32,
    /// Where the job waited for it: 0 for the deliveries, else the tier.
    #[serde(default)]
    pub tier: u8,
    /// When it started.
    pub started_at: UnixMillis,
    /// How long it took, milliseconds.
    pub duration_ms: u64,
    /// `delivered` or `failed`.
    pub outcome: AttemptOutcome,
    /// Of a failure: what kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    /// Of a failure: in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What the destination answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Of a failure: the start of its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_excerpt: Option<String>,
    /// Grows by one with each attempt of the subscription; the cursor of pages. Begins anew when
    /// the log's records are gone.
    #[serde(default)]
    pub number: u64,
}

/// Whether an attempt delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The destination has it.
    Delivered,
    /// It does not.
    Failed,
}

/// A page of attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptsPage {
    /// Newest first.
    pub attempts: Vec<AttemptLine>,
    /// `before` of the next page; none on the last.
    pub next: Option<u64>,
}

/// What a listing says of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterSummary {
    /// The job.
    pub job: JobId,
    /// Its subscription.
    pub subscription: SubscriptionId,
    /// Its tenant.
    pub tenant: String,
    /// Its event.
    pub event_id: String,
    /// The event's `ce-type`.
    pub event_type: String,
    /// When it was matched.
    pub matched_at: UnixMillis,
    /// When it ended.
    pub ended_at: UnixMillis,
    /// Why.
    pub reason: EndReason,
    /// Attempts with a recorded outcome.
    pub attempts: u32,
    /// Error class of the last attempt, its stable name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// The last failure in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Status of the last response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Size of its payload, bytes.
    pub payload_bytes: u64,
}

/// A page of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLettersPage {
    /// By subscription, then oldest first.
    pub letters: Vec<DeadLetterSummary>,
    /// `after` of the next page; none when the partition has no more. A page may hold fewer than
    /// asked for and still have a next one: so many letters are looked at in one go.
    pub next: Option<Cursor>,
}

/// One dead letter in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// As in a listing.
    #[serde(flatten)]
    pub summary: DeadLetterSummary,
    /// The start of the last failure's response, at most 1 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_excerpt: Option<String>,
    /// The event's own headers in their order; what is no UTF-8 is replaced.
    pub headers: Vec<(String, Option<String>)>,
    /// The payload, Base64.
    pub payload_base64: String,
}

/// What a call made of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivered {
    /// The new jobs.
    pub redelivered: Vec<RedeliveredJob>,
    /// Those that stay dead letters, and why.
    pub refused: Vec<RefusedJob>,
    /// `after` of the next batch; none when there is no more.
    pub next: Option<Cursor>,
}

/// A dead letter that became a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeliveredJob {
    /// The dead letter, which is gone.
    pub dead_letter: JobId,
    /// The new job.
    pub job: JobId,
}

/// A dead letter that stays one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedJob {
    /// The dead letter.
    pub dead_letter: JobId,
    /// Why.
    pub because: Refused,
}

/// Why a dead letter is not redelivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// There is none of that id here (any more).
    NotFound,
    /// Its subscription does not exist, as far as the task knows.
    SubscriptionDeleted,
    /// Its subscription is not enabled: the job would end again at once.
    SubscriptionDisabled,
}

/// What waits for a subscription (contract section 4, "Order").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryStats {
    /// Jobs that wait for an attempt, those with one under way included.
    pub backlog: u64,
    /// Whether there are more than `backlog` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_more: bool,
    /// When the oldest of those next in line was matched.
    pub oldest_waiting_at: Option<UnixMillis>,
}

/// Where one job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// The job.
    pub job: JobId,
    /// Its subscription.
    pub subscription: SubscriptionId,
    /// Where it lies.
    #[serde(flatten)]
    pub at: JobPlace,
}

/// Where a job lies (I3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobPlace {
    /// Waits for its first attempt, or has it under way.
    Ready {
        /// When it is due.
        due: UnixMillis,
    },
    /// Waits for a retry, or has one under way.
    Retry {
        /// The tier, from 1.
        tier: u8,
        /// Attempts with a recorded outcome.
        attempts: u32,
        /// When it is due.
        due: UnixMillis,
    },
    /// Ended without delivery.
    DeadLetter {
        /// Why.
        reason: EndReason,
        /// When.
        ended_at: UnixMillis,
    },
    /// Delivered, as far as the attempts that are kept say.
    Delivered {
        /// When its last attempt started.
        started_at: UnixMillis,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::{Opening, Phase};

    fn cursor() -> Cursor {
        let subscription = SubscriptionId::from_parts(5, [1; 10]);
        let event = EventId::from_parts(1, [2; 10]);
        Cursor { subscription, at_ms: 77, job: JobId::derive("acme", event, subscription, b"") }
    }

    #[test]
    fn a_cursor_survives_its_text_and_no_other_text_is_one() {
        let text = cursor().to_string();
        assert_eq!(text.parse(), Ok(cursor()));
        for other in ["", "a.b.c", &text[1..], &format!("{text}.1"), &text.replace(".77.", ".x.")] {
            assert_eq!(other.parse::<Cursor>(), Err(BadCursor), "{other}");
        }
    }

    #[test]
    fn questions_and_answers_survive_json() {
        let filter = Filter { reason: Some(EndReason::Poison), ..Filter::default() };
        let question = Question::Redeliver {
            what: Chosen::Filtered { filter, after: Some(cursor()), limit: 9 },
            key: Some("k".into()),
        };
        let text = serde_json::to_string(&question).unwrap();
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), question);
        let gate = GateState {
            tenant: TenantId::parse("acme").unwrap(),
            destination: DestinationId::parse(&"0a".repeat(16)).unwrap(),
            phase: Phase::HalfOpen,
            opening: Some(Opening { until: UnixMillis(3), openings: 2 }),
            throttled_until: None,
            waiting: 1,
        };
        let at = JobPlace::Retry { tier: 2, attempts: 2, due: UnixMillis(9) };
        let state = JobState { job: cursor().job, subscription: cursor().subscription, at };
        for answer in [
            Answer::Jobs { jobs: vec![state] },
            Answer::DeadLetter { letter: None },
            Answer::Stats(DeliveryStats::default()),
            Answer::Destinations { gates: vec![gate], spans: Vec::new() },
            Answer::Redelivered(Redelivered { next: Some(cursor()), ..Redelivered::default() }),
        ] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        }
    }
}
