//! The log's filter as an operator reads and changes it while the process runs. It is this
//! instance's alone and gone with the process: the configuration is not changed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::auth::OperatorCaller;
use crate::body::JsonBody;
use crate::fields::{Errors, Fault, Place};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The log of this process.
pub trait LogFilter: Send + Sync {
    /// The directives in force.
    fn get(&self) -> String;

    /// Puts others into force.
    ///
    /// # Errors
    /// What is wrong with them.
    fn set(&self, directives: &str) -> Result<(), String>;
}

/// `GET /admin/log-level`.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
) -> Result<Json<Value>, Problem> {
    let log = api.operator.log.as_deref().ok_or(Code::NotFound)?;
    Ok(Json(json!({ "filter": log.get() })))
}

/// `PUT /admin/log-level`.
pub(crate) async fn write(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Problem> {
    let log = api.operator.log.as_deref().ok_or(Code::NotFound)?;
    let refuse = |code, message: String| {
        let mut errors = Errors::default();
        errors.push(Place::Pointer("/filter".into()), code, message);
        let errors = errors.or(None::<()>).err().unwrap_or_default();
        Problem::validation(errors)
    };
    let known = body.as_object().is_some_and(|body| body.len() == 1);
    let filter = body["filter"].as_str().filter(|_| known);
    let filter = filter.ok_or_else(|| {
        refuse(Fault::Required, "is the one member, a text such as `info`".to_owned())
    })?;
    log.set(filter).map_err(|error| refuse(Fault::Invalid, error))?;
    tracing::info!(filter, "the log's filter was changed by an operator");
    Ok(Json(json!({ "filter": log.get() })))
}
