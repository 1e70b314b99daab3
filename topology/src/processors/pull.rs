//! Pull (contract section 5): keeps the entries of pull subscriptions as they arrive, and lets them
//! be read. A read's cursor is decided here and written in the task's transaction, so that an owner
//! that lost the partition cannot answer (design 22); the answer goes out once it has committed.
//! Reads that arrive together share one commit.
//!
//! Not here: who may read and how often (the API), and the assembling of most pages, which happens
//! beside this thread (`crate::pull`).
//!
//! I6: `seq` is base + log offset; a cursor only grows; no entry is taken at or below a cursor.

mod cursors;
pub(crate) mod entries;
mod sweep;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::pull::{self, Ask, Page, PageBuilder, Standing};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;

use self::entries::Taken;
use self::sweep::Sweep;
use crate::calls::Reply;
use crate::metrics::Metrics;
use crate::pull::Desk;
use crate::recent::Changes;
use crate::runtime::processor::{Error, Processor, Record, Step};
use crate::table::Table;
use crate::topics::Topic;

/// What all pull tasks share.
pub struct PullSettings {
    /// The subscriptions.
    pub table: Arc<Table>,
    /// Where readers find the stores, and wait for entries.
    pub desk: Arc<Desk>,
    /// What is added to a log offset to give a `seq`.
    pub base: u64,
    /// How long entries stay behind the cursor, milliseconds.
    pub read_ms: u64,
    /// How long unread entries stay, milliseconds.
    pub unread_ms: u64,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// A read on behalf of a consumer.
#[derive(Debug, Clone)]
pub struct Read {
    /// The subscription, which exists and is the caller's.
    pub subscription: SubscriptionId,
    /// What is asked for.
    pub ask: Ask,
    /// The page that was assembled already, if one was.
    pub prepared: Option<Prepared>,
    /// To whom the answer goes. One who is gone before the commit moves nothing.
    pub reply: Reply<Answer>,
}

/// Which page was assembled beside the task: that of the committed entries behind `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// Behind which `seq` it begins.
    pub start: u64,
    /// The `seq` of its last entry.
    pub last: Option<u64>,
    /// How many entries it has.
    pub count: usize,
}

/// What a read is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The cursor has moved, durably.
    Moved {
        /// Where it stands now.
        cursor: u64,
        /// The page, when the prepared one did not begin at the cursor any more.
        page: Option<Page>,
    },
    /// The transaction was aborted and nothing moved.
    Failed,
}

/// A read of the open transaction.
struct Pending {
    read: Read,
    cursor: u64,
    count: usize,
    page: Option<Page>,
}

/// The processor of one partition of subscriptions.
pub struct Pull {
    settings: Arc<PullSettings>,
    partition: i32,
    /// Its opening at the desk.
    opening: Option<u64>,
    /// The highest committed cursor.
    served: u64,
    /// Reads of the open transaction, at most one of a subscription.
    pending: Vec<Pending>,
    /// Reads of subscriptions that have one in the open transaction.
    deferred: Vec<Read>,
    /// Subscriptions with new entries in the open transaction.
    arrived: BTreeSet<SubscriptionId>,
    unreadable: u64,
    sweep: Sweep,
    table_seen: u64,
}

impl Pull {
    /// The processor of this partition.
    #[must_use]
    pub fn new(settings: Arc<PullSettings>, partition: i32) -> Self {
        let mut table_seen = 0;
        let _ = settings.table.since(&mut table_seen);
        Self {
            table_seen,
            settings,
            partition,
            opening: None,
            served: 0,
            pending: Vec::new(),
            deferred: Vec::new(),
            arrived: BTreeSet::new(),
            unreadable: 0,
            sweep: Sweep::default(),
        }
    }

    fn take(&self, record: &Record<'_>, state: &mut State) -> Result<Taken, Error> {
        let partitions = self.settings.partitions.unsigned_abs();
        entries::take(record, (self.settings.base, partitions), state)
    }

    /// No entry may come at or below what was served: the log must go on above it (I6).
    fn check_log(&self, next_offset: i64) -> Result<(), Error> {
        let next = pull::seq(self.settings.base, next_offset).unwrap_or(0);
        if next > self.served {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "partition {} of the pull topic goes on with seq {next}, but entries up to {} were \
             served: the topic was made anew or cut off. See docs/pull.md, \"A pull topic made \
             anew\"",
            self.partition, self.served
        )))
    }

    /// Takes a read into the open transaction.
    fn read(&mut self, read: &Read, state: &State) -> Result<(), Error> {
        let id = read.subscription;
        if let Some(index) = self.pending.iter().position(|own| own.read.subscription == id) {
            if self.pending[index].read.reply.is_awaited() {
                self.deferred.push(read.clone());
                return Ok(());
            }
            self.pending.swap_remove(index);
        }
        let (cursor, head) = (cursors::get(state, id)?, entries::head(state, id)?);
        let standing = Standing { cursor: cursor.cursor, high: head.high };
        let start = standing.start(read.ask);
        let (last, count, page) = match read.prepared {
            Some(Prepared { start: own, last, count }) if own == start => (last, count, None),
            _ => {
                let page = entries::fill(state, id, start, PageBuilder::new(read.ask))?;
                (page.last, page.count, Some(page))
            }
        };
        let cursor = standing.moved(read.ask, last);
        self.pending.push(Pending { read: read.clone(), cursor, count, page });
        Ok(())
    }

    /// Whether subscriptions were deleted since this was asked last: what they have is removed at
    /// once (contract section 8, erasure).
    fn is_any_deleted(&mut self) -> bool {
        match self.settings.table.since(&mut self.table_seen) {
            Changes::None => false,
            Changes::Some(ids) => ids.iter().any(|id| self.settings.table.get(*id).is_none()),
            Changes::Any => true,
        }
    }

    fn fail_reads(&mut self) {
        let pending = self.pending.drain(..).map(|pending| pending.read);
        for read in pending.chain(self.deferred.drain(..)) {
            self.settings.metrics.pull.failed();
            read.reply.send(Answer::Failed);
        }
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.settings.metrics.pull.backlog((0, 0), self.sweep.told);
        if let Some(opening) = self.opening {
            self.settings.desk.closed(self.partition, opening);
        }
    }
}

impl Processor for Pull {
    type Message = Read;
    type Action = Infallible;

    fn restore(
        &mut self,
        topic: Topic,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<(), Error> {
        match topic {
            Topic::Pull => self.take(record, state).map(drop),
            _ => cursors::restore(record, state),
        }
    }

    fn restored(&mut self, state: &State) -> Result<(), Error> {
        self.served = cursors::highest(state)?;
        self.opening = Some(self.settings.desk.opened(self.partition, state.reader()));
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        self.check_log(record.offset)?;
        match self.take(record, step.state)? {
            Taken::Entry(id) => _ = self.arrived.insert(id),
            Taken::Nothing => {}
            Taken::Unreadable => self.unreadable += 1,
        }
        Ok(())
    }

    fn message(&mut self, read: &Read, step: &mut Step<'_>) -> Result<(), Error> {
        self.check_log(step.position)?;
        if !read.reply.is_awaited() {
            return Ok(());
        }
        self.read(read, step.state)
    }

    fn wants_step(&self) -> bool {
        self.sweep.runs || !self.deferred.is_empty()
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.check_log(step.position)?;
        for read in std::mem::take(&mut self.deferred) {
            if read.reply.is_awaited() {
                self.read(&read, step.state)?;
            }
        }
        if self.sweep.runs { self.sweep_on(step) } else { Ok(()) }
    }

    fn wants_commit(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The cursors of those who still wait. Who is gone moves nothing (contract section 5).
    fn before_commit(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.pending.retain(|pending| pending.read.reply.is_awaited());
        for pending in &self.pending {
            let id = pending.read.subscription;
            let cursor = cursors::get(step.state, id)?;
            if pending.cursor > cursor.cursor {
                let moved = cursor.moved_to(pending.cursor, step.now, self.settings.read_ms);
                cursors::set(id, Some(&moved), step);
            }
        }
        Ok(())
    }

    fn act(
        &mut self,
        now: UnixMillis,
        _: &State,
        _: &mut Vec<Infallible>,
    ) -> Result<Option<UnixMillis>, Error> {
        let next = *self.sweep.next.get_or_insert(now.plus(sweep::interval_ms(&self.settings)));
        self.sweep.runs |= next <= now;
        if self.is_any_deleted() {
            self.sweep.at_once();
        }
        Ok(Some(if self.wants_step() { now } else { next }))
    }

    fn committed(&mut self) {
        for Pending { read, cursor, count, page } in self.pending.drain(..) {
            self.served = self.served.max(cursor);
            self.settings.metrics.pull.page(count);
            read.reply.send(Answer::Moved { cursor, page });
        }
        for id in std::mem::take(&mut self.arrived) {
            self.settings.desk.arrived(id);
        }
        for _ in 0..std::mem::take(&mut self.unreadable) {
            self.settings.metrics.unreadable("pull");
        }
        let (entries, unread) = std::mem::take(&mut self.sweep.removed);
        self.settings.metrics.pull.removed(entries, unread);
    }

    fn aborted(&mut self) {
        self.fail_reads();
        self.arrived.clear();
        self.unreadable = 0;
        self.sweep.rewind();
    }
}

#[cfg(test)]
mod tests;
