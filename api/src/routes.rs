//! The whole surface in one table, from which the router is made: what is not in it is 404, and a
//! test that must cover every route walks it.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};

use crate::exchange::exchange;
use crate::forward::admit;
use crate::problem::{Code, Problem};
use crate::state::{Api, Operations};
use crate::{operations, subscriptions, verify};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone who reaches the port.
    Open,
    /// A tenant, for its own resources. The handler asks for such a caller.
    Tenant,
}

/// One method of one path.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path's template, `{id}` for a subscription's id.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    handler: Handler,
}

/// What answers, and with what it works.
enum Handler {
    Operations(MethodRouter<Arc<Operations>>),
    Api(MethodRouter<Arc<Api>>),
}

/// Every route.
#[must_use]
pub fn routes() -> Vec<Route> {
    let open = |path, handler| Route {
        method: Method::GET,
        path,
        access: Access::Open,
        handler: Handler::Operations(handler),
    };
    let tenant = |method, path, handler| Route {
        method,
        path,
        access: Access::Tenant,
        handler: Handler::Api(handler),
    };
    let (all, one) = ("/v1/subscriptions", "/v1/subscriptions/{id}");
    let verification = "/v1/subscriptions/{id}/verify";
    vec![
        open("/healthz", get(operations::healthz)),
        open("/readyz", get(operations::readyz)),
        open("/metrics", get(operations::metrics)),
        tenant(Method::POST, all, post(subscriptions::create)),
        tenant(Method::GET, all, get(subscriptions::list)),
        tenant(Method::GET, one, get(subscriptions::read)),
        tenant(Method::DELETE, one, delete(subscriptions::remove)),
        tenant(Method::POST, verification, post(verify::verify)),
    ]
}

/// The API as a service.
pub fn router(api: Api) -> Router {
    let operations = Arc::clone(&api.operations);
    let body_bytes_max = api.limits.body_bytes_max;
    let api = Arc::new(api);
    let own = routes().into_iter().fold(Router::new(), |router, route| match route.handler {
        Handler::Operations(handler) => {
            router.route(route.path, handler.with_state(Arc::clone(&operations)))
        }
        Handler::Api(handler) => router.route(route.path, handler.with_state(Arc::clone(&api))),
    });
    let own = own.layer(from_fn_with_state(api, admit));
    finish(own.layer(DefaultBodyLimit::max(body_bytes_max)), operations)
}

/// What an instance without the API answers: its health and its numbers.
pub fn operations_router(operations: Arc<Operations>) -> Router {
    let own = routes().into_iter().fold(Router::new(), |router, route| match route.handler {
        Handler::Operations(handler) => {
            router.route(route.path, handler.with_state(Arc::clone(&operations)))
        }
        Handler::Api(_) => router,
    });
    finish(own, operations)
}

/// What all answers have in common.
fn finish(router: Router, operations: Arc<Operations>) -> Router {
    router
        .fallback(async || Problem::from(Code::UnknownPath))
        .method_not_allowed_fallback(async || Problem::from(Code::MethodNotAllowed))
        .layer(from_fn_with_state(operations, exchange))
}

#[cfg(test)]
mod tests;
