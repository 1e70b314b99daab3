//! Kafka as the runtime needs it: client settings, error folding, administration, transactions.
//! What decides lives in `processors`; this is shell.

pub mod admin;
pub mod client;
pub mod error;
pub(crate) mod ffi;
pub(crate) mod membership;
pub(crate) mod offsets;
pub(crate) mod transactor;
