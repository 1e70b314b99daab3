//! The cursors of pull subscriptions in the store and in `<app>-cursors`.

use std::ops::ControlFlow;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::internal;
use streaming_hub_model::pull::retention::Cursor;
use streaming_hub_state::State;
use streaming_hub_state::family::pull_cursor;

use crate::runtime::processor::{Error, Output, Record, Step};
use crate::topics::Topic;

/// A subscription's cursor; that before the first read when there is none.
pub(super) fn get(state: &State, id: SubscriptionId) -> Result<Cursor, Error> {
    let stored = state.get(&pull_cursor::key(id.as_bytes()))?;
    // A row is written here or restored after it parsed, so it parses.
    Ok(stored.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default())
}

/// Sets a cursor, or ends it.
pub(super) fn set(id: SubscriptionId, cursor: Option<&Cursor>, step: &mut Step<'_>) {
    let value = cursor.and_then(|cursor| serde_json::to_vec(cursor).ok());
    step.outputs.emit(Output {
        topic: Topic::Cursors,
        partition: step.partition,
        key: Some(id.to_string().as_bytes()),
        headers: &[internal::version()],
        value: value.as_deref(),
    });
    let key = pull_cursor::key(id.as_bytes());
    match value {
        Some(value) => step.state.put(key, value),
        None => step.state.delete(key),
    }
}

/// Takes a record of the cursors' topic into the store.
pub(super) fn restore(record: &Record<'_>, state: &mut State) -> Result<(), Error> {
    let id = record.key.and_then(|key| str::from_utf8(key).ok());
    let Some(id) = id.and_then(|id| SubscriptionId::parse(id).ok()) else { return Ok(()) };
    let key = pull_cursor::key(id.as_bytes());
    let Some(value) = record.value else {
        state.delete(key);
        return Ok(());
    };
    if let Err(error @ internal::Error::Newer { .. }) = internal::check_version(record.view()) {
        return Err(error.into());
    }
    if serde_json::from_slice::<Cursor>(value).is_ok() {
        state.put(key, value.to_vec());
    }
    Ok(())
}

/// The highest cursor of all: no entry may come at or below it any more.
pub(super) fn highest(state: &State) -> Result<u64, Error> {
    let mut highest = 0;
    let _ = state.scan(&pull_cursor::all(), &mut |_, value| {
        if let Ok(row) = serde_json::from_slice::<Cursor>(value) {
            highest = highest.max(row.cursor);
        }
        ControlFlow::Continue(())
    })?;
    Ok(highest)
}
