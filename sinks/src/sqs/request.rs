//! What a message of SQS is: the payload as the body, encoded where the service could not carry it,
//! and the event's attributes. How large it is, as the service counts: the body and, of each
//! attribute, name, type and value.

use std::sync::Arc;

use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};
use streaming_hub_model::attempt::Attempt;
use streaming_hub_model::hex;

/// The only type of attribute that is sent.
const TYPE: &str = "String";
/// The longest group id.
const GROUP_CHARS_MAX: usize = 128;

/// Names how a body that is not the payload's own text is to be read.
const ENCODING: &str = "payload-encoding";

/// A message, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    body: String,
    attributes: Arc<[(&'static str, String)]>,
    /// Group and deduplication id, of a FIFO queue's.
    fifo: Option<(String, String)>,
    /// Its size as the service counts.
    pub(super) bytes: usize,
}

/// The message of an attempt.
pub(super) fn message(attempt: &Attempt, is_fifo: bool) -> Message {
    let event = &*attempt.event;
    let (body, encoding) = body(&event.payload);
    let header = |name| event.header(name).unwrap_or_default().to_owned();
    let mut attributes = vec![
        ("ce-id", event.id.to_string()),
        ("ce-source", header("ce-source")),
        ("ce-type", header("ce-type")),
        ("ce-time", header("ce-time")),
        ("ce-schemaversion", header("ce-schemaversion")),
        ("tenant-id", event.tenant.to_string()),
        ("delivery-id", attempt.delivery_id.as_hyphenated().to_string()),
        ("event-type", event.key()),
    ];
    attributes.extend(encoding.map(|encoding| (ENCODING, encoding.to_owned())));
    // The service refuses empty values, and the whole message for one that no XML can hold.
    attributes.retain(|(_, value)| !value.is_empty() && is_legal(value));
    let of_attribute = |(name, value): &(&str, String)| name.len() + TYPE.len() + value.len();
    let bytes = body.len() + attributes.iter().map(of_attribute).sum::<usize>();
    let fifo = is_fifo.then(|| (group(event.tenant.as_str()), attempt.job.to_string()));
    Message { body, attributes: attributes.into(), fifo, bytes }
}

impl Message {
    /// The same as an entry of a request, with its index for an id.
    pub(super) fn entry(&self, at: usize) -> Result<SendMessageBatchRequestEntry, BuildError> {
        let mut entry =
            SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(&self.body);
        for (name, value) in &*self.attributes {
            let value =
                MessageAttributeValue::builder().data_type(TYPE).string_value(value).build()?;
            entry = entry.message_attributes(*name, value);
        }
        if let Some((group, deduplication)) = &self.fifo {
            entry = entry.message_group_id(group).message_deduplication_id(deduplication);
        }
        entry.build()
    }
}

/// The body, and how it is to be read if it is not the payload itself.
fn body(payload: &[u8]) -> (String, Option<&'static str>) {
    if payload.is_empty() {
        return (" ".to_owned(), Some("empty"));
    }
    match std::str::from_utf8(payload) {
        Ok(text) if is_legal(text) => (text.to_owned(), None),
        _ => (BASE64.encode(payload), Some("base64")),
    }
}

/// Whether the service carries this text: the characters of XML 1.0.
fn is_legal(text: &str) -> bool {
    text.chars().all(|character| {
        matches!(character,
            '\t' | '\n' | '\r'
            | '\u{20}'..='\u{D7FF}'
            | '\u{E000}'..='\u{FFFD}'
            | '\u{10000}'..='\u{10FFFF}')
    })
}

/// The tenant, or its hash where the service would refuse it: up to 128 letters, digits and
/// punctuation of ASCII.
fn group(tenant: &str) -> String {
    if tenant.len() <= GROUP_CHARS_MAX && tenant.bytes().all(|byte| byte.is_ascii_graphic()) {
        return tenant.to_owned();
    }
    hex::encode(&Sha256::digest(tenant.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attempt;

    #[test]
    fn a_payload_travels_as_its_own_text_or_by_a_named_encoding() {
        assert_eq!(body(b"{\"a\": 1}\r\n"), ("{\"a\": 1}\r\n".to_owned(), None));
        assert_eq!(body(b""), (" ".to_owned(), Some("empty")));
        assert_eq!(body(b" "), (" ".to_owned(), None));
        assert_eq!(body(b"\xff"), ("/w==".to_owned(), Some("base64")));
        for illegal in ["\0", "a\u{1}", "\u{FFFE}", "\u{FFFF}", "\u{b}"] {
            assert_eq!(body(illegal.as_bytes()).1, Some("base64"), "{illegal:?}");
        }
    }

    #[test]
    fn the_size_counts_body_names_types_and_values() {
        let attempt = attempt(&[("ce-source", "ledger")], b"\xff\xff\xff");
        let message = message(&attempt, false);
        let attributes: usize =
            message.attributes.iter().map(|(name, value)| name.len() + 6 + value.len()).sum();
        assert_eq!(message.bytes, 4 + attributes);
        assert!(message.attributes.contains(&("payload-encoding", "base64".to_owned())));
        assert!(message.attributes.len() <= 10);
        assert!(!message.attributes.iter().any(|(name, _)| *name == "ce-time"), "it is missing");
    }

    #[test]
    fn a_fifo_queues_message_is_grouped_by_tenant_and_known_by_its_job() {
        let attempt = attempt(&[], b"x");
        let fifo = message(&attempt, true).fifo.unwrap();
        assert_eq!(fifo, ("acme".to_owned(), attempt.job.to_string()));
        assert_eq!(message(&attempt, false).fifo, None);
    }

    #[test]
    fn a_tenant_that_the_service_would_refuse_is_hashed() {
        assert_eq!(group("acme.~!"), "acme.~!");
        for refused in ["a b", "é", &"x".repeat(129)] {
            assert_eq!(group(refused).len(), 64, "{refused}");
        }
        assert_eq!(group(&"x".repeat(128)).len(), 128);
    }
}
