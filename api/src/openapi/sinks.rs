//! Schemas of a sink, one for each type: as it is asked for, with its credentials, and as it is
//! shown, without.

use serde_json::{Value, json};

use super::schemas::{Named, closed, object};
use super::subscriptions::secret;
use crate::draft::URL_BYTES_MAX;

/// Every schema of a sink.
pub(super) fn schemas() -> Named {
    vec![
        ("NewSink", one_of(&["NewWebhook", "NewSqs", "NewEventBridge", "NewRabbitMq", "Pull"])),
        ("NewWebhook", new_webhook()),
        ("NewSqs", new_sqs()),
        ("NewEventBridge", new_eventbridge()),
        ("NewRabbitMq", new_rabbitmq()),
        ("NewAwsCredentials", new_credentials()),
        ("Sink", one_of(&["Webhook", "Sqs", "EventBridge", "RabbitMq", "Pull"])),
        ("Webhook", object(&json!({"type": kind("webhook"), "url": url()}), &["type", "url"])),
        ("Sqs", sqs()),
        ("EventBridge", eventbridge()),
        ("RabbitMq", rabbitmq()),
        ("AwsCredentials", credentials()),
        // A log that its owner reads has no settings.
        ("Pull", closed(&json!({"type": kind("pull")}), &["type"])),
    ]
}

/// A sink in a patch: any of its fields. The type never changes.
pub(super) fn patched() -> Value {
    let mut all = [new_webhook(), new_sqs(), new_eventbridge(), new_rabbitmq()];
    for schema in &mut all {
        schema["required"] = json!([]);
        if schema["properties"].get("credentials").is_some() {
            schema["properties"]["credentials"] = json!({
                "type": "object", "description": "Any of their fields, or others of another mode.",
            });
        }
    }
    json!({"anyOf": all})
}

fn one_of(names: &[&str]) -> Value {
    let refs: Vec<_> =
        names.iter().map(|name| json!({"$ref": format!("#/components/schemas/{name}")})).collect();
    json!({"oneOf": refs})
}

fn kind(name: &str) -> Value {
    json!({"type": "string", "enum": [name]})
}

fn url() -> Value {
    json!({
        "type": "string", "format": "uri", "maxLength": URL_BYTES_MAX,
        "description": "Where events are POSTed: an https URL.",
    })
}

fn new_webhook() -> Value {
    closed(
        &json!({
            "type": kind("webhook"),
            "url": url(),
            "secret": secret("The signing secret; without one the hub makes it."),
        }),
        &["type", "url"],
    )
}

fn endpoint() -> Value {
    json!({
        "type": ["string", "null"], "format": "uri",
        "description": "Another endpoint than the region's.",
    })
}

fn verify_with() -> Value {
    json!({
        "type": ["string", "null"], "enum": ["lookup", "event", null],
        "description": "Verify by asking for the destination (default), or by a test event.",
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn new_sqs() -> Value {
    closed(
        &json!({
            "type": kind("sqs"),
            "queue_url": {"type": "string", "format": "uri", "description": "The queue's URL."},
            "region": {
                "type": ["string", "null"],
                "description": "The region, where the URL does not name it.",
            },
            "endpoint": endpoint(),
            "credentials": reference("NewAwsCredentials"),
            "verify_with": verify_with(),
        }),
        &["type", "queue_url", "credentials"],
    )
}

fn new_eventbridge() -> Value {
    closed(
        &json!({
            "type": kind("eventbridge"),
            "event_bus": {"type": "string", "description": "The bus's ARN."},
            "endpoint": endpoint(),
            "credentials": reference("NewAwsCredentials"),
            "verify_with": verify_with(),
        }),
        &["type", "event_bus", "credentials"],
    )
}

fn new_credentials() -> Value {
    let keys = closed(
        &json!({
            "mode": kind("keys"),
            "access_key_id": {"type": "string"},
            "secret_access_key": {"type": "string", "writeOnly": true},
            "session_token": {"type": ["string", "null"], "writeOnly": true},
        }),
        &["mode", "access_key_id", "secret_access_key"],
    );
    let role = closed(
        &json!({"mode": kind("role"), "role_arn": {"type": "string"}}),
        &["mode", "role_arn"],
    );
    let ambient = closed(&json!({"mode": kind("ambient")}), &["mode"]);
    json!({"oneOf": [keys, role, ambient]})
}

fn credentials() -> Value {
    let keys = object(
        &json!({"mode": kind("keys"), "access_key_id": {"type": "string"}}),
        &["mode", "access_key_id"],
    );
    let role = object(
        &json!({
            "mode": kind("role"),
            "role_arn": {"type": "string"},
            "external_id": {
                "type": "string", "readOnly": true,
                "description": "What the role's trust policy must demand; made by the hub.",
            },
        }),
        &["mode", "role_arn", "external_id"],
    );
    let ambient = object(&json!({"mode": kind("ambient")}), &["mode"]);
    json!({"oneOf": [keys, role, ambient]})
}

fn sqs() -> Value {
    object(
        &json!({
            "type": kind("sqs"),
            "queue_url": {"type": "string", "format": "uri"},
            "region": {"type": "string"},
            "endpoint": {"type": "string", "format": "uri"},
            "credentials": reference("AwsCredentials"),
            "verify_with": {"type": "string", "enum": ["lookup", "event"]},
        }),
        &["type", "queue_url", "region", "credentials", "verify_with"],
    )
}

fn eventbridge() -> Value {
    object(
        &json!({
            "type": kind("eventbridge"),
            "event_bus": {"type": "string"},
            "endpoint": {"type": "string", "format": "uri"},
            "credentials": reference("AwsCredentials"),
            "verify_with": {"type": "string", "enum": ["lookup", "event"]},
        }),
        &["type", "event_bus", "credentials", "verify_with"],
    )
}

fn new_rabbitmq() -> Value {
    let short = json!({"type": "string", "maxLength": 255});
    closed(
        &json!({
            "type": kind("rabbitmq"),
            "host": {"type": "string"},
            "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
            "tls": {"type": ["boolean", "null"], "description": "Default: true."},
            "vhost": {"type": ["string", "null"], "description": "Default: \"/\"."},
            "exchange": short,
            "routing_key": {
                "type": "string", "maxLength": 255,
                "description": "May hold {type}, {tenant} and {source}.",
            },
            "username": short,
            "password": {"type": "string", "minLength": 1, "writeOnly": true},
            "ca_pem": {
                "type": ["string", "null"],
                "description": "Certificates that are trusted instead of the machine's.",
            },
            "server_name": {
                "type": ["string", "null"],
                "description": "The certificate's name, where it is not the host.",
            },
            "verify_with": verify_with(),
        }),
        &["type", "host", "exchange", "routing_key", "username", "password"],
    )
}

fn rabbitmq() -> Value {
    let text = json!({"type": "string"});
    object(
        &json!({
            "type": kind("rabbitmq"),
            "host": text,
            "port": {"type": "integer"},
            "tls": {"type": "boolean"},
            "vhost": text,
            "exchange": text,
            "routing_key": text,
            "username": text,
            "ca_pem": text,
            "server_name": text,
            "verify_with": {"type": "string", "enum": ["lookup", "event"]},
        }),
        &[
            "type",
            "host",
            "port",
            "tls",
            "vhost",
            "exchange",
            "routing_key",
            "username",
            "verify_with",
        ],
    )
}
