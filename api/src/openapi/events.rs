//! Schemas of what a pull subscription is answered.

use serde_json::{Value, json};

use super::schema_ref;
use super::schemas::{Named, object};

/// A page and its entries.
pub(super) fn schemas() -> Named {
    vec![("EventPage", page()), ("Event", event()), ("PullStanding", standing())]
}

fn page() -> Value {
    object(
        &json!({
            "events": {"type": "array", "items": schema_ref("Event")},
            "next_cursor": {
                "type": ["integer", "null"],
                "description": "The page's last `seq`; `null` when there was nothing behind it.",
            },
            "cursor": {
                "type": "integer", "minimum": 0,
                "description": "Everything up to this `seq` is acknowledged.",
            },
        }),
        &["events", "next_cursor", "cursor"],
    )
}

fn event() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    object(
        &json!({
            "seq": {"type": "integer", "minimum": 1, "description": "Ascends; never given twice."},
            "ceId": {
                "type": "string", "format": "uuid",
                "description": "The event's id: deduplicate by it.",
            },
            "type": text("`<resource>.<event>`."),
            "ceType": text("`ce-type`."),
            "source": text("`ce-source`."),
            "time": text("`ce-time`, as the producer wrote it."),
            "subject": text("`ce-subject`."),
            "schemaVersion": text("`ce-schemaversion`."),
            "resourceType": text("`ce-resourcetype`."),
            "eventType": text("`ce-eventtype`."),
            "tenantId": text("The tenant."),
            "dataContentType": text("`ce-datacontenttype`."),
            "dataSchema": text("`ce-dataschema`."),
            "traceparent": text("W3C trace context."),
            "tracestate": text("W3C trace context."),
            "extensions": {
                "type": "object", "additionalProperties": {"type": "string"},
                "description": "Further `ce-*` headers, by name without the prefix.",
            },
            "payload": {"description": "The data, when it is JSON: the same text."},
            "payload_base64": text("The data, when it is not. Without data there is neither."),
        }),
        &["seq", "ceId", "type", "source", "time", "tenantId"],
    )
}

fn standing() -> Value {
    object(
        &json!({
            "cursor": {"type": "integer", "description": "Everything up to it is acknowledged."},
            "high_watermark": {"type": "integer", "description": "The highest `seq` there is."},
            "backlog": {"type": "integer", "description": "How many entries are unread."},
            "oldest_unread_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "When the oldest unread entry came.",
            },
        }),
        &["cursor", "high_watermark", "backlog", "oldest_unread_at"],
    )
}
