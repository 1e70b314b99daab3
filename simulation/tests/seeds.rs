//! A fixed set of seeds and some fresh ones break no invariant, and a seed is a run: twice the
//! same.
//!
//! `SIM_SEED` names the first fresh seed, to repeat a run; without it the clock does. A failure
//! prints the seed; `make sim SEED=… SEEDS=1` makes it small and shows its trace.
#![expect(clippy::disallowed_methods, reason = "fresh seeds come from the machine's clock")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of a test fail it")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use streaming_hub_simulation::run::{Amount, Run};

const STEPS: u64 = 1_500;
/// Six million steps.
const FIXED: u64 = 4_000;
const FRESH: u64 = 1_000;
const THREADS: u64 = 2;

/// Runs these seeds and answers how many steps they took.
fn pass(first: u64, count: u64) -> (u64, Amount) {
    let (next, steps) = (AtomicU64::new(first), AtomicU64::new(0));
    let amount = std::sync::Mutex::new(Amount::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let outcome = Run::new(seed, STEPS).run();
                    if let Some(violation) = outcome.violation {
                        panic!("seed {seed}: {violation}\nmake sim SEED={seed} SEEDS=1");
                    }
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    let mut amount = amount.lock().unwrap();
                    *amount = amount.and(outcome.amount);
                }
            });
        }
    });
    (steps.into_inner(), amount.into_inner().unwrap())
}

#[test]
fn a_fixed_set_of_seeds_breaks_no_invariant() {
    let (steps, amount) = pass(1, FIXED);
    assert!(steps >= 1_000_000, "{steps} steps");
    // A simulation in which nothing happens would pass as well.
    assert!(amount.inbox > 30_000 && amount.jobs > 10_000 && amount.attempts > 10_000);
    assert!(amount.pages > 10_000, "{amount:?}");
    assert!(amount.processes > 2 * FIXED, "{amount:?}");
}

#[test]
fn fresh_seeds_break_no_invariant() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let named = std::env::var("SIM_SEED").ok().and_then(|text| text.parse().ok());
    let first = named.unwrap_or(now * 1_000);
    eprintln!("SIM_SEED={first}");
    pass(first, FRESH);
}

#[test]
fn a_seed_is_a_run() {
    for seed in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        let run = Run { tells: true, ..Run::new(seed, STEPS) };
        let (first, second) = (run.run(), run.run());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
    let print = |seed| Run::new(seed, STEPS).run().print;
    assert_ne!(print(1), print(2));
}
