//! The packed changelog and its keys, round trips and damage.

use super::*;
use crate::MemoryBase;
use proptest::prelude::*;

type Owned = ([u8; 16], Vec<u8>, i64);

fn entries() -> impl Strategy<Value = Vec<Owned>> {
    let tenant = prop_oneof![
        4 => prop::sample::select(vec![&b""[..], b"acme", b"umbrella"]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ];
    let arrival_ms = prop_oneof![4 => 1_700_000_000_000i64..1_700_000_100_000, 1 => any::<i64>()];
    prop::collection::vec((any::<[u8; 16]>(), tenant, arrival_ms), 0..60)
}

fn borrowed(owned: &[Owned]) -> impl Iterator<Item = Entry<'_>> {
    owned.iter().map(|(id, tenant, arrival_ms)| Entry { id: *id, tenant, arrival_ms: *arrival_ms })
}

proptest! {
    #[test]
    fn a_dedup_entry_round_trips(
        id: [u8; 16], tenant in prop::collection::vec(any::<u8>(), 0..80), arrival_ms: i64,
    ) {
        let key = key(&id, &tenant);
        prop_assert_eq!(decode_key(&key).unwrap(), (id, &tenant[..]));
        prop_assert_eq!(decode_value(&value(arrival_ms)).unwrap(), arrival_ms);
    }

    #[test]
    fn different_events_or_tenants_have_different_keys(
        a: ([u8; 16], Vec<u8>), b: ([u8; 16], Vec<u8>),
    ) {
        prop_assert_eq!(key(&a.0, &a.1).cmp(&key(&b.0, &b.1)), a.cmp(&b));
    }

    #[test]
    fn packed_records_round_trip_and_stay_below_the_size(
        owned in entries(), bytes_max in 120usize..900,
    ) {
        let records = pack(borrowed(&owned), bytes_max).unwrap();
        prop_assert!(records.iter().all(|record| record.len() <= bytes_max));
        prop_assert_eq!(records.is_empty(), owned.is_empty());
        let unpacked: Vec<_> = records.iter().flat_map(|record| unpack(record).unwrap()).collect();
        let unpacked: Vec<_> = unpacked.into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(unpacked, borrowed(&owned).collect::<Vec<_>>());
    }

    #[test]
    fn arbitrary_and_damaged_bytes_never_panic_and_end(
        owned in entries(), noise: Vec<u8>, at: prop::sample::Index, byte: u8,
    ) {
        let mut versioned = vec![VERSION];
        versioned.extend_from_slice(&noise);
        let mut records = pack(borrowed(&owned), usize::MAX).unwrap();
        if let Some(record) = records.first_mut() {
            let at = at.index(record.len());
            record[at] = byte;
        }
        for bytes in records.iter().chain([&noise, &versioned]) {
            let _ = (decode_key(bytes), decode_value(bytes));
            if let Ok(entries) = unpack(bytes) {
                prop_assert!(entries.count() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_cut_record_is_an_error(owned in entries(), cut: prop::sample::Index) {
        for record in pack(borrowed(&owned), usize::MAX).unwrap() {
            let cut = &record[..cut.index(record.len())];
            let complete = unpack(cut).is_ok_and(|mut entries| entries.all(|entry| entry.is_ok()));
            prop_assert!(!complete);
        }
    }
}

#[test]
fn a_record_of_a_newer_release_says_so() {
    let error = unpack(&[2, 0, 0, 0, 0]).unwrap_err();
    let expected = "dedup changelog record: format version 2, this release reads version 1";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn an_entry_beyond_the_size_is_refused() {
    let entry = Entry { id: [1; 16], tenant: &[b'x'; 100], arrival_ms: 1 };
    let error = pack([entry], 100).unwrap_err();
    assert_eq!(error.to_string(), "dedup changelog record: entry too large");
}

#[test]
fn a_known_tenant_costs_one_byte() {
    let entry = |n: u8| Entry { id: [n; 16], tenant: &[b't'; 36], arrival_ms: i64::from(n) };
    let records = pack((0..100).map(entry), 1_000_000).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].len(), HEAD_BYTES + 37 + 100 * 18);
}

#[test]
fn the_uncommitted_entries_are_what_is_packed() {
    let mut state = State::new(Box::new(MemoryBase::new()));
    for n in 0..50u8 {
        state.put(key(&[n; 16], b"acme"), value(i64::from(n)));
    }
    state.put(crate::family::ready::key(&[0; 16], 1), crate::family::ready::value(&[0; 16]));
    let records = pack_uncommitted(&state, 300).unwrap();
    assert!(records.len() > 1);
    let arrivals: Vec<_> = records
        .iter()
        .flat_map(|record| unpack(record).unwrap())
        .map(|entry| entry.unwrap().arrival_ms)
        .collect();
    assert_eq!(arrivals, (0..50).collect::<Vec<i64>>());
}
