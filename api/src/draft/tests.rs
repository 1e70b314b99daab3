//! The body of a creation: bounds of every field, and all errors at once.

mod sinks;

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use streaming_hub_model::event_key::KeyPattern;

use super::Purpose;
use super::{Draft, SinkDraft};
use crate::fields::{Fault, Place};
use crate::testing::{GIVEN, body, full_body};

const TYPES_MAX: usize = 3;

fn parse(body: Value) -> Result<Draft, Vec<(String, Fault)>> {
    Draft::parse(body, TYPES_MAX, Purpose::Create).map_err(|errors| {
        let flat = errors.into_iter().map(|error| match error.place {
            Place::Pointer(at) | Place::Parameter(at) => (at, error.code),
        });
        flat.collect()
    })
}

/// The body with one member (by JSON pointer below the root or below `sink`) set.
fn with(pointer: &str, value: &Value) -> Value {
    let mut body = body();
    match pointer.strip_prefix("/sink/") {
        Some(name) => body["sink"][name] = value.clone(),
        None => body[&pointer[1..]] = value.clone(),
    }
    body
}

#[test]
fn the_smallest_body_has_the_defaults_of_the_contract() {
    let draft = parse(body()).unwrap();
    assert_eq!((draft.schema_major, draft.enabled, draft.max_in_flight), (1, true, 1));
    assert_eq!((&draft.origin, &draft.retry_schedule, draft.verify), (&None, &None, false));
    let SinkDraft::Webhook { secret, .. } = draft.sink else { panic!("no webhook") };
    assert!(secret.is_none());
}

#[test]
fn every_field_is_taken() {
    let draft = parse(full_body()).unwrap();
    assert_eq!(draft.name, "accounts of the ledger");
    let types = ["account.created", "transfer.*"].map(|text| KeyPattern::parse(text).unwrap());
    assert_eq!(draft.event_types, types);
    assert_eq!(draft.origin.as_deref(), Some("//lerian.midaz/ledger"));
    assert_eq!((draft.schema_major, draft.enabled, draft.max_in_flight), (2, false, 64));
    assert_eq!(draft.retry_schedule.map(Vec::from), Some(vec![0, 5000, 36_000_000]));
    let SinkDraft::Webhook { url, secret } = draft.sink else { panic!("no webhook") };
    assert_eq!(url, "https://example.com:8443/a?b=c");
    assert_eq!(secret.unwrap().expose_secret(), GIVEN);
}

#[test]
fn each_field_has_its_bounds() {
    use Fault::{Duplicate, Invalid, OutOfRange, Required, TooLong, TooShort, WrongType};
    let types = |types: &[&str]| json!(types);
    let table = [
        ("/name", json!("n".repeat(200)), None),
        ("/name", json!("ç".repeat(200)), None),
        ("/name", json!("n".repeat(201)), Some(("/name", TooLong))),
        ("/name", json!(""), Some(("/name", TooShort))),
        ("/name", json!("a\u{7}"), Some(("/name", Invalid))),
        ("/name", json!(null), Some(("/name", Required))),
        ("/event_types", types(&["*"]), None),
        ("/event_types", types(&[]), Some(("/event_types", TooShort))),
        ("/event_types", types(&["a.b"; 4]), Some(("/event_types", TooLong))),
        ("/event_types", types(&["a.b", "a.b"]), Some(("/event_types/1", Duplicate))),
        ("/event_types", types(&["a.b", "a"]), Some(("/event_types/1", Invalid))),
        ("/event_types", types(&["*.b"]), Some(("/event_types/0", Invalid))),
        ("/event_types", json!(["a.b", 7]), Some(("/event_types/1", WrongType))),
        ("/event_types", json!("a.b"), Some(("/event_types", WrongType))),
        ("/origin", json!("ledger"), None),
        ("/origin", json!("o".repeat(223)), None),
        ("/origin", json!("o".repeat(224)), Some(("/origin", TooLong))),
        ("/origin", json!(""), Some(("/origin", TooShort))),
        ("/schema_major", json!(0), None),
        ("/schema_major", json!(65_535), None),
        ("/schema_major", json!(65_536), Some(("/schema_major", OutOfRange))),
        ("/schema_major", json!("1"), Some(("/schema_major", WrongType))),
        ("/enabled", json!(1), Some(("/enabled", WrongType))),
        ("/max_in_flight", json!(0), Some(("/max_in_flight", OutOfRange))),
        ("/max_in_flight", json!(65), Some(("/max_in_flight", OutOfRange))),
        ("/retry_schedule", json!(vec![0; 12]), None),
        ("/retry_schedule", json!(vec![0; 13]), Some(("/retry_schedule", TooLong))),
        ("/retry_schedule", json!([]), Some(("/retry_schedule", TooShort))),
        ("/retry_schedule", json!([1, 36_000_001]), Some(("/retry_schedule/1", OutOfRange))),
        ("/retry_schedule", json!([1, -1]), Some(("/retry_schedule/1", OutOfRange))),
        ("/retry_schedule", json!([1.5]), Some(("/retry_schedule/0", WrongType))),
        ("/sink", json!("webhook"), Some(("/sink", WrongType))),
        ("/sink", json!(null), Some(("/sink", Required))),
        ("/sink/type", json!("carrier-pigeon"), Some(("/sink/type", Invalid))),
        ("/sink/type", json!(null), Some(("/sink/type", Required))),
        ("/sink/url", json!(null), Some(("/sink/url", Required))),
        ("/sink/secret", json!("s".repeat(24)), None),
        ("/sink/secret", json!("s".repeat(23)), Some(("/sink/secret", TooShort))),
        ("/sink/secret", json!("s".repeat(513)), Some(("/sink/secret", TooLong))),
        ("/sink/secret", json!("s ".repeat(12)), Some(("/sink/secret", Invalid))),
        ("/sink/secret", json!("ç".repeat(24)), Some(("/sink/secret", Invalid))),
        ("/sink/secret", json!(17), Some(("/sink/secret", WrongType))),
        ("/verify", json!(false), None),
        ("/verify", json!("yes"), Some(("/verify", WrongType))),
    ];
    for (pointer, value, wrong) in table {
        let wrong = wrong.map(|(pointer, fault)| vec![(pointer.to_owned(), fault)]);
        assert_eq!(parse(with(pointer, &value)).err(), wrong, "{pointer} = {value}");
    }
}

#[test]
fn a_webhook_url_is_kept_in_its_canonical_spelling() {
    let table = [
        ("https://Example.COM", Some("https://example.com/")),
        ("https://example.com:443/a/../b", Some("https://example.com/b")),
        ("https://bücher.example/ü", Some("https://xn--bcher-kva.example/%C3%BC")),
        // Whether the hub may call it is for the address guard to say.
        ("http://0x7f.1/", Some("http://127.0.0.1/")),
        ("ftp://example.com/", None),
        ("https://", None),
        ("/hook", None),
        ("https://example.com/#top", None),
        ("https://exa\tmple.com/", None),
        (" https://example.com/", None),
    ];
    for (text, canonical) in table {
        let draft = parse(with("/sink/url", &json!(text))).ok();
        let url = draft.and_then(|draft| match draft.sink {
            SinkDraft::Webhook { url, .. } => Some(url),
            _ => None,
        });
        assert_eq!(url.as_deref(), canonical, "{text}");
    }
    let long = format!("https://example.com/{}", "ü".repeat(1000));
    let wrong = vec![("/sink/url".to_owned(), Fault::TooLong)];
    assert_eq!(parse(with("/sink/url", &json!(long))).err(), Some(wrong));
}

#[test]
fn a_pull_sink_has_no_other_field_and_nothing_to_verify() {
    let mut body = body();
    body["sink"] = json!({"type": "pull"});
    assert!(matches!(parse(body.clone()).unwrap().sink, SinkDraft::Pull));
    body["verify"] = json!(true);
    let wrong = vec![("/verify".to_owned(), Fault::NotAllowed)];
    assert_eq!(parse(body.clone()).err(), Some(wrong));
    body["verify"] = json!(false);
    body["sink"]["url"] = json!("https://example.com/");
    let wrong = vec![("/sink/url".to_owned(), Fault::UnknownField)];
    assert_eq!(parse(body).err(), Some(wrong));
}

#[test]
fn verification_at_creation_needs_a_secret_that_the_receiver_knows() {
    let mut body = body();
    body["verify"] = json!(true);
    let wrong = vec![("/verify".to_owned(), Fault::NotAllowed)];
    assert_eq!(parse(body.clone()).err(), Some(wrong));
    body["sink"]["secret"] = json!(GIVEN);
    assert!(parse(body).unwrap().verify);
}

#[test]
fn one_error_hides_no_other() {
    let wrong = parse(json!({
        "nmae": "x",
        "event_types": ["a", "b.c", "b.c"],
        "schema_major": -1,
        "sink": {"type": "webhook", "url": "nowhere", "secret": "short", "sceret": 1},
        "max_in_flight": true,
    }))
    .unwrap_err();
    let wrong: Vec<_> = wrong.iter().map(|(pointer, fault)| (&**pointer, *fault)).collect();
    let expected = [
        ("/name", Fault::Required),
        ("/event_types/0", Fault::Invalid),
        ("/event_types/2", Fault::Duplicate),
        ("/schema_major", Fault::OutOfRange),
        ("/sink/url", Fault::Invalid),
        ("/sink/secret", Fault::TooShort),
        ("/sink/sceret", Fault::UnknownField),
        ("/max_in_flight", Fault::WrongType),
        ("/nmae", Fault::UnknownField),
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn neither_debug_output_nor_an_error_repeats_a_secret() {
    assert!(!format!("{:?}", parse(full_body()).unwrap()).contains(GIVEN));
    let mut body = full_body();
    for name in ["sceret", "type"] {
        body["sink"][name] = json!(GIVEN);
        let errors = Draft::parse(body.clone(), TYPES_MAX, Purpose::Create).unwrap_err();
        assert!(!serde_json::to_string(&errors).unwrap().contains(GIVEN), "{name}");
    }
}
