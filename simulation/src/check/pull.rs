//! Judges the logs of pull subscriptions (I6) from committed records and answered reads, in their
//! order: an entry never comes at or below a served one, a committed cursor never goes back nor
//! beyond the log, and what is answered ascends, is complete, and is committed by then.

use std::collections::{BTreeMap, HashMap};

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::pull::seq;

use super::{Invariant, Violation, broken};
use crate::history::{Asked, CursorRecord, EntryRecord, EventKey, Line, Marked, Served};

/// One entry.
#[derive(Debug)]
struct Entry {
    event: EventKey,
    /// Whether a page has to have it: it is there, and its event did not come again.
    due: bool,
}

/// The log of one subscription.
#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<u64, Entry>,
    cursor: u64,
    /// How often it ended: a subscription made again begins anew.
    ends: u32,
    served: u64,
}

/// All of them.
#[derive(Debug)]
pub struct PullLogs {
    base: u64,
    logs: HashMap<SubscriptionId, Log>,
}

impl PullLogs {
    /// No entries yet; `seq` is above this base.
    #[must_use]
    pub fn new(base: u64) -> Self {
        Self { base, logs: HashMap::new() }
    }

    /// What a read that is sent now has to respect.
    #[must_use]
    pub fn asked(
        &self,
        subscription: SubscriptionId,
        ask: streaming_hub_model::pull::Ask,
    ) -> Asked {
        let log = self.logs.get(&subscription);
        let (cursor, ends) = log.map_or((0, 0), |log| (log.cursor, log.ends));
        Asked { subscription, ask, cursor, ends }
    }

    /// Takes the lines of one committed transaction.
    ///
    /// # Errors
    /// What it broke.
    pub fn take(&mut self, lines: &[Line]) -> Result<(), Violation> {
        for line in lines {
            match line {
                Line::Entry(record) => self.take_entry(record)?,
                Line::Cursor(record) => self.take_cursor(record)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take_entry(&mut self, record: &EntryRecord) -> Result<(), Violation> {
        let id = record.subscription;
        let log = self.logs.entry(id).or_default();
        let (offset, event) = match &record.marked {
            Marked::Put { offset, event } => (*offset, event),
            Marked::End { seq } => {
                if let Some(entry) = log.entries.get_mut(seq) {
                    entry.due = false;
                }
                return Ok(());
            }
        };
        let Some(seq) = seq(self.base, offset) else {
            return broken(Invariant::I6, format!("offset {offset} of {id} gives no seq"));
        };
        if seq <= log.served {
            let what = format!("entry {seq} of {id} comes below {}, which was served", log.served);
            return broken(Invariant::I6, what);
        }
        let mut due = true;
        for twin in log.entries.values_mut().filter(|entry| entry.event == *event) {
            (twin.due, due) = (false, false);
        }
        log.entries.insert(seq, Entry { event: event.clone(), due });
        Ok(())
    }

    fn take_cursor(&mut self, record: &CursorRecord) -> Result<(), Violation> {
        let CursorRecord { subscription: id, cursor } = record;
        let log = self.logs.entry(*id).or_default();
        let Some(cursor) = *cursor else {
            (log.cursor, log.ends) = (0, log.ends + 1);
            return Ok(());
        };
        if cursor < log.cursor {
            let what = format!("the cursor of {id} goes back from {} to {cursor}", log.cursor);
            return broken(Invariant::I6, what);
        }
        let high = log.entries.last_key_value().map_or(0, |(seq, _)| *seq);
        if cursor > high {
            let what = format!("the cursor of {id} moves to {cursor}, its log ends at {high}");
            return broken(Invariant::I6, what);
        }
        log.cursor = cursor;
        Ok(())
    }

    /// Takes an answer, after the transactions that were committed before it.
    ///
    /// # Errors
    /// What it broke.
    pub fn answered(&mut self, served: &Served) -> Result<(), Violation> {
        let Served { asked, cursor, entries } = served;
        let id = asked.subscription;
        let log = self.logs.entry(id).or_default();
        let same = log.ends == asked.ends;
        if same && !(asked.cursor..=log.cursor).contains(cursor) {
            let what = format!(
                "a read of {id} is answered with cursor {cursor}, committed were {} when it was \
                 sent and {} when it was answered",
                asked.cursor, log.cursor
            );
            return broken(Invariant::I6, what);
        }
        let floor = asked.ask.after.or(same.then_some(asked.cursor)).unwrap_or(0);
        let mut before = None;
        for (seq, event) in entries {
            let at = before.unwrap_or(floor);
            let is_known = log.entries.get(seq).is_some_and(|known| known.event.1 == *event);
            if *seq <= at || *seq > *cursor || !is_known {
                let what = format!(
                    "a page of {id} has {seq} behind {at} with cursor {cursor}, committed: \
                     {is_known}"
                );
                return broken(Invariant::I6, what);
            }
            // Where a read without `after` begins only its task knows.
            let from = before.or(asked.ask.after).unwrap_or(*seq);
            let mut between = log.entries.range(from..*seq).filter(|(seq, _)| **seq > from);
            if let Some((left_out, _)) = between.find(|(_, entry)| entry.due) {
                let what = format!("a page of {id} goes from {from} to {seq} without {left_out}");
                return broken(Invariant::I6, what);
            }
            before = Some(*seq);
        }
        log.served = log.served.max(before.unwrap_or(0));
        Ok(())
    }
}
