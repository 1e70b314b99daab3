//! The document's schemas: those that every resource shares, and the list of all.

use serde_json::{Map, Value, json};

use super::{admin, events, process, sinks, subscriptions};
use crate::problem::Code;

/// What the document says of the API as a whole.
pub(crate) const ABOUT: &str = "\
Facts that applications publish to Kafka, delivered to the subscriptions of tenants. `/v1` is a \
tenant's, `/admin` is an operator's. Every error is an RFC 9457 problem with a stable `code`; \
every answer carries `X-Request-Id`.";

/// Every schema by its name. A resource adds its own list.
pub(crate) fn all() -> Map<String, Value> {
    let lists = [
        shared(),
        sinks::schemas(),
        subscriptions::schemas(),
        admin::schemas(),
        events::schemas(),
        process::schemas(),
    ];
    lists.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// A list of schemas with their names.
pub(crate) type Named = Vec<(&'static str, Value)>;

/// An object with these members; those in `required` are always there.
pub(crate) fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

/// The same of a request, where other members are refused.
pub(crate) fn closed(properties: &Value, required: &[&str]) -> Value {
    let mut schema = object(properties, required);
    schema["additionalProperties"] = false.into();
    schema
}

/// A moment in RFC 3339.
pub(crate) fn timestamp(about: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": about})
}

fn shared() -> Named {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let field_error = object(
        &json!({
            "pointer": {"type": "string", "description": "JSON pointer into the body."},
            "parameter": {"type": "string", "description": "Name of a query parameter or header."},
            "code": {"type": "string", "description": "What is wrong, for programs."},
            "message": {"type": "string", "description": "What is wrong, for people."},
        }),
        &["code", "message"],
    );
    let mut problem = object(
        &json!({
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "code": {"type": "string", "enum": codes, "description": "Stable; see docs/errors.md."},
            "detail": {"type": "string"},
            "errors": {"type": "array", "items": {"$ref": "#/components/schemas/FieldError"}},
            "missing": {"type": "array", "items": {"type": "string"}},
            "request_id": {"type": "string", "format": "uuid"},
        }),
        &["type", "title", "status", "code", "request_id"],
    );
    problem["description"] = "RFC 9457 problem details.".into();
    let health =
        object(&json!({"status": {"type": "string", "enum": ["alive", "ready"]}}), &["status"]);
    vec![("FieldError", field_error), ("Problem", problem), ("Health", health)]
}

/// How a problem of this code looks.
pub(crate) fn problem_example(code: Code) -> Value {
    json!({
        "type": format!("urn:streaming-hub:problem:{}", code.as_str()),
        "title": code.title(),
        "status": code.status().as_u16(),
        "code": code.as_str(),
        "request_id": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de0ff",
    })
}
