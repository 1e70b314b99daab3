//! What stands around every route that is not open: who calls and whether the route is for them,
//! one answer for one idempotency key, and the one place where a secret enters an answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::auth::Caller;
use crate::idempotency;
use crate::problem::{Code, Problem};
use crate::routes::Access;
use crate::secrets::reveal;
use crate::state::Api;

/// What guards one route.
#[derive(Clone)]
pub(crate) struct Guard {
    /// The API.
    pub(crate) api: Arc<Api>,
    /// Who may use the route.
    pub(crate) access: Access,
}

/// Runs a guarded route.
pub(crate) async fn guard(State(own): State<Guard>, request: Request, next: Next) -> Response {
    match admitted(&own, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn admitted(own: &Guard, mut request: Request, next: Next) -> Result<Response, Problem> {
    let caller = own.api.caller(request.headers())?;
    match (own.access, &caller) {
        (Access::Tenant, Caller::Tenant(_)) | (Access::Operator, Caller::Operator) => {}
        (Access::Tenant | Access::Operator, _) => return Err(Code::Forbidden.into()),
        (Access::Open, _) => return Err(Problem::internal("an open route is guarded")),
    }
    request.extensions_mut().insert(caller.clone());
    let response = match idempotency::key(request.headers())? {
        Some(key) if request.method() == Method::POST => {
            idempotency::answered(&own.api, (&caller, &key), request, next).await?
        }
        _ => next.run(request).await,
    };
    reveal(&own.api, response).await
}
