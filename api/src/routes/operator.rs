//! An operator's routes about everyone's subscriptions.

use axum::http::{Method, StatusCode};
use axum::routing::{get, patch as axum_patch, post};
use serde_json::json;

use super::Route;
use super::tenant::listing;
use crate::openapi::Operation;
use crate::problem::Code;
use crate::{patch, secrets, subscriptions};

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
        Route::operator(
            Method::PATCH,
            "/admin/subscriptions/{id}",
            axum_patch(patch::switch),
            Operation::new("adminUpdateSubscription", "Switch anyone's subscription off or on")
                .about("What an operator switched off, only an operator enables.")
                .if_match()
                .body_of("Switch", "application/merge-patch+json", true)
                .answer(StatusCode::OK, "As it is now.", "OwnedSubscription")
                .with_header("ETag", "The version, in quotes.")
                .problems(&[Code::VerificationRequired, Code::Unavailable, Code::Undecided]),
        ),
        Route::operator(
            Method::POST,
            "/admin/secrets/rewrap",
            post(secrets::rewrap),
            Operation::new("adminRewrapSecrets", "Seal every secret with the current key")
                .about(
                    "After a change of `encryption.key`: what older keys sealed is sealed anew. \
                     With `failed` 0 the older keys may go. It can be repeated.",
                )
                .answer(StatusCode::OK, "How many subscriptions.", "Rewrapped")
                .problems(&[Code::Unavailable, Code::Undecided]),
        ),
    ]
}
