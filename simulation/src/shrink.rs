//! Makes a failing run small: as few kinds of faults as still break the same invariant, then as few
//! steps.

use crate::run::{Outcome, Run};

/// The smallest run found that breaks the same invariant, with its trace.
#[must_use]
pub fn shrink(run: &Run, outcome: &Outcome) -> (Run, Outcome) {
    let Some(violation) = &outcome.violation else { return (run.clone(), outcome.clone()) };
    let fails = |run: &Run| {
        let outcome = run.run();
        let same = outcome.violation.as_ref().is_some_and(|v| v.invariant == violation.invariant);
        same.then_some(outcome)
    };
    let mut best = Run { steps: outcome.steps, ..run.clone() };
    for (fault, _) in &outcome.struck {
        let mut smaller = best.clone();
        smaller.left_out.push(*fault);
        if let Some(found) = fails(&smaller) {
            smaller.steps = smaller.steps.min(found.steps);
            best = smaller;
        }
    }
    let mut cut = best.steps / 2;
    while cut > 0 {
        let smaller = Run { steps: best.steps.saturating_sub(cut), ..best.clone() };
        match fails(&smaller) {
            Some(found) => best.steps = smaller.steps.min(found.steps),
            None => cut /= 2,
        }
        cut = cut.min(best.steps);
    }
    best.tells = true;
    let told = best.run();
    (best, told)
}
