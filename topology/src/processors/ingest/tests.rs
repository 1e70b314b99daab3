//! Ingest keeps what it is given: byte-exact, in order, whatever it holds, and within the limits of
//! what comes after it.

use streaming_hub_model::follow::FollowSet;
use streaming_hub_model::headers::travels;
use streaming_hub_model::id::EventId;
use streaming_hub_model::routing::SaltedSince;
use streaming_hub_model::tenant::TenantId;

use super::*;
use crate::processors::testing::fixtures::{
    Counters, T0, event_id, fact, fact_record, header, set,
};
use crate::processors::testing::logs::{Entry, Header};
use crate::processors::testing::{Bench, FACTS, Restart};
use crate::topology;
use proptest::prelude::*;

const PARTITIONS: i32 = 8;
const PAYLOAD_BYTES_MAX: usize = 100 * 1024;
const MESSAGE_BYTES_MAX: usize = 200 * 1024;
/// What fits beside framing and the hub's own headers.
const ROOM: usize = MESSAGE_BYTES_MAX - FRAMING_BYTES;

fn bench_with(policy: IngestPolicy, message_bytes_max: usize) -> (Bench<Ingest>, Counters) {
    let counters = Counters::new();
    let salting = Salting::default();
    let since = SaltedSince(UnixMillis(T0));
    salting.record(TenantId::parse("salted").unwrap(), since).unwrap();
    let settings = Arc::new(IngestSettings {
        policy: IngestPolicy { payload_bytes_max: PAYLOAD_BYTES_MAX, ..policy },
        partitions: PARTITIONS,
        message_bytes_max,
        salting: Arc::new(salting),
        metrics: Arc::clone(&counters.metrics),
    });
    let make = move || Ingest::new(Arc::clone(&settings));
    (Bench::new(topology::ingest(FollowSet::default()), 11, make), counters)
}

fn bench() -> (Bench<Ingest>, Counters) {
    bench_with(IngestPolicy::default(), MESSAGE_BYTES_MAX)
}

fn accepted(headers: Vec<Header>, value: Option<&[u8]>) -> Entry {
    one(Topic::IngestRepartition, fact_record(headers, value))
}

fn quarantined(record: Entry) -> Entry {
    one(Topic::Quarantine, record)
}

/// The one record that follows from a record.
fn one(topic: Topic, record: Entry) -> Entry {
    let (mut bench, _) = bench();
    bench.feed(record);
    let [(found, entry)] = bench.open() else { panic!("{} records", bench.open().len()) };
    assert_eq!(*found, topic, "{}", entry.text(internal::DETAIL));
    entry.clone()
}

fn null(name: &str) -> Header {
    (name.as_bytes().to_vec(), None)
}

/// A record's bytes in Kafka's format, at most 100 bytes of batch and record framing included.
fn wire_bytes(entry: &Entry) -> usize {
    // A length is a zigzag varint: its bits and a sign in groups of seven.
    let varint = |len: usize| (len.ilog2() as usize + 2).div_ceil(7);
    let framed = |len: usize| len + varint(len.max(1));
    let size = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers: usize =
        entry.headers.iter().map(|(name, value)| framed(name.len()) + framed(size(value))).sum();
    headers + size(&entry.key) + size(&entry.value) + 100
}

#[test]
fn an_accepted_record_keeps_its_own_headers_byte_exact_and_in_order_before_the_hubs() {
    let (id, mut headers) = (event_id(1), fact(event_id(1), "acme"));
    headers.insert(0, header("ce-sig", b"\xff\x00"));
    headers.insert(3, null("ce-subject"));
    headers.extend([
        header("ce-subject", "first"),
        header("x-lerian-trace", "foreign"),
        header("baggage", "tenant=acme"),
        header("", "nameless"),
        header("ce-subject", "last"),
        header(b"ce-\xff", "unreadable name"),
        header("ce-empty", ""),
    ]);
    let own: Vec<Header> = headers
        .iter()
        .filter(|(name, _)| std::str::from_utf8(name).is_ok_and(travels))
        .cloned()
        .collect();
    let entry = accepted(headers, Some(b"\x00payload\xff"));
    let (kept, hubs) = entry.headers.split_at(own.len());
    assert_eq!(kept, own);
    let packed = format!("2 {id} 1 {T0} {FACTS}/11/0 acme");
    assert_eq!(hubs, [header("hub-event", packed)]);
    let expected = [
        (internal::TENANT, "acme".to_owned()),
        (internal::VERSION, "2".to_owned()),
        (internal::ID, id.to_string()),
        (internal::MAJOR, "1".to_owned()),
        (internal::ARRIVAL, T0.to_string()),
        (internal::FROM, format!("{FACTS}/11/0")),
    ];
    for (name, value) in expected {
        assert_eq!(entry.text(name), value, "{name}");
    }
    assert_eq!(entry.value.as_deref(), Some(&b"\x00payload\xff"[..]));
}

#[test]
fn a_producers_own_hub_headers_never_travel() {
    let mut headers = fact(event_id(1), "acme");
    for name in [internal::TENANT, internal::ID, internal::ARRIVAL, internal::DUE, "hub-else"] {
        headers.insert(0, header(name, "forged"));
        headers.push(header(name, "forged"));
    }
    let entry = accepted(headers, None);
    assert!(entry.headers.iter().all(|(_, value)| value.as_deref() != Some(b"forged")));
    assert!(!entry.has(internal::DUE) && !entry.has("hub-else"));
}

#[test]
fn the_id_is_normalised_for_identity_and_left_as_it_was_written() {
    let mut headers = fact(event_id(1), "acme");
    let upper = event_id(1).to_string().to_uppercase();
    set(&mut headers, "ce-id", &upper);
    let entry = accepted(headers, None);
    assert_eq!(entry.text("ce-id"), upper);
    assert_eq!(entry.text(internal::ID), event_id(1).to_string());
}

#[test]
fn an_event_goes_to_its_tenants_partition_whatever_its_key() {
    for tenant in ["acme", "São João", "t-7"] {
        let mut partitions = Vec::new();
        for (n, key) in [(1, None), (2, Some(b"k".to_vec())), (3, Some(Vec::new()))] {
            let record = fact_record(fact(event_id(n), tenant), None);
            let entry = one(Topic::IngestRepartition, Entry { key, ..record });
            assert_eq!(entry.key_text(), tenant);
            partitions.push(entry.partition);
        }
        let home = routing::partition_for_tenant(tenant, PARTITIONS.unsigned_abs());
        assert_eq!(partitions, [home; 3]);
    }
}

#[test]
fn a_salted_tenants_events_are_spread_from_the_recorded_moment_on() {
    let home = routing::partition_for_tenant("salted", PARTITIONS.unsigned_abs());
    let partition_of =
        |id| one(Topic::IngestRepartition, fact_record(fact(id, "salted"), None)).partition;
    let old = |n: u8| EventId::from_parts(T0 - 1, [n; 10]);
    assert!((0..9).all(|n| partition_of(old(n)) == home));
    assert!((0..9).any(|n| partition_of(event_id(n)) != home));
    assert_eq!(partition_of(event_id(3)), partition_of(event_id(3)), "copies meet");
}

#[test]
fn a_null_and_an_empty_value_are_events_and_stay_what_they_are() {
    assert_eq!(accepted(fact(event_id(1), "acme"), None).value, None);
    assert_eq!(accepted(fact(event_id(1), "acme"), Some(b"")).value, Some(Vec::new()));
}

#[test]
fn the_default_tenant_stands_in_for_a_missing_one() {
    let policy = IngestPolicy {
        default_tenant: Some(TenantId::parse("solo").unwrap()),
        ..IngestPolicy::default()
    };
    let (mut bench, _) = bench_with(policy, MESSAGE_BYTES_MAX);
    bench.feed(fact_record(fact(event_id(1), ""), None));
    let (_, entry) = &bench.open()[0];
    assert_eq!((entry.key_text(), &*entry.text(internal::TENANT)), ("solo", "solo"));
}

#[test]
fn a_quarantined_record_is_kept_byte_exact_with_its_reason_and_origin() {
    let own = vec![
        header(b"\xff\xfe", b"\x00"),
        header("ce-id", "no-uuid"),
        null("ce-source"),
        header("", ""),
        header("ce-id", "no-uuid"),
        header("hub-tenant", "forged"),
    ];
    let record =
        Entry { key: Some(b"\x80key".to_vec()), ..fact_record(own.clone(), Some(b"\xffdata")) };
    let entry = quarantined(record);
    assert_eq!(entry.headers[..own.len()], own);
    assert_eq!(entry.value.as_deref(), Some(&b"\xffdata"[..]));
    assert_eq!(entry.text(internal::REASON), "missing_header");
    assert_eq!(entry.text(internal::DETAIL), "ce-specversion is missing or empty");
    assert_eq!(entry.text(internal::FROM), format!("{FACTS}/11/0"));
    assert_eq!(entry.number(internal::TIMESTAMP), T0 - 5);
    assert_eq!(entry.number(internal::AT), T0);
    assert!(!entry.has(internal::VALUE_BYTES));
    assert_eq!(entry.headers.last(), Some(&header(internal::KEY, b"\x80key")));
    assert_eq!((entry.key_text(), entry.partition), (&*format!("{FACTS}/11/0"), 3));
}

#[test]
fn a_quarantined_null_is_told_from_a_quarantined_empty() {
    for bytes in [None, Some(Vec::new())] {
        let record = Entry { key: bytes.clone(), value: bytes.clone(), ..Entry::default() };
        let entry = quarantined(record);
        assert_eq!(entry.value, bytes);
        assert_eq!(entry.headers.last(), Some(&(internal::KEY.as_bytes().to_vec(), bytes)));
    }
}

#[test]
fn a_value_above_the_internal_limit_is_kept_by_size_and_sha_256() {
    let headers = fact(event_id(1), "acme");
    let value = vec![b'a'; ROOM + 1];
    let entry = quarantined(fact_record(headers.clone(), Some(&value)));
    assert_eq!(entry.text(internal::REASON), "payload_too_large");
    assert_eq!(entry.headers[..headers.len()], headers);
    assert_eq!(entry.value, None);
    assert_eq!(entry.number(internal::VALUE_BYTES), i64::try_from(value.len()).unwrap());
    assert_eq!(entry.text(internal::VALUE_SHA256), hex::encode(&Sha256::digest(&value)));
    let fits = quarantined(fact_record(headers, Some(&value[..PAYLOAD_BYTES_MAX + 1])));
    assert_eq!(fits.value.as_deref(), Some(&value[..PAYLOAD_BYTES_MAX + 1]));
}

#[test]
fn headers_above_the_internal_limit_are_left_out_and_the_value_kept_by_size_and_hash() {
    let own = vec![header("x", vec![b'a'; ROOM + 1])];
    let record = Entry { key: Some(b"k".to_vec()), ..fact_record(own, Some(b"abc")) };
    let entry = quarantined(record);
    assert!(!entry.has("x"));
    assert_eq!((entry.value.as_ref(), entry.number(internal::VALUE_BYTES)), (None, 3));
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(entry.text(internal::VALUE_SHA256), abc);
    assert_eq!(entry.headers.last(), Some(&header(internal::KEY, "k")));
}

#[test]
fn many_small_headers_count_with_their_framing() {
    let own = vec![header("", ""); ROOM];
    let entry = quarantined(fact_record(own, Some(b"abc")));
    assert!(wire_bytes(&entry) <= MESSAGE_BYTES_MAX, "{} bytes", wire_bytes(&entry));
}

#[test]
fn a_key_above_the_internal_limit_is_left_out() {
    let record = fact_record(Vec::new(), Some(b"abc"));
    let entry = quarantined(Entry { key: Some(vec![b'k'; ROOM + 1]), ..record });
    assert_eq!(entry.headers.last(), Some(&null(internal::KEY)));
    assert!(wire_bytes(&entry) <= MESSAGE_BYTES_MAX);
}

#[test]
fn an_event_that_no_internal_record_could_hold_is_quarantined_and_wedges_nothing() {
    let event = |more: Vec<Header>| {
        let mut headers = fact(event_id(1), "acme");
        headers.extend(more);
        fact_record(headers, Some(b"data"))
    };
    let too_large = event(vec![header("ce-large", vec![b'a'; ROOM])]);
    let long_name = event(vec![header("ce-".repeat(22_000), "")]);
    let many = event(vec![header("ce-", ""); 65_536]);
    let cases = [(too_large, "bytes"), (long_name, "name"), (many, "65000 headers")];
    for ((record, detail), bytes_max) in cases.into_iter().zip([1, 1, 20]) {
        let bytes_max = bytes_max * MESSAGE_BYTES_MAX;
        let (mut bench, counters) = bench_with(IngestPolicy::default(), bytes_max);
        bench.feed(record);
        let [(Topic::Quarantine, entry)] = bench.open() else { panic!("not quarantined") };
        assert_eq!(entry.text(internal::REASON), "bad_header");
        assert!(entry.text(internal::DETAIL).contains(detail), "{}", entry.text(internal::DETAIL));
        assert!(wire_bytes(entry) <= bytes_max);
        bench.commit();
        assert_eq!(counters.count("verdicts_total", "accept"), 0);
    }
}

#[test]
fn headers_that_do_not_travel_make_no_event_too_large() {
    let mut headers = fact(event_id(1), "acme");
    headers.extend(vec![header("x-foreign", vec![b'a'; 1024]); 200]);
    accepted(headers, Some(b"data"));
}

#[test]
fn a_system_event_writes_nothing_and_the_position_passes_it() {
    let (mut bench, counters) = bench();
    bench.feed(fact_record(vec![header("ce-systemevent", "true")], Some(b"x")));
    assert!(bench.open().is_empty());
    assert_eq!(bench.position, 1);
    bench.commit();
    assert_eq!(counters.count("verdicts_total", "drop"), 1);
}

#[test]
fn what_was_done_is_counted_when_it_committed_and_only_once() {
    let (mut bench, counters) = bench();
    bench.produce(fact_record(fact(event_id(1), "acme"), None));
    bench.produce(fact_record(Vec::new(), None));
    bench.read(9);
    assert_eq!(counters.count("verdicts_total", ""), 0);
    bench.abort();
    assert_eq!(counters.count("verdicts_total", ""), 0);
    bench.read(9);
    bench.commit();
    assert_eq!(counters.count("verdicts_total", "accept"), 1);
    assert_eq!(counters.count("verdicts_total", "quarantine"), 1);
    assert_eq!(counters.count("quarantined_total", "missing_header"), 1);
    bench.restart(Restart::COLD);
    bench.read(9);
    bench.commit();
    assert_eq!(counters.count("verdicts_total", ""), 2);
}

#[test]
fn a_missing_tenant_is_noticed_once_and_only_when_it_committed() {
    let (mut bench, _) = bench();
    let nobodys = |n| fact_record(fact(event_id(n), ""), None);
    bench.feed(nobodys(1));
    bench.abort();
    assert_eq!(bench.act(), []);
    bench.read(9);
    bench.commit();
    assert_eq!(bench.act(), [Notice::TenantMissing]);
    bench.feed(nobodys(2));
    bench.commit();
    assert_eq!(bench.act(), []);
}

/// Headers of which some are well-formed, some well-known and the rest anything.
fn any_headers() -> impl Strategy<Value = Vec<Header>> {
    let known = prop::sample::select(fact(event_id(1), "acme"));
    let names = prop::sample::select(vec!["ce-id", "ce-tenantid", "ce-systemevent", "hub-v", ""]);
    let anything = prop::collection::vec(any::<u8>(), 0..9);
    let broken = (names, prop::option::of(anything.clone()))
        .prop_map(|(name, value)| (name.as_bytes().to_vec(), value));
    let foreign = (anything.clone(), prop::option::of(anything));
    let more = prop::collection::vec(prop_oneof![known, broken, foreign], 0..9);
    (any::<bool>(), more).prop_map(|(whole, more)| {
        let mut headers = if whole { fact(event_id(1), "acme") } else { Vec::new() };
        headers.extend(more);
        headers
    })
}

proptest! {
    #[test]
    fn whatever_a_record_holds_it_is_one_verdict_and_loses_nothing(
        headers in any_headers(), key: Option<Vec<u8>>, value: Option<Vec<u8>>,
    ) {
        let (mut bench, _) = bench();
        let record = fact_record(headers.clone(), value.as_deref());
        bench.feed(Entry { key: key.clone(), ..record });
        match bench.open() {
            [] => prop_assert!(headers.iter().any(|(name, _)| name == b"ce-systemevent")),
            [(Topic::IngestRepartition, entry)] => {
                prop_assert_eq!(&entry.value, &value);
                prop_assert!(internal::Accepted::read(
                    streaming_hub_model::headers::Headers::new(&entry.refs())
                ).is_ok());
            }
            [(Topic::Quarantine, entry)] => {
                prop_assert_eq!(&entry.headers[..headers.len()], &headers[..]);
                prop_assert_eq!(&entry.value, &value);
                prop_assert_eq!(&entry.headers.last().unwrap().1, &key);
                prop_assert!(ReasonCode::parse(&entry.text(internal::REASON)).is_ok());
            }
            more => prop_assert!(false, "{} records", more.len()),
        }
    }
}
