//! The harness of the tests, the demonstration and the benchmark that run against a real broker:
//! brokers, hubs as child processes, webhook receivers, facts to produce, readers of topics, and a
//! checker of its own.
//!
//! It is the hub's counterpart and shares no code with it: topics, headers, matching and
//! signatures are read here by the contract alone, so that a mistake of the hub's is not repeated.
//! Everything is blocking; what waits polls a condition with a deadline ([`wait`]).

pub mod api;
pub mod bench;
pub mod broker;
pub mod chaos;
pub mod check;
pub mod config;
pub mod facts;
pub mod generate;
pub mod http;
pub mod hub;
pub mod internal;
pub mod kcat;
pub mod keeper;
pub mod metrics;
pub mod options;
pub mod ports;
pub mod producer;
pub mod reader;
pub mod receiver;
pub mod say;
pub mod scenario;
pub mod signature;
pub mod sinks;
pub mod traffic;
pub mod wait;
pub mod world;
