//! Dead letters in the store: a view of `<app>-dead-letters`, listed by subscription and time,
//! bounded in number and age. Redelivering one, or throwing it away, ends it in its topic and here
//! in one transaction (I3).
//!
//! Not here: why a job ends (`ends`, `outcome`), and what becomes of one that is redelivered
//! (`redelivery`).

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::delivery_calls::{Cursor, DeadLetter, DeadLetterSummary, Filter};
use streaming_hub_model::headers::{self, Headers};
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_model::{internal, tenant};
use streaming_hub_state::family::dead_letter;
use streaming_hub_state::{Record as Stored, State};

use super::outcome::Counted;
use super::places::refs;
use super::{Delivery, must_stop};
use crate::runtime::processor::{Error, Output, Record, Step};
use crate::topics::Topic;

/// How many entries one look at the listing passes at the most.
const LOOKED_AT_MAX: usize = 10_000;
/// How many letters that are too old go in one step.
const AGED_MAX: usize = 500;

/// A dead letter as it lies in the store.
pub(super) struct Letter {
    pub(super) job: JobId,
    pub(super) facts: JobFacts,
    pub(super) event: EventId,
    pub(super) tenant: String,
    pub(super) payload: Bytes,
    record: Stored,
    reason: EndReason,
    ended: UnixMillis,
}

impl Letter {
    /// The letter of an encoded record; `None` for a stranger's.
    fn decode(job: JobId, encoded: &Bytes) -> Result<Option<Self>, Error> {
        let record = Stored::decode(encoded)?;
        let list = refs(&record);
        let view = Headers::new(&list);
        let read = JobFacts::read(view).and_then(|facts| {
            let tenant = internal::text(view, internal::TENANT)?;
            tenant::validate(tenant).map_err(|_| internal::Error::Header(internal::TENANT))?;
            let event = EventId::parse(internal::text(view, internal::ID)?)
                .map_err(|_| internal::Error::Header(internal::ID))?;
            let reason = EndReason::parse(internal::text(view, internal::REASON)?);
            let reason = reason.ok_or(internal::Error::Header(internal::REASON))?;
            let ended = UnixMillis(internal::number(view, internal::AT)?);
            Ok((facts, event, tenant.to_owned(), (reason, ended)))
        });
        let (facts, event, tenant, (reason, ended)) = match read {
            Ok(read) => read,
            Err(error) if must_stop(&error) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        let payload = record.payload.clone().unwrap_or_default();
        Ok(Some(Self { job, facts, event, tenant, payload, record, reason, ended }))
    }

    /// Its record.
    pub(super) fn record(&self) -> &Stored {
        &self.record
    }

    /// Where it stands in a listing.
    pub(super) fn cursor(&self) -> Cursor {
        let at_ms = u64::try_from(self.ended.0).unwrap_or(0);
        Cursor { subscription: self.facts.subscription, at_ms, job: self.job }
    }

    /// Why and when it ended.
    pub(super) fn end(&self) -> (EndReason, UnixMillis) {
        (self.reason, self.ended)
    }

    /// What a listing says of it.
    pub(super) fn summary(&self) -> DeadLetterSummary {
        let list = refs(&self.record);
        let view = Headers::new(&list);
        let text = |name| view.last_text(name).map(str::to_owned);
        DeadLetterSummary {
            job: self.job,
            subscription: self.facts.subscription,
            tenant: self.tenant.clone(),
            event_id: self.event.to_string(),
            event_type: text(headers::CE_TYPE).unwrap_or_default(),
            matched_at: self.facts.matched,
            ended_at: self.ended,
            reason: self.reason,
            attempts: self.facts.attempts,
            error_class: text(internal::CLASS),
            detail: text(internal::DETAIL),
            status: text(internal::STATUS).and_then(|status| status.parse().ok()),
            payload_bytes: self.payload.len() as u64,
        }
    }

    /// All of it.
    pub(super) fn in_full(&self) -> DeadLetter {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let own = self.record.headers.iter().filter(|header| {
            std::str::from_utf8(&header.name).is_ok_and(streaming_hub_model::headers::travels)
        });
        let excerpt = self.record.header(internal::EXCERPT);
        DeadLetter {
            summary: self.summary(),
            response_excerpt: excerpt.map(|bytes| lossy(bytes)),
            headers: own.map(|h| (lossy(&h.name), h.value.as_deref().map(lossy))).collect(),
            payload_base64: STANDARD.encode(&self.payload),
        }
    }
}

/// Puts a letter in place of an older one of its id; `false` for a stranger's record.
pub(super) fn put(state: &mut State, job: JobId, encoded: &Bytes) -> Result<bool, Error> {
    let Some(letter) = Letter::decode(job, encoded)? else { return Ok(false) };
    remove(state, job)?;
    let (id, subscription) = (job.as_bytes(), *letter.facts.subscription.as_bytes());
    let at_ms = u64::try_from(letter.ended.0).unwrap_or(0);
    let entry = dead_letter::Entry { subscription, at_ms };
    state.put(dead_letter::key(id), dead_letter::value(entry, encoded));
    let listed = dead_letter::listed_value(letter.reason.as_str(), &letter.tenant)?;
    state.put(dead_letter::listed_key(entry, id), listed);
    let count = dead_letter::count(state, &subscription)?;
    dead_letter::set_count(state, &subscription, count + 1);
    Ok(true)
}

/// Removes a letter; answers whether there was one.
pub(super) fn remove(state: &mut State, job: JobId) -> Result<bool, Error> {
    let key = dead_letter::key(job.as_bytes());
    let Some(value) = state.get(&key)? else { return Ok(false) };
    let (entry, _) = dead_letter::decode_value(&value)?;
    state.delete(key);
    state.delete(dead_letter::listed_key(entry, job.as_bytes()));
    let count = dead_letter::count(state, &entry.subscription)?;
    dead_letter::set_count(state, &entry.subscription, count.saturating_sub(1));
    Ok(true)
}

/// Takes a record of the topic into the store: a letter, or the end of one.
pub(super) fn restore(job: JobId, record: &Record<'_>, state: &mut State) -> Result<(), Error> {
    if record.value.is_none() {
        return remove(state, job).map(|_| ());
    }
    let headers = record.headers.iter().map(|(name, value)| (*name, *value));
    match Stored::encode_parts(headers, record.value) {
        Ok(encoded) => put(state, job, &encoded).map(|_| ()),
        // More headers than an accepted event can have: a stranger's.
        Err(_) => Ok(()),
    }
}

/// The letter of a job.
pub(super) fn get(state: &State, job: JobId) -> Result<Option<Letter>, Error> {
    let Some(value) = state.get(&dead_letter::key(job.as_bytes()))? else { return Ok(None) };
    let (_, encoded) = dead_letter::decode_value(&value)?;
    Letter::decode(job, &encoded)
}

/// Letters of a listing, and where it goes on.
pub(super) type Listed = (Vec<JobId>, Option<Cursor>);

/// The letters that a filter names, by subscription, then oldest first. Looks at a bounded number,
/// so that it may find fewer than `limit` and still go on.
pub(super) fn list(
    state: &State,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Listed, Error> {
    let mut range = match filter.subscription {
        Some(id) => dead_letter::of_subscription(id.as_bytes()),
        None => dead_letter::listing(),
    };
    if let Some(after) = after {
        let entry =
            dead_letter::Entry { subscription: *after.subscription.as_bytes(), at_ms: after.at_ms };
        range = range.starting_after(&dead_letter::listed_key(entry, after.job.as_bytes()));
    }
    let mut look = Look { filter, limit, looked_at: 0, found: Vec::new(), last: None };
    loop {
        let mut met = Ok(Met::Next);
        let flow = state.scan(&range, &mut |key, value| {
            met = look.at(key, value);
            if matches!(met, Ok(Met::Next)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        match met? {
            // Another tenant's: none of that subscription's letters are wanted.
            Met::Skip(subscription) if flow.is_break() => {
                let last = dead_letter::Entry { subscription, at_ms: u64::MAX };
                range = range.starting_after(&dead_letter::listed_key(last, &[0xff; 16]));
            }
            Met::Full => return Ok((look.found, look.last)),
            Met::Next | Met::Skip(_) => return Ok((look.found, None)),
        }
    }
}

/// What a look at the listing met.
enum Met {
    /// The next entry is to be looked at.
    Next,
    /// No other letter of this subscription is wanted.
    Skip([u8; 16]),
    /// It is enough.
    Full,
}

/// One look at the listing.
struct Look<'a> {
    filter: &'a Filter,
    limit: usize,
    looked_at: usize,
    found: Vec<JobId>,
    last: Option<Cursor>,
}

impl Look<'_> {
    fn at(&mut self, key: &[u8], value: &[u8]) -> Result<Met, Error> {
        if self.found.len() >= self.limit || self.looked_at >= LOOKED_AT_MAX {
            return Ok(Met::Full);
        }
        self.looked_at += 1;
        let (entry, job) = dead_letter::decode_listed_key(key)?;
        let (reason, tenant) = dead_letter::decode_listed_value(value)?;
        let (Ok(subscription), Ok(job)) =
            (SubscriptionId::from_bytes(entry.subscription), JobId::from_bytes(job))
        else {
            return Ok(Met::Next);
        };
        self.last = Some(Cursor { subscription, at_ms: entry.at_ms, job });
        let Filter { tenant: of, reason: because, from, to, .. } = self.filter;
        if of.as_ref().is_some_and(|of| of.as_str().as_bytes() != tenant) {
            return Ok(Met::Skip(entry.subscription));
        }
        let at = UnixMillis(i64::try_from(entry.at_ms).unwrap_or(i64::MAX));
        if because.is_none_or(|because| because.as_str().as_bytes() == reason)
            && from.is_none_or(|from| from <= at)
            && to.is_none_or(|to| at < to)
        {
            self.found.push(job);
        }
        Ok(Met::Next)
    }
}

/// The oldest letter of a subscription, and when it ended (Unix milliseconds).
fn oldest(state: &State, subscription: &[u8; 16]) -> Result<Option<(JobId, u64)>, Error> {
    let first = state.collect(&dead_letter::of_subscription(subscription), 1)?;
    let Some((key, _)) = first.first() else { return Ok(None) };
    let (entry, job) = dead_letter::decode_listed_key(key)?;
    Ok(JobId::from_bytes(job).ok().map(|job| (job, entry.at_ms)))
}

/// Ends a letter in its topic and in the store.
pub(super) fn end(job: JobId, step: &mut Step<'_>) -> Result<(), Error> {
    step.outputs.emit(Output {
        topic: Topic::DeadLetters,
        partition: step.partition,
        key: Some(job.to_string().as_bytes()),
        headers: &[],
        value: None,
    });
    remove(step.state, job).map(|_| ())
}

impl Delivery {
    /// Makes room: beyond so many letters of a subscription the oldest go.
    pub(super) fn bound_letters(
        &mut self,
        subscription: SubscriptionId,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let most = self.settings.retention.dead_letters_per_subscription.max(1);
        // Two for each that comes: a bound that was lowered is reached in a while.
        for _ in 0..2 {
            if dead_letter::count(step.state, subscription.as_bytes())? <= most {
                return Ok(());
            }
            let Some((job, _)) = oldest(step.state, subscription.as_bytes())? else {
                return Ok(());
            };
            end(job, step)?;
            self.tally.push(Counted::LetterGone("overflow"));
        }
        Ok(())
    }

    /// Ends letters that are too old, a bounded number; answers whether that was all.
    pub(super) fn age_letters(&mut self, step: &mut Step<'_>) -> Result<bool, Error> {
        let kept_ms = self.settings.retention.dead_letters_ms;
        let bound = u64::try_from(step.now.0).unwrap_or(0).saturating_sub(kept_ms);
        let (mut after, mut gone) = (None, 0);
        while let Some(subscription) = dead_letter::next_subscription(step.state, after.as_ref())? {
            while let Some((job, at_ms)) = oldest(step.state, &subscription)? {
                if at_ms >= bound {
                    break;
                }
                if gone == AGED_MAX {
                    return Ok(false);
                }
                gone += 1;
                end(job, step)?;
                self.tally.push(Counted::LetterGone("age"));
            }
            after = Some(subscription);
        }
        Ok(true)
    }
}
