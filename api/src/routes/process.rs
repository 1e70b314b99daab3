//! An operator's routes about this process and about what it alone knows: the producers' dead
//! letters, the log.

use axum::http::{Method, StatusCode};
use axum::routing::{MethodRouter, get, put};
use serde_json::json;

use super::Route;
use crate::openapi::Operation;
use crate::{dlq, log_filter};

pub(super) fn routes() -> Vec<Route> {
    let level = "/admin/log-level";
    let about = "Of this instance, until it ends: directives as in `log.filter`.";
    vec![
        Route::operator(Method::GET, "/admin/dlq", get(dlq::list), list()),
        Route::operator(
            Method::GET,
            "/admin/dlq/{topic}/{partition}/{offset}",
            get(dlq::read),
            Operation::new("readProducerDeadLetter", "Read one producers' dead letter in full")
                .about("Every header, and the payload in base64 or the size of one left out.")
                .answer(StatusCode::OK, "The entry, as its topic has it.", "ProducerDeadLetter"),
        ),
        Route::operator(
            Method::GET,
            level,
            get(log_filter::read) as MethodRouter<_>,
            Operation::new("readLogLevel", "What is logged").about(about).answer(
                StatusCode::OK,
                "The filter.",
                "LogLevel",
            ),
        ),
        Route::operator(
            Method::PUT,
            level,
            put(log_filter::write),
            Operation::new("writeLogLevel", "Change what is logged")
                .about(about)
                .body("LogLevel")
                .answer(StatusCode::OK, "The filter, now in force.", "LogLevel"),
        ),
    ]
}

fn list() -> Operation {
    let text = || json!({"type": "string", "minLength": 1});
    let time = || json!({"type": "string", "format": "date-time"});
    let contents = json!({"enum": ["fact", "command", "system_event", "unreadable"]});
    Operation::new("listProducerDeadLetters", "List producers' dead letters, newest first")
        .about(
            "What producers could not write and their consumers could not handle, for a look: \
             nothing of it becomes a delivery. Counts are of everything that the filter admits.",
        )
        .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 1000}), "Default 100.")
        .query("cursor", text(), "The `next_cursor` of the page before.")
        .query("topic", text(), "The dead-letter topic.")
        .query("application", text(), "Whose dead-letter topic: `a` of `lerian.streaming.a.dlq`.")
        .query("source_topic", text(), "Where the record was meant to go, or came from.")
        .query("source", text(), "`ce-source`, which may be another application's.")
        .query("tenant", text(), "`ce-tenantid`.")
        .query("writer", json!({"enum": ["producer", "consumer"]}), "Who put it there.")
        .query("cause_kind", text(), "Of a consumer's quarantine.")
        .query("error_class", text(), "Of a producer's copy.")
        .query("content", contents, "What it holds.")
        .query("since", time(), "Not older than this.")
        .query("until", time(), "Older than this.")
        .answer(StatusCode::OK, "One page.", "ProducerDeadLetterPage")
}
