//! What could not be accepted (contract section 1, "Verdicts"): listed by reason, source and time,
//! and shown byte for byte in Base64. Read from the log on request, within bounds.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use streaming_hub_model::internal;
use streaming_hub_model::stored::{Found, Log, Look, Query as Read, Start, StoredRecord};
use streaming_hub_model::time::UnixMillis;

use super::{Query, TIME, time};
use crate::auth::OperatorCaller;
use crate::forward::Inbound;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Entries of a page when the caller does not say, and at the most.
const LIMIT_DEFAULT: u64 = 100;
/// The most entries of a page.
pub(crate) const LIMIT_MAX: u64 = 1_000;
/// How long a read may take, milliseconds.
const WITHIN_MS: u64 = 5_000;
/// The most bytes that a page is made of; a record is at most some MiB.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// `GET /admin/quarantine`: by partition, then in the order of the log.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Query(mut query): Query,
) -> Result<Response, Problem> {
    let reason = query.take("reason", "a reason code", |text| Some(text.to_owned()));
    let source = query.take("source", "a topic or its last segment", |text| Some(text.to_owned()));
    let from = query.take("from", TIME, time);
    let to = query.take("to", TIME, time);
    let limit = query.integer("limit", 1, LIMIT_MAX).unwrap_or(LIMIT_DEFAULT);
    let cursor = query.take("cursor", "a `next_cursor` of this list", parse_cursor);
    query.finish(())?;
    let start = Start::Time(from.map_or(0, |from| from.0));
    let all = || (0..api.stored.partitions()).map(|partition| (partition, start)).collect();
    let judge = move |record: &StoredRecord| {
        if to.is_some_and(|to| record.timestamp_ms >= to.0) {
            return Look::Beyond;
        }
        let of_reason = reason.as_deref().is_none_or(|r| record.text(internal::REASON) == Some(r));
        let of_source = source.as_deref().is_none_or(|source| is_from(record, source));
        if of_reason && of_source { Look::Keep } else { Look::Skip }
    };
    let read = Read {
        log: Log::Quarantine,
        from: cursor.unwrap_or_else(all),
        judge: Arc::new(judge),
        records_max: usize::try_from(limit).unwrap_or(usize::MAX),
        bytes_max: BYTES_MAX,
        within_ms: within_ms(&inbound),
    };
    let Found { records, rest } = api.stored.read(read).await.map_err(unreadable)?;
    let entries: Vec<_> = records.iter().map(summary).collect();
    let next = (!rest.is_empty()).then(|| show_cursor(&rest));
    Ok(Json(json!({"quarantined": entries, "next_cursor": next})).into_response())
}

/// `GET /admin/quarantine/{entry}`.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Path(entry): Path<String>,
) -> Result<Response, Problem> {
    let (partition, offset) = parse_entry(&entry)
        .filter(|(partition, _)| (0..api.stored.partitions()).contains(partition))
        .ok_or(Code::NotFound)?;
    let judge = move |record: &StoredRecord| {
        if record.offset == offset { Look::Last } else { Look::Beyond }
    };
    let read = Read {
        log: Log::Quarantine,
        from: vec![(partition, Start::Offset(offset))],
        judge: Arc::new(judge),
        records_max: 1,
        bytes_max: BYTES_MAX,
        within_ms: within_ms(&inbound),
    };
    let Found { records, rest } = api.stored.read(read).await.map_err(unreadable)?;
    match records.first() {
        Some(record) => Ok(Json(in_full(record)).into_response()),
        None if rest.is_empty() => Err(Code::NotFound.into()),
        // Out of time before it came.
        None => Err(Problem::timeout()),
    }
}

pub(crate) fn within_ms(inbound: &Inbound) -> u64 {
    u64::try_from(inbound.remaining().as_millis()).unwrap_or(u64::MAX).min(WITHIN_MS)
}

pub(crate) fn unreadable(error: streaming_hub_model::stored::Unreadable) -> Problem {
    Problem::from(Code::Unreadable).because(error.0)
}

/// Whether a record came from this topic, or from one whose name ends in this segment.
fn is_from(record: &StoredRecord, source: &str) -> bool {
    let topic = place_of(record).map_or("", |(topic, ..)| topic);
    topic == source || topic.rsplit('.').next() == Some(source)
}

/// Topic, partition and offset that a record was read from.
pub(crate) fn place_of(record: &StoredRecord) -> Option<(&str, &str, &str)> {
    let mut parts = record.text(internal::FROM)?.rsplitn(3, '/');
    let (offset, partition, topic) = (parts.next()?, parts.next()?, parts.next()?);
    Some((topic, partition, offset))
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

fn summary(record: &StoredRecord) -> Value {
    let from = place_of(record).map(|(topic, partition, offset)| {
        json!({
            "topic": topic,
            "partition": number(Some(partition)),
            "offset": number(Some(offset)),
        })
    });
    let time = |name| number(record.text(name)).map(|ms| UnixMillis(ms).to_rfc3339());
    json!({
        "id": format!("{}-{}", record.partition, record.offset),
        "reason": record.text(internal::REASON),
        "detail": record.text(internal::DETAIL),
        "from": from,
        "timestamp": time(internal::TIMESTAMP),
        "quarantined_at": time(internal::AT),
        "value_bytes": value_bytes(record),
        "value_kept": record.header(internal::VALUE_SHA256).is_none(),
    })
}

/// Size of the source's value; none for a null.
fn value_bytes(record: &StoredRecord) -> Option<i64> {
    let kept = record.value.as_ref().and_then(|value| i64::try_from(value.len()).ok());
    kept.or_else(|| number(record.text(internal::VALUE_BYTES)))
}

fn in_full(record: &StoredRecord) -> Value {
    let mut body = summary(record);
    // The hub's own headers stand last, from its format version on; a producer's of the same names
    // stand before and are shown as they came.
    let is_version = |(name, _): &(Vec<u8>, _)| name == internal::VERSION.as_bytes();
    let own = record.headers.iter().rposition(is_version).unwrap_or(record.headers.len());
    let encode = |bytes: &[u8]| BASE64.encode(bytes);
    let header = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        let text = value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        json!({
            "name": String::from_utf8_lossy(name),
            "name_base64": encode(name),
            "value": text,
            "value_base64": value.as_deref().map(encode),
        })
    };
    body["headers"] = record.headers[..own].iter().map(header).collect();
    body["key_base64"] = record.header(internal::KEY).map(encode).into();
    body["value_base64"] = record.value.as_deref().map(encode).into();
    if let Some(hash) = record.text(internal::VALUE_SHA256) {
        body["value_sha256"] = hash.into();
    }
    body
}

fn parse_entry(text: &str) -> Option<(i32, i64)> {
    let (partition, offset) = text.split_once('-')?;
    Some((partition.parse().ok()?, offset.parse().ok().filter(|offset| *offset >= 0)?))
}

fn parse_cursor(text: &str) -> Option<Vec<(i32, Start)>> {
    let place = |text| parse_entry(text).map(|(partition, at)| (partition, Start::Offset(at)));
    let places: Vec<_> = text.split('_').map(place).collect::<Option<_>>()?;
    // As many as there can be partitions.
    (places.len() <= 1_000 && places.iter().all(|(partition, _)| *partition >= 0)).then_some(places)
}

fn show_cursor(rest: &[(i32, i64)]) -> String {
    let places: Vec<_> = rest.iter().map(|(partition, at)| format!("{partition}-{at}")).collect();
    places.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let rest = [(0, 5), (7, 1_000)];
        let places = vec![(0, Start::Offset(5)), (7, Start::Offset(1_000))];
        assert_eq!(parse_cursor(&show_cursor(&rest)), Some(places));
        for text in ["", "-1", "1", "1-", "1-x", "-1-5", "1--5", "1-2_"] {
            assert_eq!(parse_cursor(text), None, "{text}");
        }
    }

    #[test]
    fn what_a_producer_named_like_the_hubs_own_headers_is_shown_as_its_own() {
        let header = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), Some(value.to_vec()));
        let record = StoredRecord {
            partition: 1,
            offset: 9,
            timestamp_ms: 5,
            key: None,
            headers: vec![
                header("hub-v", b"forged"),
                header("x", b"\xff"),
                header("hub-v", b"1"),
                header("hub-reason", b"bad_id"),
                header("hub-from", b"lerian.streaming.a/3/17"),
                (b"hub-key".to_vec(), None),
            ],
            value: Some(bytes::Bytes::from_static(b"\x00\xff")),
        };
        let body = in_full(&record);
        assert_eq!(body["headers"].as_array().unwrap().len(), 2);
        assert_eq!(body["headers"][1]["value"], Value::Null);
        assert_eq!(body["headers"][1]["value_base64"], "/w==");
        assert_eq!(body["key_base64"], Value::Null);
        assert_eq!(body["value_base64"], "AP8=");
        let from = json!({"topic": "lerian.streaming.a", "partition": 3, "offset": 17});
        assert_eq!((&body["reason"], &body["from"]), (&json!("bad_id"), &from));
        assert!(is_from(&record, "a") && is_from(&record, "lerian.streaming.a"));
        assert!(!is_from(&record, "streaming"));
    }
}
