//! Facts that keep coming: ids of this moment, some of them twice and on another partition, some
//! system events, some malformed, from a thread of its own. Topics appear, grow and go while it
//! runs.
//!
//! Malformed records have no id to be known by a second time, so each of them shows whether the hub
//! read it exactly once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::options::Options;
use super::random::Random;
use super::stage::{SALTED, TENANTS};
use super::writer::{Outcomes, Writer};
use crate::facts::Fact;
use crate::wait;

/// How many times a second some facts are written.
const TIMES_PER_SECOND: usize = 5;
/// Duplicates, system events and malformed records in a thousand.
const DUPLICATES: u64 = 60;
const SYSTEM: u64 = 5;
const MALFORMED: u64 = 30;
/// The salted tenant's facts in a thousand.
const HOT: u64 = 250;
/// A duplicate's original is one of the last so many facts.
const REACH: usize = 5_000;
/// Bytes that fill a payload up.
const FILLING: usize = 160;

/// A source topic that facts may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTopic {
    /// The producing application.
    pub source: String,
    /// Its topic's partitions.
    pub partitions: i32,
    /// Whether facts go to it now.
    pub open: bool,
}

impl SourceTopic {
    /// An open one.
    #[must_use]
    pub fn new(source: &str, partitions: i32) -> Self {
        Self { source: source.to_owned(), partitions, open: true }
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> String {
        format!("lerian.streaming.{}", self.source)
    }
}

struct Shared {
    topics: Mutex<Vec<SourceTopic>>,
    writer: Mutex<Writer>,
    stop: AtomicBool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// What became of each record.
    pub outcomes: Outcomes,
    /// The topics that are there at the end.
    pub topics: BTreeSet<String>,
}

/// Facts under way.
pub struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Load {
    /// Starts to write facts to these topics, which exist.
    ///
    /// # Errors
    /// When there is no client, or no thread left.
    pub fn start(bootstrap: &str, options: &Options, topics: &[SourceTopic]) -> Result<Self> {
        let shared = Arc::new(Shared {
            topics: Mutex::new(topics.to_vec()),
            writer: Mutex::new(Writer::new(bootstrap)?),
            stop: AtomicBool::new(false),
        });
        let (own, made) = (Arc::clone(&shared), Maker::new(options.seed));
        let rate = options.rate;
        let thread = std::thread::Builder::new()
            .name("load".into())
            .spawn(move || write(&own, made, rate))?;
        Ok(Self { shared, thread })
    }

    /// The topics as they are.
    #[must_use]
    pub fn topics(&self) -> Vec<SourceTopic> {
        held(&self.shared.topics).clone()
    }

    /// Takes a topic in, or takes it as it is now. Nothing goes to a closed one once this returns.
    pub fn set(&self, topic: SourceTopic) {
        let mut topics = held(&self.shared.topics);
        match topics.iter_mut().find(|own| own.source == topic.source) {
            Some(own) => *own = topic,
            None => topics.push(topic),
        }
    }

    /// Forgets a topic.
    pub fn remove(&self, source: &str) {
        held(&self.shared.topics).retain(|own| own.source != source);
    }

    /// How many records of a topic are under way.
    #[must_use]
    pub fn under_way(&self, topic: &str) -> i64 {
        held(&self.shared.writer).under_way(topic)
    }

    /// Stops, and waits for the last record.
    ///
    /// # Errors
    /// When the thread failed, or records are under way for minutes.
    pub fn finish(self) -> Result<Written> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the load's thread panicked"))??;
        let shared = Arc::into_inner(self.shared).ok_or_else(|| anyhow!("the load goes on"))?;
        let writer = shared.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let topics = shared.topics.into_inner().unwrap_or_else(PoisonError::into_inner);
        let topics = topics.iter().map(SourceTopic::topic).collect();
        Ok(Written { outcomes: writer.finish()?, topics })
    }
}

fn write(shared: &Shared, mut maker: Maker, rate: usize) -> Result<()> {
    let pause = Duration::from_secs(1) / u32::try_from(TIMES_PER_SECOND)?;
    let mut next = wait::instant();
    while !shared.stop.load(Ordering::Relaxed) {
        // Held until all is handed over: who closes a topic knows that nothing more goes to it.
        let topics = held(&shared.topics);
        let mut writer = held(&shared.writer);
        for _ in 0..(rate / TIMES_PER_SECOND).max(1) {
            if let Some(fact) = maker.fact(&topics, wait::unix_ms()) {
                writer.send(&fact)?;
            }
        }
        drop((topics, writer));
        next += pause;
        while let Some(left) = next.checked_duration_since(wait::instant()) {
            std::thread::park_timeout(left);
        }
    }
    Ok(())
}

/// Makes facts.
struct Maker {
    random: Random,
    recent: Vec<Fact>,
    made: usize,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 2), recent: Vec::new(), made: 0 }
    }

    /// The next fact, none when no topic is open.
    fn fact(&mut self, topics: &[SourceTopic], now_ms: i64) -> Option<Fact> {
        let open = topics.iter().filter(|topic| topic.open).collect::<Vec<_>>();
        if open.is_empty() {
            return None;
        }
        if !self.recent.is_empty() && self.random.per_mille(DUPLICATES) {
            let mut copy = self.recent[self.random.index(self.recent.len())].clone();
            let topic = open.iter().find(|topic| topic.topic() == copy.topic)?;
            copy.partition = self.partition(topic);
            return Some(copy);
        }
        let topic = open[self.random.index(open.len())];
        let fact = self.new_fact(topic, now_ms);
        if self.random.per_mille(SYSTEM) {
            return Some(fact.with("ce-systemevent", "true"));
        }
        if self.random.per_mille(MALFORMED) {
            return Some(fact.without("ce-time").quarantined("missing_header"));
        }
        if self.recent.len() < REACH {
            self.recent.push(fact.clone());
        } else {
            let place = self.made % REACH;
            self.recent[place] = fact.clone();
        }
        self.made += 1;
        Some(fact)
    }

    fn new_fact(&mut self, topic: &SourceTopic, now_ms: i64) -> Fact {
        const KEYS: [(&str, &str); 3] =
            [("account", "created"), ("transaction", "posted"), ("balance", "changed")];
        let id = self.id(now_ms);
        let tenant = match self.random.per_mille(HOT) {
            true => SALTED,
            false => TENANTS[self.random.index(TENANTS.len())],
        };
        let key = KEYS[self.random.index(KEYS.len())];
        let mut fact = Fact::new(&topic.source, tenant, &id, key);
        fact.partition = self.partition(topic);
        let filling = "x".repeat(self.random.index(FILLING));
        fact.carrying(Some(format!("{{\"id\":\"{id}\",\"filling\":\"{filling}\"}}").into_bytes()))
    }

    fn partition(&mut self, topic: &SourceTopic) -> i32 {
        let partitions = u64::from(topic.partitions.unsigned_abs().max(1));
        i32::try_from(self.random.below(partitions)).unwrap_or(0)
    }

    /// A UUIDv7 (RFC 9562) of this moment: whether a salted tenant's fact is spread hangs on it.
    fn id(&mut self, now_ms: i64) -> String {
        let (a, b) = (self.random.draw(), self.random.draw());
        format!(
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
            now_ms >> 16,
            now_ms & 0xffff,
            a & 0xfff,
            0x8000 | (a >> 16 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Verdict;

    #[test]
    fn a_seed_makes_the_same_facts_some_of_them_twice_and_some_malformed() {
        let topics = [SourceTopic::new("ledger", 3), SourceTopic::new("crm", 2)];
        let make = |seed| {
            let mut maker = Maker::new(seed);
            (0..3_000i64).filter_map(|n| maker.fact(&topics, n)).collect::<Vec<_>>()
        };
        let (a, b) = (make(3), make(3));
        assert!(a.iter().zip(&b).all(|(a, b)| a.headers == b.headers && a.value == b.value));
        let ids = a.iter().map(Fact::id).collect::<BTreeSet<_>>();
        assert!((2_700..2_950).contains(&ids.len()), "{}", ids.len());
        let bad = a.iter().filter(|fact| fact.verdict != Verdict::Accept).count();
        assert!((50..150).contains(&bad), "{bad}");
        assert!(a.iter().all(|fact| fact.id().len() == 36 && &fact.id()[14..15] == "7"));
    }

    #[test]
    fn nothing_goes_to_a_closed_topic() {
        let closed = SourceTopic { open: false, ..SourceTopic::new("crm", 2) };
        let mut maker = Maker::new(1);
        let open = SourceTopic::new("ledger", 3);
        let both = [open.clone(), SourceTopic::new("crm", 2)];
        (0..200).for_each(|n| drop(maker.fact(&both, n)));
        let topics = [closed.clone(), open];
        let facts = (0..500).filter_map(|n| maker.fact(&topics, n)).collect::<Vec<_>>();
        assert!(facts.iter().all(|fact| fact.topic == "lerian.streaming.ledger"));
        assert!(maker.fact(&[closed], 1).is_none());
    }
}
