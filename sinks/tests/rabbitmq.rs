//! The RabbitMQ sink against a real broker.
#![allow(missing_docs, clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::types::{AMQPValue, FieldTable};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::Sink;
use streaming_hub_sinks::Sinks;
use support::rabbitmq::{Broker, get};
use support::{
    Job, MIB, TENANT, assert_delivered, assert_failed, deliver, detail, fixtures, sealed, sinks,
    until,
};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_and_a_broker() {
    let broker = Broker::start(&[]);
    let sinks = sinks(|settings| settings.rabbitmq.idle_ms = 2_000);
    let channel = broker.channel().await;
    every_payload_arrives_byte_for_byte(&broker, &sinks, &channel).await;
    what_the_broker_refuses_is_a_failure(&broker, &sinks, &channel).await;
    credentials_are_a_connections_own(&broker, &sinks).await;
    a_verification_asks_for_the_exchange(&broker, &sinks, &channel).await;
    sixty_four_destinations_have_a_connection_each_and_lose_it_when_idle(&broker, &sinks).await;
    a_blocked_connection_is_a_failure_after_the_time(&broker).await;
}

async fn every_payload_arrives_byte_for_byte(broker: &Broker, sinks: &Sinks, channel: &Channel) {
    broker.queue(channel, "all", FieldTable::default()).await;
    let sink = broker.sink("all", "key.{type}");
    let mut jobs = fixtures(&sink);
    jobs.push(Job::new(&sink, vec![0xA5; MIB]).number(900));
    for job in jobs {
        assert_delivered(&sinks.attempt(job.attempt()).await);
        let message = get(channel, "all").await.unwrap();
        assert_eq!(message.data, job.payload.to_vec());
        let properties = message.properties;
        assert_eq!(*properties.delivery_mode(), Some(2));
        let headers = properties.headers().clone().unwrap();
        let text = |name: &str| match headers.inner().get(name) {
            Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into(),
            _ => String::new(),
        };
        assert_eq!(text("ce-id"), job.event_id().to_string());
        for (name, value) in &job.headers {
            assert_eq!(&text(name), value, "{name}");
        }
        let key = job.attempt().event.key();
        assert_eq!(message.routing_key.as_str(), format!("key.{key}"));
    }
    let more = Job::new(&sink, vec![0xA5; MIB + 1]);
    assert_failed(&sinks.attempt(more.attempt()).await, ErrorClass::TooLarge);
    let long = Job::new(&sink, "").header("ce-resourcetype", &"r".repeat(250));
    assert_failed(&sinks.attempt(long.attempt()).await, ErrorClass::RoutingKeyTooLong);
}

async fn what_the_broker_refuses_is_a_failure(broker: &Broker, sinks: &Sinks, channel: &Channel) {
    let unroutable = sinks.attempt(Job::new(&broker.sink("all", "other"), "x").attempt()).await;
    assert_failed(&unroutable, ErrorClass::Unroutable);
    assert!(detail(&unroutable).contains("312 NO_ROUTE"), "{}", detail(&unroutable));

    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(1));
    full.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    broker.queue(channel, "full", full).await;
    let job = Job::new(&broker.sink("full", "key.x"), "x");
    assert_delivered(&sinks.attempt(job.attempt()).await);
    assert_failed(&sinks.attempt(job.attempt()).await, ErrorClass::Rejected);

    let absent = Job::new(&broker.sink("absent", "key.x"), "x");
    let outcome = sinks.attempt(absent.attempt()).await;
    assert_failed(&outcome, ErrorClass::NotFound);
    broker.queue(channel, "absent", FieldTable::default()).await;
    assert_delivered(&sinks.attempt(absent.attempt()).await);

    let mut nowhere = broker.sink("all", "key.x");
    nowhere["vhost"] = json!("nowhere");
    let outcome = sinks.attempt(Job::new(&nowhere, "x").attempt()).await;
    assert!(
        matches!(support::class(&outcome), Some(ErrorClass::NotFound | ErrorClass::AccessDenied)),
        "{outcome:?}"
    );
}

async fn credentials_are_a_connections_own(broker: &Broker, sinks: &Sinks) {
    let right = Job::new(&broker.sink("all", "key.x"), "x");
    assert_delivered(&sinks.attempt(right.attempt()).await);
    let mut wrong = broker.sink("all", "key.x");
    wrong["password"] = sealed("other", "wrong");
    let outcome = sinks.attempt(Job::new(&wrong, "x").tenant("other").attempt()).await;
    assert_failed(&outcome, ErrorClass::AccessDenied);
    // The same tenant's, too: the password is part of what a connection is kept under.
    wrong["password"] = sealed(TENANT, "wrong");
    let outcome = sinks.attempt(Job::new(&wrong, "x").attempt()).await;
    assert_failed(&outcome, ErrorClass::AccessDenied);
    assert!(!format!("{outcome:?}").contains("wrong"), "no password in texts");
    // Rotated without loss: the old one serves until the record has the new one.
    broker.server.run(&["ctl", "--", "add_user", "rotated", "first"]);
    broker.server.run(&["ctl", "--", "set_permissions", "rotated", "", ".*", ""]);
    let mut rotated = broker.sink("all", "key.x");
    rotated["username"] = json!("rotated");
    rotated["password"] = sealed(TENANT, "first");
    assert_delivered(&sinks.attempt(Job::new(&rotated, "x").attempt()).await);
    broker.server.run(&["ctl", "--", "change_password", "rotated", "second"]);
    assert_delivered(&sinks.attempt(Job::new(&rotated, "x").attempt()).await);
    rotated["password"] = sealed(TENANT, "second");
    assert_delivered(&sinks.attempt(Job::new(&rotated, "x").attempt()).await);
}

async fn a_verification_asks_for_the_exchange(broker: &Broker, sinks: &Sinks, channel: &Channel) {
    while get(channel, "all").await.is_some() {}
    let there = Job::new(&broker.sink("all", "unroutable"), "x");
    assert_delivered(&sinks.verify(there.attempt()).await);
    assert!(get(channel, "all").await.is_none(), "nothing was sent");
    let absent = Job::new(&broker.sink("no-such", "key.x"), "x");
    assert_failed(&sinks.verify(absent.attempt()).await, ErrorClass::NotFound);
    let mut event = broker.sink("all", "key.x");
    event["verify_with"] = json!("event");
    assert_delivered(&sinks.verify(Job::new(&event, "test").attempt()).await);
    assert_eq!(get(channel, "all").await.unwrap().data, b"test");
    // A user that may write and no more can be verified: least permission.
    let mut writer = broker.sink("all", "key.x");
    writer["username"] = json!("rotated");
    writer["password"] = sealed(TENANT, "second");
    assert_delivered(&sinks.verify(Job::new(&writer, "x").attempt()).await);
}

async fn sixty_four_destinations_have_a_connection_each_and_lose_it_when_idle(
    broker: &Broker,
    sinks: &Sinks,
) {
    let before = broker.connections();
    let mut under_way = tokio::task::JoinSet::new();
    let sinks_of_all = Arc::new(support::sinks(|settings| settings.rabbitmq.idle_ms = 3_000));
    for number in 0..512_u64 {
        // The default exchange of as many names: each tenant is a destination of its own.
        let tenant = format!("tenant-{}", number % 64);
        let mut sink = broker.sink("all", "key.x");
        sink["password"] = sealed(&tenant, "guest");
        let (own, job) = (Arc::clone(&sinks_of_all), Job::new(&sink, "x").tenant(&tenant));
        under_way.spawn(async move { own.attempt(job.attempt()).await });
    }
    while let Some(outcome) = under_way.join_next().await {
        assert_delivered(&outcome.unwrap());
    }
    let at_most = before + 64;
    assert!(broker.connections() <= at_most, "{} of {at_most}", broker.connections());
    until("idle connections end", LIMIT, async || broker.connections() <= 1).await;
    let _ = sinks;
}

async fn a_blocked_connection_is_a_failure_after_the_time(broker: &Broker) {
    let sinks = sinks(|settings| {
        settings.rabbitmq.timeout_ms = 1_500;
        settings.rabbitmq.connect_timeout_ms = 1_500;
    });
    let job = Job::new(&broker.sink("all", "key.x"), "x");
    assert_delivered(&sinks.attempt(job.attempt()).await);
    broker.server.run(&["ctl", "--", "set_vm_memory_high_watermark", "0.000001"]);
    until("the alarm reaches the connection", LIMIT, async || {
        let outcome = sinks.attempt(job.attempt()).await;
        support::class(&outcome) == Some(ErrorClass::Timeout)
            && detail(&outcome).contains("blocked")
    })
    .await;
    broker.server.run(&["ctl", "--", "set_vm_memory_high_watermark", "0.9"]);
    until("deliveries go on", LIMIT, async || {
        support::class(&sinks.attempt(job.attempt()).await).is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_broker_dies_in_the_middle_of_5000_jobs() {
    const JOBS: u64 = 5_000;
    let broker = Broker::start(&[]);
    let sinks = Arc::new(sinks(|_| ()));
    broker.queue(&broker.channel().await, "all", FieldTable::default()).await;
    let sink = broker.sink("all", "key.x");
    let (turns, done) = (Arc::new(tokio::sync::Semaphore::new(64)), Arc::new(()));
    let mut under_way = tokio::task::JoinSet::new();
    for number in 1..=JOBS {
        let turn = Arc::clone(&turns).acquire_owned().await.unwrap();
        let job = Job::new(&sink, number.to_string()).number(number);
        let (own, done) = (Arc::clone(&sinks), Arc::clone(&done));
        under_way.spawn(async move {
            deliver(&own, &job).await;
            drop((turn, done));
        });
        if number == JOBS / 2 {
            broker.server.run(&["stop", "--kill"]);
            broker.server.start_again(&[]);
        }
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
    let channel = broker.channel().await;
    let mut arrived = HashSet::new();
    let mut count = 0_u64;
    while let Some(message) = get(&channel, "all").await {
        arrived.insert(message.data);
        count += 1;
    }
    assert_eq!(arrived.len() as u64, JOBS, "of {count} messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_down_is_dialled_with_growing_pauses_whatever_the_load() {
    const ATTEMPTS: usize = 64;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sink = json!({
        "type": "rabbitmq", "host": "127.0.0.1", "port": port, "tls": false, "vhost": "/",
        "exchange": "all", "routing_key": "x", "username": "guest",
        "password": sealed(TENANT, "guest"),
    });
    let sinks = Arc::new(sinks(|_| ()));
    let mut under_way = tokio::task::JoinSet::new();
    for number in 0..ATTEMPTS {
        let (own, job) = (Arc::clone(&sinks), Job::new(&sink, "x").number(number as u64));
        under_way.spawn(async move { deliver(&own, &job).await });
    }
    // Each dial is taken and dropped.
    let (began, mut dials) = (tokio::time::Instant::now(), Vec::new());
    while dials.len() < 5 {
        let (stream, _) = tokio::time::timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
        dials.push(began.elapsed());
        drop(stream);
    }
    // Pauses of 0.1, 0.2, 0.4 and 0.8 s at the least.
    assert!(dials[4] >= Duration::from_millis(1_500), "{dials:?}");
    under_way.abort_all();
}

/// A private authority and a server certificate of it for `mq.test`.
fn certificates() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["mq.test".to_owned()]).unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    write("ca.pem", &authority.pem());
    write("cert.pem", &server.pem());
    write("key.pem", &key.serialize_pem());
    let pem = authority.pem();
    (directory, pem)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amqps_trusts_the_subscriptions_own_authority_and_asks_for_the_given_name() {
    let (directory, ca) = certificates();
    let broker = Broker::start(&["--tls", directory.path().to_str().unwrap()]);
    broker.queue(&broker.channel().await, "all", FieldTable::default()).await;
    let sinks = sinks(|_| ());
    let mut sink = broker.sink("all", "key.x");
    sink["port"] = json!(broker.server.port + 1);
    sink["tls"] = json!(true);
    sink["server_name"] = json!("mq.test");
    let attempt = |sink: &Value| sinks.attempt(Job::new(sink, "x").attempt());
    assert_failed(&attempt(&sink).await, ErrorClass::Tls);
    sink["ca_pem"] = json!(ca);
    assert_delivered(&attempt(&sink).await);
    sink["server_name"] = json!("other.test");
    assert_failed(&attempt(&sink).await, ErrorClass::Tls);
    sink["ca_pem"] = json!(certificates().1);
    sink["server_name"] = json!("mq.test");
    assert_failed(&attempt(&sink).await, ErrorClass::Tls);
}
