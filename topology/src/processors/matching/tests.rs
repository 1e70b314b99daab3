//! Match takes each event in once, within the horizon, whatever aborts and restarts there are, and
//! makes one job for each subscription that wants it.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use streaming_hub_model::headers::Headers;
use streaming_hub_model::id::{EventId, SubscriptionId};

use super::*;
use crate::processors::testing::fixtures::{
    Counters, DAY, HOUR, T0, accepted, event_id, header, set,
};
use crate::processors::testing::logs::Entry;
use crate::processors::testing::{Bench, Restart};
use crate::table::tests::{id, put, subscription, table_at};
use crate::topology;
use proptest::prelude::*;

const PARTITIONS: u32 = 2;
const HORIZON_MS: i64 = 7 * DAY;

/// A match task, its table and its counters.
struct World {
    bench: Bench<Match>,
    table: Arc<Table>,
    counters: Counters,
}

impl World {
    fn new() -> Self {
        Self::with_packed_bytes(1 << 20)
    }

    fn with_packed_bytes(packed_bytes_max: usize) -> Self {
        let (counters, table) = (Counters::new(), Arc::new(table_at(1)));
        let settings = Arc::new(MatchSettings {
            table: Arc::clone(&table),
            retry_schedule: RetrySchedule::new(vec![250, 1_000]).unwrap(),
            horizon_ms: HORIZON_MS,
            partitions: PARTITIONS.cast_signed(),
            packed_bytes_max,
            metrics: Arc::clone(&counters.metrics),
        });
        let make = move || Match::new(Arc::clone(&settings), home());
        Self { bench: Bench::new(topology::matching(), home(), make), table, counters }
    }

    fn subscribe(&self, n: u8, tenant: &str, change: impl FnOnce(&mut Value)) -> SubscriptionId {
        let mut row = subscription(n, tenant, &["account.created"]);
        change(&mut row);
        assert!(put(&self.table, &row));
        id(n)
    }

    /// An event arrives now.
    fn arrive(&mut self, id: EventId, tenant: &str) {
        self.bench.feed(accepted(id, tenant, self.bench.now.0));
    }

    /// How many records the open transaction has for a topic.
    fn open(&self, topic: Topic) -> usize {
        self.bench.open().iter().filter(|(own, _)| *own == topic).count()
    }

    fn jobs(&self) -> Vec<Entry> {
        let open = self.bench.open().iter();
        open.filter(|(topic, _)| *topic == Topic::Deliveries).map(|(_, e)| e.clone()).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let open = self.bench.open().iter();
        open.filter(|(topic, _)| *topic == Topic::Pull).map(|(_, e)| e.clone()).collect()
    }

    fn duplicates(&self) -> u64 {
        self.counters.count("duplicates_total", "")
    }

    fn may_run(&self) -> bool {
        self.bench.processor.may_run(&self.bench.metadata)
    }
}

/// The partition of the tenant `acme`.
fn home() -> i32 {
    routing::partition_for_tenant("acme", PARTITIONS)
}

#[test]
fn an_event_lies_in_the_inbox_with_its_headers_and_what_ingest_derived() {
    let mut world = World::new();
    let mut entry = accepted(event_id(1), "acme", T0);
    entry.headers.push(header("hub-due", "strange"));
    entry.headers.push(header("ce-sig", b"\xff"));
    world.bench.feed(entry.clone());
    let (topic, inbox) = &world.bench.open()[0];
    assert_eq!((*topic, inbox.partition), (Topic::Inbox, home()));
    assert_eq!((inbox.key_text(), &inbox.value), (&*event_id(1).to_string(), &entry.value));
    let version = header(internal::VERSION, internal::FORMAT_TEXT);
    let mut expected = entry.headers;
    expected.retain(|header| *header != version && header.0 != b"hub-due");
    expected.push(version);
    assert_eq!(inbox.headers, expected);
}

#[test]
fn what_ingest_packed_travels_on_as_it_is_and_says_the_format() {
    let mut world = World::new();
    world.subscribe(1, "acme", |_| ());
    let mut entry = accepted(event_id(1), "acme", T0);
    entry.headers.retain(|(name, _)| !name.starts_with(b"hub-"));
    let packed = header("hub-event", format!("2 {} 1 {T0} facts/0/7 acme", event_id(1)));
    entry.headers.push(packed);
    world.bench.feed(entry.clone());
    let open = world.bench.open();
    assert_eq!(open[0].1.headers, entry.headers, "the inbox");
    let (job, event) = open[1].1.headers.split_last().unwrap();
    assert_eq!((&*job.0, event), (&b"hub-job"[..], &*entry.headers));
}

#[test]
fn a_duplicate_writes_nothing_and_is_counted_within_a_transaction_and_after_it() {
    let mut world = World::new();
    world.subscribe(1, "acme", |_| ());
    world.arrive(event_id(1), "acme");
    world.arrive(event_id(1), "acme");
    assert_eq!((world.open(Topic::Inbox), world.open(Topic::Deliveries)), (1, 1));
    world.bench.commit();
    world.arrive(event_id(1), "acme");
    assert!(world.bench.open().is_empty());
    world.bench.commit();
    assert_eq!(world.duplicates(), 2);
    assert_eq!(world.counters.count("inbox_events_total", ""), 1);
    assert_eq!(world.bench.logs.all(Topic::Dedup).len(), 1, "a duplicate has no changelog");
}

#[test]
fn a_duplicate_is_found_after_every_kind_of_restart() {
    for how in Restart::all() {
        let mut world = World::with_packed_bytes(60);
        for n in 0..9 {
            world.arrive(event_id(n), "acme");
            if n % 3 == 0 {
                world.bench.commit();
            }
            if n == 4 {
                world.bench.flush();
            }
        }
        world.bench.commit();
        world.arrive(event_id(9), "acme");
        world.bench.restart(how);
        world.bench.read(9);
        assert_eq!(world.open(Topic::Inbox), 1, "what had not committed is taken in now");
        for n in 0..10 {
            world.arrive(event_id(n), "acme");
        }
        assert_eq!(world.open(Topic::Inbox), 1, "{how:?}");
    }
}

#[test]
fn one_transactions_ids_are_packed_into_few_records_without_keys() {
    let mut world = World::new();
    (0..99).for_each(|n| world.arrive(event_id(n), "acme"));
    world.bench.commit();
    let packed = world.bench.logs.all(Topic::Dedup);
    assert_eq!((packed.len(), &packed[0].key, packed[0].partition), (1, &None, home()));
    let mut world = World::with_packed_bytes(100);
    (0..99).for_each(|n| world.arrive(event_id(n), "acme"));
    world.bench.commit();
    let packed = world.bench.logs.all(Topic::Dedup);
    assert!(packed.len() > 9 && packed.iter().all(|e| e.value.as_ref().unwrap().len() <= 100));
}

#[test]
fn an_id_is_remembered_for_the_horizon_from_its_first_arrival_on() {
    let mut world = World::new();
    world.arrive(event_id(1), "acme");
    for (wait_ms, is_new) in [(HORIZON_MS, 0), (1, 1), (HORIZON_MS, 0), (1, 1)] {
        world.bench.commit();
        world.bench.turn_clock(wait_ms);
        world.arrive(event_id(1), "acme");
        assert_eq!(world.open(Topic::Inbox), is_new, "{wait_ms} ms later");
    }
}

#[test]
fn an_id_beyond_the_horizon_is_new_after_a_restart_too() {
    for how in Restart::all() {
        let mut world = World::new();
        world.arrive(event_id(1), "acme");
        world.bench.commit();
        world.bench.turn_clock(HORIZON_MS + 1);
        world.arrive(event_id(1), "acme");
        world.bench.commit();
        world.bench.turn_clock(HORIZON_MS);
        world.bench.restart(how);
        world.arrive(event_id(1), "acme");
        assert_eq!(world.open(Topic::Inbox), 0, "the second arrival counts: {how:?}");
        world.bench.turn_clock(1);
        world.arrive(event_id(1), "acme");
        assert_eq!(world.open(Topic::Inbox), 1, "{how:?}");
    }
}

#[test]
fn an_arrival_ahead_of_the_clock_shortens_no_horizon_not_even_after_a_restart() {
    for how in Restart::all() {
        let mut world = World::new();
        world.arrive(event_id(1), "acme");
        let ahead = world.bench.now.0 + 30 * DAY;
        world.bench.feed(accepted(event_id(2), "acme", ahead));
        world.arrive(event_id(1), "acme");
        assert_eq!(world.open(Topic::Inbox), 2);
        world.bench.commit();
        world.bench.restart(how);
        world.arrive(event_id(1), "acme");
        assert_eq!(world.open(Topic::Inbox), 0, "{how:?}");
    }
}

#[test]
fn a_clock_that_is_turned_back_forgets_nothing_and_brings_nothing_back() {
    let mut world = World::new();
    world.arrive(event_id(1), "acme");
    world.bench.turn_clock(-3 * DAY);
    world.arrive(event_id(1), "acme");
    assert_eq!(world.open(Topic::Inbox), 1);
    world.bench.turn_clock(3 * DAY + HORIZON_MS + 1);
    world.arrive(event_id(2), "acme");
    world.bench.turn_clock(-2 * DAY);
    world.arrive(event_id(1), "acme");
    assert_eq!(world.open(Topic::Inbox), 3, "stream time does not go back");
}

#[test]
fn what_the_store_may_forget_follows_the_stream_time() {
    let mut world = World::new();
    let [rule] = &world.bench.processor.expiry()[..] else { panic!("one rule") };
    let bound = Arc::clone(&rule.bound);
    assert_eq!(rule.family, Family::Dedup);
    let mut arrives = |n, arrival_ms, commits: bool| {
        world.bench.turn_clock(HOUR);
        world.bench.feed(accepted(event_id(n), "acme", arrival_ms));
        if commits {
            world.bench.commit()
        } else {
            world.bench.abort()
        }
        bound.load(Ordering::Relaxed) + HORIZON_MS
    };
    assert_eq!(arrives(1, T0, true), T0);
    assert_eq!(arrives(2, T0 - HOUR, true), T0, "it does not go back");
    assert_eq!(arrives(3, T0 + 5, false), T0, "and not ahead of what is committed");
    assert_eq!(arrives(3, T0 + 9 * DAY, true), T0 + 4 * HOUR, "nor of the clock");
}

#[test]
fn an_abort_takes_the_stream_time_back_too() {
    let mut world = World::new();
    let mut arrives = |n| {
        let arrival_ms = world.bench.now.0;
        world.bench.produce(accepted(event_id(n), "acme", arrival_ms));
        world.bench.turn_clock(4 * DAY);
    };
    // A backlog: the second copy is within the horizon of the first, the last event is not.
    [1, 1, 2].into_iter().for_each(&mut arrives);
    world.bench.read(9);
    world.bench.abort();
    world.bench.read(9);
    assert_eq!(world.open(Topic::Inbox), 2);
}

#[test]
fn events_ten_days_old_by_their_own_time_are_taken_in_once_each() {
    let mut world = World::new();
    let old = |n: u8| EventId::from_parts(T0 - 10 * DAY, [n; 10]);
    world.arrive(event_id(1), "acme");
    world.arrive(old(1), "acme");
    world.arrive(old(2), "acme");
    assert_eq!(world.open(Topic::Inbox), 3);
    world.bench.commit();
    world.bench.restart(Restart::COLD);
    world.arrive(old(1), "acme");
    assert!(world.bench.open().is_empty());
}

#[test]
fn one_id_under_two_tenants_is_two_events() {
    let mut world = World::new();
    for tenant in ["acme", "acme2", "acme"] {
        world.arrive(event_id(1), tenant);
    }
    assert_eq!(world.open(Topic::Inbox), 2);
}

#[test]
fn after_an_abort_an_event_is_taken_in_again_with_the_same_jobs() {
    let mut world = World::new();
    for n in 1..4 {
        world.subscribe(n, "acme", |_| ());
    }
    world.arrive(event_id(1), "acme");
    let before = world.jobs();
    assert_eq!(before.len(), 3);
    world.bench.abort();
    world.bench.turn_clock(5_000);
    world.bench.read(9);
    let ids = |jobs: &[Entry]| jobs.iter().map(|job| job.key.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&world.jobs()), ids(&before));
    world.bench.commit();
    assert_eq!(world.bench.logs.all(Topic::Inbox).len(), 1);
    assert_eq!(world.counters.count("jobs_total", ""), 3);
}

#[test]
fn each_matching_subscription_gets_one_job_that_says_all_that_delivery_needs() {
    let mut world = World::new();
    let own = world.subscribe(1, "acme", |row| row["retry_schedule"] = json!([9_000, 1]));
    let default = world.subscribe(2, "acme", |row| row["event_types"] = json!(["account.*", "*"]));
    world.subscribe(3, "acme", |row| row["event_types"] = json!(["account.deleted"]));
    world.subscribe(4, "acme", |row| row["schema_major"] = json!(2));
    world.subscribe(5, "acme", |row| row["origin"] = json!("lender"));
    world.subscribe(6, "acme2", |_| ());
    world.table.advance(home(), 42);
    let entry = accepted(event_id(1), "acme", T0);
    world.bench.feed(entry.clone());
    let jobs = world.jobs();
    assert_eq!(jobs.len(), 2);
    for (job, subscription, delay_ms) in [(&jobs[0], own, 9_000), (&jobs[1], default, 250)] {
        let id = JobId::derive("acme", event_id(1), subscription, b"");
        assert_eq!(job.key_text(), id.to_string());
        assert_eq!(job.value, entry.value);
        assert_eq!(job.partition, routing::partition_for_subscription(subscription, PARTITIONS));
        let headers = job.refs();
        let facts = JobFacts::read(Headers::new(&headers)).unwrap();
        let matched = world.bench.now;
        let due = matched.plus(delay_ms);
        assert_eq!(facts, JobFacts { subscription, matched, table: 42, attempts: 0, due });
        let event = Accepted::read(Headers::new(&headers)).unwrap();
        assert_eq!((event.id, event.tenant), (event_id(1), "acme"));
    }
}

fn pull(row: &mut Value) {
    row["sink"] = json!({"type": "pull"});
}

#[test]
fn a_pull_subscription_gets_an_entry_instead_of_a_job_shown_as_its_data_allows() {
    let mut world = World::new();
    let own = world.subscribe(1, "acme", pull);
    world.subscribe(2, "acme", |_| ());
    world.subscribe(3, "acme2", pull);
    world.table.advance(home(), 42);
    let json = Some(&b"{\"b\":1.10,\n\"a\":1}"[..]);
    let data: [(&str, Option<&[u8]>, Embedding); 6] = [
        ("application/json", json, Embedding::Json),
        ("application/vnd.x+json; charset=utf-8", json, Embedding::Json),
        ("text/plain", json, Embedding::Base64),
        ("application/json", Some(b"\xef\xbb\xbf{}"), Embedding::Base64),
        ("application/json", Some(b"\"\\ud800\""), Embedding::Base64),
        ("application/json", None, Embedding::Nothing),
    ];
    for (n, (content_type, value, embedding)) in (1..).zip(data) {
        let mut entry = accepted(event_id(n), "acme", T0);
        set(&mut entry.headers, headers::CE_DATACONTENTTYPE, content_type);
        entry.value = value.map(<[u8]>::to_vec);
        world.bench.feed(entry);
        assert_eq!(world.jobs().len(), 1, "the other subscription's");
        let entries = world.entries();
        let [found] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(found.value.as_deref(), Some(value.unwrap_or_default()));
        assert_eq!(found.partition, routing::partition_for_subscription(own, PARTITIONS));
        let facts = EntryFacts::read(Headers::new(&found.refs())).unwrap();
        let matched = world.bench.now;
        assert_eq!(facts, EntryFacts { subscription: own, matched, table: 42, embedding });
        world.bench.commit();
    }
}

#[test]
fn an_entry_of_an_id_beyond_the_horizon_is_not_ended_by_the_first_ones_tombstone() {
    let mut world = World::new();
    world.subscribe(1, "acme", pull);
    let arrive = |world: &mut World| {
        world.arrive(event_id(1), "acme");
        let key = world.entries()[0].key_text().to_owned();
        world.bench.commit();
        world.bench.turn_clock(HORIZON_MS + 1);
        key
    };
    // The pull topic is compacted: what has the same key there is one entry.
    let (first, second) = (arrive(&mut world), arrive(&mut world));
    assert_ne!(first, second);
}

#[test]
fn an_event_that_is_matched_again_after_an_abort_is_the_same_entry() {
    let mut world = World::new();
    world.subscribe(1, "acme", pull);
    world.arrive(event_id(1), "acme");
    let before = world.entries();
    world.bench.abort();
    world.bench.read(usize::MAX);
    assert_eq!(before[0].key, world.entries()[0].key);
}

#[test]
fn an_event_without_data_is_a_job_with_an_empty_body_never_a_tombstone() {
    let mut world = World::new();
    world.subscribe(1, "acme", |_| ());
    for (n, value) in [(1, None), (2, Some(Vec::new()))] {
        world.bench.feed(Entry { value, ..accepted(event_id(n), "acme", T0) });
    }
    assert!(world.jobs().iter().all(|job| job.value == Some(Vec::new())));
    let inbox: Vec<_> =
        world.bench.open().iter().filter(|(topic, _)| *topic == Topic::Inbox).collect();
    assert_eq!([&inbox[0].1.value, &inbox[1].1.value], [&None, &Some(Vec::new())]);
}

#[test]
fn a_disabled_or_unverified_subscription_matches_nothing_and_the_event_is_stored_all_the_same() {
    let mut world = World::new();
    world.subscribe(1, "acme", |row| row["enabled"] = json!(false));
    world.subscribe(2, "acme", |row| row["verification_state"] = json!("pending"));
    world.subscribe(3, "acme", |row| row["verification_state"] = json!("failed"));
    world.arrive(event_id(1), "acme");
    assert_eq!((world.open(Topic::Inbox), world.open(Topic::Deliveries)), (1, 0));
    world.bench.commit();
    assert_eq!(world.counters.count("unmatched_events_total", ""), 1);
    world.subscribe(3, "acme", |_| ());
    world.arrive(event_id(2), "acme");
    assert_eq!(world.open(Topic::Deliveries), 1);
}

#[test]
fn a_new_owner_waits_for_the_table_that_its_predecessor_matched_with() {
    let mut world = World::new();
    assert!(world.may_run(), "nobody matched before");
    world.table.advance(home(), 42);
    world.arrive(event_id(1), "acme");
    world.bench.commit();
    let successor = World::new();
    let may_run = || successor.bench.processor.may_run(&world.bench.metadata);
    assert!(!may_run());
    successor.table.advance(home(), 41);
    assert!(!may_run());
    successor.table.advance(home(), 42);
    assert!(may_run());
}

#[test]
fn an_owner_that_matched_nothing_hands_on_what_it_had_to_wait_for() {
    let mut world = World::new();
    world.table.advance(home(), 42);
    world.arrive(event_id(1), "acme");
    world.bench.commit();
    world.bench.restart(Restart::COLD);
    assert!(world.may_run());
    world.arrive(event_id(1), "acme");
    world.bench.commit();
    assert_eq!(world.duplicates(), 1);
    let successor = World::new();
    successor.table.advance(home(), 41);
    assert!(!successor.bench.processor.may_run(&world.bench.metadata));
}

#[test]
fn a_strangers_record_is_skipped_and_counted() {
    let mut world = World::new();
    for name in [internal::VERSION, internal::ID, internal::ARRIVAL, internal::TENANT, "ce-source"]
    {
        let mut entry = accepted(event_id(1), "acme", T0);
        set(&mut entry.headers, name, "");
        world.bench.feed(entry);
    }
    world.bench.feed(Entry::default());
    assert!(world.bench.open().is_empty());
    world.bench.commit();
    assert_eq!(world.counters.count("unreadable_records_total", "match"), 6);
}

#[test]
fn a_record_of_a_newer_format_stops_the_task() {
    let mut world = World::new();
    let mut entry = accepted(event_id(1), "acme", T0);
    set(&mut entry.headers, internal::VERSION, "3");
    world.bench.produce(entry);
    let error = world.bench.try_read().unwrap_err();
    assert!(matches!(error, Error::Format(internal::Error::Newer { found: 3 })), "{error}");
    assert_eq!(world.bench.position, 0);
}

#[derive(Debug, Clone)]
enum Op {
    /// An event of this number and tenant arrives, so long after the one before.
    Arrive(u64, bool, i64),
    Read(usize),
    Commit,
    Abort,
    Flush,
    Restart(Restart),
}

fn op() -> impl Strategy<Value = Op> {
    let restart = (any::<bool>(), any::<bool>(), any::<u64>())
        .prop_map(|(keeps_store, compacted, seed)| Restart { keeps_store, compacted, seed });
    prop_oneof![
        8 => (0u64..12, any::<bool>(), 0i64..2 * DAY).prop_map(|(n, a, ms)| Op::Arrive(n, a, ms)),
        4 => (1usize..5).prop_map(Op::Read),
        4 => Just(Op::Commit),
        2 => Just(Op::Abort),
        1 => Just(Op::Flush),
        1 => restart.prop_map(Op::Restart),
    ]
}

proptest! {
    #[test]
    fn within_the_horizon_each_event_is_in_the_inbox_exactly_once(
        ops in prop::collection::vec(op(), 0..80), packed_bytes_max in 60usize..400,
    ) {
        let mut world = World::with_packed_bytes(packed_bytes_max);
        let subscription = world.subscribe(1, "acme", |_| ());
        let mut remembered: HashMap<(u64, bool), i64> = HashMap::new();
        let mut expected = BTreeMap::new();
        for op in ops {
            match op {
                Op::Arrive(n, is_acme, wait_ms) => {
                    world.bench.turn_clock(wait_ms);
                    let (at, tenant) = (world.bench.now.0, if is_acme { "acme" } else { "acme2" });
                    let known = remembered.get(&(n, is_acme)).copied();
                    if known.is_none_or(|known| known < at - HORIZON_MS) {
                        remembered.insert((n, is_acme), at);
                        *expected.entry((event_id(n).to_string(), tenant)).or_insert(0) += 1;
                    }
                    world.bench.produce(accepted(event_id(n), tenant, at));
                }
                Op::Read(count) => world.bench.read(count),
                Op::Commit => world.bench.commit(),
                Op::Abort => world.bench.abort(),
                Op::Flush => world.bench.flush(),
                Op::Restart(how) => world.bench.restart(how),
            }
        }
        world.bench.read(usize::MAX);
        world.bench.commit();
        let mut found = BTreeMap::new();
        for entry in world.bench.logs.all(Topic::Inbox) {
            let tenant = if entry.text(internal::TENANT) == "acme" { "acme" } else { "acme2" };
            *found.entry((entry.key_text().to_owned(), tenant)).or_insert(0) += 1;
        }
        prop_assert_eq!(&found, &expected);
        let jobs = world.bench.logs.all(Topic::Deliveries);
        let of_acme: usize =
            expected.iter().filter(|((_, tenant), _)| *tenant == "acme").map(|(_, n)| n).sum();
        prop_assert_eq!(jobs.len(), of_acme);
        let own = subscription.to_string();
        prop_assert!(jobs.iter().all(|job| job.text(internal::SUBSCRIPTION) == own));
    }
}
