//! What a destination *is* (contract section 4, "Circuit breaker"): the canonical target of a
//! sink's configuration, and the host in it. A target may itself be a secret (a webhook's URL often
//! is), so it is hashed or kept in memory, never written to a log or a metric. The host may be
//! shown.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretBox};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::breaker::{Opening, Phase};
use crate::hex;
use crate::id::SubscriptionId;
use crate::subscription::SinkConfig;
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// Bytes of an id.
const ID_BYTES: usize = 16;

/// The key of the hash that names destinations.
#[derive(Debug)]
pub struct DestinationKey(SecretBox<[u8; 32]>);

impl DestinationKey {
    /// A key of these bytes.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(key)))
    }

    /// The id of a sink's destination.
    #[must_use]
    pub fn id(&self, sink: &SinkConfig) -> DestinationId {
        let mut id = [0; ID_BYTES];
        // HMAC takes a key of any length, so this never fails.
        if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.expose_secret()) {
            mac.update(sink.target().as_bytes());
            id.copy_from_slice(&mac.finalize().into_bytes()[..ID_BYTES]);
        }
        DestinationId(id)
    }
}

/// A destination's name in topics, logs and operators' answers: a keyed hash of its canonical
/// target, 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DestinationId([u8; ID_BYTES]);

impl DestinationId {
    /// Reads 32 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut id = [0; ID_BYTES];
        if text.len() != 2 * ID_BYTES {
            return None;
        }
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for DestinationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl From<DestinationId> for String {
    fn from(id: DestinationId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for DestinationId {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a destination's id is 32 lower-case hex digits")
    }
}

/// The value of a record of `<app>-destinations`: a tenant's destination whose breaker is open. Its
/// tombstone says that it is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationRecord {
    /// Whose.
    pub tenant: TenantId,
    /// Which destination.
    pub destination: DestinationId,
    /// The sink's type.
    pub sink: String,
    /// The host, which may be shown.
    pub host: String,
    /// How long it stays open, and how often it has opened in a row.
    #[serde(flatten)]
    pub opening: Opening,
    /// The delivery partition whose task says so.
    pub partition: i32,
    /// When, Unix milliseconds.
    pub at: UnixMillis,
}

impl DestinationRecord {
    /// The key of its record: the id has a fixed length, so no two tenants' keys meet.
    #[must_use]
    pub fn key(tenant: &TenantId, destination: DestinationId) -> String {
        format!("{destination}/{}", tenant.as_str())
    }

    /// Tenant and destination of a key.
    #[must_use]
    pub fn parse_key(key: &str) -> Option<(TenantId, DestinationId)> {
        let (destination, tenant) = key.split_once('/')?;
        Some((TenantId::parse(tenant).ok()?, DestinationId::parse(destination)?))
    }
}

/// The gate of a tenant's destination, as a delivery task that has one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateState {
    /// Whose.
    pub tenant: TenantId,
    /// Which destination.
    pub destination: DestinationId,
    /// The breaker's state at this moment.
    pub phase: Phase,
    /// While it is not closed: until when it is open, and how often it has opened in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Opening>,
    /// Until when the destination asked to be left alone, if that is still to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_until: Option<UnixMillis>,
    /// How many subscriptions of this task wait behind the gate.
    pub waiting: u64,
}

/// Since when a subscription's attempts have failed without a success between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanState {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The first failure.
    pub first: UnixMillis,
    /// The last one, to within ten minutes.
    pub last: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sink(value: serde_json::Value) -> SinkConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_destinations_id_depends_on_the_key_and_the_target_and_reads_back() {
        let webhook = |url| sink(json!({"type": "webhook", "url": url, "secrets": []}));
        let (one, other) = (DestinationKey::new([1; 32]), DestinationKey::new([2; 32]));
        let id = one.id(&webhook("https://example.com/a"));
        assert_eq!(id, one.id(&webhook("https://example.com/a")));
        assert_ne!(id, one.id(&webhook("https://example.com/b")));
        assert_ne!(id, other.id(&webhook("https://example.com/a")));
        assert_eq!(DestinationId::parse(&id.to_string()), Some(id));
        for bad in ["", "00", &id.to_string().to_uppercase(), &format!("{id}0")] {
            assert_eq!(DestinationId::parse(bad).filter(|_| bad.len() != 32), None);
        }
        let tenant = TenantId::parse("a/b").unwrap();
        let key = DestinationRecord::key(&tenant, id);
        assert_eq!(DestinationRecord::parse_key(&key), Some((tenant, id)));
    }

    #[test]
    fn the_record_of_an_open_breaker_is_pinned() {
        let id = DestinationId([0xab; 16]);
        let record = DestinationRecord {
            tenant: TenantId::parse("acme").unwrap(),
            destination: id,
            sink: "webhook".into(),
            host: "example.com".into(),
            opening: Opening { until: UnixMillis(30), openings: 2 },
            partition: 5,
            at: UnixMillis(7),
        };
        let value = json!({
            "tenant": "acme", "destination": "ab".repeat(16), "sink": "webhook",
            "host": "example.com", "until": 30, "openings": 2, "partition": 5, "at": 7,
        });
        assert_eq!(serde_json::to_value(&record).unwrap(), value);
        assert_eq!(serde_json::from_value::<DestinationRecord>(value).unwrap(), record);
    }
}
