//! Sinks other than webhooks in a body: what is canonical, what is refused, what a patch keeps.

use super::*;

fn sink(sink: &Value) -> Value {
    let mut body = body();
    body["sink"] = sink.clone();
    body
}

fn sqs() -> Value {
    json!({
        "type": "sqs",
        "queue_url": "https://SQS.eu-west-1.amazonaws.com/123456789012/orders.fifo",
        "credentials": {
            "mode": "keys", "access_key_id": "AKIA", "secret_access_key": "abc/+="
        },
    })
}

fn eventbridge() -> Value {
    json!({
        "type": "eventbridge",
        "event_bus": "arn:aws:events:eu-west-1:123456789012:event-bus/orders",
        "credentials": {"mode": "role", "role_arn": "arn:aws:iam::123456789012:role/hub"},
    })
}

fn rabbitmq() -> Value {
    json!({
        "type": "rabbitmq", "host": "MQ.example.com.", "exchange": "events",
        "routing_key": "{tenant}.{type}", "username": "hub", "password": "pw",
    })
}

/// Each with one member (a pointer below `sink`) set; the errors, if there are any.
fn errors(base: &Value, pointer: &str, value: &Value) -> Vec<(String, Fault)> {
    let mut changed = base.clone();
    match pointer.split_once('/') {
        Some((outer, inner)) => changed[outer][inner] = value.clone(),
        None => changed[pointer] = value.clone(),
    }
    parse(sink(&changed)).err().unwrap_or_default()
}

#[test]
fn each_type_is_read() {
    for whole in [sqs(), eventbridge(), rabbitmq()] {
        assert!(parse(sink(&whole)).is_ok(), "{whole}");
    }
    let other = parse(sink(&json!({"type": "kafka"}))).unwrap_err();
    assert_eq!(other, [("/sink/type".to_owned(), Fault::Invalid)]);
}

#[test]
fn each_field_has_its_rule_and_each_error_its_place() {
    use Fault::{Invalid, OutOfRange, Required, TooLong, TooShort, UnknownField, WrongType};
    let long = "x".repeat(256);
    let table: [(Value, &str, Value, Fault); 21] = [
        (sqs(), "queue_url", json!(null), Required),
        (sqs(), "queue_url", json!("https://example.com/1/q"), Invalid),
        (sqs(), "queue_url", json!("https://sqs.eu-west-1.amazonaws.com/"), Invalid),
        (sqs(), "region", json!("Europe"), Invalid),
        (sqs(), "endpoint", json!("ftp://x.example/"), Invalid),
        (sqs(), "credentials", json!(null), Required),
        (sqs(), "credentials/mode", json!("magic"), Invalid),
        (sqs(), "credentials/secret_access_key", json!(""), TooShort),
        (sqs(), "credentials/secret_access_key", json!(null), Required),
        (sqs(), "credentials/external_id", json!("mine"), UnknownField),
        (sqs(), "verify_with", json!("hope"), Invalid),
        (eventbridge(), "event_bus", json!("orders"), Invalid),
        (eventbridge(), "event_bus", json!("arn:aws:events:x:1:event-bus/b"), Invalid),
        (eventbridge(), "credentials/role_arn", json!("hub"), Invalid),
        (eventbridge(), "credentials/external_id", json!("mine"), UnknownField),
        (rabbitmq(), "host", json!("amqp://mq.example.com"), Invalid),
        (rabbitmq(), "port", json!(0), OutOfRange),
        (rabbitmq(), "tls", json!("yes"), WrongType),
        (rabbitmq(), "exchange", json!(long), TooLong),
        (rabbitmq(), "routing_key", json!("{payload}"), Invalid),
        (rabbitmq(), "password", json!(""), TooShort),
    ];
    for (base, pointer, value, fault) in table {
        let found = errors(&base, pointer, &value);
        assert_eq!(found, [(format!("/sink/{pointer}"), fault)], "{pointer} {value}");
    }
}

#[test]
fn a_queue_with_an_endpoint_of_its_own_says_its_region() {
    let mut own = sqs();
    own["queue_url"] = json!("http://localhost:5000/123456789012/q");
    own["endpoint"] = json!("http://localhost:5000/");
    let missing = vec![("/sink/region".to_owned(), Fault::Required)];
    assert_eq!(parse(sink(&own)).err(), Some(missing));
    own["region"] = json!("eu-west-1");
    assert!(parse(sink(&own)).is_ok());
}

#[test]
fn a_patch_keeps_the_secrets_that_it_does_not_give_again() {
    use crate::draft::Purpose;
    use streaming_hub_model::subscription::SinkConfig;
    let sealed = json!({"key_id": "k", "data": "at rest"});
    let stored: SinkConfig = serde_json::from_value(json!({
        "type": "sqs", "queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/q",
        "region": "eu-west-1",
        "credentials": {"mode": "keys", "access_key_id": "AKIA", "secret_access_key": sealed},
    }))
    .unwrap();
    let patched = |credentials: Value| {
        let mut merged = sqs();
        merged["credentials"] = credentials;
        let purpose = Purpose::Patch(&stored);
        Draft::parse(sink(&merged), TYPES_MAX, purpose).map_err(|errors| errors.len())
    };
    let draft = patched(json!({"mode": "keys", "access_key_id": "AKIA"})).unwrap();
    assert!(format!("{:?}", draft.sink).contains("Kept"), "{:?}", draft.sink);
    let rotated = json!({
        "mode": "keys", "access_key_id": "AKIA", "secret_access_key": "new",
    });
    assert!(!format!("{:?}", patched(rotated).unwrap().sink).contains("Kept"));
    let other_id = json!({"mode": "keys", "access_key_id": "OTHER"});
    assert_eq!(patched(other_id).err(), Some(1), "another key needs its own secret");
    let role = json!({
        "mode": "role", "access_key_id": "AKIA", "role_arn": "arn:aws:iam::123456789012:role/hub",
    });
    assert!(patched(role).is_ok(), "the former mode's fields are shown in a merged body");
}
