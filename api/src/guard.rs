//! What stands around every route that is not open: who calls and whether the route is for them,
//! whether a tenant asks too often, one answer for one idempotency key, and the one place where a
//! secret enters an answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::auth::{Role, principal};
use crate::forward::{Internal, Principal};
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
    // The instance that forwards a request has counted it, and has dealt with its key.
    let internal = parts.extensions.get::<Internal>().is_some();
    let now = own.api.operations.clock.now();
    let counted = caller.tenant.as_ref().filter(|_| !internal);
    let standing = counted.map(|tenant| own.api.requests.take(tenant, now));
    if let Some(standing) = standing.filter(|standing| standing.retry_after_s.is_some()) {
        return Ok(standing.refusal());
    }
    let keyed = parts.method == Method::POST && !internal;
    let request = Request::from_parts(parts, body);
    let answer = answered(&own.api, (&caller, keyed), request, next).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    if let Some(standing) = standing {
        standing.tell(response.headers_mut());
    }
    Ok(response)
}

/// Runs what passed, under its key if it may have one.
async fn answered(
    api: &Arc<Api>,
    (caller, keyed): (&Principal, bool),
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = if keyed { idempotency::key(request.headers())? } else { None };
    let response = match key {
        Some(key) => idempotency::answered(api, (caller, &key), request, next).await?,
        None => next.run(request).await,
    };
    reveal(api, response).await
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};

    use crate::rate::{Buckets, Rate};
    use crate::testing::{ACME, EVIL, Harness, LONG, OPERATOR, body};
    use crate::{Limits, router};

    fn harness() -> Harness {
        let (hub, keyring, mut api) = Harness::parts(Limits::default(), LONG);
        api.requests = Buckets::requests(Rate { per_second: 1, burst: 3 });
        Harness { hub, keyring, router: router(api) }
    }

    #[tokio::test]
    async fn a_tenant_that_asks_too_often_is_refused_before_anything_happens() {
        let harness = harness();
        let id = harness.created().await;
        let path = format!("/v1/subscriptions/{id}");
        let found = harness.get(&path).await;
        assert_eq!(found.header("ratelimit-policy"), Some("\"requests\";q=3;w=3"));
        assert_eq!(found.header("ratelimit"), Some("\"requests\";r=1;t=2"));
        // What goes wrong counts, too.
        let missing = harness.get("/v1/subscriptions/17").await;
        missing.assert_problem(404, "not_found");
        assert_eq!(missing.header("ratelimit"), Some("\"requests\";r=0;t=3"));
        let before = harness.hub.changes.lock().unwrap().len();
        let limited = harness.post("/v1/subscriptions", &body()).await;
        limited.assert_problem(429, "rate_limited");
        assert_eq!(limited.header("retry-after"), Some("1"));
        assert_eq!(limited.header("ratelimit"), Some("\"requests\";r=0;t=3"));
        assert_eq!(harness.hub.changes.lock().unwrap().len(), before);
        // Neither another tenant nor an operator feels it.
        let list = async |path, token| harness.call(Method::GET, path, Some(token), None).await;
        assert_eq!(list("/v1/subscriptions", EVIL).await.status, StatusCode::OK);
        for _ in 0..10 {
            let answer = list("/admin/subscriptions", OPERATOR).await;
            assert_eq!((answer.status, answer.header("ratelimit")), (StatusCode::OK, None));
        }
    }

    #[tokio::test]
    async fn who_may_not_use_a_route_is_told_so_and_not_counted() {
        let harness = harness();
        for _ in 0..10 {
            let answer = harness.call(Method::GET, "/admin/subscriptions", Some(ACME), None).await;
            answer.assert_problem(403, "forbidden");
        }
        assert_eq!(harness.get("/v1/subscriptions").await.status, StatusCode::OK);
    }
}
