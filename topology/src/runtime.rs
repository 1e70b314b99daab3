//! The stream runtime, Kafka Streams style: stream threads that own tasks, tasks that own a store
//! and a processor, restores beside them, and one transaction per thread that holds positions,
//! changelog writes and outputs (design 1 to 9).

pub mod clients;
pub mod mailbox;
pub mod processor;
pub mod restore;
pub mod session;
pub mod spec;
pub(crate) mod standby;
pub mod status;
pub mod task;
pub mod thread;
pub mod watchdog;
