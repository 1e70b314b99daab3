//! The transaction coordinator: one state for each transactional id, epochs that fence, commits
//! that are decided first and marked in each partition later, and transactions that time out.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_topology::runtime::clients::Position;

use super::Cluster;
use super::log::Data;

/// Why the coordinator or a partition refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A newer epoch of the transactional id exists.
    #[error("a newer producer has this transactional id")]
    Fenced,
    /// The member is not in its group, or its generation is over.
    #[error("the member's generation is over")]
    StaleMember,
    /// There is no such partition.
    #[error("no such partition")]
    NoPartition,
}

/// A transactional id.
#[derive(Debug, Default)]
pub(super) struct Producer {
    epoch: u32,
    /// Its open transaction.
    open: Option<u64>,
    /// Its last decided transaction, while markers are missing.
    completing: Option<u64>,
}

/// A transaction from its first record to its last marker.
#[derive(Debug)]
pub(super) struct Txn {
    pub(super) id: String,
    started_ms: i64,
    decided: Option<bool>,
    partitions: BTreeSet<(Arc<str>, i32)>,
    records: Vec<Written>,
    /// By group.
    pub(super) offsets: BTreeMap<String, Vec<Position>>,
}

/// A record of a transaction.
#[derive(Debug, Clone)]
pub struct Written {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// When it was written, Unix milliseconds.
    pub at_ms: i64,
    /// What it holds.
    pub data: Rc<Data>,
}

/// A transaction that will become visible, as decided.
#[derive(Debug)]
pub struct Committed {
    /// Its number.
    pub txn: u64,
    /// Whose it is.
    pub id: String,
    /// When it was decided, Unix milliseconds.
    pub at_ms: i64,
    /// Its records in the order in which they were written.
    pub records: Vec<Written>,
    /// Its positions, by group.
    pub offsets: BTreeMap<String, Vec<Position>>,
}

impl Cluster {
    /// Ends whatever the last producer of this id left behind, and answers the new epoch.
    pub fn init_transactions(&mut self, id: &str) -> u32 {
        let (open, completing) = match self.producers.get(id) {
            Some(producer) => (producer.open, producer.completing),
            None => (None, None),
        };
        if self.laws.init_aborts_the_predecessor {
            if let Some(txn) = open {
                self.decide(txn, false);
            }
            for txn in [open, completing].into_iter().flatten() {
                self.complete(txn);
            }
        }
        let producer = self.producers.entry(id.to_owned()).or_default();
        if self.laws.init_aborts_the_predecessor {
            producer.epoch += 1;
        }
        producer.epoch
    }

    fn producer(&mut self, id: &str, epoch: u32) -> Result<&mut Producer, Refused> {
        let fences = self.laws.epochs_fence;
        let producer = self.producers.get_mut(id).ok_or(Refused::Fenced)?;
        if producer.epoch != epoch && fences { Err(Refused::Fenced) } else { Ok(producer) }
    }

    /// The open transaction of a producer; begins one, once the markers of its last are written.
    fn begun(&mut self, id: &str, epoch: u32) -> Result<u64, Refused> {
        let producer = self.producer(id, epoch)?;
        if let Some(open) = producer.open {
            return Ok(open);
        }
        let completing = producer.completing;
        if let Some(completing) = completing {
            self.complete(completing);
        }
        self.next_txn += 1;
        let number = self.next_txn;
        self.producer(id, epoch)?.open = Some(number);
        let txn = Txn {
            id: id.to_owned(),
            started_ms: self.clock.now_ms(),
            decided: None,
            partitions: BTreeSet::new(),
            records: Vec::new(),
            offsets: BTreeMap::new(),
        };
        self.txns.insert(number, txn);
        Ok(number)
    }

    /// Appends a record of a transaction.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for an old epoch.
    pub fn append(
        &mut self,
        (id, epoch): (&str, u32),
        (topic, partition): (&Arc<str>, i32),
        data: Data,
    ) -> Result<(), Refused> {
        if self.log(topic, partition).is_none() {
            return Err(Refused::NoPartition);
        }
        let number = self.begun(id, epoch)?;
        let (at_ms, data) = (self.clock.now_ms(), Rc::new(data));
        let Some(log) = self.log_mut(topic, partition) else { return Err(Refused::NoPartition) };
        let offset = log.append(at_ms, Some(number), Rc::clone(&data));
        self.fingerprint(&[number, offset.unsigned_abs()], &data);
        if let Some(txn) = self.txns.get_mut(&number) {
            txn.partitions.insert((Arc::clone(topic), partition));
            let topic = Arc::clone(topic);
            txn.records.push(Written { topic, partition, offset, at_ms, data });
        }
        Ok(())
    }

    /// Adds positions to the open transaction (KIP-447).
    ///
    /// # Errors
    /// [`Refused`] for an old epoch, or a member whose generation is over.
    pub fn send_offsets(
        &mut self,
        (id, epoch): (&str, u32),
        (group, member): (&str, &super::groups::Membership),
        positions: &[Position],
    ) -> Result<(), Refused> {
        let number = self.begun(id, epoch)?;
        if self.laws.generations_fence && !self.is_current(group, member) {
            return Err(Refused::StaleMember);
        }
        if let Some(txn) = self.txns.get_mut(&number) {
            let sent = txn.offsets.entry(group.to_owned()).or_default();
            sent.extend(positions.iter().cloned());
        }
        Ok(())
    }

    /// Decides the open transaction; its markers follow later.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for an old epoch, or when the coordinator ended it already.
    pub fn end(&mut self, (id, epoch): (&str, u32), commit: bool) -> Result<(), Refused> {
        let open = self.producer(id, epoch)?.open.ok_or(Refused::Fenced)?;
        self.decide(open, commit);
        Ok(())
    }

    fn decide(&mut self, number: u64, commit: bool) {
        let at_ms = self.clock.now_ms();
        let Some(txn) = self.txns.get_mut(&number) else { return };
        txn.decided = Some(commit);
        if commit {
            let (records, offsets) = (std::mem::take(&mut txn.records), txn.offsets.clone());
            let id = txn.id.clone();
            self.committed.push(Committed { txn: number, id, at_ms, records, offsets });
        }
        self.print.add(number);
        self.print.add(u64::from(commit));
        if let Some(producer) = self.producers.get_mut(&txn.id) {
            producer.open = None;
            producer.completing = Some(number);
        }
    }

    /// Numbers of decided transactions that still miss markers.
    #[must_use]
    pub fn unmarked(&self) -> Vec<u64> {
        self.txns.iter().filter(|(_, txn)| txn.decided.is_some()).map(|(n, _)| *n).collect()
    }

    /// Writes one missing marker of a decided transaction, the `nth`.
    pub fn mark_one(&mut self, number: u64, nth: usize) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        let Some(commit) = txn.decided else { return };
        let places = txn.partitions.len() + txn.offsets.len();
        let nth = if places == 0 { 0 } else { nth % places };
        if let Some((topic, partition)) = txn.partitions.iter().nth(nth).cloned() {
            txn.partitions.remove(&(Arc::clone(&topic), partition));
            let at_ms = self.clock.now_ms();
            if let Some(log) = self.log_mut(&topic, partition) {
                log.mark(at_ms, number, commit);
            }
        } else if let Some((group, positions)) = txn.offsets.pop_first()
            && commit
        {
            self.take_positions(&group, positions);
        }
        self.forget_if_complete(number);
    }

    fn forget_if_complete(&mut self, number: u64) {
        let complete = |txn: &Txn| txn.partitions.is_empty() && txn.offsets.is_empty();
        if self.txns.get(&number).is_some_and(complete)
            && let Some(txn) = self.txns.remove(&number)
            && let Some(producer) = self.producers.get_mut(&txn.id)
            && producer.completing == Some(number)
        {
            producer.completing = None;
        }
    }

    /// Writes all missing markers of a decided transaction.
    pub(super) fn complete(&mut self, number: u64) {
        while self.txns.get(&number).is_some_and(|txn| txn.decided.is_some()) {
            self.mark_one(number, 0);
        }
    }

    /// Whether a transaction with a position of this task is pending.
    pub(super) fn is_pending(&self, group: &str, task: &super::TaskId) -> bool {
        let holds = |txn: &Txn| {
            txn.offsets.get(group).is_some_and(|list| list.iter().any(|p| p.task == *task))
        };
        self.txns.values().any(holds)
    }

    /// Whether this producer, if it is the current one, has an open transaction.
    #[must_use]
    pub fn has_begun(&self, id: &str, epoch: u32) -> Option<bool> {
        let producer = self.producers.get(id).filter(|producer| producer.epoch == epoch)?;
        Some(producer.open.is_some())
    }

    /// Whether any transaction is open or misses markers.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        !self.txns.is_empty()
    }

    /// Aborts the transactions that took too long, and fences their producers.
    pub(super) fn expire_transactions(&mut self, timeout_ms: i64) {
        let now = self.clock.now_ms();
        let late = |txn: &Txn| txn.decided.is_none() && now - txn.started_ms > timeout_ms;
        let expired: Vec<_> =
            self.txns.iter().filter(|(_, txn)| late(txn)).map(|(n, _)| *n).collect();
        for number in expired {
            let Some(id) = self.txns.get(&number).map(|txn| txn.id.clone()) else { continue };
            self.decide(number, false);
            if let Some(producer) = self.producers.get_mut(&id) {
                producer.epoch += 1;
            }
        }
    }
}
