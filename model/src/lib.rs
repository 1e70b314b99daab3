//! The hub's vocabulary and everything of it that decides without a clock, randomness or I/O:
//! envelopes and verdicts, subscriptions and their changes, jobs, back-off, signatures.

pub mod attempt;
pub mod change;
pub mod dead_letter;
pub mod delivery_calls;
pub mod destination;
pub mod dlq;
pub mod envelope;
pub mod event;
pub mod event_key;
pub mod failure_span;
pub mod follow;
pub mod headers;
pub mod hex;
pub mod hold;
pub mod id;
pub mod idempotency;
pub mod internal;
pub mod job;
pub mod json;
pub mod peer;
pub mod ports;
pub mod pull;
pub mod reason;
pub mod reclaim;
pub mod registry;
pub mod retry;
pub mod rfc3339;
pub mod routing;
pub mod schema_version;
pub mod secret;
pub mod signing;
pub mod sink;
pub mod subscription;
pub mod tenant;
pub mod time;
