//! However jobs are put, moved and removed, each has its one entry in the order of its place.

use std::collections::BTreeMap;

use streaming_hub_state::family::Place;
use streaming_hub_state::{Checkpoint, MemoryBase};

use super::super::places;
use super::checker::indexes_agree;
use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    /// Job, place, subscription, offset or due time.
    Put(u64, u8, u8, u64),
    Remove(u64, u8),
    Commit,
    Rollback,
}

fn op() -> impl Strategy<Value = Op> {
    let (job, place) = (0u64..6, 0u8..4);
    let put = (job.clone(), place.clone(), 0u8..2, 0u64..5);
    prop_oneof![
        6 => put.prop_map(|(job, place, s, order)| Op::Put(job, place, s, order)),
        4 => (job, place).prop_map(|(job, place)| Op::Remove(job, place)),
        1 => Just(Op::Commit),
        1 => Just(Op::Rollback),
    ]
}

/// What should be there: place and job to subscription and order.
type Model = BTreeMap<(u8, JobId), (u8, u64)>;

fn job_id(n: u64) -> JobId {
    JobId::derive(TENANT, event_id(n), id(0), b"")
}

fn put_job(state: &mut State, op: (u64, u8, u8, u64), model: &mut Model) {
    let (n, number, subscription, order) = op;
    let (place, job) = (Place::from_number(number).unwrap(), job_id(n));
    let due = UnixMillis(i64::try_from(order).unwrap());
    let facts =
        JobFacts { subscription: id(subscription), matched: due, table: 0, attempts: 0, due };
    let (_, mut entry) = record(n, &facts);
    // Offsets are unique in a log.
    let offset = order * 8 + n;
    entry.offset = i64::try_from(offset).unwrap();
    let headers = entry.refs();
    let stored = StoredJob::of_record(job, offset, &entry.record("t", &headers)).unwrap();
    let stored = stored.unwrap().at(place);
    assert_eq!(stored.order, if number == 0 { offset } else { order });
    places::remove(state, place, job).unwrap();
    places::put(state, &stored).unwrap();
    model.insert((number, job), (subscription, stored.order));
}

/// The first job of each order is the one that the model names.
fn firsts_agree(state: &State, model: &Model) {
    for subscription in 0..2 {
        let first = |in_deliveries: bool| {
            let own = model.iter().filter(|((place, _), (owner, _))| {
                *owner == subscription && (*place == 0) == in_deliveries
            });
            own.map(|((_, job), (_, order))| (*order, *job)).min()
        };
        let found = places::first_ready(state, id(subscription), 0, |_| true).unwrap();
        assert_eq!(found.map(|job| (job.order, job.id)), first(true));
        let found = places::first_due(state, id(subscription), |_| true).unwrap();
        assert_eq!(found.map(|job| (job.order, job.id)), first(false));
    }
}

proptest! {
    #[test]
    fn jobs_and_their_orders_agree_whatever_is_put_and_removed(
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let mut state = State::new(Box::new(MemoryBase::new()));
        let (mut model, mut committed) = (Model::new(), Model::new());
        for op in ops {
            match op {
                Op::Put(n, place, subscription, order) => {
                    put_job(&mut state, (n, place, subscription, order), &mut model);
                }
                Op::Remove(n, number) => {
                    let place = Place::from_number(number).unwrap();
                    places::remove(&mut state, place, job_id(n)).unwrap();
                    model.remove(&(number, job_id(n)));
                }
                Op::Commit => {
                    state.commit(&Checkpoint::default()).unwrap();
                    committed.clone_from(&model);
                }
                Op::Rollback => {
                    state.rollback();
                    model.clone_from(&committed);
                }
            }
            indexes_agree(&state);
            firsts_agree(&state, &model);
        }
    }
}
