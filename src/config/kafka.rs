//! librdkafka properties from the configuration: handed to every client, except those that the hub
//! sets itself, because exactly-once processing rests on them. Invariant: what may be secret is
//! shown as a mask.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use serde::{Deserialize, Serialize, Serializer};

use super::values::MASK;

/// Properties that the configuration may not set, and what to do instead.
pub(super) const OWNED: &[(&str, &str)] = &[
    ("acks", "Exactly-once processing needs all replicas to acknowledge"),
    ("auto.offset.reset", "The hub starts at its committed positions; see ingest.start"),
    ("bootstrap.servers", "Set kafka.bootstrap_servers"),
    ("delivery.timeout.ms", "It follows runtime.transaction_timeout_ms"),
    ("enable.auto.commit", "Positions are committed in transactions only"),
    ("enable.auto.offset.store", "Positions are committed in transactions only"),
    ("enable.idempotence", "Exactly-once processing needs it"),
    ("group.id", "It derives from application_id"),
    ("group.instance.id", "It derives from application_id and instance_id"),
    ("group.protocol", "The hub is built on the classic protocol"),
    ("heartbeat.interval.ms", "Set runtime.heartbeat_interval_ms"),
    ("isolation.level", "The hub chooses it for each client"),
    ("max.poll.interval.ms", "Set runtime.max_poll_interval_ms"),
    ("message.max.bytes", "It follows ingest.payload_bytes_max"),
    ("message.timeout.ms", "It follows runtime.transaction_timeout_ms"),
    ("metadata.broker.list", "Set kafka.bootstrap_servers"),
    ("partition.assignment.strategy", "The hub is built on cooperative-sticky"),
    ("queue.buffering.max.kbytes", "Set runtime.producer_queue_kbytes"),
    ("queued.max.messages.kbytes", "Set runtime.fetch_queue_kbytes"),
    ("request.required.acks", "Exactly-once processing needs all replicas to acknowledge"),
    ("session.timeout.ms", "Set runtime.session_timeout_ms"),
    ("topic.metadata.refresh.interval.ms", "Set ingest.metadata_refresh_ms"),
    ("transaction.timeout.ms", "Set runtime.transaction_timeout_ms"),
    ("transactional.id", "It derives from application_id and instance_id"),
];

/// Whether a property's value is never shown.
pub(super) fn is_secret(property: &str) -> bool {
    const PARTS: [&str; 6] =
        ["password", "secret", "token", "key", "sasl.jaas", "sasl.oauthbearer.config"];
    !property.ends_with(".location") && PARTS.iter().any(|part| property.contains(part))
}

/// What librdkafka says against a property, without the value where that is secret.
pub(super) fn refusal(property: &str, value: &str) -> Option<String> {
    let error = ClientConfig::new().set(property, value).create_native_config().err()?;
    let text = match error {
        KafkaError::ClientConfig(_, description, _, _) => description,
        other => other.to_string(),
    };
    // A secret may stand in the text; a name that is unknown is the likelier error by far.
    let shown = !is_secret(property) || text.starts_with("No such configuration property");
    Some(if shown { text } else { "the value is not accepted".to_owned() })
}

/// Properties for every Kafka client of the hub, by name.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "BTreeMap<String, Scalar>")]
pub(crate) struct KafkaProperties(BTreeMap<String, String>);

impl KafkaProperties {
    /// Names and values, secrets in the clear.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn shown(&self) -> BTreeMap<&str, &str> {
        let mask = |(name, value)| (name, if is_secret(name) { MASK } else { value });
        self.iter().map(mask).collect()
    }
}

impl fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shown()).finish()
    }
}

impl Serialize for KafkaProperties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(serializer)
    }
}

impl From<BTreeMap<String, Scalar>> for KafkaProperties {
    fn from(properties: BTreeMap<String, Scalar>) -> Self {
        Self(properties.into_iter().map(|(name, value)| (name, value.into())).collect())
    }
}

/// A value as a file may write it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be text, a number or a boolean")]
enum Scalar {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl From<Scalar> for String {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Boolean(value) => value.to_string(),
            Scalar::Integer(value) => value.to_string(),
            Scalar::Float(value) => value.to_string(),
            Scalar::Text(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owned_property_exists_in_librdkafka_and_says_what_to_do() {
        for (property, instead) in OWNED {
            // A number fits most; a complaint about the value still proves the name.
            let refusal = refusal(property, "1000").unwrap_or_default();
            assert!(!refusal.starts_with("No such"), "{property}: {refusal}");
            assert!(!instead.is_empty());
        }
        assert!(OWNED.is_sorted());
    }

    #[test]
    fn properties_that_may_hold_a_secret_are_recognised() {
        let secret = [
            "sasl.password",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.password",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "sasl.jaas.config",
            "some.api.token",
        ];
        let open = ["sasl.username", "ssl.ca.location", "ssl.key.location", "security.protocol"];
        assert!(secret.iter().all(|name| is_secret(name)));
        assert!(!open.iter().any(|name| is_secret(name)));
    }

    #[test]
    fn a_refusal_of_a_secret_does_not_show_it() {
        assert_eq!(refusal("sasl.password", "x"), None);
        let open = refusal("security.protocol", "hunter2").unwrap();
        assert!(open.contains("hunter2"), "{open}");
        let unknown = refusal("sasl.passwort.secret", "hunter2").unwrap();
        assert!(unknown.contains("No such") && !unknown.contains("hunter2"), "{unknown}");
    }
}
