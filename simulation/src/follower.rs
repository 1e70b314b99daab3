//! Feeds a process's views from the published topics, as the hub's follower thread does: from their
//! beginning, read-committed, and with marks that say as of when the views are current.

use std::cell::RefCell;
use std::sync::Arc;

use streaming_hub_model::ports::Clock;
use streaming_hub_model::subscription::{Ordering, Subscription};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::follower::View;
use streaming_hub_topology::table::Table;
use streaming_hub_topology::topics::{Topic, TopicSettings};

use crate::cluster::log::{Log, Read};
use crate::defect::Defect;
use crate::seam::Seam;

/// How often the views are compared with the topics' ends, milliseconds.
const CONFIRM_MS: i64 = 2_000;

struct Followed {
    topic: String,
    partition: i32,
    next: Option<i64>,
    view: Arc<dyn View>,
}

struct Marks {
    at_ms: i64,
    ends: Vec<i64>,
}

/// The table as a defect has it: records are not read as they are written.
pub struct Twisted {
    /// The table.
    pub table: Arc<Table>,
    /// The defect.
    pub defect: Defect,
}

impl View for Twisted {
    fn topic(&self) -> Topic {
        self.table.topic()
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let row = value.and_then(|value| serde_json::from_slice::<Subscription>(value).ok());
        let Some(mut row) = row else { return View::take(&*self.table, key, value) };
        match self.defect {
            Defect::StrictForgotten => row.ordering = Ordering::Arrival,
            Defect::PauseDrops => row.enabled &= !row.paused,
            _ => {}
        }
        View::take(&*self.table, key, serde_json::to_vec(&row).ok().as_deref())
    }

    fn advance(&self, partition: i32, position: i64) {
        View::advance(&*self.table, partition, position);
    }
}

/// The follower of one process.
pub struct SimFollower {
    followed: RefCell<Vec<Followed>>,
    marks: RefCell<Option<Marks>>,
    table: Arc<Table>,
    clock: Arc<dyn Clock>,
    /// A table that says that it has read everything although it has not (a defect).
    lying: Option<Arc<Table>>,
    partitions: i32,
}

impl SimFollower {
    /// A follower that feeds these views.
    #[must_use]
    pub fn new(
        (table, clock): (&Arc<Table>, &Arc<dyn Clock>),
        views: Vec<Arc<dyn View>>,
        settings: &TopicSettings,
        lying: Option<Arc<Table>>,
    ) -> Self {
        let mut followed = Vec::new();
        let lies = lying.iter().map(|table| Arc::clone(table) as Arc<dyn View>);
        for view in views.into_iter().chain(lies) {
            let topic = view.topic();
            for partition in 0..topic.partitions(settings) {
                let (topic, view) = (topic.name(&settings.application), Arc::clone(&view));
                followed.push(Followed { topic, partition, next: None, view });
            }
        }
        let (followed, marks) = (RefCell::new(followed), RefCell::new(None));
        Self {
            followed,
            marks,
            table: Arc::clone(table),
            clock: Arc::clone(clock),
            lying,
            partitions: settings.partitions,
        }
    }

    /// Reads some records of each partition.
    pub fn step(&self, seam: &Seam<'_>, at_most: u64) {
        let mut followed = self.followed.borrow_mut();
        let cluster = seam.cluster.borrow();
        if self.marks.borrow().is_none() {
            self.ask(seam, &followed);
        }
        for one in followed.iter_mut() {
            let Some(log) = cluster.log(&one.topic, one.partition) else { continue };
            let mut next = one.next.unwrap_or_else(|| log.low());
            for _ in 0..at_most {
                match log.read(next, true) {
                    Read::Record { offset, data, .. } => {
                        take(one, seam, data.key.as_deref(), data.value.as_deref());
                        next = offset + 1;
                    }
                    Read::End(end) => {
                        next = end;
                        break;
                    }
                    Read::Below(low) => next = low,
                }
            }
            one.view.advance(one.partition, next);
            one.next = Some(next);
        }
        if let Some(lying) = &self.lying {
            (0..self.partitions).for_each(|partition| lying.advance(partition, i64::MAX));
        }
        drop(cluster);
        self.confirm(seam, &followed);
    }

    fn confirm(&self, seam: &Seam<'_>, followed: &[Followed]) {
        let now = self.clock.now().0;
        let asked = self.marks.borrow().as_ref().and_then(|marks| {
            let passed = followed.iter().zip(&marks.ends);
            let reached = passed.into_iter().all(|(one, end)| one.next.unwrap_or(0) >= *end);
            reached.then_some(marks.at_ms)
        });
        if let Some(at_ms) = asked {
            self.table.confirm(UnixMillis(at_ms));
            if now - at_ms > CONFIRM_MS {
                self.ask(seam, followed);
            }
        }
    }

    fn ask(&self, seam: &Seam<'_>, followed: &[Followed]) {
        let cluster = seam.cluster.borrow();
        let end = |one: &Followed| cluster.log(&one.topic, one.partition).map_or(0, Log::high);
        let ends = followed.iter().map(end).collect();
        *self.marks.borrow_mut() = Some(Marks { at_ms: self.clock.now().0, ends });
    }
}

fn take(one: &Followed, seam: &Seam<'_>, key: Option<&[u8]>, value: Option<&[u8]>) {
    if one.view.topic() == Topic::Salts && seam.has(Defect::SaltedAtOnce) {
        one.view.take(key, Some(br#"{"since":0}"#));
    } else {
        one.view.take(key, value);
    }
}
