//! What the unit tests of several sinks start from; `server` is a receiver that keeps every byte.

pub(crate) mod server;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use streaming_hub_model::attempt::Attempt;
use streaming_hub_model::event::Event;
use streaming_hub_model::id::{EventId, JobId};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use uuid::Uuid;

/// An attempt to deliver this payload with these headers beside the id's and the version's.
pub(crate) fn attempt(headers: &[(&str, &str)], payload: &[u8]) -> Attempt {
    let sink = json!({"type": "webhook", "url": "https://example.com/", "secrets": []});
    attempt_at(sink, headers, payload)
}

/// The same to a sink.
pub(crate) fn attempt_at(sink: Value, headers: &[(&str, &str)], payload: &[u8]) -> Attempt {
    let id = EventId::parse("0198f3a2-11aa-7c3e-9d21-5b8f0c4de0aa").unwrap();
    let tenant = TenantId::parse("acme").unwrap();
    let mut all = vec![("ce-specversion".to_owned(), "1.0".to_owned())];
    all.push(("ce-id".to_owned(), id.to_string()));
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let subscription = serde_json::from_value(json!({
        "id": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", "tenant": "acme", "name": "accounts",
        "event_types": ["account.created"], "schema_major": 1, "sink": sink,
        "sink_generation": 1, "enabled": true, "verification_state": "active",
        "created_at": 1, "updated_at": 1, "version": 1,
    }));
    Attempt {
        job: JobId::from_bytes([0x88; 16]).unwrap(),
        delivery_id: Uuid::from_u128(0xABCD),
        subscription: Arc::new(subscription.unwrap()),
        event: Arc::new(Event::made(id, tenant, all, Bytes::copy_from_slice(payload))),
        at: UnixMillis(1_790_000_000_123),
    }
}
