//! Whose connections carry whose requests, and how many there are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::*;
use crate::testing::server::{Reply, Server, head, until};

/// Which values of this header each connection carried.
fn by_connection(server: &Server, header: &str) -> BTreeMap<usize, Vec<String>> {
    let mut map: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for request in server.requests() {
        map.entry(request.connection).or_default().extend(request.values(header));
    }
    map
}

#[tokio::test]
async fn a_connection_is_used_again_and_never_by_another_tenant() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let sink = sink(WebhookSettings::default());
    for _ in 0..20 {
        for tenant in ["a", "b", "c"] {
            let outcome = Draft::new(server.url()).tenant(tenant).deliver_by(&sink).await;
            assert!(is_delivered(&outcome), "{outcome:?}");
        }
    }
    let carried = by_connection(&server, "X-Lerian-Tenant-Id");
    assert!((3..30).contains(&carried.len()), "{carried:?}");
    for tenants in carried.values() {
        assert!(tenants.iter().all(|tenant| tenant == &tenants[0]), "{carried:?}");
    }
}

#[tokio::test]
async fn changed_credentials_and_other_paths_have_connections_of_their_own() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let sink = sink(WebhookSettings::default());
    let mut draft = Draft::new(server.url());
    for generation in 1..=3 {
        draft.generation = generation;
        assert!(is_delivered(&draft.deliver_by(&sink).await));
    }
    draft.url.push_str("/other");
    assert!(is_delivered(&draft.deliver_by(&sink).await));
    assert_eq!(server.record.accepted.load(SeqCst), 4);
    assert_eq!(sink.pools.len(), 4);
}

/// Starts this many attempts at once.
fn start(sink: &Arc<Webhook>, draft: &Draft, count: usize) -> JoinSet<Outcome> {
    let mut attempts = JoinSet::new();
    for _ in 0..count {
        let (sink, attempt) = (sink.clone(), draft.build());
        attempts.spawn(async move { sink.attempt(attempt).await });
    }
    attempts
}

#[tokio::test]
async fn no_more_attempts_than_the_limit_are_under_way_and_the_others_take_their_turn() {
    let gate = Arc::new(Semaphore::new(0));
    let (at, ok) = (gate.clone(), head(200, "Content-Length: 0\r\n"));
    let server = Server::start(move |_| Reply::After(at.clone(), ok.clone())).await;
    let settings =
        WebhookSettings { connections_per_destination_max: 3, ..WebhookSettings::default() };
    let sink = Arc::new(sink(settings));
    let mut attempts = start(&sink, &Draft::new(server.url()), 10);
    until(|| server.requests().len() == 3).await;
    assert_eq!(server.record.accepted.load(SeqCst), 3);
    gate.add_permits(10);
    while let Some(outcome) = attempts.join_next().await {
        assert!(is_delivered(&outcome.unwrap()));
    }
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn an_attempt_without_a_turn_is_no_attempt() {
    let server = Server::start(|_| Reply::Hang(Vec::new())).await;
    let settings = WebhookSettings {
        connections_per_host_max: 1,
        slot_wait_ms: 20,
        ..WebhookSettings::default()
    };
    let sink = Arc::new(sink(settings));
    let _first = start(&sink, &Draft::new(server.url()), 1);
    until(|| server.requests().len() == 1).await;
    // The same host and port; the tenant does not matter.
    let outcome = Draft::new(server.url()).tenant("b").deliver_by(&sink).await;
    let busy = "all connections to the destination were busy for 20 ms";
    assert_eq!(outcome, Outcome::not_attempted(busy));
}

#[tokio::test]
async fn a_cancelled_attempt_gives_its_turn_back_and_closes_its_connection() {
    let server = Server::start(|request| match request.connection {
        0 => Reply::Hang(Vec::new()),
        _ => Reply::keep(200),
    })
    .await;
    let settings =
        WebhookSettings { connections_per_destination_max: 1, ..WebhookSettings::default() };
    let sink = Arc::new(sink(settings));
    let mut first = start(&sink, &Draft::new(server.url()), 1);
    until(|| server.requests().len() == 1).await;
    first.shutdown().await;
    assert!(is_delivered(&Draft::new(server.url()).deliver_by(&sink).await));
    until(|| server.record.open.load(SeqCst) <= 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_stay_near_the_limit_under_a_storm_of_short_attempts() {
    let server = Server::start(|_| Reply::keep(200)).await;
    let settings = WebhookSettings {
        connections_per_destination_max: 4,
        slot_wait_ms: 60_000,
        ..WebhookSettings::default()
    };
    let sink = Arc::new(sink(settings));
    let mut attempts = start(&sink, &Draft::new(server.url()), 500);
    while let Some(outcome) = attempts.join_next().await {
        let outcome = outcome.unwrap();
        assert!(is_delivered(&outcome), "{outcome:?}");
    }
    // Each of the four turns may change hands while its connection is on its way back.
    let peak = server.record.peak.load(SeqCst);
    assert!(peak <= 8, "{peak}");
    assert!(server.record.accepted.load(SeqCst) < 250);
}

/// Answers once, and then never again; counts those that stop waiting.
#[derive(Default)]
struct OnlyOnce {
    asked: AtomicUsize,
    given_up: Arc<AtomicUsize>,
}

struct GivesUp(Arc<AtomicUsize>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Lookup for OnlyOnce {
    fn lookup<'a>(&'a self, _: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        if self.asked.fetch_add(1, SeqCst) == 0 {
            return Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) });
        }
        let waiting = GivesUp(self.given_up.clone());
        Box::pin(async move {
            let _waiting = waiting;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_connection_that_no_attempt_waits_for_any_more_is_not_opened() {
    let gate = Arc::new(Semaphore::new(0));
    let (at, ok) = (gate.clone(), head(200, "Content-Length: 0\r\n"));
    let server = Server::start(move |_| Reply::After(at.clone(), ok.clone())).await;
    let names = Arc::new(OnlyOnce::default());
    let resolver = Resolver::with_lookup(policy(true), names.clone());
    // Out of reach, so that no time-out of the opening does what this test is about.
    let (timeout_ms, connect_timeout_ms) = (60_000, 60_000);
    let settings = WebhookSettings { timeout_ms, connect_timeout_ms, ..WebhookSettings::default() };
    let sink = Webhook::new(settings, resolver, keyring(), Arc::new(Still)).unwrap();
    let sink = Arc::new(sink);
    let draft = Draft::new(format!("http://hooks.test:{}/", server.address.port()));
    let mut attempts = start(&sink, &draft, 1);
    until(|| server.requests().len() == 1).await;
    let (by, attempt) = (sink.clone(), draft.build());
    attempts.spawn(async move { by.attempt(attempt).await });
    until(|| names.asked.load(SeqCst) == 2).await;
    // The first connection becomes free while the second one is being opened.
    gate.add_permits(2);
    while let Some(outcome) = attempts.join_next().await {
        assert!(is_delivered(&outcome.unwrap()));
    }
    until(|| names.given_up.load(SeqCst) == 1).await;
    assert_eq!(server.record.accepted.load(SeqCst), 1);
}

/// Names this machine, the next time another address of it, and so on; counts how often.
#[derive(Default)]
struct Moving(AtomicUsize);

impl Lookup for Moving {
    fn lookup<'a>(&'a self, _: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        let last = u8::try_from(1 + self.0.fetch_add(1, SeqCst)).unwrap();
        Box::pin(async move { Ok(vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))]) })
    }
}

#[tokio::test]
async fn a_connection_stays_with_the_address_that_was_judged_and_a_new_one_asks_anew() {
    let server = Server::start(|request| match request.body() {
        b"last" => Reply::Close(head(200, "Content-Length: 0\r\nConnection: close\r\n")),
        _ => Reply::keep(200),
    })
    .await;
    let names = Arc::new(Moving::default());
    let resolver = Resolver::with_lookup(policy(true), names.clone());
    let settings = WebhookSettings::default();
    let sink = Webhook::new(settings, resolver, keyring(), Arc::new(Still)).unwrap();
    let draft = |body: &[u8]| {
        let url = format!("http://hooks.test:{}/", server.address.port());
        Draft { payload: Bytes::copy_from_slice(body), ..Draft::new(url) }
    };
    for body in [&b"first"[..], b"second", b"last"] {
        assert!(is_delivered(&draft(body).deliver_by(&sink).await));
    }
    assert_eq!(names.0.load(SeqCst), 1, "the connection is used again, its name is not asked");
    assert_eq!(server.record.accepted.load(SeqCst), 1);
    // The name is somewhere else by now, where nobody listens.
    let outcome = draft(b"next").deliver_by(&sink).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Connect), "{outcome:?}");
    assert_eq!(names.0.load(SeqCst), 2, "no answer is kept");
}
