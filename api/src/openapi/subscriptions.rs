//! Schemas of a subscription: as it is asked for and as it is shown, with examples.

use serde_json::{Value, json};
use streaming_hub_model::retry::{STEP_MS_MAX, STEPS_MAX};
use streaming_hub_model::subscription::MAX_IN_FLIGHT_MAX;

use super::schemas::{Named, closed, object, timestamp};
use super::{schema_ref, sinks};
use crate::draft::{NAME_CHARS_MAX, ORIGIN_BYTES_MAX, SECRET_CHARS_MAX, SECRET_CHARS_MIN};
use crate::secrets::OVERLAP_S_MAX;

/// The id that examples use.
const ID: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";

/// Everything that a subscription is made of.
pub(super) fn schemas() -> Named {
    vec![
        ("NewSubscription", new_subscription()),
        ("Subscription", subscription()),
        ("CreatedSubscription", created()),
        ("SubscriptionPatch", patch()),
        ("Rotation", rotation()),
        ("Switch", switch()),
        ("Rewrapped", rewrapped()),
        ("SubscriptionPage", page("Subscription")),
        ("OwnedSubscription", owned()),
        ("OwnedSubscriptionPage", page("OwnedSubscription")),
    ]
}

/// The fields that a tenant sets, as a request and an answer have them.
fn settings() -> Value {
    json!({
        "name": {
            "type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX,
            "description": "What its owner calls it.",
        },
        "event_types": {
            "type": "array", "minItems": 1, "uniqueItems": true,
            "items": {"type": "string", "minLength": 1},
            "description": "`<resource>.<event>`, `<resource>.*` or `*`.",
        },
        "schema_major": {
            "type": "integer", "minimum": 0, "maximum": u16::MAX, "default": 1,
            "description": "The major of `ce-schemaversion` that matches.",
        },
        "enabled": {"type": "boolean", "default": true, "description": "Whether it matches."},
        "max_in_flight": {
            "type": "integer", "minimum": 1, "maximum": MAX_IN_FLIGHT_MAX, "default": 1,
            "description": "How many attempts may be under way at once. 1 keeps the order.",
        },
        "paused": {
            "type": "boolean", "default": false,
            "description": "It matches, and its jobs wait in order without attempts.",
        },
        "ordering": {
            "type": "string", "enum": ["arrival", "strict"], "default": "arrival",
            "description": "`strict`: nothing overtakes a job that is retried. Needs \
                            `max_in_flight` 1.",
        },
        "origin": {
            "type": "string", "minLength": 1, "maxLength": ORIGIN_BYTES_MAX,
            "description": "The only producing application (`ce-source`) that matches; any \
                            when it is absent.",
        },
        "retry_schedule": {
            "type": "array", "minItems": 1, "maxItems": STEPS_MAX,
            "items": {"type": "integer", "minimum": 0, "maximum": STEP_MS_MAX},
            "description": "Its own back-off curve: milliseconds before each attempt.",
        },
    })
}

/// `null` counts as a field that is not given.
fn nullable(mut properties: Value) -> Value {
    for (name, field) in properties.as_object_mut().into_iter().flatten() {
        if ["name", "event_types", "sink"].contains(&name.as_str()) {
            continue;
        }
        if let Some(kind) = field["type"].as_str().map(str::to_owned) {
            field["type"] = json!([kind, "null"]);
        }
    }
    properties
}

fn new_subscription() -> Value {
    let mut properties = settings();
    properties["sink"] = json!({"$ref": "#/components/schemas/NewSink"});
    properties["verify"] = json!({
        "type": "boolean", "default": false,
        "description": "Probe the destination as part of the creation; needs a `secret`.",
    });
    let mut schema = closed(&nullable(properties), &["name", "event_types", "sink"]);
    schema["examples"] = json!([{
        "name": "accounts of the ledger",
        "event_types": ["account.created", "transfer.*"],
        "origin": "ledger",
        "sink": {"type": "webhook", "url": "https://example.com/hooks/ledger"},
    }]);
    schema
}

fn subscription() -> Value {
    let mut properties = settings();
    let own = json!({
        "id": {"type": "string", "format": "uuid"},
        "sink": {"$ref": "#/components/schemas/Sink"},
        "verification_state": {"type": "string", "enum": ["pending", "active", "failed"]},
        "delivery": delivery(),
        "verification_failure": {"type": "string", "description": "Why the last probe failed."},
        "pull": {
            "$ref": "#/components/schemas/PullStanding",
            "description": "How far a pull subscription was read; when it is read by its id.",
        },
        "disabled_reason": {
            "type": "string", "enum": ["tenant", "operator", "gone", "failing"],
            "description": "Why it is not `enabled`.",
        },
        "created_at": timestamp("When it was created."),
        "updated_at": timestamp("When it last changed."),
        "version": {
            "type": "integer", "minimum": 1,
            "description": "Grows by one with each change; the ETag is this number in quotes.",
        },
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut properties, own) {
        all.extend(own);
    }
    let mut schema = object(
        &properties,
        &[
            "id",
            "name",
            "event_types",
            "schema_major",
            "sink",
            "enabled",
            "paused",
            "verification_state",
            "max_in_flight",
            "ordering",
            "created_at",
            "updated_at",
            "version",
        ],
    );
    schema["examples"] = json!([example()]);
    schema
}

/// A subscription as it is shown.
fn example() -> Value {
    json!({
        "id": ID,
        "name": "accounts of the ledger",
        "event_types": ["account.created", "transfer.*"],
        "origin": "ledger",
        "schema_major": 1,
        "sink": {"type": "webhook", "url": "https://example.com/hooks/ledger"},
        "enabled": true,
        "paused": false,
        "verification_state": "active",
        "max_in_flight": 1,
        "ordering": "arrival",
        "created_at": "2026-03-01T12:00:00.000Z",
        "updated_at": "2026-03-01T12:00:03.000Z",
        "version": 2,
    })
}

fn created() -> Value {
    json!({
        "allOf": [{"$ref": "#/components/schemas/Subscription"}],
        "properties": {"signing_secret": {
            "type": "string",
            "description": "The secret that the hub made. It is shown here and never again.",
        }},
    })
}

/// What waits for a subscription; with a read of one only.
fn delivery() -> Value {
    let mut waiting = object(
        &json!({
            "backlog": {"type": "integer", "minimum": 0, "description": "Jobs that wait."},
            "or_more": {"type": "boolean", "description": "Counting ended before they did."},
            "oldest_waiting_at": {"type": ["string", "null"], "format": "date-time"},
        }),
        &["backlog", "oldest_waiting_at"],
    );
    waiting["type"] = json!(["object", "null"]);
    waiting["description"] =
        "With a read of one: what waits; `null` when its owner is away.".into();
    waiting
}

fn patch() -> Value {
    let mut properties = settings();
    properties["sink"] = sinks::patched();
    let mut schema = closed(&nullable(properties), &[]);
    schema["examples"] = json!([{"paused": true}, {"sink": {"url": "https://example.com/new"}}]);
    schema
}

fn rotation() -> Value {
    let mut schema = closed(
        &json!({
            "overlap_seconds": {
                "type": ["integer", "null"],
                "minimum": 0, "maximum": OVERLAP_S_MAX, "default": OVERLAP_S_MAX,
                "description": "How long the old secret goes on signing beside the new one.",
            },
            "secret": secret("A secret of your own; without one the hub makes it."),
        }),
        &[],
    );
    schema["examples"] = json!([{"overlap_seconds": 3600}]);
    schema
}

fn switch() -> Value {
    closed(&json!({"enabled": {"type": "boolean"}}), &["enabled"])
}

fn rewrapped() -> Value {
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    object(
        &json!({
            "rewrapped": count("Subscriptions whose secrets were sealed anew."),
            "failed": count("Subscriptions with a secret that does not open; the log names them."),
        }),
        &["rewrapped", "failed"],
    )
}

pub(super) fn secret(about: &str) -> Value {
    json!({
        "type": ["string", "null"],
        "minLength": SECRET_CHARS_MIN, "maxLength": SECRET_CHARS_MAX,
        "pattern": "^[!-~]+$", "writeOnly": true, "description": about,
    })
}

fn owned() -> Value {
    json!({
        "allOf": [{"$ref": "#/components/schemas/Subscription"}],
        "properties": {"tenant": {"type": "string", "description": "Whose it is."}},
        "required": ["tenant"],
    })
}

fn page(of: &str) -> Value {
    object(
        &json!({
            "subscriptions": {
                "type": "array", "items": schema_ref(of),
            },
            "next_cursor": {
                "type": ["string", "null"],
                "description": "`cursor` of the next page; `null` on the last.",
            },
        }),
        &["subscriptions", "next_cursor"],
    )
}
