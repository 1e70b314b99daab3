//! The invariants of the design as functions over plain data. `Ledger` takes committed transactions
//! one after another and answers at once what one broke; the functions of `ended` judge a history
//! after which everything has settled.

pub mod claims;
pub mod ended;
pub mod gates;
pub mod ledger;
pub mod pull;
pub mod transaction;

use std::fmt;

/// The invariants of the design, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Every accepted event is in the inbox exactly once, within the horizon.
    I1,
    /// Every match has exactly one job.
    I2,
    /// A job is in exactly one place.
    I3,
    /// Recorded attempts keep to the schedule.
    I4,
    /// No due job waits without a reason.
    I5,
    /// A pull log only grows, and so does its cursor.
    I6,
    /// A record is never lost between topics.
    I7,
    /// Nothing of one tenant serves another.
    I8,
    /// Jobs of one subscription are first attempted in order.
    I9,
    /// Never more attempts of a subscription under way than it allows (contract section 4).
    Limit,
    /// Nobody makes an attempt who knows that the way is closed, and a destination that asks for
    /// time has it (contract section 4).
    Gate,
    /// A store is exactly the view of its topics (design 3, 11).
    Store,
    /// A transaction carries a position of every task that it writes for (design 1).
    Carried,
    /// Nothing ends a stream thread but its process (design 5, 6).
    Alive,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What is wrong.
    pub what: String,
}

impl Violation {
    /// A violation in words.
    pub fn new(invariant: Invariant, what: impl Into<String>) -> Self {
        Self { invariant, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Fails with a violation.
pub(crate) fn broken<T>(invariant: Invariant, what: String) -> Result<T, Violation> {
    Err(Violation::new(invariant, what))
}

#[cfg(test)]
mod tests;
