//! The simulation can fail: each deliberate defect is noticed by a known seed, which passes without
//! the defect. A list that no longer fits (any change of the hub or of the simulation changes what
//! a seed does) is found anew by a bounded search, and printed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use streaming_hub_simulation::check::Violation;
use streaming_hub_simulation::defect::Defect;
use streaming_hub_simulation::faults::Fault;
use streaming_hub_simulation::run::Run;

/// How many seeds a defect may take to be noticed.
const SEEDS_MAX: u64 = 20_000;
const STEPS: u64 = 1_500;
const THREADS: usize = 2;

/// Defect, the kind of fault that shows it best, and the seed that notices it, tried first.
const KNOWN: [(Defect, &[Fault], u64); 32] = [
    (Defect::ApplyBeforeCommit, &[Fault::CommitFails], 6),
    (Defect::CommitAssumed, &[Fault::CommitFails], 1),
    (Defect::UnknownTakenForAborted, &[Fault::UnknownCommitted], 3),
    (Defect::NoPositions, &[Fault::Kill], 1),
    (Defect::StaleGroupMetadata, &[Fault::PutOut], 1003),
    (Defect::NoEpochs, &[Fault::Stall], 71),
    (Defect::UnstablePositions, &[Fault::Stall], 5),
    (Defect::RestoreToLso, &[Fault::UnknownCommitted], 39),
    (Defect::ReadUncommitted, &[Fault::CommitFails], 2),
    (Defect::NoRewind, &[Fault::CommitFails], 1),
    (Defect::OldOutcome, &[Fault::UnknownAborted], 5230),
    (Defect::SwallowedOutcome, &[Fault::CommitFails], 118),
    (Defect::ExpiryByIdTime, &[], 1),
    (Defect::StaleTable, &[Fault::Kill], 21),
    (Defect::EndedUnread, &[], 178),
    (Defect::SplitMove, &[], 1),
    (Defect::ForgottenAttempt, &[], 1),
    (Defect::ScrambledOrder, &[Fault::Kill], 2),
    (Defect::TornStore, &[Fault::Kill], 50),
    (Defect::AgelessCheckpoint, &[Fault::Leap], 45),
    (Defect::SaltedAtOnce, &[], 1),
    (Defect::WrongTenant, &[], 1),
    (Defect::CursorUnfenced, &[Fault::PutOut, Fault::Stall], 2),
    (Defect::AnsweredEarly, &[Fault::CommitFails], 2),
    (Defect::ReclaimNotCounted, &[Fault::Kill], 5),
    (Defect::ClaimUnwritten, &[Fault::Kill], 5),
    (Defect::ShedTakesStep, &[], 1),
    (Defect::StrictForgotten, &[], 4),
    (Defect::PauseDrops, &[], 16),
    (Defect::HoldUnread, &[], 11),
    (Defect::RetryAfterUnheard, &[], 1),
    (Defect::DeliveryIdKept, &[], 1),
];

fn run(seed: u64, faults: &[Fault]) -> Run {
    Run { stressed: faults.to_vec(), ..Run::new(seed, STEPS) }
}

fn notice(defect: Defect, seed: u64, faults: &[Fault]) -> Option<Violation> {
    Run { defect: Some(defect), ..run(seed, faults) }.run().violation
}

/// The first seed that notices a defect, and what it notices.
fn search(defect: Defect, faults: &[Fault], known: u64) -> Option<(u64, Violation)> {
    let mut seeds = std::iter::once(known).chain(1..=SEEDS_MAX);
    seeds.find_map(|seed| notice(defect, seed, faults).map(|violation| (seed, violation)))
}

/// Tells by what a defect is noticed; answers it if it is not.
fn misses((defect, faults, known): (Defect, &[Fault], u64)) -> Option<Defect> {
    let Some((seed, violation)) = search(defect, faults, known) else { return Some(defect) };
    eprintln!("{defect:?}, {faults:?}, seed {seed}: {violation}");
    let sound = run(seed, faults).run().violation;
    assert_eq!(sound, None, "seed {seed} fails without {defect:?} too");
    None
}

#[test]
fn every_defect_is_noticed() {
    assert_eq!(KNOWN.map(|(defect, ..)| defect), Defect::ALL);
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(known) = KNOWN.get(next.fetch_add(1, Ordering::Relaxed)) {
                    missed.lock().unwrap().extend(misses(*known));
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not noticed within {SEEDS_MAX} seeds: {missed:?}");
}
