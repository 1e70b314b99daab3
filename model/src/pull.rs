//! Pull subscriptions (contract section 5, "Pull"): an entry of the pull log, how it is shown, the
//! rules of the cursor, and what a page holds. Pure; the reads themselves are a processor's.
//!
//! The invariant I6 rests on `seq` = base + log offset: it ascends with the log and with nothing
//! else. The base is at least 1, so that 0 is a cursor before every entry.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::headers::{self, Headers};
use crate::id::SubscriptionId;
use crate::internal::{self, Error};
use crate::json;
use crate::time::UnixMillis;

pub mod page;
pub mod retention;

pub use page::{Page, PageBuilder};

/// No `seq` reaches this: JavaScript's numbers are exact below it.
pub const SEQ_LIMIT: u64 = 1 << 53;
/// By how much the base is raised when the pull topic is made anew: more than a partition's log
/// offsets ever reach, so that every new `seq` is above every one that was given.
pub const BASE_STEP: u64 = 1 << 43;
/// The base of the first pull topic.
pub const BASE_FIRST: u64 = 1;
/// The most entries of one page.
pub const LIMIT_MAX: usize = 1_000;
/// The entries of a page when nothing else is asked for.
pub const LIMIT_DEFAULT: usize = 100;
/// The most bytes of one page's entries (one entry is always served).
pub const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How an entry's data is shown. Decided once, when the entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// The event has no data.
    Nothing,
    /// As JSON, the same text.
    Json,
    /// As base64.
    Base64,
}

impl Embedding {
    /// How the data of an event of this content type (`None`: the default, JSON) is shown.
    #[must_use]
    pub fn of(content_type: Option<&str>, payload: &[u8]) -> Self {
        if payload.is_empty() {
            Self::Nothing
        } else if content_type.is_none_or(json::is_json_type) && json::is_embeddable(payload) {
            Self::Json
        } else {
            Self::Base64
        }
    }

    /// The stable name in an entry's header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Json => "json",
            Self::Base64 => "base64",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Nothing, Self::Json, Self::Base64].into_iter().find(|own| own.as_str() == text)
    }
}

/// What the hub knows of an entry beside its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryFacts {
    /// The subscription that it is for.
    pub subscription: SubscriptionId,
    /// When it was matched.
    pub matched: UnixMillis,
    /// The subscriptions table's position at the match (design 18).
    pub table: i64,
    /// How its data is shown.
    pub embedding: Embedding,
}

impl EntryFacts {
    /// Reads them from an entry's record.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(headers: Headers<'_>) -> Result<Self, Error> {
        internal::check_version(headers)?;
        Ok(Self {
            subscription: subscription(headers)?,
            matched: UnixMillis(internal::number(headers, internal::MATCHED)?),
            table: internal::number(headers, internal::TABLE)?,
            embedding: Embedding::parse(internal::text(headers, internal::EMBED)?)
                .ok_or(Error::Header(internal::EMBED))?,
        })
    }

    /// The headers that say it, to be appended to the event's.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, String); 4] {
        [
            (internal::SUBSCRIPTION, self.subscription.to_string()),
            (internal::MATCHED, self.matched.0.to_string()),
            (internal::TABLE, self.table.to_string()),
            (internal::EMBED, self.embedding.as_str().to_owned()),
        ]
    }
}

/// The subscription that an entry or its tombstone names.
///
/// # Errors
/// [`Error::Header`] without a readable one.
pub fn subscription(headers: Headers<'_>) -> Result<SubscriptionId, Error> {
    let text = internal::text(headers, internal::SUBSCRIPTION)?;
    SubscriptionId::parse(text).map_err(|_| Error::Header(internal::SUBSCRIPTION))
}

/// The `seq` of the entry at this log offset; `None` when it would be none.
#[must_use]
pub fn seq(base: u64, offset: i64) -> Option<u64> {
    let offset = u64::try_from(offset).ok().filter(|offset| *offset < BASE_STEP)?;
    base.checked_add(offset).filter(|seq| (1..SEQ_LIMIT).contains(seq))
}

/// The base of a topic that is made anew.
#[must_use]
pub fn next_base(base: u64) -> Option<u64> {
    base.checked_add(BASE_STEP).filter(|next| *next < SEQ_LIMIT)
}

/// How an entry is called and from which header it comes.
const ATTRIBUTES: [(&str, &str); 12] = [
    ("ceType", headers::CE_TYPE),
    ("source", headers::CE_SOURCE),
    ("time", headers::CE_TIME),
    ("subject", headers::CE_SUBJECT),
    ("schemaVersion", headers::CE_SCHEMAVERSION),
    ("resourceType", headers::CE_RESOURCETYPE),
    ("eventType", headers::CE_EVENTTYPE),
    ("tenantId", internal::TENANT),
    ("dataContentType", headers::CE_DATACONTENTTYPE),
    ("dataSchema", headers::CE_DATASCHEMA),
    ("traceparent", headers::TRACEPARENT),
    ("tracestate", headers::TRACESTATE),
];
/// Headers of an event that are shown under a name of their own.
const SHOWN: [&str; 4] =
    [headers::CE_ID, headers::CE_SPECVERSION, headers::CE_TENANTID, headers::CE_SYSTEMEVENT];

/// An entry as its consumer sees it: one JSON object.
#[must_use]
pub fn render(seq: u64, all: Headers<'_>, embedding: Embedding, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 768);
    out.extend_from_slice(b"{\"seq\":");
    out.extend_from_slice(seq.to_string().as_bytes());
    member(&mut out, "ceId", all.last_text(internal::ID).unwrap_or_default());
    let part = |name| all.last_text(name).unwrap_or_default();
    let key = format!("{}.{}", part(headers::CE_RESOURCETYPE), part(headers::CE_EVENTTYPE));
    member(&mut out, "type", &key);
    for (name, header) in ATTRIBUTES {
        if let Some(value) = all.last_text(header) {
            member(&mut out, name, value);
        }
    }
    extensions(&mut out, all);
    match embedding {
        Embedding::Nothing => {}
        Embedding::Json => {
            out.extend_from_slice(b",\"payload\":");
            out.extend_from_slice(payload);
        }
        Embedding::Base64 => member(&mut out, "payload_base64", &BASE64.encode(payload)),
    }
    out.push(b'}');
    out
}

/// What else the producer said in `ce-*` headers, by name without the prefix.
fn extensions(out: &mut Vec<u8>, all: Headers<'_>) {
    let mut named: Vec<&str> = all
        .travelling()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("ce-") && !SHOWN.contains(name))
        .filter(|name| !ATTRIBUTES.iter().any(|(_, header)| header == name))
        .collect();
    named.sort_unstable();
    named.dedup();
    let mut first = true;
    for name in named {
        let Some(value) = all.last_text(name) else { continue };
        out.extend_from_slice(if first { b",\"extensions\":{" } else { b"," });
        first = false;
        text(out, name.strip_prefix("ce-").unwrap_or(name));
        out.push(b':');
        text(out, value);
    }
    if !first {
        out.push(b'}');
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    text(out, value);
}

fn text(out: &mut Vec<u8>, value: &str) {
    // Writing a text to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The page begins behind this `seq`; behind the cursor when absent.
    pub after: Option<u64>,
    /// The most entries, 1 to [`LIMIT_MAX`].
    pub limit: usize,
}

/// Where a subscription stands when it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The cursor: everything up to it is acknowledged; 0 before the first read.
    pub cursor: u64,
    /// The highest `seq` of the subscription; 0 without an entry.
    pub high: u64,
}

impl Standing {
    /// Behind which `seq` a page begins.
    #[must_use]
    pub fn start(&self, ask: Ask) -> u64 {
        ask.after.unwrap_or(self.cursor)
    }

    /// The cursor after a read whose page ended with `last`. Never lower than before; `after`
    /// counts no further than entries exist.
    #[must_use]
    pub fn moved(&self, ask: Ask, last: Option<u64>) -> u64 {
        let sought = ask.after.unwrap_or(0).min(self.high);
        self.cursor.max(sought).max(last.unwrap_or(0))
    }
}

/// What a page is filled with: `seq` and the rendered entry, ascending.
pub type Fill<'a> = dyn FnMut(u64, &[u8]) -> ControlFlow<()> + 'a;

#[cfg(test)]
mod tests;
