//! Entries that real producers and their consumer wrote, and entries that nobody should.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::*;

type Owned = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn fixtures() -> Vec<(Place, Owned)> {
    let text = include_str!("../../../fixtures/real-records.jsonl");
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let dlq = records.filter(|record| record["topic"].as_str().unwrap().ends_with(".dlq"));
    dlq.map(|record| {
        let place = Place {
            topic: record["topic"].as_str().unwrap().to_owned(),
            partition: i32::try_from(record["partition"].as_i64().unwrap()).unwrap(),
            offset: record["offset"].as_i64().unwrap(),
        };
        let header = |pair: &Value| {
            let value = pair[1].as_str().map(|text| BASE64.decode(text).unwrap());
            (pair[0].as_str().unwrap().as_bytes().to_vec(), value)
        };
        (place, record["headers"].as_array().unwrap().iter().map(header).collect())
    })
    .collect()
}

fn read(place: &Place, owned: &Owned) -> (Summary, Details) {
    let refs: Vec<_> = owned.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect();
    let headers = Headers::new(&refs);
    (summary(place.clone(), UnixMillis(7), headers), details(headers))
}

fn made(headers: &[(&str, &[u8])]) -> (Summary, Details) {
    let owned: Owned =
        headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), Some(v.to_vec()))).collect();
    let place = Place { topic: "lerian.streaming.a.dlq".into(), partition: 0, offset: 0 };
    read(&place, &owned)
}

#[test]
fn every_entry_that_real_writers_wrote_is_read() {
    use Content::{Command, Fact, SystemEvent, Unreadable};
    use Writer::{Consumer, Producer};
    let found: Vec<_> = fixtures()
        .iter()
        .map(|(place, owned)| {
            let (summary, _) = read(place, owned);
            (summary.application, summary.writer, summary.cause, summary.content)
        })
        .collect();
    let wanted = [
        ("loans", Producer, "topic_not_found", Fact),
        ("loans", Producer, "topic_not_found", Command),
        ("reports", Producer, "serialization_error", Fact),
        ("reports", Producer, "serialization_error", SystemEvent),
        ("reports", Producer, "serialization_error", Fact),
        ("reports", Producer, "serialization_error", Fact),
        ("settlements", Producer, "broker_unavailable", Fact),
        ("crm", Consumer, "handler", Fact),
        ("crm", Consumer, "handler", Fact),
        ("crm", Consumer, "codec", Unreadable),
        ("crm", Consumer, "codec", Unreadable),
        ("crm", Consumer, "codec", Unreadable),
        ("crm", Consumer, "source_mismatch", Fact),
        ("crm", Consumer, "codec", Unreadable),
    ];
    let sorted = |mut all: Vec<(String, Writer, String, Content)>| {
        all.sort();
        all
    };
    let wanted = wanted.map(|(a, w, cause, c)| (a.to_owned(), w, cause.to_owned(), c)).to_vec();
    assert_eq!(sorted(found), sorted(wanted));
}

#[test]
fn a_quarantine_shows_its_place_and_group_and_no_error_class() {
    let all = fixtures();
    let (place, owned) =
        all.iter().find(|(p, _)| p.topic.contains("crm") && p.offset == 2).unwrap();
    let (summary, details) = read(place, owned);
    assert_eq!(summary.source_topic.as_deref(), Some("lerian.streaming.lender"));
    assert_eq!(summary.source.as_deref(), Some("lender"), "another application's");
    assert!(summary.payload_omitted);
    assert_eq!(details.payload_bytes, Some(1_010_000));
    assert_eq!(details.error_class, None, "broker_unavailable means nothing there");
    assert_eq!(details.consumer_group.as_deref(), Some("crm-lender-events"));
    assert_eq!(details.producer_id, None);
    assert_eq!((details.source_partition, details.source_offset), (Some(0), Some(3)));
    assert_eq!(details.error_message.as_deref(), Some("archive store refused"));
}

#[test]
fn a_producers_copy_shows_its_class_and_no_count_of_retries_when_it_says_0() {
    let all = fixtures();
    let (place, owned) = all.iter().find(|(p, _)| p.topic.contains("settlements")).unwrap();
    let (summary, details) = read(place, owned);
    assert_eq!(details.error_class.as_deref(), Some("broker_unavailable"));
    assert_eq!(details.retry_count, None);
    assert!(details.producer_id.is_some() && details.consumer_group.is_none());
    assert!(summary.tenant.is_some() && summary.event_id.is_some());
    let (_, counted) = made(&[(RETRY_COUNT, b"3")]);
    assert_eq!(counted.retry_count, Some(3));
}

#[test]
fn whatever_stands_there_is_an_entry() {
    let (summary, details) = made(&[]);
    assert_eq!((summary.cause.as_str(), summary.content), (UNKNOWN, Content::Unreadable));
    assert_eq!((summary.source_topic, details.error_message), (None, None));
    let long = vec![b'm'; 100_000];
    let (summary, details) = made(&[
        (CAUSE_KIND, b"\xff\xfe"),
        (ERROR_MESSAGE, &long),
        (SOURCE_TOPIC, &long),
        (SOURCE_OFFSET, b"-1x"),
        (RETRY_COUNT, b"many"),
    ]);
    assert_eq!(summary.writer, Writer::Consumer);
    assert_eq!(summary.source_topic.unwrap().len(), NAME_BYTES_MAX);
    assert_eq!(details.error_message.unwrap().len(), MESSAGE_BYTES_MAX);
    assert_eq!((details.source_offset, details.retry_count), (None, None));
}

#[test]
fn a_cause_that_is_new_has_no_label_of_its_own() {
    assert_eq!(label("codec"), "codec");
    assert_eq!(label("handler-of-tenant-17"), "other");
    assert!(KNOWN_CAUSES.is_sorted());
    assert_eq!(application("lerian.streaming.a.b.dlq"), "a.b");
}
