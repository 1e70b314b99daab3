//! What the tests of sinks against real servers share: the servers, started by the project's own
//! scripts and gone with their value, and attempts to deliver.
#![allow(dead_code, missing_docs, clippy::disallowed_methods, unreachable_pub)]

pub mod aws;
pub mod rabbitmq;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use secrecy::SecretString;
use serde_json::{Value, json};
use streaming_hub_model::attempt::{Attempt, AttemptResult, ErrorClass, Outcome};
use streaming_hub_model::event::Event;
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::secret::{Keyring, Owner};
use streaming_hub_model::sink::Sink as _;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_sinks::guard::AddressPolicy;
use streaming_hub_sinks::{SinkSettings, Sinks};
use uuid::Uuid;

pub const TENANT: &str = "acme";
pub const SUBSCRIPTION: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
/// The largest payload that is accepted.
pub const MIB: usize = 1 << 20;

pub struct System;

impl Clock for System {
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        UnixMillis(i64::try_from(since.as_millis()).unwrap())
    }
}

pub fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::new("k1", &SecretString::from(BASE64.encode([7; 32]))).unwrap())
}

/// Sinks that may call this machine.
pub fn sinks(change: impl FnOnce(&mut SinkSettings)) -> Sinks {
    let addresses = AddressPolicy { allow_private: true, allow: Vec::new() };
    let mut settings = SinkSettings { addresses, ..SinkSettings::default() };
    change(&mut settings);
    Sinks::new(settings, keyring(), Arc::new(System)).unwrap()
}

/// A secret as it lies in a tenant's subscription.
pub fn sealed(tenant: &str, secret: &str) -> Value {
    static NONCE: AtomicU32 = AtomicU32::new(0);
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&NONCE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let tenant = TenantId::parse(tenant).unwrap();
    let subscription = SubscriptionId::parse(SUBSCRIPTION).unwrap();
    let owner = Owner { tenant: &tenant, subscription };
    serde_json::to_value(keyring().seal(owner, &secret.into(), nonce).unwrap()).unwrap()
}

/// One job: an attempt of it is made anew each time.
#[derive(Clone)]
pub struct Job {
    pub tenant: String,
    pub sink: Value,
    pub headers: Vec<(String, String)>,
    pub payload: Bytes,
    pub number: u64,
}

impl Job {
    pub fn new(sink: &Value, payload: impl Into<Bytes>) -> Self {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-source", "ledger"),
            ("ce-type", "studio.lerian.ledger.account.created"),
            ("ce-time", "2026-09-21T14:13:01Z"),
            ("ce-schemaversion", "1.0.0"),
            ("ce-resourcetype", "account"),
            ("ce-eventtype", "created"),
            ("ce-datacontenttype", "application/json"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (tenant, sink) = (TENANT.to_owned(), sink.clone());
        Self { tenant, sink, headers, payload: payload.into(), number: 1 }
    }

    pub fn number(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    pub fn tenant(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.tenant);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(own, _)| own != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn event_id(&self) -> EventId {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.number.to_be_bytes());
        EventId::from_parts(1_790_000_000_000, random)
    }

    pub fn attempt(&self) -> Attempt {
        let tenant = TenantId::parse(&self.tenant).unwrap();
        let id = self.event_id();
        let mut headers = self.headers.clone();
        headers.push(("ce-id".to_owned(), id.to_string()));
        let subscription = json!({
            "id": SUBSCRIPTION, "tenant": self.tenant, "name": "test",
            "event_types": ["*"], "schema_major": 1, "sink": self.sink,
            "sink_generation": 1, "enabled": true, "verification_state": "active",
            "created_at": 1, "updated_at": 1, "version": 1,
        });
        let subscription_id = SubscriptionId::parse(SUBSCRIPTION).unwrap();
        Attempt {
            job: JobId::derive(&self.tenant, id, subscription_id, b""),
            delivery_id: Uuid::from_u128(u128::from(self.number) << 64 | 0xABCD),
            subscription: Arc::new(serde_json::from_value(subscription).unwrap()),
            event: Arc::new(Event::made(id, tenant, headers, self.payload.clone())),
            at: System.now(),
        }
    }
}

pub fn class(outcome: &Outcome) -> Option<ErrorClass> {
    match &outcome.result {
        AttemptResult::Failed { class, .. } => Some(*class),
        AttemptResult::Delivered | AttemptResult::NotAttempted { .. } => None,
    }
}

pub fn detail(outcome: &Outcome) -> &str {
    match &outcome.result {
        AttemptResult::Failed { detail, .. } | AttemptResult::NotAttempted { detail } => detail,
        AttemptResult::Delivered => "",
    }
}

#[track_caller]
pub fn assert_delivered(outcome: &Outcome) {
    assert_eq!(outcome.result, AttemptResult::Delivered, "{outcome:?}");
}

#[track_caller]
pub fn assert_failed(outcome: &Outcome, expected: ErrorClass) {
    assert_eq!(class(outcome), Some(expected), "{outcome:?}");
}

/// Every accepted record of the platform's real producer, as jobs, then payloads that are none of
/// JSON: nothing, blanks, bytes, markup.
pub fn fixtures(sink: &Value) -> Vec<Job> {
    let file = std::fs::read_to_string(root().join("fixtures/real-records.jsonl")).unwrap();
    let mut jobs = Vec::new();
    for line in file.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if !record["verdict"].to_string().contains("accept") {
            continue;
        }
        let decoded = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).unwrap();
        let payload = decoded(&record["value_b64"]);
        let mut job = Job::new(sink, payload).number(jobs.len() as u64 + 1);
        for header in record["headers"].as_array().unwrap() {
            let name = header[0].as_str().unwrap();
            if name != "ce-id" && name.starts_with("ce-") {
                job = job.header(name, &String::from_utf8(decoded(&header[1])).unwrap());
            }
        }
        jobs.push(job);
    }
    assert!(jobs.len() >= 20, "{} fixtures are accepted", jobs.len());
    let odd: [&[u8]; 6] =
        [b"", b" ", b"\0\xff\xfe", b"a\r\nb\x0b", b"<a>&amp;</a>", b"\xef\xbb\xbf{}"];
    for payload in odd {
        jobs.push(Job::new(sink, payload.to_vec()).number(jobs.len() as u64 + 1));
    }
    jobs
}

/// The blocks of code in this language of a sink's page.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/sinks").join(page)).unwrap();
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A port of which the next `count` are free, too.
fn free_ports(count: u16) -> u16 {
    loop {
        let first = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if first < 60_000 && (first..first + count).all(is_free) {
            return first;
        }
    }
}

/// A server that one of the project's scripts runs.
pub struct Server {
    script: &'static str,
    directory: tempfile::TempDir,
    pub port: u16,
}

impl Server {
    /// Starts it; what it says on its standard output is ignored.
    pub fn start(script: &'static str, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("streaming-hub-sink-").tempdir().unwrap();
        let server = Self { script, directory, port: free_ports(4) };
        server.start_again(options);
        server
    }

    pub fn start_again(&self, options: &[&str]) {
        let port = self.port.to_string();
        self.run(&[&["start", "--port", &port], options].concat());
    }

    /// Runs a command of the script; its standard output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let (command, rest) = arguments.split_first().unwrap();
        let mut script = Command::new(root().join("scripts").join(self.script));
        script.arg(command).arg("--dir").arg(self.directory.path()).args(rest);
        // A server that outlives the script must not keep the pipe open.
        let said = tempfile::tempfile().unwrap();
        let told = tempfile::tempfile().unwrap();
        script.stdout(said.try_clone().unwrap()).stderr(told.try_clone().unwrap());
        let status = script.status().unwrap();
        assert!(status.success(), "{arguments:?}: {}", read(told));
        read(said)
    }
}

fn read(mut file: std::fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut script = Command::new(root().join("scripts").join(self.script));
        let stop = script.arg("stop").arg("--purge").arg("--dir").arg(self.directory.path());
        if let Err(error) = stop.status() {
            let _ = writeln!(std::io::stderr(), "{}: {error}", self.script);
        }
    }
}

/// Makes attempts of a job until one succeeds, as the delivery engine does.
pub async fn deliver(sinks: &Sinks, job: &Job) {
    while sinks.attempt(job.attempt()).await.result != AttemptResult::Delivered {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until something holds.
pub async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
