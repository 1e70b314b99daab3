//! The route by which pull subscriptions are read.

use axum::http::{Method, StatusCode};
use axum::routing::get;
use serde_json::json;
use streaming_hub_model::pull::{LIMIT_DEFAULT, LIMIT_MAX, SEQ_LIMIT};

use super::Route;
use crate::openapi::Operation;
use crate::problem::Code;
use crate::pull;

pub(super) fn routes() -> Vec<Route> {
    let handler = get(pull::read).head(pull::refuse_head);
    vec![Route::tenant(Method::GET, pull::PATH, handler, read())]
}

fn read() -> Operation {
    let limit = json!({
        "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT,
    });
    let after = json!({"type": "integer", "minimum": 0, "maximum": SEQ_LIMIT - 1});
    let wait = json!({"type": "integer", "minimum": 0, "maximum": pull::WAIT_S_MAX, "default": 0});
    Operation::new("readEvents", "Read a pull subscription")
        .about(
            "Reading a page acknowledges it: the cursor moves to its last `seq`, durably, before \
             the answer is sent. Pass `after` with the last `seq` that you have processed on every \
             read, and a lost answer costs nothing. `docs/pull.md` says it all.",
        )
        .query(
            "subscription_id",
            json!({"type": "string", "format": "uuid"}),
            "The subscription. Must be given.",
        )
        .query(
            "after",
            after,
            "The page begins behind this `seq`; without it behind the cursor. Above the cursor it \
             acknowledges everything up to it unseen.",
        )
        .query("limit", limit, "The most entries of the page.")
        .query("wait", wait, "For how many seconds an empty log is waited on.")
        .answer(StatusCode::OK, "One page, perhaps empty.", "EventPage")
        .with_header("RateLimit", "Reads that are left.")
        .with_header("RateLimit-Policy", "How many there are.")
        .problems(&[Code::NotFound, Code::NotAPullSubscription, Code::RateLimited])
        .problems(&[Code::NoOwner, Code::ReadFailed, Code::ReadUndecided])
}
