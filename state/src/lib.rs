//! The task-local store: what a task knows, kept in memory and on the local disk.
//!
//! Kafka is the only durable store. A store is a *view* of the topics it was restored from: it can
//! be thrown away at any time and built again from them. One task (sub-topology, partition) owns
//! one store and nobody else writes it.
//!
//! - [`State`] is what processors use: a bounded buffer of uncommitted writes over committed state.
//! - [`Base`] is committed state; [`RocksBase`] keeps it on disk, [`MemoryBase`] in memory for
//!   simulations and tests of processors.
//! - [`family`] holds the layouts of keys and values, one key family per file.
//!
//! What this crate is not: it neither reads nor writes Kafka, has no clock and no metrics.
//!
//! The invariant it keeps: **a base holds exactly the writes of commits 1 to N together with the
//! checkpoint of commit N**, for some N, whatever kills the process. An uncommitted write never
//! reaches a base.

mod base;
mod checkpoint;
mod error;
pub mod family;
mod key;
mod memory;
mod reader;
mod record;
mod rocks;
mod state;
mod wire;

pub use base::{Base, Batch, Visit, Write};
pub use checkpoint::Checkpoint;
pub use error::{Error, Kind, Problem};
pub use family::Family;
pub use key::{Key, KeyRange};
pub use memory::{Fault, MemoryBase};
pub use reader::Reader;
pub use record::{Header, Record};
pub use rocks::{
    ExpiryRule, Identity, Origin, ResourceLimits, RocksBase, RocksOptions, SharedResources,
};
pub use state::State;
