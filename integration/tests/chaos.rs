//! The short chaos: three brokers, three hubs, two `kill -9`, a zombie, a broker that is killed, a
//! source topic that grows, while facts come. `make chaos` is the long one.

use anyhow::{Result, ensure};
use streaming_hub_integration::chaos::{self, options::Options, plan};
use streaming_hub_integration::say;

const OPTIONS: Options = Options { seconds: 45, seed: 1, rate: 30, salt: false, keep: false };

#[test]
fn a_minute_of_kills_a_zombie_and_a_lost_broker_loses_nothing_and_doubles_nothing() -> Result<()> {
    let report = chaos::run(&OPTIONS, &plan::short())?;
    say!("{}", report.table());
    ensure!(report.faults.is_empty(), "{}", report.table());
    Ok(())
}
