//! What the match of a fact costs over tables of different sizes: the same kind of facts, of which
//! one in a hundred matches, whatever the size.

use anyhow::Result;

use super::{ROWS, Rows, tenant_of};
use crate::bench::deliveries::as_f64;
use crate::bench::report::Report;
use crate::bench::stage::{READY, Stage};
use crate::bench::throughput;
use crate::generate::Shape;
use crate::hub::Hub;
use crate::say;

/// Sizes of the table, and their figures.
const SIZES: [(usize, &str, &str); 3] = [
    (ROWS, "api.match_100k_cpu_per_million_s", "CPU for a million facts, 100,000 subscriptions"),
    (10_000, "api.match_10k_cpu_per_million_s", "the same with 10,000"),
    (100, "api.match_100_cpu_per_million_s", "the same with 100"),
];
/// Of so many tenants one subscribes to all of its events.
const ONE_IN: usize = 100;

/// Measures over the large table that is there, and over smaller ones that it becomes.
///
/// # Errors
/// A hub that does not take in its facts.
pub(super) fn run(
    stage: &mut Stage,
    hub: &mut Hub,
    facts: usize,
    report: &mut Report,
) -> Result<()> {
    let mut tenants: Vec<_> = (0..ROWS).step_by(100).map(tenant_of).collect();
    tenants.extend(stage.tenants.iter().take(tenants.len() / ONE_IN).cloned());
    let shape = Shape { tenants, ..stage.without_duplicates() };
    let topic = format!("{}-subscriptions", hub.config().application());
    let (mut rows, mut costs) = (ROWS, Vec::new());
    for (size, name, what) in SIZES {
        say!("api: {facts} facts over {size} subscriptions");
        hub.terminate(READY)?;
        let ended = Rows::new(stage, &topic)?;
        for number in size..rows {
            ended.write(number, None)?;
        }
        ended.finish()?;
        rows = size;
        stage.load(facts, &shape, |_| ())?;
        hub.restart()?;
        let (first, last) = throughput::progress(std::slice::from_mut(hub), u64::try_from(facts)?)?;
        let millions = as_f64(facts - usize::try_from(first.facts)?) / 1e6;
        let cost = (last.cpu_seconds - first.cpu_seconds) / millions;
        report.add(name, what, cost, "s");
        costs.push(cost);
    }
    if let [large, .., small] = costs[..] {
        let what = "the same over 100,000, compared to 100";
        report.add("api.match_cpu_ratio", what, large / small, "");
    }
    Ok(())
}
