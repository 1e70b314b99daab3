//! Stores on a real disk: opening, damage, locks, expiry, shared memory.

use super::*;
use crate::family::{dedup, ready};
use crate::{Batch, Family, Key, State};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

fn identity() -> Identity {
    Identity {
        application_id: "hub".to_owned(),
        sub_topology: "match".to_owned(),
        partition: 0,
        partition_count: 4,
    }
}

fn options() -> RocksOptions {
    RocksOptions::new(SharedResources::new(&ResourceLimits::default()).unwrap())
}

fn open(dir: &Path) -> RocksBase {
    RocksBase::open(dir, &identity(), options()).unwrap()
}

fn checkpoint(next_offset: i64) -> Checkpoint {
    let positions = [(("dedup".to_owned(), 0), next_offset)].into();
    Checkpoint { positions, stamped_at_ms: next_offset }
}

fn seen(n: u16) -> Key {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    dedup::key(&id, b"acme")
}

fn apply_seen(base: &mut RocksBase, numbers: std::ops::Range<u16>) {
    let mut batch = Batch::default();
    let end = numbers.end;
    for n in numbers {
        batch.put(seen(n), dedup::value(i64::from(n)));
    }
    base.apply(&mut batch.iter(), &checkpoint(i64::from(end))).unwrap();
}

fn count(base: &RocksBase, family: Family) -> usize {
    let mut found = 0;
    let _ = base
        .scan(&KeyRange::family(family), &mut |_, _| {
            found += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

#[test]
fn what_was_applied_is_there_after_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    let mut base = open(dir.path());
    assert_eq!(base.origin(), &Origin::New);
    assert_eq!(base.checkpoint().unwrap(), None);
    apply_seen(&mut base, 0..500);
    Box::new(base).close().unwrap();
    let base = open(dir.path());
    assert_eq!(base.origin(), &Origin::Existing);
    assert_eq!(count(&base, Family::Dedup), 500);
    assert_eq!(base.checkpoint().unwrap(), Some(checkpoint(500)));
    assert_eq!(base.get(&seen(7)).unwrap(), Some(dedup::value(7)));
    assert_eq!(base.get(&seen(500)).unwrap(), None);
}

#[test]
fn dropping_a_store_flushes_it_as_closing_does() {
    let dir = tempfile::tempdir().unwrap();
    apply_seen(&mut open(dir.path()), 0..10);
    assert_eq!(open(dir.path()).checkpoint().unwrap(), Some(checkpoint(10)));
}

#[test]
fn a_store_is_open_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path());
    let second = RocksBase::open(dir.path(), &identity(), options());
    assert_eq!(second.err().map(|error| error.kind()), Some(Kind::Locked));
    drop(base);
    assert_eq!(open(dir.path()).origin(), &Origin::Existing);
}

#[test]
fn a_store_of_another_task_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    apply_seen(&mut open(dir.path()), 0..10);
    let other = Identity { partition: 1, ..identity() };
    let base = RocksBase::open(dir.path(), &other, options()).unwrap();
    assert!(matches!(base.origin(), Origin::Discarded { reason } if reason.contains("partition")));
    assert_eq!(base.checkpoint().unwrap(), None);
    assert_eq!(count(&base, Family::Dedup), 0);
}

/// Damages a store with `damage`, which gets the directory of RocksDB's files and their names.
fn discarded_after(damage: impl Fn(&Path, &[String])) {
    let dir = tempfile::tempdir().unwrap();
    apply_seen(&mut open(dir.path()), 0..100);
    let db = dir.path().join("db");
    let names = fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    damage(&db, &names);
    let mut base = open(dir.path());
    assert!(matches!(base.origin(), Origin::Discarded { .. }), "{:?}", base.origin());
    assert_eq!(base.checkpoint().unwrap(), None);
    apply_seen(&mut base, 0..3);
    drop(base);
    assert_eq!(count(&open(dir.path()), Family::Dedup), 3);
}

fn named(names: &[String], is: impl Fn(&str) -> bool) -> &String {
    names.iter().find(|name| is(name)).unwrap()
}

#[test]
fn a_store_with_a_damaged_or_lost_file_is_discarded_and_opened_empty() {
    let manifest = |names: &[String]| named(names, |name| name.starts_with("MANIFEST")).clone();
    let table = |names: &[String]| named(names, |name| name.ends_with(".sst")).clone();
    discarded_after(|db, _| fs::write(db.join("CURRENT"), "nonsense").unwrap());
    discarded_after(|db, _| fs::remove_file(db.join("CURRENT")).unwrap());
    discarded_after(|db, names| fs::write(db.join(manifest(names)), [0xa5; 400]).unwrap());
    discarded_after(|db, names| fs::remove_file(db.join(manifest(names))).unwrap());
    discarded_after(|db, names| fs::remove_file(db.join(table(names))).unwrap());
    discarded_after(|db, names| fs::write(db.join(table(names)), [0xa5; 4]).unwrap());
    discarded_after(|db, _| fs::remove_dir_all(db).unwrap());
    discarded_after(|db, _| fs::remove_file(db.parent().unwrap().join("IDENTITY")).unwrap());
    discarded_after(|db, _| {
        fs::remove_dir_all(db).unwrap();
        fs::write(db, "a file in the place of the directory").unwrap();
    });
}

#[test]
fn damage_met_while_running_condemns_the_store() {
    let dir = tempfile::tempdir().unwrap();
    apply_seen(&mut open(dir.path()), 0..2000);
    let db = dir.path().join("db");
    for entry in fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = fs::read(&entry).unwrap();
            // Not the first block, in which the checkpoint lies: opening reads that one.
            bytes[20_000..30_000].fill(0xa5);
            fs::write(&entry, bytes).unwrap();
        }
    }
    let base = open(dir.path());
    assert_eq!(base.origin(), &Origin::Existing, "damage in a block that opening does not read");
    let failed = (0..2000).find_map(|n| base.get(&seen(n)).err()).unwrap();
    assert_eq!(failed.kind(), Kind::Corrupt, "{failed}");
    drop(base);
    assert!(matches!(open(dir.path()).origin(), Origin::Discarded { .. }));
}

#[test]
fn a_checkpoint_of_another_release_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path());
    base.db.put(Checkpoint::key(), [9, 9]).unwrap();
    assert_eq!(base.checkpoint().unwrap_err().kind(), Kind::Corrupt);
    drop(base);
    assert!(matches!(open(dir.path()).origin(), Origin::Discarded { .. }));
}

#[test]
fn a_disk_that_refuses_fails_with_a_message_and_discards_nothing() {
    // Nobody, root included, can make a directory there.
    let error = RocksBase::open(Path::new("/proc/store"), &identity(), options()).err().unwrap();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().starts_with("the disk refused to create /proc/store: "), "{error}");
}

#[test]
fn a_reset_store_is_empty_now_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut base = open(dir.path());
    apply_seen(&mut base, 0..100);
    base.flush().unwrap();
    let mut state = State::new(Box::new(base)).reset().unwrap();
    assert_eq!(state.checkpoint().unwrap(), None);
    assert_eq!(state.get(&seen(1)).unwrap(), None);
    state.put(seen(1), dedup::value(1));
    state.commit(&checkpoint(1)).unwrap();
    state.close().unwrap();
    let base = open(dir.path());
    assert_eq!(base.origin(), &Origin::Existing);
    assert_eq!(count(&base, Family::Dedup), 1);
}

#[test]
fn compaction_removes_what_arrived_before_the_bound_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let bound = Arc::new(AtomicI64::new(i64::MIN));
    let rule = ExpiryRule { family: Family::Dedup, bound: Arc::clone(&bound) };
    let options = options().with_expiry(rule);
    let mut base = RocksBase::open(dir.path(), &identity(), options).unwrap();
    apply_seen(&mut base, 0..100);
    let mut batch = Batch::default();
    batch.put(ready::key(&[1; 16], 1), ready::value(&[0; 16]));
    base.apply(&mut batch.iter(), &checkpoint(100)).unwrap();
    for (bound_ms, left) in [(i64::MIN, 100), (30, 70), (30, 70), (99, 1), (1000, 0)] {
        bound.store(bound_ms, Ordering::Relaxed);
        base.compact();
        assert_eq!(count(&base, Family::Dedup), left, "bound {bound_ms}");
    }
    assert_eq!(count(&base, Family::Ready), 1);
    assert_eq!(base.checkpoint().unwrap(), Some(checkpoint(100)));
}

#[test]
fn memory_over_all_stores_stays_near_its_bound() {
    let limits = ResourceLimits {
        block_cache_bytes: 4 * 1024 * 1024,
        write_buffers_bytes: 2 * 1024 * 1024,
        ..ResourceLimits::default()
    };
    let shared = SharedResources::new(&limits).unwrap();
    let dirs: Vec<_> = (0..6).map(|_| tempfile::tempdir().unwrap()).collect();
    let open = |dir: &tempfile::TempDir| {
        RocksBase::open(dir.path(), &identity(), RocksOptions::new(Arc::clone(&shared))).unwrap()
    };
    let mut bases: Vec<_> = dirs.iter().map(open).collect();
    bases.iter_mut().for_each(|base| apply_seen(base, 0..1));
    let floor_bytes = shared.write_buffers_used_bytes() / bases.len();
    assert!(floor_bytes < 256 * 1024, "a small store takes {floor_bytes}");
    // Far less than a memtable for each store, and far more than the bound for all together.
    for n in 0..40 {
        for base in &mut bases {
            apply_seen(base, n * 1000..(n + 1) * 1000);
        }
    }
    // It is the next write to a store that flushes it, once an earlier flush has ended.
    #[expect(clippy::disallowed_methods, reason = "a deadline for flushes in the background")]
    let (start, now) = (std::time::Instant::now(), std::time::Instant::now);
    while shared.write_buffers_used_bytes() > 2 * limits.write_buffers_bytes {
        let waited = now() - start;
        assert!(waited < std::time::Duration::from_secs(10), "not flushed");
        bases.iter_mut().for_each(|base| apply_seen(base, 0..1));
    }
    for base in &bases {
        assert_eq!(count(base, Family::Dedup), 40_000);
    }
    assert!(shared.block_cache_used_bytes() < 2 * limits.block_cache_bytes);
}

#[test]
fn a_reader_reads_what_is_committed_until_the_store_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut base = open(dir.path());
    apply_seen(&mut base, 0..3);
    let reader = base.reader().unwrap();
    let read = |reader: &crate::Reader| {
        let mut met = 0;
        let all = KeyRange::family(Family::Dedup);
        let scanned = reader.scan(&all, &mut |_, _| {
            met += 1;
            ControlFlow::Continue(())
        });
        scanned.unwrap().map(|_| met)
    };
    assert_eq!(read(&reader), Some(3));
    assert!(reader.get(&seen(1)).unwrap().unwrap().is_some());
    assert_eq!(reader.get(&seen(9)).unwrap(), Some(None));
    drop(base);
    assert!(reader.is_revoked());
    assert_eq!((read(&reader), reader.get(&seen(1)).unwrap()), (None, None));
    // It held nothing open, and does not see the next owner's.
    let base = open(dir.path());
    assert_eq!(read(&base.reader().unwrap()), Some(3));
    assert_eq!(read(&reader), None);
    let reset = Box::new(base).reset().unwrap();
    assert_eq!(read(&reset.reader().unwrap()), Some(0));
}
