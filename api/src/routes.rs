//! The whole surface in one table, from which the router and `/openapi.json` are made: what is not
//! in it is 404, what is in it is described, and a test that must cover every route walks it.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;

use crate::admin::{erase, tasks};
use crate::ask;
use crate::exchange::exchange;
use crate::forward::admit;
use crate::guard::{Guard, guard};
use crate::openapi::Operation;
use crate::problem::{Code, Problem};
use crate::state::{Api, Operations};

mod admin;
mod open;
mod operator;
mod process;
mod pull;
mod tenant;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone who reaches the port.
    Open,
    /// A tenant, for its own resources. The handler asks for a `TenantCaller`.
    Tenant,
    /// An operator, for everyone's. The handler asks for an `OperatorCaller`.
    Operator,
}

/// One method of one path.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path's template, `{id}` for a subscription's id.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// What it does, for `/openapi.json`.
    pub operation: Operation,
    handler: Handler,
}

/// What answers, and with what it works.
enum Handler {
    Operations(MethodRouter<Arc<Operations>>),
    Api(MethodRouter<Arc<Api>>),
}

impl Route {
    /// A route that everyone may use and every instance has.
    fn open(
        path: &'static str,
        handler: MethodRouter<Arc<Operations>>,
        operation: Operation,
    ) -> Self {
        let (method, access) = (Method::GET, Access::Open);
        Self { method, path, access, operation, handler: Handler::Operations(handler) }
    }

    /// A tenant's route.
    fn tenant(
        method: Method,
        path: &'static str,
        handler: MethodRouter<Arc<Api>>,
        operation: Operation,
    ) -> Self {
        let access = Access::Tenant;
        Self { method, path, access, operation, handler: Handler::Api(handler) }
    }

    /// An operator's route.
    fn operator(
        method: Method,
        path: &'static str,
        handler: MethodRouter<Arc<Api>>,
        operation: Operation,
    ) -> Self {
        let access = Access::Operator;
        Self { method, path, access, operation, handler: Handler::Api(handler) }
    }
}

/// Every route. A resource adds its own list, in a file of its own.
#[must_use]
pub fn routes() -> Vec<Route> {
    let lists = [
        open::routes(),
        tenant::routes(),
        pull::routes(),
        operator::routes(),
        admin::routes(),
        process::routes(),
    ];
    lists.into_iter().flatten().collect()
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
        Handler::Api(handler) => {
            let state = Guard { api: Arc::clone(&api), access: route.access };
            // Not around the answer to other methods: that a path has none of them is no secret.
            let guarded = handler.route_layer(from_fn_with_state(state, guard));
            router.route(route.path, guarded.with_state(Arc::clone(&api)))
        }
    });
    let own = own
        .route(ask::PATH, ask::route().with_state(Arc::clone(&api)))
        .route(tasks::PATH, tasks::route().with_state(Arc::clone(&api)))
        .route(erase::PATH, erase::route().with_state(Arc::clone(&api)))
        .layer(from_fn_with_state(api, admit));
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
