//! The producers' dead letters as an operator sees them (contract section 6): a list with filters
//! and counts, and one entry in full. Error messages and payloads may hold personal data: they are
//! shown to operators and never logged.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use streaming_hub_model::dlq::{Content, Entry, Filter, Page, Place, Summary, Writer};
use streaming_hub_model::ports::ProducerDeadLetters;
use streaming_hub_model::rfc3339;
use streaming_hub_model::time::UnixMillis;

use crate::auth::OperatorCaller;
use crate::problem::{Code, Problem};
use crate::query::{LIMIT_MAX, Parameters};
use crate::state::Api;

/// How many entries a page has when the caller does not say.
const LIMIT_DEFAULT: usize = 100;

/// What a list is asked for.
struct Asked {
    filter: Filter,
    cursor: Option<String>,
    limit: usize,
}

fn asked(query: &str) -> Result<Asked, Problem> {
    let mut own = Parameters::new(query);
    let text = |own: &mut Parameters, name: &str| {
        own.take(name, "a text that is not empty", |text| {
            (!text.is_empty()).then(|| text.to_owned())
        })
    };
    let time = |own: &mut Parameters, name: &str| {
        own.take(name, "an RFC 3339 time", |text| rfc3339::parse_millis(text).ok().map(UnixMillis))
    };
    let limit = own.integer("limit", 1, LIMIT_MAX as u64);
    let cause_kind = text(&mut own, "cause_kind");
    // No entry has both.
    let error_class = own.take("error_class", "given without cause_kind, not empty", |text| {
        (cause_kind.is_none() && !text.is_empty()).then(|| text.to_owned())
    });
    // A cause kind is a consumer's word, an error class a producer's.
    let writer = match (&cause_kind, &error_class) {
        (Some(_), _) => Some(Writer::Consumer),
        (None, Some(_)) => Some(Writer::Producer),
        (None, None) => own.take("writer", "producer or consumer", writer),
    };
    let filter = Filter {
        topic: text(&mut own, "topic"),
        application: text(&mut own, "application"),
        source_topic: text(&mut own, "source_topic"),
        source: text(&mut own, "source"),
        tenant: text(&mut own, "tenant"),
        writer,
        cause: cause_kind.or(error_class),
        content: own.take("content", "fact, command, system_event or unreadable", |text| {
            Content::ALL.into_iter().find(|content| content.as_str() == text)
        }),
        since: time(&mut own, "since"),
        until: time(&mut own, "until"),
    };
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT);
    let cursor = text(&mut own, "cursor");
    own.finish(Asked { filter, cursor, limit })
}

fn writer(text: &str) -> Option<Writer> {
    match text {
        "producer" => Some(Writer::Producer),
        "consumer" => Some(Writer::Consumer),
        _ => None,
    }
}

/// `GET /admin/dlq`.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let asked = asked(query.as_deref().unwrap_or_default())?;
    let found = port(&api)?.page(asked.filter, asked.cursor, asked.limit).await;
    let page = found.ok_or(Code::InvalidQuery)?;
    Ok(Json(page_json(&page)).into_response())
}

/// `GET /admin/dlq/{topic}/{partition}/{offset}`.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    path: Result<Path<(String, i32, i64)>, PathRejection>,
) -> Result<Response, Problem> {
    let Ok(Path((topic, partition, offset))) = path else { return Err(Code::NotFound.into()) };
    let place = Place { topic, partition, offset };
    let found = port(&api)?.entry(place).await;
    let entry = found.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(Json(entry_json(&entry.ok_or(Code::NotFound)?)).into_response())
}

/// What this instance has indexed, if it has the role `dlq`.
fn port(api: &Api) -> Result<&dyn ProducerDeadLetters, Problem> {
    let port = api.operator.producer_dlq.as_deref();
    port.ok_or_else(|| Problem::without_role("dlq"))
}

fn page_json(page: &Page) -> Value {
    json!({
        "entries": page.entries.iter().map(summary_json).collect::<Vec<_>>(),
        "next_cursor": page.next_cursor,
        "total": page.total,
        "by_cause": page.by_cause,
        "by_topic": page.by_topic,
        "complete": page.complete,
    })
}

fn summary_json(summary: &Summary) -> Value {
    let mut json = serde_json::to_value(summary).unwrap_or_default();
    json["at"] = summary.at.to_rfc3339().into();
    json
}

fn entry_json(entry: &Entry) -> Value {
    let mut json = summary_json(&entry.summary);
    let details = serde_json::to_value(&entry.details).unwrap_or_default();
    if let (Value::Object(json), Value::Object(details)) = (&mut json, details) {
        json.extend(details);
    }
    // A size that a writer says is that of what it left out; otherwise what is here counts.
    let bytes = entry.value.as_ref().map(|value| value.len() as u64);
    if let Some(bytes) = bytes.filter(|_| entry.details.payload_bytes.is_none()) {
        json["payload_bytes"] = bytes.into();
    }
    json["payload_base64"] = entry.value.as_ref().map(|value| BASE64.encode(value)).into();
    json["key_base64"] = entry.key.as_ref().map(|key| BASE64.encode(key)).into();
    json["headers"] = entry.headers.iter().map(header_json).collect();
    json
}

/// A value as text where it is text, otherwise in base64; none for a null.
fn header_json((name, value): &(Vec<u8>, Option<Vec<u8>>)) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), String::from_utf8_lossy(name).into());
    match value.as_deref().map(|value| (value, std::str::from_utf8(value))) {
        None => _ = json.insert("value".into(), Value::Null),
        Some((_, Ok(text))) => _ = json.insert("value".into(), text.into()),
        Some((bytes, Err(_))) => {
            json.insert("value_base64".into(), BASE64.encode(bytes).into());
        }
    }
    json.into()
}

#[cfg(test)]
mod tests {
    use streaming_hub_model::headers::Headers;
    use streaming_hub_model::{dlq, headers::HeaderRef};

    use super::*;

    #[test]
    fn filters_are_read_and_a_wrong_one_is_refused() {
        let asked = |query| asked(query).map(|asked| asked.filter);
        let filter = asked("cause_kind=codec&tenant=acme&since=2026-01-31T00:00:00Z").unwrap();
        assert_eq!(filter.cause.as_deref(), Some("codec"));
        assert_eq!(
            (filter.writer, filter.tenant.as_deref()),
            (Some(Writer::Consumer), Some("acme"))
        );
        assert!(filter.since.is_some() && filter.until.is_none());
        let filter = asked("error_class=topic_not_found").unwrap();
        assert_eq!(filter.writer, Some(Writer::Producer));
        for query in [
            "limit=0",
            "content=facts",
            "writer=me",
            "since=yesterday",
            "tenant=",
            "cause_kind=codec&error_class=topic_not_found",
            "offset=1",
        ] {
            let problem = asked(query).err();
            assert_eq!(problem.map(|p| p.code()), Some(Code::InvalidQuery), "{query}");
        }
    }

    #[test]
    fn an_entry_shows_every_header_and_the_size_of_what_was_left_out() {
        let headers: [HeaderRef<'_>; 4] = [
            (b"x-lerian-dlq-cause-kind", Some(b"codec")),
            (b"x-lerian-dlq-payload-bytes", Some(b"1010000")),
            (b"odd\xff", Some(b"\xfe")),
            (b"null", None),
        ];
        let place = Place { topic: "lerian.streaming.a.dlq".into(), partition: 1, offset: 2 };
        let view = Headers::new(&headers);
        let entry = Entry {
            summary: dlq::summary(place, UnixMillis(0), view),
            details: dlq::details(view),
            key: Some(b"k".to_vec()),
            headers: headers.iter().map(|(n, v)| (n.to_vec(), v.map(<[u8]>::to_vec))).collect(),
            value: None,
        };
        let json = entry_json(&entry);
        assert_eq!(json["payload_bytes"], 1_010_000);
        assert_eq!(json["payload_base64"], Value::Null);
        assert_eq!(json["headers"][2]["value_base64"], "/g==");
        assert_eq!(json["headers"][3], json!({ "name": "null", "value": null }));
        assert_eq!(
            (&json["topic"], &json["offset"]),
            (&json!("lerian.streaming.a.dlq"), &json!(2))
        );
        assert_eq!(json["at"], "1970-01-01T00:00:00.000Z");
    }
}
