//! Schemas of the producers' dead letters and of the log's filter.

use serde_json::{Value, json};

use super::schemas::{Named, closed, object, timestamp};

pub(super) fn schemas() -> Named {
    let page = object(
        &json!({
            "entries": {"type": "array", "items": object(&summary(), REQUIRED)},
            "next_cursor": {"type": ["string", "null"]},
            "total": {"type": "integer", "minimum": 0},
            "by_cause": {"type": "object", "additionalProperties": {"type": "integer"}},
            "by_topic": {"type": "object", "additionalProperties": {"type": "integer"}},
            "complete": {
                "type": "boolean",
                "description": "Whether the topics have been read to their ends since the start.",
            },
        }),
        &["entries", "next_cursor", "total", "by_cause", "by_topic", "complete"],
    );
    vec![
        ("ProducerDeadLetterPage", page),
        ("ProducerDeadLetter", object(&entry(), REQUIRED)),
        ("LogLevel", closed(&json!({"filter": {"type": "string"}}), &["filter"])),
    ]
}

const REQUIRED: &[&str] = &[
    "topic",
    "partition",
    "offset",
    "at",
    "application",
    "writer",
    "cause",
    "content",
    "payload_omitted",
];

fn summary() -> Value {
    let text = json!({"type": ["string", "null"]});
    json!({
        "topic": {"type": "string"},
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "at": timestamp("The record's timestamp."),
        "application": {"type": "string", "description": "Whose dead-letter topic it is."},
        "writer": {"type": "string", "enum": ["producer", "consumer"]},
        "cause": {
            "type": "string",
            "description": "A consumer's cause kind or a producer's error class; the list is open.",
        },
        "content": {"type": "string", "enum": ["fact", "command", "system_event", "unreadable"]},
        "source_topic": text,
        "source": text,
        "tenant": text,
        "event_id": text,
        "payload_omitted": {"type": "boolean"},
    })
}

fn entry() -> Value {
    let (mut all, text) = (summary(), json!({"type": ["string", "null"]}));
    let number = json!({"type": ["integer", "null"]});
    let header = object(
        &json!({
            "name": {"type": "string"},
            "value": {"type": ["string", "null"]},
            "value_base64": {"type": "string", "description": "In place of a value, if no text."},
        }),
        &["name"],
    );
    for name in [
        "error_class",
        "error_message",
        "first_failure_at",
        "producer_id",
        "consumer_group",
        "payload_base64",
        "key_base64",
    ] {
        all[name] = text.clone();
    }
    for name in ["retry_count", "source_partition", "source_offset", "payload_bytes"] {
        all[name] = number.clone();
    }
    all["headers"] = json!({"type": "array", "items": header});
    all
}
