//! A backlog of one subscription behind an open breaker: what is written in `breaker_s` seconds in
//! which nothing can be delivered, and whether first attempts come in order of arrival once it
//! closes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{LONG, ground, made, shape, subscribe, whole_hub};
use crate::api::Wanted;
use crate::bench::count;
use crate::bench::deliveries::as_f64;
use crate::bench::hook::{Arrival, Manner};
use crate::bench::options::Options;
use crate::bench::report::Report;
use crate::bench::stage::{self, Stage};
use crate::hub::Hub;
use crate::{say, wait};

/// The contract's numbers, which hubs under test do not have.
const SETTINGS: [(&str, i64); 2] = [("breaker.failures_max", 5), ("breaker.attempts_min", 10)];
/// Of how many first attempts the order is looked at: they come one after the other.
const LOOKED_AT: usize = 10_000;

/// Measures the time behind the breaker, and the order behind it.
pub(super) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut stage = ground(options, 1)?;
    let mut hub = whole_hub(&stage, &SETTINGS)?;
    subscribe(&stage, &hub, &Wanted::all(&stage.tenants[0], "all").in_flight(1), 0)?;
    let measured = measured(options, &mut stage, &mut hub, report);
    measured.with_context(|| hub.log_tail())
}

fn measured(
    options: &Options,
    stage: &mut Stage,
    hub: &mut Hub,
    report: &mut Report,
) -> Result<()> {
    say!("breaker: {} jobs behind it", options.jobs);
    stage.hook.behave(Manner::Refuse);
    // From one partition: they arrive in the order in which they are produced.
    let mut shape = shape(stage, &stage.tenants);
    shape.partitions = 1;
    let mut numbers = HashMap::new();
    stage.load(options.jobs, &shape, |fact| {
        numbers.insert(fact.id(), numbers.len());
    })?;
    made(hub, options.jobs)?;
    hub.wait_metrics(LONG, |metrics| {
        let name = "streaming_hub_breaker_changes_total";
        let opened = metrics.with(name, "to", "open") > 0.0;
        if opened { Ok(()) } else { Err("the breaker is closed".to_owned()) }
    })?;
    let prefix = format!("{}-", hub.config().application());
    let written = || count::offsets(stage.broker.bootstrap(), &prefix);
    let (began, before) = (wait::instant(), written()?);
    let behind = Duration::from_secs(options.breaker_s);
    wait::until("the time behind the breaker", behind * 2, || {
        stage::runs(hub)?;
        let is_over = began.elapsed() >= behind;
        Ok(if is_over { Ok(()) } else { Err("not yet".to_owned()) })
    })?;
    let (written, took) = (usize::try_from(written()? - before)?, began.elapsed());
    stage.hook.behave(Manner::After(0));
    let wanted = LOOKED_AT.min(options.jobs);
    let late = wait::until("deliveries behind the breaker", LONG, || {
        stage::runs(hub)?;
        let (seen, late) = order(&stage.hook.since(0), &numbers);
        Ok(if seen >= wanted { Ok(late) } else { Err(format!("{seen} of {wanted}")) })
    })?;
    let a_minute = as_f64(written) / (took.as_secs_f64() / 60.0);
    let mut add = |name, what, value| report.add(name, what, value, "");
    add("breaker.waiting_jobs", "jobs behind an open breaker", as_f64(options.jobs));
    add("breaker.offsets_a_minute", "records and commit markers written in a minute", a_minute);
    add("breaker.out_of_order", "first attempts out of order, of at most 10,000", as_f64(late));
    Ok(())
}

/// How many events arrived, and how many of them after a later one.
fn order(arrivals: &[Arrival], numbers: &HashMap<String, usize>) -> (usize, usize) {
    let (mut seen, mut highest, mut late) = (HashSet::new(), 0, 0);
    for number in arrivals.iter().filter_map(|arrival| numbers.get(&arrival.id)) {
        if seen.insert(*number) {
            late += usize::from(*number < highest);
            highest = highest.max(*number);
        }
    }
    (seen.len(), late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_attempt_of_an_event_has_an_order() {
        let ids = ["a", "b", "c"].map(str::to_owned);
        let numbers = ids.iter().cloned().zip(0..).collect::<HashMap<_, _>>();
        let arrivals = |ids: &[&str]| {
            let arrival = |id: &&str| Arrival { id: (*id).to_owned(), at: wait::instant() };
            ids.iter().map(arrival).collect::<Vec<_>>()
        };
        assert_eq!(order(&arrivals(&["a", "b", "a", "c", "b"]), &numbers), (3, 0));
        assert_eq!(order(&arrivals(&["a", "c", "b", "x"]), &numbers), (3, 1));
    }
}
