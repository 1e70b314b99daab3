//! `make chaos`: kills, stops and moves hubs and brokers for minutes while facts come, and proves
//! from the topics that nothing was lost or doubled. The table goes to standard output, what
//! happens on the way to standard error. Status 1 when a rule is broken.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use streaming_hub_integration::chaos::{self, options::Options, plan};
use streaming_hub_integration::wait;

fn main() -> Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    let seed = u64::try_from(wait::unix_ms())? % 1_000_000;
    let options = Options::read(seed, environment, std::env::args().skip(1))?;
    let plan = plan::plan(options.seed, options.duration_ms());
    let report = chaos::run(&options, &plan)?;
    writeln!(std::io::stdout().lock(), "{}", report.table())?;
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
