//! Reading an entry of a producers' dead-letter topic (contract section 6): who wrote it, why, and
//! what it holds. It is for showing only; nothing read here ever becomes a delivery.
//!
//! Invariant: every record is an entry. What cannot be read is listed as that, and no text of a
//! stranger is taken at more than a bounded length.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::follow::{PREFIX, is_source};
use crate::headers::{self, Headers};
use crate::id::EventId;
use crate::rfc3339;
use crate::time::UnixMillis;

/// What all names of the headers that a dead-letter writer adds begin with.
pub const HEADER_PREFIX: &str = "x-lerian-dlq-";
/// What is said where a writer said nothing.
pub const UNKNOWN: &str = "unknown";
/// The longest name that is taken from a header, bytes; a topic's name is no longer.
const NAME_BYTES_MAX: usize = 256;
/// The longest error message that writers write, bytes.
const MESSAGE_BYTES_MAX: usize = 4_096;

const SOURCE_TOPIC: &str = "x-lerian-dlq-source-topic";
const ERROR_CLASS: &str = "x-lerian-dlq-error-class";
const ERROR_MESSAGE: &str = "x-lerian-dlq-error-message";
const RETRY_COUNT: &str = "x-lerian-dlq-retry-count";
const FIRST_FAILURE_AT: &str = "x-lerian-dlq-first-failure-at";
const PRODUCER_ID: &str = "x-lerian-dlq-producer-id";
const SOURCE_PARTITION: &str = "x-lerian-dlq-source-partition";
const SOURCE_OFFSET: &str = "x-lerian-dlq-source-offset";
const CAUSE_KIND: &str = "x-lerian-dlq-cause-kind";
const PAYLOAD_OMITTED: &str = "x-lerian-dlq-payload-omitted";
const PAYLOAD_BYTES: &str = "x-lerian-dlq-payload-bytes";

/// Causes that get a label of their own in metrics; newer producers add others.
pub const KNOWN_CAUSES: [&str; 13] = [
    "auth_error",
    "broker_overloaded",
    "broker_unavailable",
    "codec",
    "context_canceled",
    "handler",
    "network_timeout",
    "serialization_error",
    "source_mismatch",
    "topic_not_found",
    "unhandled_key",
    UNKNOWN,
    "validation_error",
];

/// Who put the entry there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writer {
    /// A producer that could not write its record where it belongs.
    Producer,
    /// A consumer that could not handle a record.
    Consumer,
}

/// What the entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A fact.
    Fact,
    /// A command.
    Command,
    /// A system event.
    SystemEvent,
    /// No CloudEvent that could be told.
    Unreadable,
}

impl Content {
    /// All of them, for those who ask by name.
    pub const ALL: [Self; 4] = [Self::Fact, Self::Command, Self::SystemEvent, Self::Unreadable];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fact => "fact",
            Self::Command => "command",
            Self::SystemEvent => "system_event",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Where an entry lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The dead-letter topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

/// What lists show of an entry, and what it is found by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Where it lies.
    #[serde(flatten)]
    pub place: Place,
    /// The record's timestamp.
    pub at: UnixMillis,
    /// Whose dead-letter topic it is.
    pub application: String,
    /// Who wrote it.
    pub writer: Writer,
    /// Why: the cause kind of a consumer's quarantine, the error class of a producer's copy.
    pub cause: String,
    /// What it holds.
    pub content: Content,
    /// Where the record was meant to go, or came from.
    pub source_topic: Option<String>,
    /// `ce-source`, which may be another application's.
    pub source: Option<String>,
    /// `ce-tenantid`.
    pub tenant: Option<String>,
    /// `ce-id`, when it is one.
    pub event_id: Option<String>,
    /// Whether the payload was left out for its size.
    pub payload_omitted: bool,
}

/// What else the headers of one entry say. The message may hold personal data: it is for operators
/// and never for a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Details {
    /// The writer's error class; on a consumer's quarantine it means nothing and is left out.
    pub error_class: Option<String>,
    /// What went wrong, in the writer's words.
    pub error_message: Option<String>,
    /// How often it was tried; unknown on a producer's copy that says 0.
    pub retry_count: Option<u64>,
    /// When it first failed; of a quarantine, when it was quarantined. As it was written.
    pub first_failure_at: Option<String>,
    /// The producer's id.
    pub producer_id: Option<String>,
    /// The group of the consumer that quarantined it.
    pub consumer_group: Option<String>,
    /// Where the quarantined record lies.
    pub source_partition: Option<i32>,
    /// Where the quarantined record lies.
    pub source_offset: Option<i64>,
    /// Size of a payload that was left out, bytes.
    pub payload_bytes: Option<u64>,
}

/// Which entries are asked for; what is absent does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The dead-letter topic.
    pub topic: Option<String>,
    /// Whose dead-letter topic it is.
    pub application: Option<String>,
    /// Where the record was meant to go, or came from.
    pub source_topic: Option<String>,
    /// `ce-source`.
    pub source: Option<String>,
    /// `ce-tenantid`.
    pub tenant: Option<String>,
    /// Who wrote it.
    pub writer: Option<Writer>,
    /// The cause kind or error class.
    pub cause: Option<String>,
    /// What it holds.
    pub content: Option<Content>,
    /// Not older than this.
    pub since: Option<UnixMillis>,
    /// Older than this.
    pub until: Option<UnixMillis>,
}

/// A part of the entries that a filter admits, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Summary>,
    /// Where the next page begins; none behind the last.
    pub next_cursor: Option<String>,
    /// All entries that the filter admits.
    pub total: u64,
    /// The same by cause.
    pub by_cause: BTreeMap<String, u64>,
    /// The same by dead-letter topic.
    pub by_topic: BTreeMap<String, u64>,
    /// Whether everything that the topics hold is in the index.
    pub complete: bool,
}

/// One entry in full, read from its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What lists show.
    pub summary: Summary,
    /// What else the headers say.
    pub details: Details,
    /// The record's key.
    pub key: Option<Vec<u8>>,
    /// All headers, in order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The payload.
    pub value: Option<Vec<u8>>,
}

/// Reads what lists show.
#[must_use]
pub fn summary(place: Place, at: UnixMillis, headers: Headers<'_>) -> Summary {
    let writer = writer(headers);
    let cause = match writer {
        Writer::Consumer => name(headers, CAUSE_KIND),
        Writer::Producer => name(headers, ERROR_CLASS),
    };
    let source_topic = name(headers, SOURCE_TOPIC);
    Summary {
        application: application(&place.topic).to_owned(),
        writer,
        cause: cause.unwrap_or_else(|| UNKNOWN.to_owned()),
        content: content(headers, source_topic.as_deref()),
        source_topic,
        source: name(headers, headers::CE_SOURCE),
        tenant: name(headers, headers::CE_TENANTID),
        event_id: event_id(headers).map(|id| id.to_string()),
        payload_omitted: headers.last(PAYLOAD_OMITTED) == Some(b"true"),
        place,
        at,
    }
}

/// Reads what only one entry shows.
#[must_use]
pub fn details(headers: Headers<'_>) -> Details {
    let is_consumers = writer(headers) == Writer::Consumer;
    let id = name(headers, PRODUCER_ID);
    let (producer_id, consumer_group) = if is_consumers { (None, id) } else { (id, None) };
    let retries = number::<u64>(headers, RETRY_COUNT);
    Details {
        error_class: name(headers, ERROR_CLASS).filter(|_| !is_consumers),
        error_message: headers.last(ERROR_MESSAGE).map(|text| lossy(text, MESSAGE_BYTES_MAX)),
        retry_count: retries.filter(|count| is_consumers || *count > 0),
        first_failure_at: name(headers, FIRST_FAILURE_AT),
        producer_id,
        consumer_group,
        source_partition: number(headers, SOURCE_PARTITION),
        source_offset: number(headers, SOURCE_OFFSET),
        payload_bytes: number(headers, PAYLOAD_BYTES),
    }
}

/// Whose dead-letter topic this is: `a` of `lerian.streaming.a.dlq`.
#[must_use]
pub fn application(topic: &str) -> &str {
    let name = topic.strip_prefix(PREFIX).unwrap_or(topic);
    name.strip_suffix(".dlq").unwrap_or(name)
}

/// The cause as a label of a metric: one of a known few.
#[must_use]
pub fn label(cause: &str) -> &'static str {
    KNOWN_CAUSES.into_iter().find(|known| *known == cause).unwrap_or("other")
}

/// Only a consumer says where the record lay and of which kind the cause is.
fn writer(headers: Headers<'_>) -> Writer {
    let added = [CAUSE_KIND, SOURCE_PARTITION, SOURCE_OFFSET];
    if added.iter().any(|name| headers.last(name).is_some()) {
        Writer::Consumer
    } else {
        Writer::Producer
    }
}

fn content(headers: Headers<'_>, source_topic: Option<&str>) -> Content {
    let source = headers.last_text(headers::CE_SOURCE).unwrap_or_default();
    // The older layout has sources such as `//lerian.midaz/transaction-service`.
    let has_source = is_source(source) || source.contains(['.', '/', ':']);
    let has_type = headers.last_text(headers::CE_TYPE).is_some();
    let time = headers.last_text(headers::CE_TIME).map(rfc3339::parse_millis);
    let is_event = headers.last(headers::CE_SPECVERSION) == Some(b"1.0")
        && event_id(headers).is_some()
        && has_source
        && has_type
        && matches!(time, Some(Ok(_)));
    if headers.last(headers::CE_SYSTEMEVENT) == Some(b"true") {
        Content::SystemEvent
    } else if !is_event {
        Content::Unreadable
    } else if source_topic.is_some_and(|topic| topic.ends_with(".commands")) {
        Content::Command
    } else {
        Content::Fact
    }
}

fn event_id(headers: Headers<'_>) -> Option<EventId> {
    EventId::parse(headers.last_text(headers::CE_ID)?).ok()
}

fn number<T: std::str::FromStr>(headers: Headers<'_>, name: &str) -> Option<T> {
    headers.last_text(name)?.parse().ok()
}

fn name(headers: Headers<'_>, name: &str) -> Option<String> {
    headers.last(name).map(|text| lossy(text, NAME_BYTES_MAX))
}

fn lossy(text: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(bytes_max)]).into_owned()
}

#[cfg(test)]
mod tests;
