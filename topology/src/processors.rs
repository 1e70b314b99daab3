//! The deciding parts of the sub-topologies: ingest, match, delivery, pull, registry. Each is a
//! [`Processor`](crate::runtime::processor::Processor); none has a clock, randomness or I/O of its
//! own. Counters are told what happened only once it has committed.

pub mod delivery;
pub mod ingest;
pub mod matching;
pub mod pull;
pub mod registry;
#[cfg(test)]
pub(crate) mod testing;
