//! Entries read back as written and show every attribute; the cursor never goes back and never
//! beyond what exists; pages cross as the contract says.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::headers::HeaderRef;

const ID: &[u8] = b"01a0c450-6d12-7c2b-8128-9b05b624f924";

fn event<'a>(more: &[HeaderRef<'a>]) -> Vec<HeaderRef<'a>> {
    let mut all: Vec<HeaderRef<'a>> = vec![
        (b"ce-specversion", Some(b"1.0")),
        (b"ce-id", Some(ID)),
        (b"ce-source", Some(b"ledger")),
        (b"ce-type", Some(b"studio.lerian.ledger.account.created")),
        (b"ce-time", Some(b"2026-01-02T03:04:05.678Z")),
        (b"ce-schemaversion", Some(b"1.2.0")),
        (b"ce-resourcetype", Some(b"account")),
        (b"ce-eventtype", Some(b"created")),
        (b"ce-tenantid", Some(b"acme")),
        (b"hub-id", Some(ID)),
        (b"hub-tenant", Some(b"acme")),
    ];
    all.extend_from_slice(more);
    all
}

#[test]
fn an_entry_shows_every_attribute_of_the_envelope_and_nothing_of_the_hub() {
    let all = event(&[
        (b"ce-subject", Some("a \"b\" \u{1f600}".as_bytes())),
        (b"ce-datacontenttype", Some(b"application/json")),
        (b"ce-dataschema", Some(b"https://example.com/s")),
        (b"traceparent", Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        (b"tracestate", Some(b"a=b")),
        (b"baggage", Some(b"tenant=secret")),
        (b"ce-sig", Some(b"abc")),
        (b"ce-bytes", Some(b"\xff")),
        (b"hub-arrival", Some(b"5")),
    ]);
    let payload = br#"{"b":1.10,"a":2}"#;
    let rendered = render(7, Headers::new(&all), Embedding::Json, payload);
    let text = String::from_utf8(rendered).unwrap();
    assert!(text.starts_with("{\"seq\":7,\"ceId\":\"01a0c450-"), "{text}");
    assert!(text.ends_with(",\"payload\":{\"b\":1.10,\"a\":2}}"), "the same text: {text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "seq": 7,
        "ceId": "01a0c450-6d12-7c2b-8128-9b05b624f924",
        "type": "account.created",
        "ceType": "studio.lerian.ledger.account.created",
        "source": "ledger",
        "time": "2026-01-02T03:04:05.678Z",
        "subject": "a \"b\" \u{1f600}",
        "schemaVersion": "1.2.0",
        "resourceType": "account",
        "eventType": "created",
        "tenantId": "acme",
        "dataContentType": "application/json",
        "dataSchema": "https://example.com/s",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "extensions": {"sig": "abc"},
        "payload": {"b": 1.10, "a": 2},
    });
    assert_eq!(shown, expected);
}

#[test]
fn data_is_shown_as_json_only_when_type_and_bytes_say_so() {
    let json_bytes: &[u8] = b"{\"a\":1}";
    let table: [(Option<&str>, &[u8], Embedding); 8] = [
        (None, json_bytes, Embedding::Json),
        (Some("application/json"), json_bytes, Embedding::Json),
        (Some("application/vnd.a+json; v=1"), b"3", Embedding::Json),
        (Some("text/plain"), json_bytes, Embedding::Base64),
        (Some("nonsense"), json_bytes, Embedding::Base64),
        (None, b"{\"a\":1", Embedding::Base64),
        (None, b"\xef\xbb\xbf{}", Embedding::Base64),
        (Some("application/json"), b"", Embedding::Nothing),
    ];
    for (content_type, payload, expected) in table {
        assert_eq!(Embedding::of(content_type, payload), expected, "{content_type:?}");
    }
    let all = event(&[]);
    let shown = |embedding, payload: &[u8]| -> Value {
        serde_json::from_slice(&render(1, Headers::new(&all), embedding, payload)).unwrap()
    };
    let base64 = shown(Embedding::Base64, b"\x00\xff");
    assert_eq!((&base64["payload_base64"], base64.get("payload")), (&json!("AP8="), None));
    let nothing = shown(Embedding::Nothing, b"");
    assert_eq!((nothing.get("payload"), nothing.get("payload_base64")), (None, None));
}

#[test]
fn facts_read_back_as_written() {
    for embedding in [Embedding::Nothing, Embedding::Json, Embedding::Base64] {
        let facts = EntryFacts {
            subscription: SubscriptionId::from_parts(5, [3; 10]),
            matched: UnixMillis(9),
            table: 12,
            embedding,
        };
        let mut owned = facts.headers().to_vec();
        owned.push((internal::VERSION, "1".into()));
        let list: Vec<_> = owned.iter().map(|(n, v)| (n.as_bytes(), Some(v.as_bytes()))).collect();
        assert_eq!(EntryFacts::read(Headers::new(&list)), Ok(facts));
        let missing = EntryFacts::read(Headers::new(&list[1..]));
        assert_eq!(missing, Err(Error::Header(internal::SUBSCRIPTION)));
    }
}

#[test]
fn a_seq_is_base_and_offset_and_always_exact_in_javascript() {
    assert_eq!(seq(BASE_FIRST, 0), Some(1));
    assert_eq!(seq(BASE_FIRST, -1), None);
    let mut base = BASE_FIRST;
    let mut topics = 1;
    while let Some(next) = next_base(base) {
        let last = seq(base, BASE_STEP.cast_signed() - 1).unwrap();
        assert!(last < SEQ_LIMIT && seq(base, BASE_STEP.cast_signed()).is_none());
        assert!(last < seq(next, 0).unwrap(), "a new topic's entries are above all old ones");
        (base, topics) = (next, topics + 1);
    }
    assert_eq!(topics, 1024);
}

#[test]
fn the_cursor_moves_by_pages_and_forward_seeks_and_never_back() {
    let standing = Standing { cursor: 10, high: 20 };
    let ask = |after| Ask { after, limit: 5 };
    // after, page's last, begins behind, cursor afterwards
    let table = [
        (None, Some(15), 10, 15),
        (None, None, 10, 10),
        // A forward seek forfeits the gap, but nothing that does not exist yet.
        (Some(12), Some(17), 12, 17),
        (Some(12), None, 12, 12),
        (Some(20), None, 20, 20),
        (Some(1_000), None, 1_000, 20),
        // A backward seek reads an older page; the cursor moves as far as the page passes it.
        (Some(3), Some(8), 3, 10),
        (Some(8), Some(13), 8, 13),
        (Some(0), None, 0, 10),
    ];
    for (after, last, start, moved) in table {
        assert_eq!(standing.start(ask(after)), start, "{after:?}");
        assert_eq!(standing.moved(ask(after), last), moved, "{after:?} {last:?}");
    }
    let empty = Standing::default();
    assert_eq!(empty.moved(ask(Some(7)), None), 0);
}

fn page(entries: &[(u64, usize)], ask: Ask, bytes_max: usize) -> Page {
    let mut builder = PageBuilder::with_bytes_max(ask, bytes_max);
    for (seq, size) in entries {
        let entry = format!("{{\"seq\":{seq},\"x\":\"{}\"}}", "y".repeat(*size));
        if builder.push(*seq, entry.as_bytes()).is_break() {
            break;
        }
    }
    builder.finish()
}

#[test]
fn next_cursor_is_null_only_on_a_page_that_ended_for_want_of_entries() {
    let entries = [(3, 1), (5, 1), (9, 1)];
    let next =
        |limit, bytes_max| page(&entries, Ask { after: None, limit }, bytes_max).next_cursor();
    assert_eq!(next(4, 1_000), None);
    assert_eq!(next(3, 1_000), Some(9), "a full page, though it was the last");
    assert_eq!(next(2, 1_000), Some(5));
    assert_eq!(next(100, 50), Some(5), "cut by the byte budget");
    assert_eq!(next(100, 1), Some(3), "one entry is always served");
    assert_eq!(page(&[], Ask { after: None, limit: 1 }, 1).next_cursor(), None);
}

proptest! {
    #[test]
    fn reading_page_by_page_meets_every_entry_once_and_in_order(
        gaps in prop::collection::vec(1u64..5, 0..40),
        limit in 1usize..7, bytes_max in 1usize..400,
        sizes in prop::collection::vec(0usize..60, 40),
    ) {
        let mut seq = 0;
        let mut entries = Vec::new();
        for (gap, size) in gaps.iter().zip(sizes) {
            seq += gap;
            entries.push((seq, size));
        }
        let mut standing = Standing { cursor: 0, high: seq };
        let mut met = Vec::new();
        loop {
            let ask = Ask { after: None, limit };
            let start = standing.start(ask);
            let rest: Vec<_> = entries.iter().copied().filter(|(seq, _)| *seq > start).collect();
            let read = page(&rest, ask, bytes_max);
            standing.cursor = standing.moved(ask, read.last);
            let more = read.next_cursor();
            prop_assert!(read.count <= limit);
            prop_assert!(more.is_none() || more == read.last);
            let answer = read.into_answer(standing.cursor);
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            prop_assert_eq!(&answer["cursor"], &json!(standing.cursor));
            let events = answer["events"].as_array().unwrap();
            met.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
            if more.is_none() {
                break;
            }
        }
        prop_assert_eq!(met, entries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
    }

    #[test]
    fn the_cursor_is_monotonic_and_forfeits_nothing_that_does_not_exist(
        cursor in 0u64..50, above in 0u64..50, after in prop::option::of(0u64..200),
        last in prop::option::of(0u64..50),
    ) {
        let standing = Standing { cursor, high: cursor + above };
        let ask = Ask { after, limit: 1 };
        let last = last.filter(|last| (standing.start(ask) + 1..=standing.high).contains(last));
        let moved = standing.moved(ask, last);
        prop_assert!(moved >= cursor && moved <= standing.high);
        prop_assert!(last.is_none_or(|last| moved >= last));
        prop_assert_eq!(standing.moved(Ask { after: Some(moved), limit: 1 }, None), moved);
    }
}
