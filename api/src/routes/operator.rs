//! An operator's routes about everyone's subscriptions.

use axum::http::{Method, StatusCode};
use axum::routing::get;
use serde_json::json;

use super::Route;
use super::tenant::listing;
use crate::openapi::Operation;
use crate::subscriptions;

pub(super) fn routes() -> Vec<Route> {
    let tenant = json!({"type": "string", "minLength": 1});
    let list = Operation::new("adminListSubscriptions", "List subscriptions, oldest first");
    let list = listing(list.query("tenant", tenant, "Whose; everyone's when it is not given."));
    vec![
        Route::operator(
            Method::GET,
            "/admin/subscriptions",
            get(subscriptions::list_all),
            list.answer(StatusCode::OK, "One page.", "OwnedSubscriptionPage"),
        ),
        Route::operator(
            Method::GET,
            "/admin/subscriptions/{id}",
            get(subscriptions::read_any),
            Operation::new("adminReadSubscription", "Read anyone's subscription")
                .answer(StatusCode::OK, "The subscription.", "OwnedSubscription")
                .with_header("ETag", "The version, in quotes."),
        ),
    ]
}
