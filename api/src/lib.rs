//! The HTTP API (contract section 7): what a tenant does with its subscriptions, and what an
//! operator's tools ask of a process (`/healthz`, `/readyz`, `/metrics`).
//!
//! Nothing here decides about a subscription. A request is validated, becomes a change, and the
//! registry decides it (design 17); what is read comes from this instance's table. Both are ports
//! of the model, so this crate knows neither Kafka nor a store.
//!
//! Invariant: a signing secret leaves in the one answer that made it, and stands nowhere else in
//! clear: not in a change, not in a log line, not in debug output.

mod admin;
mod ask;
pub mod auth;
mod body;
mod dlq;
mod draft;
mod exchange;
mod fields;
mod forward;
mod guard;
mod gzip;
mod idempotency;
mod if_match;
pub mod jwt;
mod log_filter;
mod metrics;
pub mod openapi;
mod operations;
mod patch;
mod problem;
mod pull;
mod query;
mod rate;
mod replay;
mod routes;
mod secrets;
mod server;
mod state;
mod subscriptions;
mod trace;
mod verify;
mod view;

#[cfg(test)]
mod testing;

pub use auth::{Role, TokenConfig, Tokens};
pub use forward::{Cluster, Error as ClusterError};
pub use jwt::{Jwt, JwtSettings};
pub use log_filter::LogFilter;
pub use metrics::Metrics;
pub use problem::markdown as problems_markdown;
pub use rate::{Buckets, Rate};
pub use replay::Replays;
pub use routes::{Access, Route, operations_router, router, routes};
pub use server::serve;
pub use state::{Api, Limits, Operations, OperatorPorts};
