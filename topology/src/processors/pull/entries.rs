//! The entries of pull subscriptions in the store, and their tombstones. A view of `<app>-pull`:
//! taking a record again that was taken changes nothing.

use std::ops::ControlFlow;

use streaming_hub_model::headers::HeaderRef;
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::internal;
use streaming_hub_model::pull::{self, EntryFacts, Page, PageBuilder};
use streaming_hub_model::routing;
use streaming_hub_state::State;
use streaming_hub_state::family::pull_entry::{self, Entry};
use streaming_hub_state::family::pull_head::{self, Head};

use crate::runtime::processor::{Error, Output, Record, Step};
use crate::topics::Topic;

/// What a record of the pull log was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A new entry of this subscription.
    Entry(SubscriptionId),
    /// Something known, or the end of an entry.
    Nothing,
    /// A stranger's.
    Unreadable,
}

/// How far a subscription's log goes.
pub(super) fn head(state: &State, id: SubscriptionId) -> Result<Head, Error> {
    let stored = state.get(&pull_head::key(id.as_bytes()))?;
    Ok(stored.map(|value| pull_head::decode_value(&value)).transpose()?.unwrap_or_default())
}

/// Takes a record of the pull log into the store.
pub(super) fn take(
    record: &Record<'_>,
    (base, partitions): (u64, u32),
    state: &mut State,
) -> Result<Taken, Error> {
    let view = record.view();
    let Some(payload) = record.value else {
        // Nearly always our own, of an entry that is gone already.
        let ended = pull::subscription(view)
            .and_then(|id| Ok((id, internal::number::<u64>(view, internal::SEQ)?)));
        let Ok((id, seq)) = ended else { return Ok(Taken::Unreadable) };
        let key = pull_entry::key(id.as_bytes(), seq);
        if state.get(&key)?.is_some() {
            state.delete(key);
        }
        return Ok(Taken::Nothing);
    };
    let read = EntryFacts::read(view).and_then(|facts| {
        Ok((facts, internal::text(view, internal::TENANT)?, entry_id(record.key)?))
    });
    let (facts, tenant, id) = match read {
        Ok(read) => read,
        Err(error @ internal::Error::Newer { .. }) => return Err(error.into()),
        Err(internal::Error::Header(_)) => return Ok(Taken::Unreadable),
    };
    let Some(seq) = pull::seq(base, record.offset) else {
        return Err(Error::Refused(format!("offset {} gives no seq", record.offset)));
    };
    let subscription = facts.subscription;
    let mut head = head(state, subscription)?;
    if seq <= head.high {
        return Ok(Taken::Nothing);
    }
    head.high = seq;
    head.total += 1;
    head.table = head.table.max(u64::try_from(facts.table).unwrap_or(0));
    let home = routing::partition_for_tenant(tenant, partitions);
    head.home = u64::try_from(home).unwrap_or(0);
    let matched_ms = u64::try_from(facts.matched.0).unwrap_or(0);
    let entry = Entry { id: *id.as_bytes(), ordinal: head.total, matched_ms };
    let json = pull::render(seq, view, facts.embedding, payload);
    state.put(pull_entry::key(subscription.as_bytes(), seq), entry.value(&json));
    state.put(pull_head::key(subscription.as_bytes()), head.value());
    Ok(Taken::Entry(subscription))
}

fn entry_id(key: Option<&[u8]>) -> Result<JobId, internal::Error> {
    let text = key.and_then(|key| str::from_utf8(key).ok());
    let id = text.and_then(|text| JobId::parse(text).ok());
    id.ok_or(internal::Error::Header("key"))
}

/// Removes an entry for good.
pub(super) fn remove(id: SubscriptionId, seq: u64, entry: &Entry, step: &mut Step<'_>) {
    let Ok(key) = JobId::from_bytes(entry.id) else { return };
    let texts = [(internal::SUBSCRIPTION, id.to_string()), (internal::SEQ, seq.to_string())];
    let mut headers: Vec<HeaderRef<'_>> = vec![internal::version()];
    headers.extend(internal::refs(&texts));
    step.outputs.emit(Output {
        topic: Topic::Pull,
        partition: step.partition,
        key: Some(key.to_string().as_bytes()),
        headers: &headers,
        value: None,
    });
    step.state.delete(pull_entry::key(id.as_bytes(), seq));
}

/// Fills a page with the entries behind `start`.
pub(super) fn fill(
    state: &State,
    id: SubscriptionId,
    start: u64,
    mut page: PageBuilder,
) -> Result<Page, Error> {
    let mut failed = None;
    let _ = state.scan(&pull_entry::behind(id.as_bytes(), start), &mut |key, value| {
        push(&mut page, key, value).unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    })?;
    failed.map_or(Ok(page.finish()), |error| Err(error.into()))
}

/// Takes a stored entry into a page.
///
/// # Errors
/// For bytes that are no entry.
pub(crate) fn push(
    page: &mut PageBuilder,
    key: &[u8],
    value: &[u8],
) -> Result<ControlFlow<()>, streaming_hub_state::Error> {
    let (_, seq) = pull_entry::decode_key(key)?;
    let (_, json) = pull_entry::decode_value(value)?;
    Ok(page.push(seq, json))
}
