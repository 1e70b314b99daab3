//! What a message of RabbitMQ is: the payload as it is, the event's `ce-*` attributes as headers,
//! persistent. Its routing key: the subscription's, rendered.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use streaming_hub_model::attempt::Attempt;
use streaming_hub_model::event::Event;
use streaming_hub_model::sink_config::RabbitMqConfig;

use crate::trace_context::{is_traceparent, is_tracestate};

/// AMQP's number for a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;

/// The routing key of an event: the template with `{type}`, `{tenant}` and `{source}` replaced,
/// each by the event's own text, in which nothing is replaced again.
pub(super) fn routing_key(config: &RabbitMqConfig, event: &Event) -> String {
    let mut key = String::with_capacity(64);
    let mut rest = config.routing_key.as_str();
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        key.push_str(before);
        let Some(close) = from.find('}') else {
            rest = from;
            break;
        };
        match &from[1..close] {
            "type" => key.push_str(&event.key()),
            "tenant" => key.push_str(event.tenant.as_str()),
            "source" => key.push_str(event.header("ce-source").unwrap_or_default()),
            // The API admits no other name; what it did not write stays as it is.
            _ => key.push_str(&from[..=close]),
        }
        rest = &from[close + 1..];
    }
    key.push_str(rest);
    key
}

/// Properties and headers of the message.
pub(super) fn properties(attempt: &Attempt) -> BasicProperties {
    let event = &*attempt.event;
    let mut headers = FieldTable::default();
    for (name, value) in event.attributes() {
        // As receivers know it, whatever the producer's spelling.
        let value = if name == "id" { event.id.to_string() } else { value.to_owned() };
        put(&mut headers, format!("ce-{name}"), value);
    }
    put(&mut headers, "tenant-id".to_owned(), event.tenant.to_string());
    put(&mut headers, "event-type".to_owned(), event.key());
    let delivery = attempt.delivery_id.as_hyphenated().to_string();
    put(&mut headers, "delivery-id".to_owned(), delivery);
    if let Some(parent) = event.header("traceparent").filter(|text| is_traceparent(text)) {
        put(&mut headers, "traceparent".to_owned(), parent.to_owned());
        if let Some(state) = event.header("tracestate").filter(|text| is_tracestate(text)) {
            put(&mut headers, "tracestate".to_owned(), state.to_owned());
        }
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
        .with_timestamp(attempt.at.seconds().unsigned_abs());
    // A property holds 255 bytes; the header of the same meaning holds any length.
    let content_type = event.header("ce-datacontenttype").unwrap_or("application/json");
    if let Ok(content_type) = ShortString::try_new(content_type) {
        properties = properties.with_content_type(content_type);
    }
    if let Ok(id) = ShortString::try_new(event.id.to_string()) {
        properties = properties.with_message_id(id);
    }
    if let Ok(kind) = ShortString::try_new(event.key()) {
        properties = properties.with_type(kind);
    }
    properties
}

/// Adds a header; a name that no header can have is left out.
fn put(headers: &mut FieldTable, name: String, value: String) {
    if let Ok(name) = ShortString::try_new(name) {
        headers.insert(name, AMQPValue::LongString(LongString::from(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attempt;
    use streaming_hub_model::secret::Sealed;
    use streaming_hub_model::sink_config::VerifyWith;

    fn rendered(template: &str, headers: &[(&str, &str)]) -> String {
        let config = RabbitMqConfig {
            host: "mq.example.com".into(),
            port: 5671,
            tls: true,
            vhost: "/".into(),
            exchange: "events".into(),
            routing_key: template.into(),
            username: "hub".into(),
            password: Sealed { key_id: "k".into(), data: String::new() },
            ca_pem: None,
            server_name: None,
            verify_with: VerifyWith::Lookup,
        };
        routing_key(&config, &attempt(headers, b"").event)
    }

    #[test]
    fn a_routing_key_is_rendered_once_from_type_tenant_and_source() {
        let headers =
            [("ce-source", "ledger"), ("ce-resourcetype", "account"), ("ce-eventtype", "{tenant}")];
        assert_eq!(rendered("fixed.key", &headers), "fixed.key");
        assert_eq!(rendered("{tenant}.{source}.{type}", &headers), "acme.ledger.account.{tenant}");
        assert_eq!(rendered("a{b}c{", &headers), "a{b}c{");
        assert_eq!(rendered("", &headers), "");
    }

    #[test]
    fn a_message_is_persistent_and_carries_every_attribute() {
        let long = "x".repeat(256);
        let headers = [("ce-source", "ledger"), ("ce-datacontenttype", &*long), ("ce-sig", "s")];
        let properties = properties(&attempt(&headers, b""));
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert_eq!(*properties.content_type(), None, "it does not fit");
        let headers = properties.headers().clone().unwrap();
        for name in [
            "ce-id",
            "ce-source",
            "ce-specversion",
            "ce-sig",
            "ce-datacontenttype",
            "tenant-id",
            "event-type",
            "delivery-id",
        ] {
            assert!(headers.contains_key(name), "{name}");
        }
        assert!(!headers.contains_key("traceparent"));
    }
}
