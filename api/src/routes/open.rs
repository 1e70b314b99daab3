//! Routes of every instance: health, numbers, and the document of all routes.

use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;

use super::Route;
use crate::openapi::Operation;
use crate::operations;
use crate::problem::Code;

pub(super) fn routes() -> Vec<Route> {
    let document = Some(("application/json", json!({"type": "object"})));
    let numbers = Some(("text/plain; version=0.0.4", json!({"type": "string"})));
    vec![
        Route::open(
            "/healthz",
            get(operations::healthz),
            Operation::new("healthz", "Whether the process answers").answer(
                StatusCode::OK,
                "It does.",
                "Health",
            ),
        ),
        Route::open(
            "/readyz",
            get(operations::readyz),
            Operation::new("readyz", "Whether this instance can do its work")
                .answer(StatusCode::OK, "It can.", "Health")
                .problems(&[Code::NotReady]),
        ),
        Route::open(
            "/metrics",
            get(operations::metrics),
            Operation::new("metrics", "The process's numbers, in Prometheus' text format")
                .answer_of(StatusCode::OK, "All of them.", numbers),
        ),
        Route::open(
            "/openapi.json",
            get(operations::openapi),
            Operation::new("openapi", "This document").answer_of(
                StatusCode::OK,
                "OpenAPI 3.1.",
                document,
            ),
        ),
    ]
}
