//! A tenant's routes about its subscriptions.

use axum::http::{Method, StatusCode};
use axum::routing::{delete, get, patch as axum_patch, post};
use serde_json::json;

use super::Route;
use crate::openapi::Operation;
use crate::problem::Code;
use crate::query::LIMIT_MAX;
use crate::{patch, secrets, subscriptions, verify};

const ALL: &str = "/v1/subscriptions";
const ONE: &str = "/v1/subscriptions/{id}";
const ETAG: &str = "The version, in quotes.";

/// What a write that needs Kafka may answer when it is away.
const WRITES: [Code; 2] = [Code::Unavailable, Code::Undecided];

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::tenant(Method::POST, ALL, post(subscriptions::create), create()),
        Route::tenant(Method::GET, ALL, get(subscriptions::list), list()),
        Route::tenant(Method::GET, ONE, get(subscriptions::read), read()),
        Route::tenant(Method::PATCH, ONE, axum_patch(patch::update), change()),
        Route::tenant(Method::DELETE, ONE, delete(subscriptions::remove), remove()),
        Route::tenant(
            Method::POST,
            "/v1/subscriptions/{id}/verify",
            post(verify::verify),
            verification(),
        ),
        Route::tenant(
            Method::POST,
            "/v1/subscriptions/{id}/rotate-secret",
            post(secrets::rotate),
            rotation(),
        ),
    ]
}

fn create() -> Operation {
    Operation::new("createSubscription", "Create a subscription")
        .about(
            "It is `pending` until `POST …/verify` succeeds: the receiver cannot know a secret \
             that the hub has just made. With a secret of your own, `\"verify\": true` probes at \
             once.",
        )
        .body("NewSubscription")
        .answer(
            StatusCode::CREATED,
            "Recorded, and readable on this instance.",
            "CreatedSubscription",
        )
        .with_header("ETag", ETAG)
        .with_header("Location", "Its path.")
        .problems(&[Code::TooManySubscriptions, Code::DestinationRefused])
        .problems(&WRITES)
}

fn list() -> Operation {
    listing(Operation::new("listSubscriptions", "List the tenant's subscriptions, oldest first"))
        .answer(StatusCode::OK, "One page.", "SubscriptionPage")
}

/// The parameters that every list of subscriptions has.
pub(super) fn listing(operation: Operation) -> Operation {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": 100});
    let state = json!({"type": "string", "enum": ["pending", "active", "failed"]});
    let text = json!({"type": "string", "minLength": 1});
    operation
        .query("limit", limit, "The most entries of the page.")
        .query(
            "cursor",
            json!({"type": "string", "format": "uuid"}),
            "`next_cursor` of the page before. Opaque.",
        )
        .query("state", state, "Only those of this `verification_state`.")
        .query("enabled", json!({"type": "boolean"}), "Only those that are, or are not.")
        .query("sink_type", text.clone(), "Only those with a sink of this type.")
        .query(
            "event_type",
            text,
            "Only those that would match this key, or that list this pattern.",
        )
}

fn read() -> Operation {
    Operation::new("readSubscription", "Read a subscription")
        .answer(StatusCode::OK, "The subscription.", "Subscription")
        .with_header("ETag", ETAG)
}

fn change() -> Operation {
    Operation::new("updateSubscription", "Change some fields of a subscription")
        .about(
            "A JSON merge patch (RFC 7396): what it names is set, `null` is the default. A new \
             destination or secret of an `active` subscription is probed first: a success sets \
             it, a failure is 422 `verification_failed` and nothing changes. Of any other, the \
             new destination is `pending`. `enabled: true` does not lift `gone` and `failing`; a \
             verification does.",
        )
        .if_match()
        .body_of("SubscriptionPatch", "application/merge-patch+json", true)
        .answer(StatusCode::OK, "As it is now.", "Subscription")
        .with_header("ETag", ETAG)
        .problems(&[
            Code::DestinationChanged,
            Code::DestinationRefused,
            Code::SinkTypeImmutable,
            Code::VerificationFailed,
            Code::VerificationRequired,
            Code::DisabledByOperator,
            Code::CannotProbe,
        ])
        .problems(&WRITES)
}

fn rotation() -> Operation {
    Operation::new("rotateSecret", "Sign with a new secret")
        .about(
            "For `overlap_seconds` deliveries carry two signatures, the new secret's first. 0 \
             ends the old one at once: for a secret that leaked.",
        )
        .if_match()
        .body_of("Rotation", "application/json", false)
        .answer(StatusCode::OK, "As it is now, with the new secret.", "CreatedSubscription")
        .with_header("ETag", ETAG)
        .problems(&WRITES)
}

fn remove() -> Operation {
    Operation::new("deleteSubscription", "Delete a subscription")
        .about("Jobs that wait become dead letters `subscription_deleted`.")
        .if_match()
        .answer_of(StatusCode::NO_CONTENT, "It is gone.", None)
        .problems(&WRITES)
}

fn verification() -> Operation {
    Operation::new("verifySubscription", "Probe the destination with a signed test event")
        .about("A destination that fails the probe is an answer: `verification_state` says so.")
        .answer(StatusCode::OK, "What the probe found.", "Subscription")
        .with_header("ETag", ETAG)
        .problems(&[Code::DestinationChanged, Code::CannotProbe])
        .problems(&WRITES)
}
