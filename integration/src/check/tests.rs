//! The checker against forged histories: the true one is without fault, each forgery is found.

use super::*;
use crate::api::Wanted;
use crate::facts::header;
use crate::signature;

const SECRET: &str = "whsec_of-a-test";

fn source(fact: Fact, offset: i64) -> Source {
    Source { fact: Arc::new(fact), partition: 0, offset, timestamp_ms: Some(5) }
}

/// An internal record of a source, with these headers behind the event's own.
fn record(topic: &str, source: &Source, key: &str, hubs: &[(&str, &str)]) -> Record {
    let mut headers = source.fact.travelling();
    headers.extend(hubs.iter().map(|(name, value)| header(name, value)));
    Record {
        topic: topic.to_owned(),
        partition: 0,
        offset: source.offset,
        timestamp_ms: 6,
        key: Some(key.as_bytes().to_vec()),
        headers,
        value: source.fact.value.clone(),
    }
}

fn event_headers(source: &Source) -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("hub-tenant", source.fact.text("ce-tenantid").unwrap().to_owned()),
        pair("hub-id", source.fact.id()),
        pair("hub-major", source.fact.major().to_string()),
        pair("hub-from", source.place()),
    ]
}

fn request(source: &Source, number: usize) -> Arc<Request> {
    let fact = &source.fact;
    let body = fact.value.clone().unwrap_or_default();
    let key =
        format!("{}.{}", fact.text("ce-resourcetype").unwrap(), fact.text("ce-eventtype").unwrap());
    let lines = [
        ("X-Webhook-Timestamp", "100".to_owned()),
        ("X-Webhook-Signature", signature::expected(SECRET, "100", &body)),
        ("X-Lerian-Event-Id", fact.id()),
        ("X-Lerian-Event-Type", key),
        ("X-Lerian-Tenant-Id", fact.text("ce-tenantid").unwrap().to_owned()),
        ("X-Lerian-Delivery-Id", format!("{number:036}")),
        ("X-Lerian-Schema-Version", "1.0.0".to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    let headers = lines.map(|(name, value)| (name.to_owned(), value.into_bytes())).to_vec();
    Arc::new(Request {
        at_ms: 100_000,
        method: "POST".to_owned(),
        target: "/t/all".to_owned(),
        headers,
        body,
    })
}

/// Three events, one of them twice, one malformed record, one subscriber, all as it should be.
fn truth() -> History {
    let id = |n: u8| format!("01a0c450-6d12-7c2b-8128-9b05b624f9{n:02}");
    let fact = |n| Fact::new("ledger", "t", &id(n), ("account", "created"));
    let bad = fact(9).without("ce-time").quarantined("missing_header");
    let sources: Vec<_> = [fact(1), fact(2), fact(3), fact(2), bad]
        .into_iter()
        .zip(0..)
        .map(|(fact, offset)| source(fact, offset))
        .collect();
    let (mut inbox, mut deliveries, mut requests) = (vec![], vec![], vec![]);
    for (number, source) in sources[..3].iter().enumerate() {
        let owned = event_headers(source);
        let mut hubs: Vec<_> = owned.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        inbox.push(record("inbox", source, &source.fact.id(), &hubs));
        hubs.push(("hub-subscription", "s-1"));
        deliveries.push(record("deliveries", source, &format!("job-{number}"), &hubs));
        requests.push(request(source, number));
    }
    let place = sources[4].place();
    let hubs = [
        ("hub-reason", "missing_header"),
        ("hub-from", &place),
        ("hub-timestamp", "5"),
        ("hub-key", "t"),
    ];
    let quarantine = vec![record("quarantine", &sources[4], &place, &hubs)];
    let subscriber = Subscriber {
        id: "s-1".to_owned(),
        secret: SECRET.to_owned(),
        path: "/t/all".to_owned(),
        wanted: Wanted::all("t", "all"),
        takes: true,
    };
    History {
        sources,
        subscribers: vec![subscriber],
        default_tenant: None,
        inbox,
        deliveries,
        quarantine,
        requests,
        delivered: Delivered::Once,
    }
}

fn with(forge: impl FnOnce(&mut History)) -> Vec<String> {
    let mut history = truth();
    forge(&mut history);
    history.faults()
}

fn swap_values(records: &mut [Record]) {
    let value = records[0].value.take();
    records[0].value = std::mem::replace(&mut records[1].value, value);
}

#[test]
fn a_true_history_is_without_fault_and_counted() {
    assert_eq!(truth().faults(), Vec::<String>::new());
    let counts = truth().counts();
    assert_eq!((counts.produced, counts.accepted, counts.events), (5, 4, 3));
    assert_eq!((counts.duplicates, counts.jobs), (1, 3));
    assert_eq!(counts.quarantined["missing_header"], 1);
}

#[test]
fn what_is_lost_is_found() {
    assert_ne!(with(|h| drop(h.inbox.pop())), Vec::<String>::new());
    assert_ne!(with(|h| drop(h.deliveries.pop())), Vec::<String>::new());
    assert_ne!(with(|h| drop(h.quarantine.pop())), Vec::<String>::new());
    assert_ne!(with(|h| drop(h.requests.pop())), Vec::<String>::new());
}

#[test]
fn what_is_doubled_is_found() {
    let double = |records: &mut Vec<Record>| records.push(records[0].clone());
    assert_ne!(with(|h| double(&mut h.inbox)), Vec::<String>::new());
    assert_ne!(with(|h| double(&mut h.deliveries)), Vec::<String>::new());
    assert_ne!(with(|h| double(&mut h.quarantine)), Vec::<String>::new());
    let again = |h: &mut History| h.requests.push(request(&h.sources[0], 7));
    assert_ne!(with(again), Vec::<String>::new());
    let allowed = with(|h| {
        again(h);
        h.delivered = Delivered::AtLeastOnce;
    });
    assert_eq!(allowed, Vec::<String>::new());
}

#[test]
fn what_is_swapped_is_found() {
    assert_ne!(with(|h| swap_values(&mut h.inbox)), Vec::<String>::new());
    assert_ne!(with(|h| swap_values(&mut h.deliveries)), Vec::<String>::new());
    let bodies = |h: &mut History| {
        let body = h.requests[0].body.clone();
        Arc::make_mut(&mut h.requests[0]).body = h.requests[1].body.clone();
        Arc::make_mut(&mut h.requests[1]).body = body;
    };
    assert_ne!(with(bodies), Vec::<String>::new());
}

#[test]
fn what_is_altered_is_found() {
    let header_of = |record: &mut Record| record.headers[0].1 = Some(b"2.0".to_vec());
    assert_ne!(with(|h| header_of(&mut h.inbox[0])), Vec::<String>::new());
    assert_ne!(with(|h| header_of(&mut h.deliveries[0])), Vec::<String>::new());
    assert_ne!(with(|h| header_of(&mut h.quarantine[0])), Vec::<String>::new());
    assert_ne!(with(|h| h.quarantine[0].value = None), Vec::<String>::new());
    assert_ne!(with(|h| h.subscribers[0].secret = "another".to_owned()), Vec::<String>::new());
    let line = |h: &mut History, number: usize, value: &[u8]| {
        Arc::make_mut(&mut h.requests[0]).headers[number].1 = value.to_vec();
    };
    for number in 0..8 {
        assert_ne!(with(|h| line(h, number, b"x")), Vec::<String>::new(), "line {number}");
    }
}

#[test]
fn what_nobody_asked_for_is_found() {
    let mut stranger = truth().inbox[0].clone();
    stranger.headers.push(header("hub-id", "another"));
    assert_ne!(with(|h| h.inbox.push(stranger)), Vec::<String>::new());
    let foreign = |h: &mut History| {
        let mut request = request(&h.sources[0], 8);
        Arc::make_mut(&mut request).target = "/another".to_owned();
        h.requests.push(request);
    };
    assert_ne!(with(foreign), Vec::<String>::new());
    let other_major = |h: &mut History| h.subscribers[0].wanted.schema_major = 2;
    assert_ne!(with(other_major), Vec::<String>::new());
}
