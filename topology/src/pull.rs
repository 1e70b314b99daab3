//! The way to the pull tasks of this instance: assembles pages beside the task, from a handle on
//! its store that is revoked with it, and has the task decide and commit the cursor; lets consumers
//! wait for entries without a thread.
//!
//! Reads of one subscription are serialised here, so that a page that was assembled is nearly
//! always the one that the task wants; the task decides all the same.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::{PullAnswer, PullLogs, PullStanding};
use streaming_hub_model::pull::retention::Cursor;
use streaming_hub_model::pull::{Ask, Page, PageBuilder};
use streaming_hub_model::routing;
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::{pull_cursor, pull_entry, pull_head};
use streaming_hub_state::{Error, Reader};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::calls::{Calls, Place};
use crate::processors::pull::{Answer, Prepared, Read, entries};
use crate::table::Table;

/// The longest wait between two looks at whether a task is still here.
const LOOK: Duration = Duration::from_millis(500);

/// Where pull tasks and the API's readers meet.
#[derive(Default)]
pub struct Desk {
    stores: Mutex<HashMap<i32, (u64, Option<Reader>)>>,
    seats: Mutex<HashMap<SubscriptionId, Arc<Seat>>>,
    openings: AtomicU64,
}

/// The readers of one subscription.
#[derive(Default)]
struct Seat {
    turn: tokio::sync::Mutex<()>,
    arrived: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// A task's store can be read from now on; answers a number that names this opening.
    pub(crate) fn opened(&self, partition: i32, reader: Option<Reader>) -> u64 {
        let opening = self.openings.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.stores).insert(partition, (opening, reader));
        opening
    }

    /// The task of an opening is gone: who waits for its entries looks elsewhere.
    pub(crate) fn closed(&self, partition: i32, opening: u64) {
        let mut stores = lock(&self.stores);
        if stores.get(&partition).is_some_and(|(current, _)| *current == opening) {
            stores.remove(&partition);
        }
        drop(stores);
        for seat in lock(&self.seats).values() {
            seat.arrived.notify_waiters();
        }
    }

    /// A subscription has new committed entries.
    pub(crate) fn arrived(&self, id: SubscriptionId) {
        if let Some(seat) = lock(&self.seats).get(&id) {
            seat.arrived.notify_waiters();
        }
    }

    fn reader(&self, partition: i32) -> Option<Reader> {
        lock(&self.stores).get(&partition).and_then(|(_, reader)| reader.clone())
    }

    fn seat(&self, id: SubscriptionId) -> Seated<'_> {
        let seat = Arc::clone(lock(&self.seats).entry(id).or_default());
        Seated { desk: self, id, seat }
    }
}

/// A reader's hold on a seat, which goes with its last holder.
struct Seated<'a> {
    desk: &'a Desk,
    id: SubscriptionId,
    seat: Arc<Seat>,
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let mut seats = lock(&self.desk.seats);
        // The map's own and this one.
        if Arc::strong_count(&self.seat) <= 2 {
            seats.remove(&self.id);
        }
    }
}

/// The API's way to the pull tasks.
pub struct PullClient {
    calls: Calls<Read>,
    desk: Arc<Desk>,
    table: Arc<Table>,
    partitions: i32,
}

impl PullClient {
    /// A client of the tasks that `calls` reaches and that meet it at `desk`.
    #[must_use]
    pub fn new(
        calls: Calls<Read>,
        desk: Arc<Desk>,
        (table, partitions): (Arc<Table>, i32),
    ) -> Self {
        Self { calls, desk, table, partitions }
    }

    fn partition(&self, id: SubscriptionId) -> i32 {
        routing::partition_for_subscription(id, self.partitions.unsigned_abs())
    }

    /// The store of a subscription's task, if it runs here and its store can be read beside it.
    fn store(&self, id: SubscriptionId) -> Result<Option<Reader>, CallError> {
        self.store_of(self.partition(id))
    }

    fn store_of(&self, partition: i32) -> Result<Option<Reader>, CallError> {
        match self.calls.place(partition) {
            Place::Here(_) => Ok(self.desk.reader(partition)),
            Place::Elsewhere(peer) => Err(CallError::Elsewhere(peer)),
            Place::Unknown => Err(CallError::Unknown),
        }
    }

    async fn read_page(
        &self,
        id: SubscriptionId,
        ask: Ask,
        deadline: Instant,
    ) -> Result<PullAnswer, CallError> {
        let seat = self.desk.seat(id);
        let turn = tokio::time::timeout_at(deadline, seat.seat.turn.lock());
        // Nobody asked the task yet.
        let _turn = turn.await.map_err(|_| CallError::Unknown)?;
        let page = match self.store(id)? {
            Some(store) => prepare(store, id, ask).await,
            None => None,
        };
        let prepared = page.as_ref().map(|(start, page)| Prepared {
            start: *start,
            last: page.last,
            count: page.count,
        });
        let within = deadline.saturating_duration_since(Instant::now());
        let answer = self.calls.ask(self.partition(id), within, |reply| Read {
            subscription: id,
            ask,
            prepared,
            reply,
        });
        match answer.await {
            Ok(Answer::Moved { cursor, page: own }) => {
                let page = own.or_else(|| page.map(|(_, page)| page));
                let page = page.ok_or(CallError::Unknown)?;
                Ok(PullAnswer::Page(page.into_answer(cursor)))
            }
            Ok(Answer::Failed) => Ok(PullAnswer::Failed),
            // It may be committed already: only the consumer knows what it has processed.
            Err(CallError::Abandoned | CallError::TimedOut) => Ok(PullAnswer::Undecided),
            Err(error) => Err(error),
        }
    }

    /// Waits until there is an entry for this read, the time is up, or the task is elsewhere.
    async fn wait_for_entries(
        &self,
        id: SubscriptionId,
        ask: Ask,
        until: Instant,
    ) -> Result<(), CallError> {
        let seat = self.desk.seat(id);
        loop {
            let arrived = seat.seat.arrived.notified();
            let mut arrived = std::pin::pin!(arrived);
            // From here on a notification counts, also one before the wait.
            arrived.as_mut().enable();
            let Some(store) = self.store(id)? else { return Ok(()) };
            let there = tokio::task::spawn_blocking(move || has_entry(&store, id, ask)).await;
            match there {
                Ok(Ok(Some(false))) => {}
                _ => return Ok(()),
            }
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            let _ = tokio::time::timeout_at(until.min(now + LOOK), arrived).await;
        }
    }
}

impl PullLogs for PullClient {
    fn is_here(&self, id: SubscriptionId) -> Result<(), CallError> {
        self.store(id).map(drop)
    }

    fn read(
        &self,
        id: SubscriptionId,
        ask: Ask,
        (wait, within): (Duration, Duration),
    ) -> SinkFuture<'_, Result<PullAnswer, CallError>> {
        Box::pin(async move {
            let started = Instant::now();
            if !wait.is_zero() {
                self.wait_for_entries(id, ask, started + wait).await?;
            }
            self.read_page(id, ask, started + within).await
        })
    }

    fn standing(&self, id: SubscriptionId) -> SinkFuture<'_, Result<PullStanding, CallError>> {
        Box::pin(async move {
            let store = self.store(id)?.ok_or(CallError::Unknown)?;
            let stood = tokio::task::spawn_blocking(move || standing(&store, id)).await;
            match stood {
                Ok(Ok(Some(standing))) => Ok(standing),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a pull subscription's standing cannot be read");
                    Err(CallError::Unknown)
                }
                Ok(Ok(None)) | Err(_) => Err(CallError::Unknown),
            }
        })
    }

    fn leftover(
        &self,
        partition: i32,
        deleted: Vec<SubscriptionId>,
    ) -> SinkFuture<'_, Result<u64, CallError>> {
        Box::pin(async move {
            let store = self.store_of(partition)?.ok_or(CallError::Unknown)?;
            let table = Arc::clone(&self.table);
            let is_deleted = move |id| deleted.contains(&id) || table.get(id).is_none();
            let left = tokio::task::spawn_blocking(move || leftover(&store, is_deleted)).await;
            match left {
                Ok(Ok(Some(count))) => Ok(count),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "what deleted pull subscriptions have cannot be read");
                    Err(CallError::Unknown)
                }
                Ok(Ok(None)) | Err(_) => Err(CallError::Unknown),
            }
        })
    }
}

/// How many of the subscriptions that have something in a store are deleted.
fn leftover(
    store: &Reader,
    is_deleted: impl Fn(SubscriptionId) -> bool,
) -> Result<Option<u64>, Error> {
    let mut count = 0;
    let scanned = store.scan(&pull_head::all(), &mut |key, _| {
        let id = pull_head::subscription_of(key).map(SubscriptionId::from_bytes);
        count += u64::from(id.is_some_and(|id| id.is_ok_and(&is_deleted)));
        ControlFlow::Continue(())
    })?;
    Ok(scanned.map(|_| count))
}

/// Assembles a page of what is committed. Without one the task assembles it itself.
async fn prepare(store: Reader, id: SubscriptionId, ask: Ask) -> Option<(u64, Page)> {
    let page = tokio::task::spawn_blocking(move || assemble(&store, id, ask)).await;
    page.ok()?.ok()?
}

fn assemble(store: &Reader, id: SubscriptionId, ask: Ask) -> Result<Option<(u64, Page)>, Error> {
    let Some(start) = start(store, id, ask)? else { return Ok(None) };
    let (mut page, mut failed) = (PageBuilder::new(ask), None);
    let range = pull_entry::behind(id.as_bytes(), start);
    let scanned = store.scan(&range, &mut |key, value| {
        entries::push(&mut page, key, value).unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    })?;
    match failed {
        Some(error) => Err(error),
        None => Ok(scanned.map(|_| (start, page.finish()))),
    }
}

/// Behind which `seq` a read begins; `None` when the store was given up.
fn start(store: &Reader, id: SubscriptionId, ask: Ask) -> Result<Option<u64>, Error> {
    match ask.after {
        Some(after) => Ok(Some(after)),
        None => Ok(cursor(store, id)?.map(|cursor| cursor.cursor)),
    }
}

fn cursor(store: &Reader, id: SubscriptionId) -> Result<Option<Cursor>, Error> {
    let stored = store.get(&pull_cursor::key(id.as_bytes()))?;
    let parse = |value: bytes::Bytes| serde_json::from_slice(&value).ok();
    Ok(stored.map(|stored| stored.and_then(parse).unwrap_or_default()))
}

/// The first entry behind a `seq`: its ordinal and when it was matched.
fn first_behind(
    store: &Reader,
    id: SubscriptionId,
    seq: u64,
) -> Result<Option<Option<pull_entry::Entry>>, Error> {
    let mut first = Ok(None);
    let range = pull_entry::behind(id.as_bytes(), seq);
    let scanned = store.scan(&range, &mut |_, value| {
        first = pull_entry::decode_value(value).map(|(entry, _)| Some(entry));
        ControlFlow::Break(())
    })?;
    let first = first?;
    Ok(scanned.map(|_| first))
}

fn has_entry(store: &Reader, id: SubscriptionId, ask: Ask) -> Result<Option<bool>, Error> {
    let Some(start) = start(store, id, ask)? else { return Ok(None) };
    Ok(first_behind(store, id, start)?.map(|first| first.is_some()))
}

fn standing(store: &Reader, id: SubscriptionId) -> Result<Option<PullStanding>, Error> {
    let Some(cursor) = cursor(store, id)? else { return Ok(None) };
    let Some(stored) = store.get(&pull_head::key(id.as_bytes()))? else { return Ok(None) };
    let head = stored.map(|value| pull_head::decode_value(&value)).transpose()?.unwrap_or_default();
    let Some(first) = first_behind(store, id, cursor.cursor)? else { return Ok(None) };
    Ok(Some(PullStanding {
        cursor: cursor.cursor,
        high_watermark: head.high,
        backlog: first.map_or(0, |entry| (head.total + 1).saturating_sub(entry.ordinal)),
        oldest_unread_at: first
            .map(|entry| UnixMillis(i64::try_from(entry.matched_ms).unwrap_or(i64::MAX))),
    }))
}
