//! A consumer meets every entry once and in order, whatever restarts and aborts there are (I6); a
//! read that is not committed moves nothing; entries are kept as long as promised.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use streaming_hub_model::id::JobId;
use streaming_hub_model::internal;
use streaming_hub_model::pull::{BASE_FIRST, BASE_STEP, Embedding, EntryFacts};
use tokio::sync::oneshot;

use super::*;
use crate::processors::testing::fixtures::{Counters, T0, accepted, event_id, header};
use crate::processors::testing::logs::Entry;
use crate::processors::testing::{Bench, Restart};
use crate::table::tests::{id, put, subscription, table_at};
use crate::topology;

const READ_MS: u64 = 100_000;
const UNREAD_MS: u64 = 700_000;

struct World {
    bench: Bench<Pull>,
    table: Arc<Table>,
    counters: Counters,
    events: u64,
}

type Heard = oneshot::Receiver<Answer>;

/// Subscription, `after`, limit and how many entries there were, and where the answer comes.
type Asked = (u8, Option<u64>, (usize, usize), Heard);

impl World {
    fn new() -> Self {
        Self::with_base(BASE_FIRST)
    }

    fn with_base(base: u64) -> Self {
        let (counters, table) = (Counters::new(), Arc::new(table_at(1)));
        for n in 1..4 {
            assert!(put(&table, &subscription(n, "acme", &["*"])));
        }
        let settings = Arc::new(PullSettings {
            table: Arc::clone(&table),
            desk: Arc::default(),
            base,
            read_ms: READ_MS,
            unread_ms: UNREAD_MS,
            partitions: 2,
            metrics: Arc::clone(&counters.metrics),
        });
        let make = move || Pull::new(Arc::clone(&settings), 0);
        let mut bench = Bench::new(topology::pull(), 0, make);
        bench.act();
        Self { bench, table, counters, events: 0 }
    }

    /// An entry as match writes it; answers its `seq` at the first base.
    fn arrive(&mut self, n: u8) -> u64 {
        self.events += 1;
        let event = event_id(self.events);
        let mut entry = accepted(event, "acme", self.bench.now.0);
        let facts = EntryFacts {
            subscription: id(n),
            matched: self.bench.now,
            table: 0,
            embedding: Embedding::Json,
        };
        entry.headers.extend(facts.headers().iter().map(|(name, value)| header(name, value)));
        let key = JobId::derive("acme", event, id(n), b"");
        entry.key = Some(key.to_string().into_bytes());
        entry.value = Some(self.events.to_string().into_bytes());
        let offset = self.bench.produce(entry);
        self.bench.read(usize::MAX);
        offset.cast_unsigned() + BASE_FIRST
    }

    fn ask(&mut self, n: u8, after: Option<u64>, limit: usize) -> Heard {
        let (reply, heard) = Reply::new();
        let ask = Ask { after, limit };
        self.bench.message(Read { subscription: id(n), ask, prepared: None, reply });
        heard
    }

    /// A read and its commit; the entries' seqs and the answer.
    fn read(&mut self, n: u8, after: Option<u64>, limit: usize) -> (Vec<u64>, Value) {
        let mut heard = self.ask(n, after, limit);
        self.bench.commit();
        page(&mut heard)
    }

    fn sweep(&mut self) {
        self.bench.act();
        while self.bench.processor.wants_step() {
            self.bench.take_step();
            self.bench.commit();
        }
    }

    /// Which entries can be read, without moving anything that stands.
    fn kept(&mut self, n: u8) -> Vec<u64> {
        self.read(n, Some(0), 1_000).0
    }
}

fn page(heard: &mut Heard) -> (Vec<u64>, Value) {
    let Ok(Answer::Moved { cursor, page }) = heard.try_recv() else { panic!("no page") };
    let answer: Value = serde_json::from_slice(&page.unwrap().into_answer(cursor)).unwrap();
    let events = answer["events"].as_array().unwrap();
    (events.iter().map(|event| event["seq"].as_u64().unwrap()).collect(), answer)
}

#[test]
fn a_consumer_reads_page_by_page_and_the_read_is_the_acknowledgement() {
    let mut world = World::new();
    let own: Vec<u64> = (0..5)
        .map(|_| {
            world.arrive(2);
            world.arrive(1)
        })
        .collect();
    world.bench.commit();
    let (seqs, answer) = world.read(1, None, 2);
    assert_eq!(seqs, own[..2]);
    assert_eq!((&answer["next_cursor"], &answer["cursor"]), (&json!(own[1]), &json!(own[1])));
    assert_eq!(answer["events"][0]["payload"], json!(2), "the second event of all");
    let (seqs, answer) = world.read(1, None, 3);
    assert_eq!((seqs, &answer["next_cursor"]), (own[2..].to_vec(), &json!(own[4])));
    let (seqs, answer) = world.read(1, None, 3);
    assert_eq!((seqs, &answer["next_cursor"]), (vec![], &json!(null)));
    assert_eq!(answer["cursor"], json!(own[4]));
    assert_eq!(world.counters.count("pull_served_entries_total", ""), 5);
}

#[test]
fn a_read_that_is_aborted_fails_and_moves_nothing() {
    let mut world = World::new();
    let seq = world.arrive(1);
    world.bench.commit();
    let mut heard = world.ask(1, None, 10);
    world.bench.abort();
    assert_eq!(heard.try_recv(), Ok(Answer::Failed));
    // The message came again, and nobody waits for it any more.
    world.bench.commit();
    assert!(world.bench.logs.all(Topic::Cursors).is_empty());
    assert_eq!(world.read(1, None, 10).0, [seq]);
}

#[test]
fn a_caller_that_is_gone_before_the_commit_moves_nothing() {
    let mut world = World::new();
    let seq = world.arrive(1);
    world.bench.commit();
    drop(world.ask(1, None, 10));
    world.bench.commit();
    let (reply, heard) = Reply::new();
    drop(heard);
    let ask = Ask { after: None, limit: 1 };
    world.bench.message(Read { subscription: id(1), ask, prepared: None, reply });
    world.bench.commit();
    assert!(world.bench.logs.all(Topic::Cursors).is_empty());
    // One that is gone does not hold up the next either.
    drop(world.ask(1, None, 10));
    assert_eq!(world.read(1, None, 10).0, [seq]);
}

#[test]
fn reads_of_one_subscription_in_one_transaction_follow_one_another() {
    let mut world = World::new();
    let own: Vec<u64> = (0..4).map(|_| world.arrive(1)).collect();
    let mut heard: Vec<_> = (0..3).map(|_| world.ask(1, None, 2)).collect();
    let mut other = world.ask(2, None, 2);
    while world.bench.processor.wants_commit() {
        world.bench.commit();
        world.bench.take_step();
    }
    let pages: Vec<_> = heard.iter_mut().map(|heard| page(heard).0).collect();
    assert_eq!(pages, [own[..2].to_vec(), own[2..].to_vec(), vec![]]);
    assert!(page(&mut other).0.is_empty());
}

#[test]
fn a_prepared_page_counts_only_if_it_begins_where_the_read_does() {
    let mut world = World::new();
    let own: Vec<u64> = (0..3).map(|_| world.arrive(1)).collect();
    world.bench.commit();
    let mut prepared = |start, last| {
        let (reply, mut heard) = Reply::new();
        let prepared = Some(Prepared { start, last: Some(last), count: 1 });
        let ask = Ask { after: None, limit: 1 };
        world.bench.message(Read { subscription: id(1), ask, prepared, reply });
        world.bench.commit();
        let Ok(Answer::Moved { cursor, page }) = heard.try_recv() else { panic!("no page") };
        (cursor, page.and_then(|page| page.last))
    };
    assert_eq!(prepared(0, own[0]), (own[0], None));
    // Assembled before the cursor moved: the task assembles its own.
    assert_eq!(prepared(0, own[0]), (own[1], Some(own[1])));
}

#[test]
fn cursor_and_entries_survive_every_restart() {
    for how in Restart::all() {
        let mut world = World::new();
        let own: Vec<u64> = (0..6).map(|_| world.arrive(1)).collect();
        world.bench.flush();
        assert_eq!(world.read(1, None, 2).0, own[..2]);
        // Lost with the process: never answered, never counted.
        let mut heard = world.ask(1, None, 2);
        world.bench.restart(how);
        assert!(heard.try_recv().is_err(), "{how:?}");
        assert_eq!(world.read(1, None, 3).0, own[2..5], "{how:?}");
        world.bench.restart(how);
        let (seqs, answer) = world.read(1, None, 3);
        assert_eq!((seqs, &answer["cursor"]), (vec![own[5]], &json!(own[5])), "{how:?}");
    }
}

#[test]
fn read_entries_are_kept_for_a_while_and_unread_ones_longer() {
    let mut world = World::new();
    let own: Vec<u64> = (0..4).map(|_| world.arrive(1)).collect();
    world.bench.commit();
    world.read(1, None, 2);
    world.bench.turn_clock(READ_MS.cast_signed() - 10_000);
    world.sweep();
    assert_eq!(world.kept(1), own);
    world.bench.turn_clock(20_000);
    world.sweep();
    assert_eq!(world.kept(1), own[2..]);
    let tombstones = world.bench.logs.all(Topic::Pull);
    let tombstones: Vec<_> = tombstones.iter().filter(|entry| entry.value.is_none()).collect();
    assert_eq!(tombstones.len(), 2);
    assert_eq!(tombstones[1].text(internal::SEQ), own[1].to_string());
    // `kept` read all of it: what is left goes as read.
    world.bench.turn_clock(UNREAD_MS.cast_signed());
    world.sweep();
    assert!(world.kept(1).is_empty());
    assert_eq!(world.counters.count("pull_expired_entries_total", ""), 0);
    world.arrive(2);
    world.bench.turn_clock(UNREAD_MS.cast_signed());
    world.sweep();
    assert!(world.kept(2).is_empty());
    assert_eq!(world.counters.count("pull_expired_entries_total", ""), 1);
    assert_eq!(world.counters.count("pull_removed_entries_total", ""), 5);
}

#[test]
fn a_deleted_subscription_leaves_nothing_behind_as_soon_as_the_table_says_so() {
    let mut world = World::new();
    for _ in 0..3 {
        world.arrive(1);
    }
    world.read(1, None, 2);
    world.sweep();
    world.table.take(Some(id(1).to_string().as_bytes()), None);
    world.sweep();
    let cursors = world.bench.logs.all(Topic::Cursors);
    assert!(cursors.last().unwrap().value.is_none(), "its cursor has ended");
    for how in Restart::all() {
        world.bench.restart(how);
        assert!(world.kept(1).is_empty(), "{how:?}");
    }
}

#[test]
fn a_log_that_goes_on_below_what_was_served_stops_the_task() {
    let mut world = World::with_base(BASE_STEP);
    world.arrive(1);
    world.read(1, None, 1);
    world.bench.flush();
    // Another process, whose topic was made anew without a new base.
    let (reply, _heard) = Reply::new();
    let ask = Ask { after: None, limit: 1 };
    let read = Read { subscription: id(1), ask, prepared: None, reply };
    let mut outputs = crate::processors::testing::logs::Emitted::default();
    let mut step = Step {
        now: UnixMillis(T0),
        partition: 0,
        position: 0,
        state: &mut world.bench.state,
        outputs: &mut outputs,
    };
    let stopped = world.bench.processor.message(&read, &mut step);
    assert!(matches!(stopped, Err(Error::Refused(_))));
}

#[test]
fn a_strangers_record_is_skipped_and_counted() {
    let mut world = World::new();
    world.bench.feed(Entry { value: Some(b"x".to_vec()), ..Entry::default() });
    world.bench.feed(Entry::default());
    world.bench.commit();
    assert_eq!(world.counters.count("unreadable_records_total", "pull"), 2);
}

/// What a consumer and the world around it do.
#[derive(Debug, Clone)]
enum Move {
    Arrive(u8),
    Read { n: u8, limit: usize, after: Option<usize> },
    Commit,
    Abort,
    Flush,
    Restart(usize),
}

fn any_move() -> impl Strategy<Value = Move> {
    let n = 1u8..3;
    prop_oneof![
        4 => n.clone().prop_map(Move::Arrive),
        4 => (n, 1usize..4, prop::option::of(0usize..12))
            .prop_map(|(n, limit, after)| Move::Read { n, limit, after }),
        3 => Just(Move::Commit),
        1 => Just(Move::Abort),
        1 => Just(Move::Flush),
        1 => (0usize..32).prop_map(Move::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_happens_pages_are_whole_and_cursors_never_go_back(
        moves in prop::collection::vec(any_move(), 1..60),
    ) {
        let mut world = World::new();
        let mut log: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        let mut cursors: BTreeMap<u8, u64> = BTreeMap::new();
        let mut open: Vec<Asked> = Vec::new();
        for one in moves {
            match one {
                Move::Arrive(n) => {
                    let seq = world.arrive(n);
                    log.entry(n).or_default().push(seq);
                }
                Move::Read { n, limit, after } => {
                    let after = after.map(|index| {
                        log.get(&n).and_then(|log| log.get(index)).copied().unwrap_or(0)
                    });
                    let heard = world.ask(n, after, limit);
                    let there = log.get(&n).map_or(0, Vec::len);
                    open.push((n, after, (limit, there), heard));
                }
                Move::Commit => while world.bench.processor.wants_commit() {
                    world.bench.commit();
                    world.bench.take_step();
                },
                Move::Abort => { world.bench.abort(); world.bench.read(usize::MAX) }
                Move::Flush => {
                    while world.bench.processor.wants_commit() {
                        world.bench.commit();
                        world.bench.take_step();
                    }
                    world.bench.flush();
                }
                Move::Restart(how) => world.bench.restart(Restart::all().nth(how).unwrap()),
            }
            let mut waiting = Vec::new();
            for (n, after, (limit, there), mut heard) in std::mem::take(&mut open) {
                let Ok(answer) = heard.try_recv() else {
                    waiting.push((n, after, (limit, there), heard));
                    continue;
                };
                let Answer::Moved { cursor, page } = answer else { continue };
                let before = cursors.insert(n, cursor).unwrap_or(0);
                prop_assert!(cursor >= before, "went back");
                let start = after.unwrap_or(before);
                let answer = page.unwrap().into_answer(cursor);
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                let events = answer["events"].as_array().unwrap();
                let seqs: Vec<u64> = events.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
                let log = log.get(&n).map(Vec::as_slice).unwrap_or_default();
                let of = |log: &[u64]| -> Vec<u64> {
                    log.iter().copied().filter(|seq| *seq > start).take(limit).collect()
                };
                let (now, asked) = (of(log), of(&log[..there]));
                prop_assert!(now.starts_with(&seqs), "{now:?} {seqs:?}");
                prop_assert!(seqs.len() >= asked.len(), "{asked:?} {seqs:?}");
            }
            open = waiting;
        }
    }
}
