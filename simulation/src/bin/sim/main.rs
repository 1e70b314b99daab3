//! `make sim`: runs many seeds, says how it goes, and ends with the first failing seed, made small.
//!
//! `SEEDS` says how many (200), `SEED` which is the first (1), `STEPS` how many steps each has
//! (1500), `THREADS` how many run at once (2), `STRESS` which kinds of faults strike ten times as
//! often (`Crash,Leap`), `LINES` how much of a failing seed's trace is shown (120).

use std::fmt::Arguments;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use streaming_hub_simulation::faults::Fault;
use streaming_hub_simulation::run::{Amount, Outcome, Run};
use streaming_hub_simulation::shrink::shrink;

/// How many lines of a trace are shown.
const LINES: u64 = 120;
/// After how many seeds progress is told.
const PROGRESS: u64 = 100;

fn say(line: Arguments<'_>) {
    // Nobody is told when that fails: there is nowhere to tell it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The kinds of faults that `STRESS` names, by a comma.
fn stressed() -> Vec<Fault> {
    let named = std::env::var("STRESS").unwrap_or_default();
    let names: Vec<_> = named.split(',').map(str::trim).collect();
    Fault::all().filter(|fault| names.contains(&format!("{fault:?}").as_str())).collect()
}

fn main() -> ExitCode {
    let (seeds, first) = (number("SEEDS", 200), number("SEED", 1));
    let (steps, threads) = (number("STEPS", 1_500), number("THREADS", 2));
    let (next, done, taken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stressed = stressed();
    let amount = Mutex::new(Amount::default());
    let (failed, failure) = (AtomicBool::new(false), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        return;
                    }
                    let stressed = stressed.clone();
                    let run = Run { stressed, ..Run::new(first + index, steps) };
                    let outcome = run.run();
                    let steps = taken.fetch_add(outcome.steps, Ordering::Relaxed) + outcome.steps;
                    if let Ok(mut amount) = amount.lock() {
                        *amount = amount.and(outcome.amount);
                    }
                    let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if count.is_multiple_of(PROGRESS) {
                        say(format_args!("{count} seeds, {steps} steps"));
                    }
                    if outcome.violation.is_some() {
                        failed.store(true, Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert((run, outcome));
                        }
                    }
                }
            });
        }
    });
    let failure = failure.into_inner().unwrap_or_default();
    let Some((run, outcome)) = failure else {
        let (done, taken) = (done.into_inner(), taken.into_inner());
        let amount = amount.into_inner().unwrap_or_default();
        say(format_args!("{done} seeds, {taken} steps, no violation\n{amount:?}"));
        return ExitCode::SUCCESS;
    };
    tell(&run, &outcome);
    ExitCode::FAILURE
}

fn tell(run: &Run, outcome: &Outcome) {
    if let Some(violation) = &outcome.violation {
        say(format_args!("seed {} fails after {} steps: {violation}", run.seed, outcome.steps));
    }
    say(format_args!("making it small"));
    let (small, told) = shrink(run, outcome);
    let shown = usize::try_from(number("LINES", LINES)).unwrap_or(usize::MAX);
    let lines = &told.trace[told.trace.len().saturating_sub(shown)..];
    lines.iter().for_each(|line| say(format_args!("{line}")));
    let (left_out, struck) = (&small.left_out, &told.struck);
    say(format_args!("left out: {left_out:?}\nstruck:   {struck:?}"));
    match &told.violation {
        Some(violation) => {
            say(format_args!("SEED={} STEPS={} fails: {violation}", small.seed, small.steps));
        }
        None => say(format_args!("the smaller run does not fail: SEED={}", run.seed)),
    }
}
