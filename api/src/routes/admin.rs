//! What an operator sees and does: dead letters, holds, quarantine, tasks, erasure; and what a
//! tenant sees of its own deliveries.

use axum::http::{Method, StatusCode};
use axum::routing::{delete, get, post, put};
use serde_json::{Value, json};
use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::delivery_calls::PAGE_MAX;

use super::Route;
use crate::admin::holds::SCOPES;
use crate::admin::{attempts, dead_letters, destinations, erase, holds, quarantine, tasks};
use crate::openapi::Operation;
use crate::problem::Code;
use crate::{replay, trace};

/// What is asked of a task may answer while it moves.
const ASKS: [Code; 1] = [Code::NoOwner];

pub(super) fn routes() -> Vec<Route> {
    let mut all = of_deliveries();
    all.extend(of_dead_letters());
    all.push(of_destinations());
    all.extend(of_holds());
    all.extend(of_logs());
    all.extend(of_instances());
    all
}

fn text() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn id() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn paged(operation: Operation, limit_max: u64, limit_default: u64) -> Operation {
    let limit = json!({
        "type": "integer", "minimum": 1, "maximum": limit_max, "default": limit_default,
    });
    operation.query("limit", limit, "The most entries of the page.").query(
        "cursor",
        text(),
        "`next_cursor` of the page before. Opaque.",
    )
}

fn of_deliveries() -> Vec<Route> {
    let attempts = |id, summary| {
        paged(Operation::new(id, summary), PAGE_MAX.into(), 50)
            .about("The last 200 are kept to be served; a response's start only of failures.")
            .answer(StatusCode::OK, "One page.", "AttemptPage")
            .problems(&ASKS)
    };
    vec![
        Route::tenant(
            Method::GET,
            "/v1/subscriptions/{id}/attempts",
            get(attempts::of_tenant),
            attempts("listAttempts", "List a subscription's last attempts, newest first"),
        ),
        Route::operator(
            Method::GET,
            "/admin/subscriptions/{id}/attempts",
            get(attempts::of_anyone),
            attempts("adminListAttempts", "List any subscription's last attempts, newest first"),
        ),
        Route::tenant(
            Method::POST,
            "/v1/subscriptions/{id}/replay",
            post(replay::start),
            Operation::new("replaySubscription", "Deliver stored events once more")
                .about(
                    "Those of the time span that the subscription wants as it stands, as new \
                     jobs behind what waits. `dry_run` only counts them. It ends when the hub's \
                     process does or the subscription moves, and is not resumed: its progress \
                     says up to where it came.",
                )
                .body("Replay")
                .answer(StatusCode::OK, "With `dry_run`: how many.", "ReplayCount")
                .answer(StatusCode::ACCEPTED, "It runs.", "ReplayProgress")
                .problems(&[
                    Code::NoOwner,
                    Code::Unreadable,
                    Code::ReplayRunning,
                    Code::NotEnabled,
                ]),
        ),
        Route::tenant(
            Method::GET,
            "/v1/subscriptions/{id}/replay",
            get(replay::read),
            Operation::new("readReplay", "How far a subscription's last replay is")
                .answer(StatusCode::OK, "Of the last one that its owner knows.", "ReplayProgress")
                .problems(&ASKS),
        ),
        Route::tenant(
            Method::GET,
            "/v1/events/{ceId}/trace",
            get(trace::trace),
            Operation::new("traceEvent", "What became of an event")
                .about(
                    "Looked for from the time in its id on, within bounds: `searched` says how \
                     far. `not_found` means not found there.",
                )
                .answer(StatusCode::OK, "What is known.", "Trace")
                .problems(&[Code::NoOwner, Code::Unreadable]),
        ),
    ]
}

fn of_dead_letters() -> Vec<Route> {
    let reasons: Vec<_> = EndReason::ALL.iter().map(|reason| reason.as_str()).collect();
    let time = || json!({"type": "string", "format": "date-time"});
    let list = Operation::new("listDeadLetters", "List dead letters of every tenant")
        .about("By partition, then subscription, oldest first. A page may be short and go on.")
        .query("tenant", text(), "Only this tenant's.")
        .query("subscription", id(), "Only this subscription's.")
        .query("reason", json!({"type": "string", "enum": reasons}), "Only those of this reason.")
        .query("from", time(), "Ended at or after this time.")
        .query("to", time(), "Ended before this time.");
    let (all, one) = ("/admin/dead-letters", "/admin/dead-letters/{job}");
    vec![
        Route::operator(
            Method::GET,
            all,
            get(dead_letters::list),
            paged(list, PAGE_MAX.into(), 100).answer(StatusCode::OK, "A page.", "DeadLetterPage"),
        ),
        Route::operator(
            Method::GET,
            one,
            get(dead_letters::read),
            Operation::new("readDeadLetter", "Read a dead letter with its payload")
                .answer(StatusCode::OK, "The dead letter.", "DeadLetter")
                .problems(&ASKS),
        ),
        Route::operator(
            Method::POST,
            "/admin/dead-letters/{job}/redeliver",
            post(dead_letters::redeliver_one),
            Operation::new("redeliverDeadLetter", "Make a new job of a dead letter")
                .about("With an `Idempotency-Key` the new job's id derives from it.")
                .answer(StatusCode::OK, "What became of it.", "Redelivered")
                .problems(&ASKS),
        ),
        Route::operator(
            Method::POST,
            "/admin/dead-letters/redeliver",
            post(dead_letters::redeliver_many),
            Operation::new("redeliverDeadLetters", "Make new jobs of the dead letters of a filter")
                .about("At most `limit` of them; repeat with `next_cursor` for the rest.")
                .body("Redelivery")
                .answer(StatusCode::OK, "What became of them.", "Redelivered")
                .problems(&ASKS),
        ),
    ]
}

fn of_destinations() -> Route {
    let states = json!({"type": "string", "enum": destinations::CONDITIONS});
    let list = Operation::new("listDestinations", "How every tenant's destinations are doing")
        .about(
            "Breakers, gates and failure spans, by tenant, then destination. What an owner that \
             is away knows is `missing`. A page may be short and go on.",
        )
        .query("tenant", text(), "Only this tenant's.")
        .query(
            "state",
            states,
            "Only those whose breaker is in this state, that asked to be left alone \
             (`throttled`), that an operator holds (`held`), or some of whose subscriptions are \
             `paused` or `failing`.",
        );
    Route::operator(
        Method::GET,
        "/admin/destinations",
        get(destinations::list),
        paged(list, PAGE_MAX.into(), 100).answer(StatusCode::OK, "A page.", "DestinationPage"),
    )
}

fn of_holds() -> Vec<Route> {
    let path = "/admin/holds";
    vec![
        Route::operator(
            Method::GET,
            path,
            get(holds::list),
            Operation::new("listHolds", "List what is held").answer(
                StatusCode::OK,
                "All of it.",
                "Holds",
            ),
        ),
        Route::operator(
            Method::PUT,
            path,
            put(holds::set),
            Operation::new("setHold", "Hold deliveries")
                .about("Matching goes on; jobs wait in order until the hold is lifted.")
                .body("NewHold")
                .answer(StatusCode::OK, "It holds.", "Hold")
                .problems(&[Code::Unavailable]),
        ),
        Route::operator(
            Method::DELETE,
            path,
            delete(holds::lift),
            Operation::new("liftHold", "Lift a hold")
                .query("scope", json!({"type": "string", "enum": SCOPES}), "What is held.")
                .query("tenant", text(), "With the scope `tenant`.")
                .query("destination", text(), "With the scope `destination`: its hash.")
                .query("subscription", id(), "With the scope `subscription`.")
                .answer_of(StatusCode::NO_CONTENT, "It does not hold (any more).", None)
                .problems(&[Code::Unavailable]),
        ),
    ]
}

fn of_logs() -> Vec<Route> {
    let time = || json!({"type": "string", "format": "date-time"});
    let list = Operation::new("listQuarantine", "List what could not be accepted")
        .about("Read from the log within bounds: a page may be short, or empty, and go on.")
        .query("reason", text(), "Only those of this reason code.")
        .query("source", text(), "Only those of this topic, given whole or by its last segment.")
        .query("from", time(), "Quarantined at or after this time.")
        .query("to", time(), "Quarantined before this time.");
    vec![
        Route::operator(
            Method::GET,
            "/admin/quarantine",
            get(quarantine::list),
            paged(list, quarantine::LIMIT_MAX, 100)
                .answer(StatusCode::OK, "A page.", "QuarantinePage")
                .problems(&[Code::Unreadable]),
        ),
        Route::operator(
            Method::GET,
            "/admin/quarantine/{entry}",
            get(quarantine::read),
            Operation::new("readQuarantined", "Read a quarantined record byte for byte")
                .answer(StatusCode::OK, "The record.", "Quarantined")
                .problems(&[Code::Unreadable]),
        ),
        Route::operator(
            Method::POST,
            "/admin/tenants/erase",
            post(erase::erase),
            Operation::new("eraseTenant", "Erase a tenant")
                .about(
                    "Deletes its subscriptions, ends what waits and throws its dead letters \
                     away. Repeat it until `complete`.",
                )
                .body("Erasure")
                .answer(StatusCode::OK, "What was erased.", "Erased")
                .problems(&[Code::NoOwner, Code::Unavailable, Code::Undecided]),
        ),
    ]
}

fn of_instances() -> Vec<Route> {
    vec![
        Route::operator(
            Method::GET,
            "/admin/tasks",
            get(tasks::tasks),
            Operation::new("listTasks", "Who runs what, and how far it is").answer(
                StatusCode::OK,
                "Every instance that answered; the others are named in `missing`.",
                "Tasks",
            ),
        ),
        Route::operator(
            Method::GET,
            "/admin/topology",
            get(tasks::topology),
            Operation::new("readTopology", "What the hub is made of").answer(
                StatusCode::OK,
                "Sub-topologies, their topics, and the instances that run them.",
                "Topology",
            ),
        ),
    ]
}
