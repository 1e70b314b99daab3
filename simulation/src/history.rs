//! What happened, as plain data: what producers wrote, and every committed record of the internal
//! topics, read as its kind says. The invariants are functions of this (`check`). It knows nothing
//! of the simulation: a test with a real broker can fill it from real records.

use std::rc::Rc;

use streaming_hub_model::change::{Change, Reply};
use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::internal::{self, Accepted};
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::pull::retention::Cursor;
use streaming_hub_model::pull::{self, Ask};
use streaming_hub_model::reclaim::DurableClaim;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_topology::topics::Topic;
use uuid::Uuid;

/// A header that an observer adds to inbox records: the table's position at the match.
pub const SEEN_TABLE: &str = "sim-table";
/// A header that an observer adds to inbox records: when the match was made, Unix milliseconds.
pub const SEEN_AT: &str = "sim-at";

/// What has to become of a producer's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// An event of this tenant.
    Accept(EventKey),
    /// A poison record.
    Quarantine,
    /// A system event.
    Drop,
}

/// What identifies an event.
pub type EventKey = (String, EventId);

/// A producer's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// `<topic>/<partition>/<offset>`.
    pub from: String,
    /// What has to become of it.
    pub fate: Fate,
}

/// Ingest's verdict on a producer's record: passed on, or quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The record.
    pub from: String,
    /// Whether it was quarantined.
    pub quarantined: bool,
}

/// A record of the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Tenant and id.
    pub event: EventKey,
    /// Partition of the inbox.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
    /// When ingest saw it, Unix milliseconds.
    pub arrival_ms: i64,
    /// The table's position at the match, if an observer noted it.
    pub table: Option<i64>,
    /// When the match was made, Unix milliseconds, if an observer noted it.
    pub at_ms: Option<i64>,
    /// `ce-source`, `ce-resourcetype`, `ce-eventtype` and schema major.
    pub wanted: (String, String, String, u16),
}

/// Where a job lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Waits for its first attempt.
    Ready,
    /// Waits in this retry tier.
    Tier(u8),
    /// Ended without delivery.
    DeadLetter,
}

/// What a job's record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Tenant and event.
    pub event: EventKey,
    /// Its own facts.
    pub facts: JobFacts,
    /// Why it is a dead letter.
    pub reason: Option<String>,
}

/// A record of the deliveries, a tier or the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Where.
    pub place: Place,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// The job.
    pub job: JobId,
    /// `None` is a tombstone.
    pub put: Option<Put>,
}

/// A record of the attempt log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub delivery_id: Uuid,
    /// Its number, from 1.
    pub number: u32,
    /// Whether it delivered.
    pub delivered: bool,
    /// When it was committed, Unix milliseconds.
    pub at_ms: i64,
}

/// A record of the wishes of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// Its partition and its offset there.
    pub place: (i32, i64),
    /// What is wished.
    pub change: Change,
}

/// A record of the subscriptions.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// When it was committed, Unix milliseconds.
    pub at_ms: i64,
    /// The subscription.
    pub id: SubscriptionId,
    /// `None` is a tombstone.
    pub row: Option<Subscription>,
}

/// What a record of the pull log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marked {
    /// An entry.
    Put {
        /// Its offset.
        offset: i64,
        /// Tenant and event.
        event: EventKey,
    },
    /// An entry is gone.
    End {
        /// Its `seq`.
        seq: u64,
    },
}

/// A record of the pull log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// Whose log.
    pub subscription: SubscriptionId,
    /// What it says.
    pub marked: Marked,
}

/// A record of the cursors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorRecord {
    /// Whose.
    pub subscription: SubscriptionId,
    /// `None` is a tombstone.
    pub cursor: Option<u64>,
}

/// A read of a pull subscription, and what was committed when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Of which.
    pub subscription: SubscriptionId,
    /// What for.
    pub ask: Ask,
    /// The committed cursor.
    pub cursor: u64,
    /// How often the log had ended.
    pub ends: u32,
}

/// An answered read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The read.
    pub asked: Asked,
    /// Where the cursor stands, as it was told.
    pub cursor: u64,
    /// The page: `seq` and event.
    pub entries: Vec<(u64, EventId)>,
}

/// A call of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub delivery_id: Uuid,
    /// For whom.
    pub subscription: SubscriptionId,
    /// Whose subscription.
    pub owner: String,
    /// Whose event.
    pub tenant: String,
    /// The process and the incarnation that made it.
    pub caller: (u64, u64),
    /// Whether it is made in the lane (design 21).
    pub in_lane: bool,
    /// How many attempts of one subscription one caller may have under way.
    pub at_most: usize,
    /// The destination's target.
    pub target: String,
    /// When it was claimed, Unix milliseconds.
    pub at_ms: i64,
    /// The pause or the hold that its process had read by then.
    pub behind: Option<String>,
}

/// One committed record, read as its topic says.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Of the repartition topic or the quarantine.
    Verdict(Verdict),
    /// Of the inbox.
    Taken(Taken),
    /// Of the deliveries, a tier or the dead letters.
    Job(JobRecord),
    /// Of the attempt log.
    Attempted(Attempted),
    /// Of the subscriptions.
    Row(Row),
    /// Of the durable claims; `None` ends one.
    Claimed(JobId, Option<DurableClaim>),
    /// Of the wishes of the registry.
    Wished(Wish),
    /// Of the replies.
    Reply(Reply),
    /// Of the pull log.
    Entry(EntryRecord),
    /// Of the cursors.
    Cursor(CursorRecord),
}

/// Where a record lies and when it was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Its topic.
    pub topic: Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// When it was committed, Unix milliseconds.
    pub at_ms: i64,
}

/// Everything that happened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// What producers wrote.
    pub facts: Vec<Fact>,
    /// What was wished of the registry.
    pub changes: Vec<Wish>,
    /// Verdicts.
    pub verdicts: Vec<Verdict>,
    /// The inbox.
    pub inbox: Vec<Taken>,
    /// Jobs.
    pub jobs: Vec<JobRecord>,
    /// The attempt log.
    pub attempts: Vec<Attempted>,
    /// The subscriptions.
    pub rows: Vec<Row>,
    /// Durable claims and their ends.
    pub claims: Vec<(JobId, Option<DurableClaim>)>,
    /// The replies.
    pub replies: Vec<Reply>,
    /// The pull log.
    pub entries: Vec<EntryRecord>,
    /// The cursors.
    pub cursors: Vec<CursorRecord>,
    /// Pages of pull subscriptions with entries.
    pub pages: usize,
}

impl History {
    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let jobs = self.jobs.len() + self.attempts.len() + self.entries.len() + self.cursors.len();
        self.verdicts.len() + self.inbox.len() + jobs + self.rows.len() + self.replies.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a line.
    pub fn add(&mut self, line: Line) {
        match line {
            Line::Verdict(verdict) => self.verdicts.push(verdict),
            Line::Taken(taken) => self.inbox.push(taken),
            Line::Job(job) => self.jobs.push(job),
            Line::Attempted(attempted) => self.attempts.push(attempted),
            Line::Row(row) => self.rows.push(row),
            Line::Claimed(job, claim) => self.claims.push((job, claim)),
            Line::Wished(wish) => self.changes.push(wish),
            Line::Reply(reply) => self.replies.push(reply),
            Line::Entry(entry) => self.entries.push(entry),
            Line::Cursor(cursor) => self.cursors.push(cursor),
        }
    }
}

/// A record's parts.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [HeaderRef<'a>],
    /// Its value.
    pub value: Option<&'a [u8]>,
}

/// Reads a committed record; `None` for a topic of no interest or a record that does not parse.
#[must_use]
pub fn read(at: At, parts: &Parts<'_>) -> Option<Line> {
    match at.topic {
        Topic::IngestRepartition => verdict(parts, false),
        Topic::Quarantine => verdict(parts, true),
        Topic::Inbox => taken(at, parts),
        Topic::Deliveries => job(at, Place::Ready, parts),
        Topic::Retry(tier) => job(at, Place::Tier(tier), parts),
        Topic::DeadLetters => job(at, Place::DeadLetter, parts),
        Topic::Attempts => attempted(at, parts),
        Topic::Claims => claimed(parts),
        Topic::Subscriptions => row(at, parts),
        Topic::SubscriptionChanges => {
            let change = serde_json::from_slice(parts.value?).ok()?;
            Some(Line::Wished(Wish { place: (at.partition, at.offset), change }))
        }
        Topic::SubscriptionReplies => serde_json::from_slice(parts.value?).ok().map(Line::Reply),
        Topic::Pull => entry(at, parts),
        Topic::Cursors => cursor(parts),
        Topic::Dedup
        | Topic::Failures
        | Topic::Instances
        | Topic::Salts
        | Topic::Destinations
        | Topic::Holds
        | Topic::Idempotency => None,
    }
}

fn verdict(parts: &Parts<'_>, quarantined: bool) -> Option<Line> {
    let from = Headers::new(parts.headers).last_text(internal::FROM)?;
    Some(Line::Verdict(Verdict { from: from.to_owned(), quarantined }))
}

fn taken(at: At, parts: &Parts<'_>) -> Option<Line> {
    let headers = Headers::new(parts.headers);
    let event = Accepted::read(headers).ok()?;
    let number = |name| headers.last_text(name).and_then(|text| text.parse().ok());
    let (origin, resource) = (event.origin.to_owned(), event.resource.to_owned());
    Some(Line::Taken(Taken {
        event: (event.tenant.to_owned(), event.id),
        partition: at.partition,
        offset: at.offset,
        arrival_ms: event.arrival.0,
        table: number(SEEN_TABLE),
        at_ms: number(SEEN_AT),
        wanted: (origin, resource, event.event.to_owned(), event.major),
    }))
}

fn job(at: At, place: Place, parts: &Parts<'_>) -> Option<Line> {
    let job = JobId::parse(std::str::from_utf8(parts.key?).ok()?).ok()?;
    let put = match parts.value {
        None => None,
        Some(_) => {
            let headers = Headers::new(parts.headers);
            let event = Accepted::read(headers).ok()?;
            Some(Put {
                event: (event.tenant.to_owned(), event.id),
                facts: JobFacts::read(headers).ok()?,
                reason: headers.last_text(internal::REASON).map(str::to_owned),
            })
        }
    };
    Some(Line::Job(JobRecord { place, partition: at.partition, offset: at.offset, job, put }))
}

fn entry(at: At, parts: &Parts<'_>) -> Option<Line> {
    let headers = Headers::new(parts.headers);
    let subscription = pull::subscription(headers).ok()?;
    let marked = if parts.value.is_some() {
        let event = Accepted::read(headers).ok()?;
        Marked::Put { offset: at.offset, event: (event.tenant.to_owned(), event.id) }
    } else {
        Marked::End { seq: internal::number(headers, internal::SEQ).ok()? }
    };
    Some(Line::Entry(EntryRecord { subscription, marked }))
}

fn cursor(parts: &Parts<'_>) -> Option<Line> {
    let subscription = SubscriptionId::parse(std::str::from_utf8(parts.key?).ok()?).ok()?;
    let read = |value| serde_json::from_slice::<Cursor>(value).ok();
    let cursor = match parts.value {
        Some(value) => Some(read(value)?.cursor),
        None => None,
    };
    Some(Line::Cursor(CursorRecord { subscription, cursor }))
}

#[derive(serde::Deserialize)]
struct AttemptLine {
    job: JobId,
    delivery_id: Uuid,
    attempt: u32,
    outcome: String,
}

fn attempted(at: At, parts: &Parts<'_>) -> Option<Line> {
    let line: AttemptLine = serde_json::from_slice(parts.value?).ok()?;
    Some(Line::Attempted(Attempted {
        job: line.job,
        delivery_id: line.delivery_id,
        number: line.attempt,
        delivered: line.outcome == "delivered",
        at_ms: at.at_ms,
    }))
}

fn claimed(parts: &Parts<'_>) -> Option<Line> {
    let job = JobId::parse(std::str::from_utf8(parts.key?).ok()?).ok()?;
    let claim = parts.value.and_then(|value| serde_json::from_slice(value).ok());
    Some(Line::Claimed(job, claim))
}

fn row(at: At, parts: &Parts<'_>) -> Option<Line> {
    let id = SubscriptionId::parse(std::str::from_utf8(parts.key?).ok()?).ok()?;
    let row = parts.value.and_then(|value| serde_json::from_slice(value).ok());
    let At { partition, offset, at_ms, .. } = at;
    Some(Line::Row(Row { partition, offset, at_ms, id, row }))
}

/// A history that is shared while it grows.
pub type SharedHistory = Rc<std::cell::RefCell<History>>;
