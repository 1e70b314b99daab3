//! Every way in which a delivery can fail, and the class that it gets.

use std::sync::atomic::Ordering::SeqCst;

use tokio::net::TcpListener;

use super::*;
use crate::testing::server::{Reply, Server, head, until};

/// The outcome at a receiver that always replies so.
async fn outcome_of(reply: impl Fn() -> Reply + Send + Sync + 'static) -> (Outcome, Server) {
    outcome_within(WebhookSettings::default(), reply).await
}

async fn outcome_within(
    settings: WebhookSettings,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> (Outcome, Server) {
    let server = Server::start(move |_| reply()).await;
    let draft = Draft::new(format!("{}?token=hush", server.url()));
    let outcome = draft.deliver_by(&sink(settings)).await;
    assert!(!detail(&outcome).contains("hush"), "the URL is not for a log: {outcome:?}");
    (outcome, server)
}

#[tokio::test]
async fn a_status_decides_what_became_of_the_attempt() {
    use ErrorClass::{Gone, Http4xx, Http5xx, Protocol, Redirect, Throttled};
    let table = [
        (200, None),
        (202, None),
        (299, None),
        (101, Some(Protocol)),
        (300, Some(Redirect)),
        (304, Some(Redirect)),
        (400, Some(Http4xx)),
        (404, Some(Http4xx)),
        (410, Some(Gone)),
        (413, Some(Http4xx)),
        (429, Some(Throttled)),
        (500, Some(Http5xx)),
        (503, Some(Http5xx)),
        (600, Some(Protocol)),
        (999, Some(Protocol)),
    ];
    for (status, expected) in table {
        let (outcome, _) = outcome_of(move || Reply::keep(status)).await;
        assert_eq!(class(&outcome), expected, "{status}");
        assert_eq!(is_delivered(&outcome), expected.is_none(), "{status}");
        assert_eq!(outcome.status, Some(status));
        if expected.is_some() {
            assert_eq!(detail(&outcome), format!("the destination answered {status}"));
        }
    }
}

#[tokio::test]
async fn a_429_or_503_says_when_to_come_again_and_no_other_answer_does() {
    // `Still` is the sink's clock.
    let now = Still.now();
    let soon = now.0 / 1_000 * 1_000 + 90_000;
    let to_soon = soon.abs_diff(now.0);
    let table = [
        (429, "7".to_owned(), Some(7_000)),
        (503, "120".to_owned(), Some(120_000)),
        (503, httpdate(soon), Some(to_soon)),
        (429, httpdate(now.0 - 1_000), None),
        (429, "soon".to_owned(), None),
        (500, "7".to_owned(), None),
        (200, "7".to_owned(), None),
    ];
    for (status, value, expected) in table {
        let lines = format!("Retry-After: {value}\r\nContent-Length: 0\r\n");
        let (outcome, _) = outcome_of(move || Reply::Keep(head(status, &lines))).await;
        assert_eq!(outcome.retry_after_ms, expected, "{status}");
    }
}

/// A date as HTTP writes it.
fn httpdate(unix_ms: i64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(unix_ms.unsigned_abs());
    httpdate::fmt_http_date(at)
}

#[tokio::test]
async fn a_resolver_of_the_machine_that_is_down_is_no_attempt() {
    let resolver = Resolver::with_lookup(policy(true), Arc::new(NoResolver));
    let sink =
        Webhook::new(WebhookSettings::default(), resolver, keyring(), Arc::new(Still)).unwrap();
    let outcome = Draft::new("https://a.example/").deliver_by(&sink).await;
    assert!(matches!(outcome.result, AttemptResult::NotAttempted { .. }), "{outcome:?}");
}

struct NoResolver;

impl Lookup for NoResolver {
    fn lookup<'a>(&'a self, _: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        let down = crate::resolver::Down(io::Error::other("Try again"));
        Box::pin(async move { Err(io::Error::other(down)) })
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let lines = "Location: /other\r\nContent-Length: 0\r\n";
        let (outcome, server) = outcome_of(move || Reply::Keep(head(status, lines))).await;
        assert_eq!(class(&outcome), Some(ErrorClass::Redirect));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_is_no_http_is_a_protocol_failure() {
    let answers: [&[u8]; 6] = [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"NOT HTTP AT ALL\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ];
    for bytes in answers {
        let (outcome, server) = outcome_of(|| Reply::Close(bytes.to_vec())).await;
        assert_eq!(class(&outcome), Some(ErrorClass::Protocol), "{outcome:?}");
        assert_eq!(outcome.status, None);
        assert_eq!(server.requests().len(), 1, "one attempt is one request");
    }
}

#[tokio::test]
async fn no_answer_in_time_is_a_timeout() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\nX:"] {
        let (outcome, server) = outcome_within(short(), || Reply::Hang(bytes.to_vec())).await;
        assert_eq!(class(&outcome), Some(ErrorClass::Timeout), "{outcome:?}");
        assert!((400..5_000).contains(&outcome.duration_ms), "{outcome:?}");
        until(|| server.record.open.load(SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn a_body_that_never_comes_changes_nothing_and_closes_the_connection() {
    for (status, expected) in [(200, None), (500, Some(ErrorClass::Http5xx))] {
        let answer = [head(status, "Content-Length: 9\r\n"), b"half".to_vec()].concat();
        let (outcome, server) = outcome_of(move || Reply::Hang(answer.clone())).await;
        assert_eq!(class(&outcome), expected, "{outcome:?}");
        assert_eq!(is_delivered(&outcome), expected.is_none());
        assert_eq!(outcome.excerpt, if expected.is_some() { &b"half"[..] } else { b"" });
        assert!(outcome.duration_ms < 5_000, "{outcome:?}");
        until(|| server.record.open.load(SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    for (status, lines) in [(200, ""), (500, ""), (200, "Content-Length: 10000000\r\n")] {
        let (outcome, server) = outcome_of(move || Reply::Endless(head(status, lines))).await;
        assert_eq!(outcome.status, Some(status));
        assert_eq!(is_delivered(&outcome), status == 200, "{outcome:?}");
        assert_eq!(outcome.excerpt, vec![b'x'; if status == 200 { 0 } else { 1024 }]);
        until(|| server.record.open.load(SeqCst) == 0).await;
        // What the sockets' buffers hold was sent, but never read.
        let sent = server.record.endless.load(SeqCst);
        assert!(sent < 9_000_000, "{sent}");
    }
}

#[tokio::test]
async fn only_the_start_of_a_failures_body_is_kept() {
    let body: Vec<u8> = (0..=255).cycle().take(4000).collect();
    let answer = [head(422, "Content-Length: 4000\r\n"), body.clone()].concat();
    let (outcome, _) = outcome_of(move || Reply::Keep(answer.clone())).await;
    assert_eq!(outcome.excerpt, body[..1024]);
}

#[tokio::test]
async fn a_refused_connection_is_a_failure_to_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?hush", listener.local_addr().unwrap());
    drop(listener);
    let outcome = Draft::new(url).deliver_by(&sink(WebhookSettings::default())).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Connect), "{outcome:?}");
    assert!(detail(&outcome).starts_with("no connection: Connection refused"), "{outcome:?}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_dns_failure() {
    let outcome = Draft::new("https://nope.example/?hush")
        .deliver_by(&sink(WebhookSettings::default()))
        .await;
    let expected = Outcome::failed(ErrorClass::Dns, "the host name does not resolve: no such name");
    assert_eq!(Outcome { duration_ms: 0, ..outcome }, expected);
    // The same with the machine's own resolver.
    let resolver = Resolver::new(policy(true));
    let sink =
        Webhook::new(WebhookSettings::default(), resolver, keyring(), Arc::new(Still)).unwrap();
    let outcome = Draft::new("https://nope.invalid/").deliver_by(&sink).await;
    // A machine without a network has no resolver that answers.
    let hubs = matches!(outcome.result, AttemptResult::NotAttempted { .. });
    let names = matches!(class(&outcome), Some(ErrorClass::Dns | ErrorClass::Timeout));
    assert!(hubs || names, "{outcome:?}");
}

#[tokio::test]
async fn a_name_that_resolves_too_slowly_is_a_timeout() {
    let settings = WebhookSettings { connect_timeout_ms: 50, ..short() };
    let outcome = Draft::new("https://slow.example/").deliver_by(&sink(settings)).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Timeout), "{outcome:?}");
}

#[tokio::test]
async fn an_address_that_may_not_be_called_is_refused_at_each_attempt() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let port = server.address.port();
    let closed = sink_under(policy(false), WebhookSettings::default());
    // As a name, which the resolver judges, and as literals, which no resolver sees.
    let hosts = ["hooks.test", "private.example", "127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]"];
    for host in hosts {
        let outcome = Draft::new(format!("https://{host}:{port}/")).deliver_by(&closed).await;
        assert_eq!(class(&outcome), Some(ErrorClass::RefusedAddress), "{host}: {outcome:?}");
        assert!(!detail(&outcome).contains("192.168"), "{outcome:?}");
    }
    // An operator who opens private addresses has not opened the others.
    for host in ["link-local.example", "169.254.169.254", "[fe80::1]"] {
        let outcome = Draft::new(format!("https://{host}/"))
            .deliver_by(&sink(WebhookSettings::default()))
            .await;
        assert_eq!(class(&outcome), Some(ErrorClass::RefusedAddress), "{host}: {outcome:?}");
    }
    assert_eq!(server.record.accepted.load(SeqCst), 0);
}

/// Answers with a public address first and then with one of this machine.
struct Rebinding(std::sync::atomic::AtomicBool);

impl Lookup for Rebinding {
    fn lookup<'a>(&'a self, _: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        let again = self.0.swap(true, SeqCst);
        let ip = if again { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(8, 8, 8, 8) };
        Box::pin(async move { Ok(vec![IpAddr::V4(ip)]) })
    }
}

#[tokio::test]
async fn a_name_that_was_admitted_and_then_points_inside_is_refused() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let lookup = Arc::new(Rebinding(false.into()));
    let resolver = Resolver::with_lookup(policy(false), lookup);
    let sink =
        Webhook::new(WebhookSettings::default(), resolver, keyring(), Arc::new(Still)).unwrap();
    let draft = Draft::new(format!("https://rebind.example:{}/", server.address.port()));
    let subscription = draft.subscription();
    assert_eq!(sink.admit(&subscription.tenant, &subscription.sink).await, Ok(()));
    let outcome = draft.deliver_by(&sink).await;
    assert_eq!(class(&outcome), Some(ErrorClass::RefusedAddress), "{outcome:?}");
    assert_eq!(server.record.accepted.load(SeqCst), 0);
}
