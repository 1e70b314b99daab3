//! What stands around every route that is not open: who calls and whether the route is for them,
//! one answer for one idempotency key, and the one place where a secret enters an answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::auth::{Role, principal};
use crate::forward::Internal;
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

async fn admitted(own: &Guard, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let caller = principal(&mut parts, &own.api).await?;
    match (own.access, caller.role, &caller.tenant) {
        (Access::Tenant, Role::Tenant, Some(_)) | (Access::Operator, Role::Operator, None) => {}
        (Access::Tenant | Access::Operator, ..) => return Err(Code::Forbidden.into()),
        (Access::Open, ..) => return Err(Problem::internal("an open route is guarded")),
    }
    // The instance that forwards a request has dealt with its key.
    let keyed = parts.method == Method::POST && parts.extensions.get::<Internal>().is_none();
    let key = if keyed { idempotency::key(&parts.headers)? } else { None };
    let request = Request::from_parts(parts, body);
    let response = match key {
        Some(key) => idempotency::answered(&own.api, (&caller, &key), request, next).await?,
        None => next.run(request).await,
    };
    reveal(&own.api, response).await
}
