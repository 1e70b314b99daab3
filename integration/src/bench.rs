//! The benchmark's parts: what `make bench` runs, one after the other, each on a broker that is
//! warm by then. They measure and assert nothing. What a hub is compared with is measured in the
//! same run: small commits on the same broker ([`floor`]), a bare copy loop on the same topic
//! ([`copy`]).
//!
//! The load is made up and the same for the same seed. The receiver ([`hook`]) and the load live in
//! the benchmark's own process, so that what is counted for the hub is the hub's alone; they share
//! the machine with it, as the broker does.

pub mod api;
pub mod copy;
pub mod count;
pub mod deliveries;
pub mod delivery;
pub mod floor;
pub mod hook;
pub mod inbox;
pub mod latency;
pub mod machine;
pub mod options;
pub mod pace;
pub mod percentiles;
pub mod pull;
pub mod report;
pub mod restart;
pub mod stage;
pub mod store;
pub mod throughput;
pub mod transactions;
pub mod writer;
