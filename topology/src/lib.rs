//! The stream runtime and the processors of the hub: a chain of exactly-once transactional
//! sub-topologies over Kafka (design 1 to 25). Deciding code is in `processors`; threads, clients
//! and transactions are in `runtime` and `kafka`.

pub mod calls;
pub mod changes;
pub mod clock;
pub mod deliveries;
pub mod destinations;
pub mod dispatcher;
pub mod dlq;
pub mod follower;
pub mod holds;
pub mod instances;
pub mod kafka;
pub mod metrics;
pub mod overview;
pub mod processors;
pub mod pull;
pub mod reader;
pub mod recent;
pub mod recorder;
pub mod runtime;
pub mod salting;
pub mod shared;
pub mod stores;
pub mod table;
pub mod tools;
pub mod topics;
pub mod topology;
