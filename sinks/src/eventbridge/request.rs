//! What an entry of EventBridge is: the event in CloudEvents' structured mode as the detail. A
//! payload that is JSON stands in it byte for byte; any other, and one that is nested deeper than
//! the service takes, is there as base64. How large it is, as the service counts: source, detail
//! type and detail.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;
use streaming_hub_model::event::Event;

/// The longest detail type, characters.
const DETAIL_TYPE_CHARS_MAX: usize = 128;
/// The deepest nesting of JSON that is embedded (contract section 5).
const DEPTH_MAX: usize = 128;
/// Members that structured mode reserves for the data.
const RESERVED: [&str; 2] = ["data", "data_base64"];

/// An entry, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) source: String,
    pub(super) detail_type: String,
    pub(super) detail: Arc<str>,
    /// Its size as the service counts.
    pub(super) bytes: usize,
}

/// The entry of an event.
pub(super) fn entry(event: &Event) -> Entry {
    let source = event.header("ce-source").unwrap_or_default().to_owned();
    let kind = event.header("ce-type").unwrap_or_default();
    let detail_type: String = kind.chars().take(DETAIL_TYPE_CHARS_MAX).collect();
    let detail = structured(event);
    let bytes = source.len() + detail_type.len() + detail.len();
    Entry { source, detail_type, detail: detail.into(), bytes }
}

/// The event in structured mode.
fn structured(event: &Event) -> String {
    let mut json = String::with_capacity(event.payload.len() + 1024);
    json.push('{');
    for (name, value) in event.attributes().filter(|(name, _)| !RESERVED.contains(name)) {
        match name {
            // As receivers know it, whatever the producer's spelling.
            "id" => member(&mut json, name, &event.id.to_string()),
            _ => member(&mut json, name, value),
        }
    }
    if !event.payload.is_empty() {
        match embedded(&event.payload) {
            Some(data) => _ = write!(json, "\"data\":{data}"),
            None => _ = write!(json, "\"data_base64\":\"{}\"", BASE64.encode(&event.payload)),
        }
    } else if json.ends_with(',') {
        json.pop();
    }
    json.push('}');
    json
}

fn member(json: &mut String, name: &str, value: &str) {
    // Writing to a text cannot fail, and a text is always JSON.
    let (name, value) = (serde_json::Value::from(name), serde_json::Value::from(value));
    let _ = write!(json, "{name}:{value},");
}

/// The payload as it stands, if it may stand in the detail.
fn embedded(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload).ok()?;
    if depth(text) > DEPTH_MAX || has_lone_surrogate(text) {
        return None;
    }
    serde_json::from_str::<&RawValue>(text).ok()?;
    Some(text)
}

/// How deep brackets and braces are nested, if it is JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether an escape names half of a character: legal by JSON's grammar, and refused or altered by
/// whoever decodes it.
fn has_lone_surrogate(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        match unit(escape) {
            Some(high) if (0xD800..0xDC00).contains(&high) => {
                let low = escape.get(5..).and_then(|next| next.strip_prefix('\\')).and_then(unit);
                if !low.is_some_and(|low| (0xDC00..0xE000).contains(&low)) {
                    return true;
                }
                rest = &escape[11..];
            }
            Some(low) if (0xDC00..0xE000).contains(&low) => return true,
            _ => {
                let mut after = escape.chars();
                after.next();
                rest = after.as_str();
            }
        }
    }
    false
}

/// The sixteen bits of an escape `uXXXX`.
fn unit(escape: &str) -> Option<u32> {
    u32::from_str_radix(escape.strip_prefix('u')?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attempt;
    use serde_json::json;

    fn detail(payload: &[u8]) -> String {
        entry(&attempt(&[("ce-source", "ledger"), ("ce-time", "t")], payload).event)
            .detail
            .to_string()
    }

    #[test]
    fn json_stands_in_the_detail_byte_for_byte() {
        for payload in ["{\"b\": 1.0,  \"a\":[1e400]}", "null", "\"\\ud83d\\ude00\"", " 1 ", "{}"] {
            let detail = detail(payload.as_bytes());
            assert!(detail.ends_with(&format!("\"data\":{payload}}}")), "{detail}");
        }
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_base64() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(detail(deep(128).as_bytes()).contains("\"data\":[["));
        let lone = br#""\ud83d""#;
        let (deep, text) = (deep(129), "{\"a\":1} x");
        for payload in [deep.as_bytes(), text.as_bytes(), b"\xff", b"01", lone, b"\"\\udc00\""] {
            let parsed: serde_json::Value = serde_json::from_str(&detail(payload)).unwrap();
            assert_eq!(parsed["data_base64"], json!(BASE64.encode(payload)));
            assert!(parsed.get("data").is_none());
        }
    }

    #[test]
    fn an_event_without_data_has_neither_member_and_is_json() {
        let parsed: serde_json::Value = serde_json::from_str(&detail(b"")).unwrap();
        assert!(parsed.get("data").is_none() && parsed.get("data_base64").is_none());
        assert_eq!(parsed["source"], "ledger");
        assert_eq!(parsed["specversion"], "1.0");
    }

    #[test]
    fn the_detail_type_is_cut_to_128_characters_and_the_size_is_counted() {
        let long = "é".repeat(200);
        let entry = entry(&attempt(&[("ce-type", &long), ("ce-source", "ledger")], b"1").event);
        assert_eq!(entry.detail_type.chars().count(), 128);
        assert_eq!(entry.bytes, "ledger".len() + 256 + entry.detail.len());
        assert!(entry.detail.contains(&long), "the whole type is in the detail");
    }
}
