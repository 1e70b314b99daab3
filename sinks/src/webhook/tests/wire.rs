//! What a receiver sees, byte by byte.

use sha2::{Digest, Sha256};

use super::*;
use crate::testing::server::{Received, Reply, Server, head};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// RFC 2104 by hand, so that the sink's own library does not check itself.
fn hmac_sha256(key: &[u8], message: &[u8]) -> String {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner.finalize());
    outer.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signature(secret: &str, body: &[u8]) -> String {
    let input = [b"v1:1790000000.", body].concat();
    format!("v1,sha256={}", hmac_sha256(secret.as_bytes(), &input))
}

/// What a receiver gets of this.
async fn received(draft: &Draft) -> Received {
    let server = Server::start(|_| Reply::keep(204)).await;
    let draft = Draft {
        tenant: draft.tenant,
        url: server.url(),
        generation: 1,
        secrets: draft.secrets.clone(),
        headers: draft.headers.clone(),
        payload: draft.payload.clone(),
    };
    let outcome = draft.deliver_by(&sink(WebhookSettings::default())).await;
    assert_eq!((outcome.status, outcome.excerpt.as_slice()), (Some(204), &b""[..]));
    assert!(is_delivered(&outcome), "{outcome:?}");
    server.request()
}

fn draft() -> Draft {
    Draft::new("")
}

#[tokio::test]
async fn a_request_consists_of_exactly_these_lines() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let mut draft = Draft::new(format!("http://hooks.test:{}/h?token=x#f", server.address.port()))
        .header("traceparent", TRACEPARENT)
        .header("tracestate", "rojo=1,congo=2")
        .header("baggage", "tenant=acme")
        .header("ce-sig", "abc")
        .header("hub-origin", "x");
    draft.secrets.push(("whsec_0", Some(AT.0 + 1)));
    assert!(is_delivered(&draft.deliver_by(&sink(WebhookSettings::default())).await));
    let body = b"{\"a\": 1}";
    let expected = [
        "POST /h?token=x HTTP/1.1".to_owned(),
        format!("User-Agent: streaming-hub/{}", env!("CARGO_PKG_VERSION")),
        "Content-Type: application/json".to_owned(),
        "Content-Length: 8".to_owned(),
        "X-Webhook-Timestamp: 1790000000".to_owned(),
        format!("X-Webhook-Signature: {}", signature("whsec_1", body)),
        format!("X-Webhook-Signature: {}", signature("whsec_0", body)),
        format!("X-Lerian-Event-Id: {EVENT_ID}"),
        "X-Lerian-Event-Type: account.created".to_owned(),
        "X-Lerian-Tenant-Id: acme".to_owned(),
        "X-Lerian-Delivery-Id: 00000000-0000-0000-0000-00000000abcd".to_owned(),
        "X-Lerian-Schema-Version: v2.1.0-rc.1".to_owned(),
        format!("Traceparent: {TRACEPARENT}"),
        "Tracestate: rojo=1,congo=2".to_owned(),
        "Accept: */*".to_owned(),
        format!("Host: hooks.test:{}", server.address.port()),
    ];
    let lines = server.request().lines();
    let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
    assert_eq!(lines, expected);
    assert_eq!(server.request().body(), body);
}

#[tokio::test]
async fn a_body_arrives_byte_by_byte_and_is_signed_as_it_is() {
    let binary: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let bodies: [&[u8]; 5] = [b"", b"\0", b"{ \"b\":1,\"a\" : 2 }\r\n\r\n", b"\xff\xfe", &binary];
    for body in bodies {
        let mut draft = draft();
        draft.payload = Bytes::copy_from_slice(body);
        let received = received(&draft).await;
        assert!(received.body() == body);
        assert_eq!(received.values("Content-Length"), [body.len().to_string()]);
        assert_eq!(received.values("X-Webhook-Signature"), [signature("whsec_1", body)]);
    }
}

#[tokio::test]
async fn secrets_valid_at_the_moment_sign_in_lines_of_their_own_newest_first() {
    let cases = [
        (vec![("new", None), ("old", Some(AT.0 + 1))], vec!["new", "old"]),
        (vec![("new", None), ("old", Some(AT.0))], vec!["new"]),
        (vec![("new", None), ("old", Some(AT.0 - 1))], vec!["new"]),
        (vec![("ключ-chave-ç", None)], vec!["ключ-chave-ç"]),
    ];
    for (secrets, signing) in cases {
        let mut draft = draft();
        draft.secrets = secrets;
        let expected: Vec<_> = signing.iter().map(|s| signature(s, b"{\"a\": 1}")).collect();
        assert_eq!(received(&draft).await.values("X-Webhook-Signature"), expected);
    }
}

#[tokio::test]
async fn without_a_usable_secret_nothing_is_sent() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let sink = sink(WebhookSettings::default());
    let mut draft = Draft::new(server.url());
    for secrets in [vec![], vec![("old", Some(AT.0))]] {
        draft.secrets = secrets;
        let outcome = draft.deliver_by(&sink).await;
        let expected = Outcome::not_attempted("the subscription has no valid signing secret");
        assert_eq!(outcome, expected);
    }
    // Sealed for another tenant.
    draft.secrets = vec![("stolen", None)];
    let stolen = draft.subscription().sink;
    draft.tenant = "other";
    let mut attempt = draft.build();
    attempt.subscription = Arc::new(Subscription { sink: stolen, ..draft.subscription() });
    let outcome = sink.attempt(attempt).await;
    assert!(matches!(outcome.result, AttemptResult::NotAttempted { .. }), "{outcome:?}");
    assert!(detail(&outcome).contains("does not open"), "{outcome:?}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_content_type_is_the_producers_own_if_a_header_can_hold_it() {
    let table = [
        (None, "application/json"),
        (Some(""), "application/json"),
        (
            Some("application/cloudevents+json; charset=UTF-8"),
            "application/cloudevents+json; charset=UTF-8",
        ),
        (Some("no media type at all"), "no media type at all"),
        (Some("texto/simples-ç"), "texto/simples-ç"),
        (Some("a\tb"), "a\tb"),
        (Some(" text/plain"), "application/octet-stream"),
        (Some("text/plain\t"), "application/octet-stream"),
        (Some("text/plain\r\nX-Evil: 1"), "application/octet-stream"),
        (Some("a\u{7f}"), "application/octet-stream"),
        (Some("a\0"), "application/octet-stream"),
    ];
    for (attribute, sent) in table {
        let draft = match attribute {
            Some(text) => draft().header("ce-datacontenttype", text),
            None => draft(),
        };
        assert_eq!(received(&draft).await.values("Content-Type"), [sent], "{attribute:?}");
    }
}

#[tokio::test]
async fn values_that_are_not_ascii_go_as_their_utf8_bytes() {
    let mut draft = draft()
        .tenant("São João")
        .header("ce-resourcetype", "Conta Corrente")
        .header("ce-eventtype", "transação/\u{a0}状態");
    draft.headers.retain(|(name, _)| name != "ce-schemaversion");
    let received = received(&draft).await;
    assert_eq!(received.values("X-Lerian-Event-Type"), ["Conta Corrente.transação/\u{a0}状態"]);
    assert_eq!(received.values("X-Lerian-Tenant-Id"), ["São João"]);
    assert!(received.values("X-Lerian-Schema-Version").is_empty());
}

#[tokio::test]
async fn a_value_that_no_header_can_hold_is_a_failure_that_names_the_header() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let draft = Draft::new(server.url()).header("ce-eventtype", "a\r\nX-Evil: 1");
    let outcome = draft.deliver_by(&sink(WebhookSettings::default())).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Protocol));
    assert_eq!(detail(&outcome), "the value of x-lerian-event-type cannot be sent as a header");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn only_a_valid_trace_context_is_passed_on() {
    let table = [
        (Some(TRACEPARENT), Some("a=b"), 1, 1),
        (Some(TRACEPARENT), Some("a=b=c"), 1, 0),
        (Some(TRACEPARENT), None, 1, 0),
        (Some("00-junk"), Some("a=b"), 0, 0),
        (None, Some("a=b"), 0, 0),
    ];
    for (parent, state, parents, states) in table {
        let mut draft = draft();
        for (name, value) in [("traceparent", parent), ("tracestate", state)] {
            draft.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        let received = received(&draft).await;
        assert_eq!(received.values("Traceparent").len(), parents);
        assert_eq!(received.values("Tracestate").len(), states);
    }
}

#[tokio::test]
async fn a_payload_above_the_limit_is_not_sent() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let settings = WebhookSettings { payload_bytes_max: 8, ..WebhookSettings::default() };
    let sink = sink(settings);
    let mut draft = Draft::new(server.url());
    assert!(is_delivered(&draft.deliver_by(&sink).await));
    draft.payload = Bytes::from_static(b"123456789");
    assert_eq!(class(&draft.deliver_by(&sink).await), Some(ErrorClass::TooLarge));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn early_hints_are_no_answer() {
    let answer = [head(103, "Link: x\r\n"), head(200, "Content-Length: 0\r\n")].concat();
    let server = Server::start(move |_| Reply::Keep(answer.clone())).await;
    let outcome = Draft::new(server.url()).deliver_by(&sink(WebhookSettings::default())).await;
    assert!(is_delivered(&outcome), "{outcome:?}");
}

/// Runs in a process of its own, where the environment names a proxy that is not there.
#[tokio::test]
#[ignore = "needs the environment that the test below gives it"]
async fn behind_a_proxy_from_the_environment() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let by_name = format!("http://hooks.test:{}/", server.address.port());
    for url in [server.url(), by_name] {
        let outcome = Draft::new(url).deliver_by(&sink(WebhookSettings::default())).await;
        assert!(is_delivered(&outcome), "{outcome:?}");
    }
}

#[test]
fn no_proxy_from_the_environment_is_used() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact"]);
    command.arg("webhook::tests::wire::behind_a_proxy_from_the_environment");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1").env(name.to_uppercase(), "http://127.0.0.1:1");
    }
    let output = command.env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
