//! What machines ask of a process: is it alive, may it get traffic, how is it doing. No caller is
//! named, and nothing here speaks of a tenant.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;

use crate::openapi;
use crate::problem::Problem;
use crate::state::Operations;

/// The body of both health answers.
#[derive(Serialize)]
pub(crate) struct Status {
    status: &'static str,
}

/// `GET /healthz`: the process answers. It asks nothing else, so that a broker's outage does not
/// restart the hub.
pub(crate) async fn healthz() -> Json<Status> {
    Json(Status { status: "alive" })
}

/// `GET /readyz`: this instance can do its work, or what it still lacks.
pub(crate) async fn readyz(State(own): State<Arc<Operations>>) -> Result<Json<Status>, Problem> {
    let missing = own.readiness.missing();
    if missing.is_empty() {
        Ok(Json(Status { status: "ready" }))
    } else {
        Err(Problem::not_ready(missing))
    }
}

/// `GET /metrics`: the Prometheus text format.
pub(crate) async fn metrics(
    State(own): State<Arc<Operations>>,
) -> Result<impl IntoResponse, Problem> {
    let text = own.metrics.text().map_err(|error| Problem::internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

/// `GET /openapi.json`: the document of every route, those of other roles included.
pub(crate) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], openapi::text())
}
