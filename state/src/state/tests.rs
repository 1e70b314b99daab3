//! The state against a model of it, on both bases.

use super::*;
use crate::SharedResources;
use crate::family::{dedup, ready};
use crate::{Fault, Identity, Kind, MemoryBase, ResourceLimits, RocksBase, RocksOptions};
use proptest::prelude::*;

fn checkpoint(number: i64) -> Checkpoint {
    let positions = [(("log".to_owned(), 0), number)].into();
    Checkpoint { positions, stamped_at_ms: number }
}

fn key(n: u8) -> Key {
    ready::key(&[n / 4; 16], u64::from(n % 4))
}

fn value(n: u8) -> Bytes {
    Bytes::from(vec![n; usize::from(n % 5)])
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Get(u8),
    Scan(u8, u8, usize),
    Commit,
    Rollback,
    Restore(u8, u8),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0u8..32;
    prop_oneof![
        6 => (n.clone(), any::<u8>()).prop_map(|(n, v)| Step::Put(n, v)),
        4 => n.clone().prop_map(Step::Delete),
        2 => n.clone().prop_map(Step::Get),
        4 => (n.clone(), 0u8..34, 0usize..20).prop_map(|(a, b, limit)| Step::Scan(a, b, limit)),
        2 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => (n, any::<u8>()).prop_map(|(n, v)| Step::Restore(n, v)),
        1 => Just(Step::Flush),
    ]
}

/// What the state should say: committed and uncommitted entries in plain maps.
#[derive(Default)]
struct Model {
    committed: BTreeMap<Key, Bytes>,
    uncommitted: BTreeMap<Key, Option<Bytes>>,
    commits: i64,
}

impl Model {
    fn view(&self) -> BTreeMap<Key, Bytes> {
        let mut view = self.committed.clone();
        for (key, value) in &self.uncommitted {
            match value {
                Some(value) => view.insert(key.clone(), value.clone()),
                None => view.remove(key),
            };
        }
        view
    }

    fn commit(&mut self) {
        self.committed = self.view();
        self.uncommitted.clear();
        self.commits += 1;
    }
}

fn check_step(state: &mut State, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    match *step {
        Step::Put(n, v) => {
            state.put(key(n), value(v));
            model.uncommitted.insert(key(n), Some(value(v)));
        }
        Step::Delete(n) => {
            state.delete(key(n));
            model.uncommitted.insert(key(n), None);
        }
        Step::Get(n) => {
            prop_assert_eq!(state.get(&key(n)).unwrap(), model.view().get(&key(n)).cloned());
        }
        Step::Scan(a, b, limit) => {
            let range = KeyRange::family(Family::Ready).starting_at(key(a)).ending_before(key(b));
            let view = model.view().into_iter();
            let inside = view.filter(|(found, _)| *found >= key(a) && *found < key(b));
            let expected: Vec<_> = inside.take(limit).collect();
            prop_assert_eq!(state.collect(&range, limit).unwrap(), expected);
        }
        Step::Commit => {
            model.commit();
            state.commit(&checkpoint(model.commits)).unwrap();
        }
        Step::Rollback => {
            state.rollback();
            model.uncommitted.clear();
        }
        Step::Restore(n, v) => {
            let mut batch = Batch::default();
            batch.put(key(n), value(v));
            batch.delete(key(n ^ 1));
            model.committed.insert(key(n), value(v));
            model.committed.remove(&key(n ^ 1));
            model.commits += 1;
            state.apply_restored(&batch, &checkpoint(model.commits)).unwrap();
        }
        Step::Flush => state.flush().unwrap(),
    }
    Ok(())
}

fn check_all(state: &State, model: &Model) -> Result<(), TestCaseError> {
    let found = state.collect(&KeyRange::family(Family::Ready), usize::MAX).unwrap();
    prop_assert_eq!(found, model.view().into_iter().collect::<Vec<_>>());
    let uncommitted = state.uncommitted(Family::Ready);
    let expected = model.uncommitted.iter().map(|(key, value)| (key.as_slice(), value.as_ref()));
    prop_assert!(uncommitted.eq(expected));
    let expected =
        model.uncommitted.values().map(|value| entry_bytes(value.as_ref())).sum::<usize>();
    prop_assert_eq!(state.buffered_bytes(), expected);
    let last = (model.commits > 0).then(|| checkpoint(model.commits));
    prop_assert_eq!(state.checkpoint().unwrap(), last);
    Ok(())
}

fn check(base: Box<dyn Base>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut state = State::new(base);
    let mut model = Model::default();
    for step in steps {
        check_step(&mut state, &mut model, step)?;
    }
    check_all(&state, &model)
}

proptest! {
    #[test]
    fn state_in_memory_reads_as_a_map_with_transactions(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        check(Box::new(MemoryBase::new()), &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn state_on_disk_reads_as_a_map_with_transactions(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity {
            application_id: "hub".to_owned(),
            sub_topology: "delivery".to_owned(),
            partition: 0,
            partition_count: 1,
        };
        let shared = SharedResources::new(&ResourceLimits::default()).unwrap();
        let base = RocksBase::open(dir.path(), &identity, RocksOptions::new(shared)).unwrap();
        check(Box::new(base), &steps)?;
    }
}

#[test]
fn a_visitor_may_read_the_state_and_end_the_scan() {
    let mut state = State::new(Box::new(MemoryBase::new()));
    state.put(key(1), value(1));
    state.commit(&checkpoint(1)).unwrap();
    state.put(key(2), value(2));
    state.put(key(3), value(3));
    let mut met = Vec::new();
    let flow = state
        .scan(&KeyRange::family(Family::Ready), &mut |found, bytes| {
            assert_eq!(state.get(&Key::from_bytes(found)).unwrap().as_deref(), Some(bytes));
            met.push(Key::from_bytes(found));
            if met.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert!(flow.is_break());
    assert_eq!(met, [key(1), key(2)]);
}

#[test]
fn after_a_failed_commit_nothing_is_committed_until_the_store_is_opened_anew() {
    let disk = MemoryBase::new();
    let mut state = State::new(Box::new(disk.clone()));
    state.put(key(1), value(1));
    state.commit(&checkpoint(1)).unwrap();
    state.put(key(2), value(2));
    disk.set_fault(Some(Fault::Full));
    assert_eq!(state.commit(&checkpoint(2)).unwrap_err().kind(), Kind::Io);
    disk.set_fault(None);
    state.rollback();
    state.put(key(3), value(3));
    let error = state.commit(&checkpoint(3)).unwrap_err();
    assert!(error.to_string().contains("opened anew"), "{error}");
    assert!(state.apply_restored(&Batch::default(), &checkpoint(3)).is_err());
    let anew = State::new(Box::new(disk));
    assert_eq!(anew.checkpoint().unwrap(), Some(checkpoint(1)));
    assert_eq!(anew.get(&key(3)).unwrap(), None);
}

#[test]
fn a_commit_is_flushed_once_when_it_is_old_enough() {
    let disk = MemoryBase::new();
    let mut state = State::new(Box::new(disk.clone()));
    assert!(!state.flush_if_older_than(1_000_000, 60_000).unwrap(), "nothing was committed");
    state.commit(&checkpoint(1_000)).unwrap();
    state.commit(&checkpoint(50_000)).unwrap();
    assert!(!state.flush_if_older_than(61_000, 60_000).unwrap());
    assert!(state.flush_if_older_than(61_001, 60_000).unwrap());
    assert!(!state.flush_if_older_than(200_000, 60_000).unwrap());
    state.commit(&checkpoint(200_000)).unwrap();
    disk.crash();
    assert_eq!(state.checkpoint().unwrap(), Some(checkpoint(50_000)));
}

#[test]
fn the_buffer_counts_what_it_holds_and_says_when_it_is_full() {
    let mut state = State::new(Box::new(MemoryBase::new()));
    assert!(state.is_full(0) && !state.is_full(1));
    state.put(dedup::key(&[1; 16], b"acme"), dedup::value(1));
    state.put(dedup::key(&[1; 16], b"acme"), dedup::value(2));
    assert_eq!(state.buffered_bytes(), ENTRY_BYTES + 8);
    state.delete(dedup::key(&[1; 16], b"acme"));
    assert_eq!(state.buffered_bytes(), ENTRY_BYTES);
    assert_eq!(state.uncommitted(Family::Dedup).count(), 1);
    assert_eq!(state.uncommitted(Family::Ready).count(), 0);
    state.rollback();
    assert_eq!(state.buffered_bytes(), 0);
}

#[test]
fn a_checkpoint_is_no_entry() {
    let mut state = State::new(Box::new(MemoryBase::new()));
    state.commit(&Checkpoint::default()).unwrap();
    assert!(state.is_empty().unwrap());
    state.put(dedup::key(&[1; 16], b"acme"), dedup::value(1));
    assert!(!state.is_empty().unwrap());
    state.rollback();
    assert!(state.is_empty().unwrap());
    state.put(dedup::key(&[1; 16], b"acme"), dedup::value(1));
    state.commit(&Checkpoint::default()).unwrap();
    assert!(!state.is_empty().unwrap());
}
