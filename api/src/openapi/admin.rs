//! Schemas of what operators see and do, and of a tenant's attempts and traces.

use serde_json::{Value, json};
use streaming_hub_model::dead_letter::EndReason;

use super::schema_ref;
use super::schemas::{Named, closed, object, timestamp};
use crate::admin::dead_letters::{REDELIVERED_DEFAULT, REDELIVERED_MAX};
use crate::admin::holds::{REASON_CHARS_MAX, SCOPES};
use crate::replay::{RATE_DEFAULT, RATE_MAX};

/// All of them.
pub(super) fn schemas() -> Named {
    let mut all = attempts();
    all.extend(replays());
    all.extend(dead_letters());
    all.extend(destinations());
    all.extend(holds());
    all.extend(quarantine());
    all.extend(instances());
    all
}

fn text() -> Value {
    json!({"type": "string"})
}

fn id() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn cursor() -> Value {
    json!({"type": ["string", "null"], "description": "`cursor` of the next page, if any."})
}

fn list(of: &str) -> Value {
    json!({"type": "array", "items": schema_ref(of)})
}

/// Members of an answer that may lack the part of an instance.
fn partial(mut properties: Value) -> Value {
    properties["partial"] = json!({
        "type": "boolean", "description": "Whether an instance could not be asked.",
    });
    properties["missing"] = json!({
        "type": "array", "items": {"type": "string"}, "description": "What was not asked.",
    });
    properties
}

fn attempts() -> Named {
    let attempt = object(
        &json!({
            "job": id(), "delivery_id": id(), "subscription": id(), "tenant": text(),
            "event_id": id(),
            "attempt": {"type": "integer", "minimum": 1, "description": "Of its job, from 1."},
            "step": count(), "tier": count(),
            "started_at": timestamp("When it started."), "duration_ms": count(),
            "outcome": {"type": "string", "enum": ["delivered", "failed"]},
            "error_class": text(), "detail": text(), "status": {"type": "integer"},
            "response_excerpt": {"type": "string", "description": "Of failures, at most 1 KiB."},
        }),
        &["job", "delivery_id", "event_id", "attempt", "started_at", "duration_ms", "outcome"],
    );
    let page = object(
        &json!({"attempts": list("Attempt"), "next_cursor": cursor()}),
        &["attempts", "next_cursor"],
    );
    let trace = object(
        &partial(json!({
            "ce_id": id(),
            "verdict": {"type": "string", "enum": ["accepted", "quarantined", "not_found"]},
            "reason": {"type": ["string", "null"]}, "detail": {"type": ["string", "null"]},
            "stored": {"type": "object", "description": "Topic, partition, offset and time."},
            "searched": {"type": "object", "description": "From when to when, and if to the end."},
            "subscriptions": {"type": "array", "items": {"type": "object"}, "description":
                "Each of the tenant's: its job and attempts, or `why` it has none as it stands \
                 now: event_type, origin, schema_major, created_later, disabled, not_verified, \
                 no_job_known."},
        })),
        &["ce_id", "verdict", "searched", "partial"],
    );
    vec![("Attempt", attempt), ("AttemptPage", page), ("Trace", trace)]
}

fn replays() -> Named {
    let mut replay = closed(
        &json!({
            "from": timestamp("Stored at or after this time."),
            "to": {"type": ["string", "null"], "format": "date-time",
                "description": "Stored before this time; now when it is not given."},
            "event_types": {"type": ["array", "null"], "items": text(), "minItems": 1},
            "rate_per_second": {"type": ["integer", "null"], "minimum": 1, "maximum": RATE_MAX,
                "default": RATE_DEFAULT},
            "dry_run": {"type": ["boolean", "null"], "default": false},
        }),
        &["from"],
    );
    replay["examples"] = json!([{"from": "2026-03-01T00:00:00Z", "dry_run": true}]);
    let counted = object(
        &json!({
            "dry_run": {"type": "boolean"}, "count": count(),
            "complete": {"type": "boolean", "description": "False: time ended before the log."},
            "counted_to": {"type": ["string", "null"]},
        }),
        &["dry_run", "count", "complete"],
    );
    let progress = object(
        &json!({
            "id": text(), "state": {"type": "string", "enum": ["running", "done", "failed"]},
            "started_at": timestamp("When it started."), "jobs": count(),
            "replayed_to": timestamp("The time of the last event that became a job."),
            "detail": text(),
        }),
        &["id", "state", "started_at", "jobs"],
    );
    vec![("Replay", replay), ("ReplayCount", counted), ("ReplayProgress", progress)]
}

fn dead_letters() -> Named {
    let reasons: Vec<_> = EndReason::ALL.iter().map(|reason| reason.as_str()).collect();
    let or_null: Vec<_> = reasons.iter().map(|name| json!(name)).chain([Value::Null]).collect();
    let reason = json!({"type": "string", "enum": reasons});
    let members = json!({
        "job": id(), "subscription": id(), "tenant": text(), "event_id": id(),
        "event_type": text(), "matched_at": timestamp("When it was matched."),
        "ended_at": timestamp("When it ended."), "reason": reason, "attempts": count(),
        "error_class": text(), "detail": text(), "status": {"type": "integer"},
        "payload_bytes": count(),
    });
    let required = ["job", "subscription", "tenant", "event_id", "reason", "ended_at"];
    let summary = object(&members, &required);
    let mut full = members;
    full["response_excerpt"] = text();
    full["headers"] = json!({"type": "array", "items": {"type": "array"}});
    full["payload_base64"] = json!({"type": "string", "contentEncoding": "base64"});
    let page = object(
        &partial(json!({"dead_letters": list("DeadLetterSummary"), "next_cursor": cursor()})),
        &["dead_letters", "next_cursor", "partial"],
    );
    let time = || json!({"type": ["string", "null"], "format": "date-time"});
    let redelivery = closed(
        &json!({
            "tenant": {"type": ["string", "null"]},
            "subscription": {"type": ["string", "null"], "format": "uuid"},
            "reason": {"type": ["string", "null"], "enum": or_null},
            "from": time(), "to": time(),
            "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": REDELIVERED_MAX,
                "default": REDELIVERED_DEFAULT},
            "cursor": {"type": ["string", "null"]},
        }),
        &[],
    );
    let redelivered = object(
        &partial(json!({
            "redelivered": {"type": "array", "items": object(
                &json!({"dead_letter": id(), "job": id()}), &["dead_letter", "job"])},
            "refused": {"type": "array", "items": object(
                &json!({"dead_letter": id(), "because": text()}), &["dead_letter", "because"])},
            "next_cursor": cursor(),
        })),
        &["redelivered", "refused"],
    );
    vec![
        ("DeadLetterSummary", summary),
        ("DeadLetter", object(&full, &required)),
        ("DeadLetterPage", page),
        ("Redelivery", redelivery),
        ("Redelivered", redelivered),
    ]
}

fn destinations() -> Named {
    let moment = |about: &str| {
        let format = "date-time";
        json!({"type": ["string", "null"], "format": format, "description": about})
    };
    let breaker = object(
        &json!({
            "state": {"type": "string", "enum": ["closed", "open", "half_open"]},
            "until": moment("When probes are let through."),
            "openings": {"type": "integer", "minimum": 0, "description": "In a row."},
        }),
        &["state", "until", "openings"],
    );
    let mut failing = object(
        &json!({
            "first": timestamp("The first failure since the last success."),
            "last": timestamp("The last failure, to within ten minutes."),
        }),
        &["first", "last"],
    );
    failing["type"] = json!(["object", "null"]);
    let subscription = object(
        &json!({
            "id": id(), "enabled": {"type": "boolean"}, "paused": {"type": "boolean"},
            "failing": failing,
        }),
        &["id", "enabled", "paused", "failing"],
    );
    let mut one = object(
        &json!({
            "tenant": text(),
            "destination": {"type": "string", "description":
                "The keyed hash of its target, as holds and topics name it."},
            "sink": text(), "host": text(), "breaker": breaker,
            "throttled_until": moment("Until when it asked to be left alone."),
            "waiting": {"type": "integer", "minimum": 0, "description":
                "Subscriptions that wait behind its breaker or its wish."},
            "holds": {"type": "array", "items": {"type": "string", "enum": SCOPES},
                "description": "Scopes of the holds that are about it."},
            "subscriptions": {"type": "array", "items": subscription},
        }),
        &[
            "tenant",
            "destination",
            "sink",
            "host",
            "breaker",
            "throttled_until",
            "waiting",
            "holds",
            "subscriptions",
        ],
    );
    one["examples"] = json!([{
        "tenant": "acme", "destination": "3f0c9b7e5a1d4c2286ab90d1e4f77c10", "sink": "webhook",
        "host": "hooks.example.com",
        "breaker": {"state": "open", "until": "2026-03-01T00:00:30.000Z", "openings": 1},
        "throttled_until": null, "waiting": 1, "holds": [],
        "subscriptions": [{
            "id": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", "enabled": true, "paused": false,
            "failing": {"first": "2026-02-28T23:10:00.000Z", "last": "2026-03-01T00:00:00.000Z"},
        }],
    }]);
    let page = object(
        &partial(json!({"destinations": list("Destination"), "next_cursor": cursor()})),
        &["destinations", "next_cursor", "partial"],
    );
    vec![("Destination", one), ("DestinationPage", page)]
}

fn holds() -> Named {
    let scope = json!({
        "scope": {"type": "string", "enum": SCOPES},
        "tenant": text(), "destination": text(), "subscription": id(),
        "reason": {"type": ["string", "null"], "maxLength": REASON_CHARS_MAX},
    });
    let mut new = closed(&scope, &["scope"]);
    new["examples"] = json!([{"scope": "tenant", "tenant": "acme", "reason": "maintenance"}]);
    let mut members = scope;
    members["since"] = timestamp("Since when.");
    members["by"] = json!({"type": "string", "description": "Name of the operator's token."});
    let hold = object(&members, &["scope", "since", "by"]);
    let all = object(&json!({"holds": list("Hold")}), &["holds"]);
    vec![("NewHold", new), ("Hold", hold), ("Holds", all)]
}

fn quarantine() -> Named {
    let members = json!({
        "id": text(), "reason": {"type": ["string", "null"]},
        "detail": {"type": ["string", "null"]},
        "from": {"type": ["object", "null"], "description": "Topic, partition and offset."},
        "timestamp": {"type": ["string", "null"]}, "quarantined_at": {"type": ["string", "null"]},
        "value_bytes": {"type": ["integer", "null"]},
        "value_kept": {"type": "boolean", "description": "False above the size limit."},
    });
    let summary = object(&members, &["id", "reason", "from", "value_kept"]);
    let mut full = members;
    let bytes = json!({"type": ["string", "null"], "contentEncoding": "base64"});
    full["headers"] = json!({"type": "array", "items": {"type": "object"}});
    full["key_base64"] = bytes.clone();
    full["value_base64"] = bytes;
    full["value_sha256"] = text();
    let page = object(
        &json!({"quarantined": list("QuarantineEntry"), "next_cursor": cursor()}),
        &["quarantined", "next_cursor"],
    );
    let erasure = closed(&json!({"tenant": {"type": "string", "minLength": 1}}), &["tenant"]);
    let erased = object(
        &partial(json!({
            "subscriptions_deleted": count(), "dead_letters_deleted": count(),
            "complete": {"type": "boolean"},
            "last_copy_gone_at": timestamp("When retention has removed the last copy."),
        })),
        &["subscriptions_deleted", "dead_letters_deleted", "complete", "last_copy_gone_at"],
    );
    vec![
        ("QuarantineEntry", summary),
        ("Quarantined", object(&full, &["id", "headers", "key_base64", "value_base64"])),
        ("QuarantinePage", page),
        ("Erasure", erasure),
        ("Erased", erased),
    ]
}

fn instances() -> Named {
    let tasks = object(
        &partial(json!({
            "instances": {"type": "array", "items": {"type": "object"}, "description":
                "`instance`, its `tasks` (state, position, lag, restore_remaining), its `standby` \
                 copies (lag), and what it is `not_ready` for."},
            "owners": {"type": "array", "items": {"type": "object"}, "description":
                "Who ran each task last, as the instances topic says."},
        })),
        &["instances", "owners", "partial"],
    );
    let topology = object(
        &json!({
            "application": text(), "partitions": count(),
            "sub_topologies": {"type": "array", "items": {"type": "object"}},
            "instances": {"type": "array", "items": {"type": "object"}},
        }),
        &["application", "partitions", "sub_topologies", "instances"],
    );
    vec![("Tasks", tasks), ("Topology", topology)]
}
