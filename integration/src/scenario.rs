//! What the demonstration and the test of the fixtures have in common: all fixtures, their tenants,
//! and subscriptions by which an event has no match, one or two.

use anyhow::Result;

use crate::api::Wanted;
use crate::facts::{self, Fact, Verdict};
use crate::world::World;

/// Every tenant of an accepted fixture.
pub const TENANTS: [&str; 4] = [
    "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001",
    "0198f3a2-11aa-7c3e-9d21-5b8f0c4de002",
    "acme-payments",
    "default",
];

/// All fixtures: what real producers wrote, the made-up facts, one record for each verdict.
///
/// # Errors
/// When a file is not as expected.
pub fn fixtures() -> Result<Vec<Fact>> {
    Ok([facts::real_records()?, facts::events()?, facts::verdicts()?].concat())
}

/// The well-formed ones of these once more, on the next partition of their topic, as a producer
/// that retries, restarts or salts may write them.
#[must_use]
pub fn duplicates(of: &[Fact]) -> Vec<Fact> {
    let accepted = of.iter().filter(|fact| fact.verdict == Verdict::Accept);
    let again = accepted.cloned().map(|mut fact| {
        fact.name = format!("duplicate of {}", fact.name);
        fact.partition += 1;
        fact
    });
    again.collect()
}

/// For each tenant: everything of two schema majors, and a selection by key and origin.
///
/// # Errors
/// When one of them is not active then.
pub fn subscribe(world: &mut World) -> Result<()> {
    for tenant in TENANTS {
        world.subscribe(Wanted::all(tenant, "all-1").in_flight(4))?;
        world.subscribe(Wanted::all(tenant, "all-2").major(2))?;
        let some = Wanted::all(tenant, "some").keys(&["account.created", "balance.*"]);
        world.subscribe(some.origin("ledger"))?;
    }
    Ok(())
}
