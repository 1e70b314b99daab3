//! When each event becomes visible in the inbox to a reader of committed records.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::count;
use crate::wait;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// One wait for a record; the end is looked for in between.
const SLICE: Duration = Duration::from_millis(100);

type Seen = Arc<Mutex<HashMap<String, Instant>>>;

/// A reader of the inbox in a thread of its own, until it is dropped.
pub struct Inbox {
    seen: Seen,
    ended: Arc<AtomicBool>,
}

impl Inbox {
    /// Reads this topic from its end on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn watch(bootstrap: &str, topic: &str) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "bench-inbox")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .create()?;
        let mut list = TopicPartitionList::new();
        for partition in count::partitions(bootstrap, topic)? {
            let (_, end) = consumer.fetch_watermarks(topic, partition, ANSWER)?;
            list.add_partition_offset(topic, partition, Offset::Offset(end))?;
        }
        consumer.assign(&list)?;
        let (seen, ended) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (own, stop) = (Arc::clone(&seen), Arc::clone(&ended));
        wait::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Some(Ok(message)) = consumer.poll(SLICE) else { continue };
                let (at, key) = (wait::instant(), message.key().unwrap_or_default());
                let id = String::from_utf8_lossy(key).into_owned();
                own.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(at);
            }
        });
        Ok(Self { seen, ended })
    }

    /// When these events were seen; waits for the last.
    ///
    /// # Errors
    /// When one is not in time.
    pub fn times<'a>(&self, ids: impl Iterator<Item = &'a String> + Clone) -> Result<Vec<Instant>> {
        wait::until("the events in the inbox", ANSWER, || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let times: Option<Vec<Instant>> = ids.clone().map(|id| seen.get(id).copied()).collect();
            Ok(times.ok_or_else(|| format!("{} seen", seen.len())))
        })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
