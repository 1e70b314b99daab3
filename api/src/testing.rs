//! The hub around the API, in memory: a registry that decides by the real rules, a sink that
//! answers what a test says, a clock and a randomness that are the same in every run.

mod pull;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use streaming_hub_model::attempt::{Attempt, AttemptResult, Outcome};
use streaming_hub_model::change::{Action, Change, Decision};
use streaming_hub_model::delivery_calls::{self, Question};
use streaming_hub_model::destination::{DestinationId, DestinationKey, DestinationRecord};
use streaming_hub_model::hold::{Hold, Scope};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::idempotency;
use streaming_hub_model::overview::{Here, Overview, SubTopologyShape, TaskOwner};
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::{
    Changes, Clock, Deliveries, Entropy, Holding, KnownDestinations, Readiness, SubscriptionTable,
    Unavailable,
};
use streaming_hub_model::registry::{self, Current, Write as Written};
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::stored::{self, Found, StoredLogs, Unreadable};
use streaming_hub_model::subscription::{SinkConfig, Subscription};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use tower::ServiceExt;

use self::pull::FakeLog;
use crate::rate::{Buckets, Rate};
use crate::{Api, Limits, Metrics, Operations, Role, TokenConfig, Tokens, router};

pub(crate) const ACME: &str = "token-of-acme";
pub(crate) const EVIL: &str = "token-of-evil";
pub(crate) const OPERATOR: &str = "token-of-the-operator";

/// A secret that a tenant brings.
pub(crate) const GIVEN: &str = "a-secret-that-acme-brings-along";

/// How many subscriptions a tenant may have in these tests.
const SUBSCRIPTIONS_MAX: u32 = 5;

/// The registry, its table, the sink and the readiness of one hub.
pub(crate) struct FakeHub {
    table: Mutex<BTreeMap<SubscriptionId, Arc<Subscription>>>,
    /// What only a table that has caught up holds.
    late: Mutex<Vec<Subscription>>,
    pub(crate) changes: Mutex<Vec<Change>>,
    pub(crate) keys: Mutex<BTreeMap<String, idempotency::Entry>>,
    pub(crate) outage: Mutex<Option<Unavailable>>,
    /// An outage that idempotency keys do not feel.
    pub(crate) write_outage: Mutex<Option<Unavailable>>,
    /// Changes are decided, and nobody hears how.
    pub(crate) lost_decisions: Mutex<bool>,
    pub(crate) outcome: Mutex<Outcome>,
    pub(crate) refusal: Mutex<Option<String>>,
    pub(crate) attempts: Mutex<Vec<Attempt>>,
    pub(crate) attempt_takes: Mutex<Duration>,
    /// The destination changes while an attempt is under way.
    pub(crate) changes_meanwhile: Mutex<bool>,
    pub(crate) missing: Mutex<Vec<String>>,
    pub(crate) holds: Mutex<BTreeMap<Scope, Arc<Hold>>>,
    /// Open breakers, as `<app>-destinations` has them.
    pub(crate) open: Mutex<Vec<DestinationRecord>>,
    now: AtomicI64,
    drawn: AtomicI64,
    log: Mutex<FakeLog>,
}

impl FakeHub {
    fn new() -> Self {
        let delivered = Outcome {
            result: AttemptResult::Delivered,
            status: Some(204),
            excerpt: Vec::new(),
            duration_ms: 3,
            retry_after_ms: None,
        };
        Self {
            table: Mutex::default(),
            late: Mutex::default(),
            changes: Mutex::default(),
            keys: Mutex::default(),
            outage: Mutex::default(),
            write_outage: Mutex::default(),
            lost_decisions: Mutex::default(),
            outcome: Mutex::new(delivered),
            refusal: Mutex::default(),
            attempts: Mutex::default(),
            attempt_takes: Mutex::default(),
            changes_meanwhile: Mutex::default(),
            missing: Mutex::default(),
            holds: Mutex::default(),
            open: Mutex::default(),
            now: AtomicI64::new(1_790_000_000_000),
            drawn: AtomicI64::new(0),
            log: Mutex::default(),
        }
    }

    /// The record as it is stored.
    pub(crate) fn record(&self, id: &str) -> Option<Arc<Subscription>> {
        self.get(SubscriptionId::parse(id).unwrap())
    }

    /// Hides a record until the table catches up.
    pub(crate) fn hide(&self, id: &str) {
        let record = self.table.lock().unwrap().remove(&SubscriptionId::parse(id).unwrap());
        self.late.lock().unwrap().push((*record.unwrap()).clone());
    }

    /// A change that comes from elsewhere.
    pub(crate) fn apply(&self, id: &str, action: Action) {
        let record = self.record(id).unwrap();
        let (tenant, subscription) = (record.tenant.clone(), record.id);
        let (id, reply_to) = (uuid::Uuid::nil(), String::new());
        self.decide(Change { id, reply_to, tenant, subscription, action });
    }

    fn change_destination(&self, id: SubscriptionId) {
        let mut table = self.table.lock().unwrap();
        let record = Arc::make_mut(table.get_mut(&id).unwrap());
        record.sink_generation += 1;
    }

    fn decide(&self, change: Change) -> Decision {
        if let Action::Idempotency { wish } = change.action {
            let mut keys = self.keys.lock().unwrap();
            let scope = wish.scope().to_owned();
            let known = keys.get(&scope).cloned();
            let (entry, decision) =
                idempotency::decide(wish, known, change.subscription, self.now());
            if let Some(entry) = entry {
                keys.insert(scope, entry);
            }
            return decision;
        }
        let mut table = self.table.lock().unwrap();
        let id = change.subscription;
        let owned = table.values().filter(|record| record.tenant == change.tenant).count();
        let current = Current {
            record: table.get(&id).map(AsRef::as_ref),
            tenant_subscriptions: u32::try_from(owned).unwrap(),
        };
        let limits = registry::Limits { subscriptions_per_tenant: SUBSCRIPTIONS_MAX };
        let (write, decision) = registry::decide(change, current, limits, self.now());
        match write {
            Some(Written::Put(record)) => _ = table.insert(id, Arc::new(*record)),
            Some(Written::Delete) => _ = table.remove(&id),
            None => {}
        }
        decision
    }
}

impl SubscriptionTable for FakeHub {
    fn get(&self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.table.lock().unwrap().get(&id).cloned()
    }

    fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<Subscription>> {
        let table = self.table.lock().unwrap();
        table.values().filter(|record| record.tenant == *tenant).cloned().collect()
    }

    fn all(&self) -> Vec<Arc<Subscription>> {
        self.table.lock().unwrap().values().cloned().collect()
    }

    fn catch_up(&self) -> SinkFuture<'_, ()> {
        Box::pin(async {
            for record in self.late.lock().unwrap().drain(..) {
                self.table.lock().unwrap().insert(record.id, Arc::new(record));
            }
        })
    }
}

impl Changes for FakeHub {
    fn submit(&self, change: Change) -> SinkFuture<'_, Result<Decision, Unavailable>> {
        Box::pin(async move {
            self.changes.lock().unwrap().push(change.clone());
            let write = !matches!(change.action, Action::Idempotency { .. });
            let outage = *self.outage.lock().unwrap();
            if let Some(outage) = outage.or(self.write_outage.lock().unwrap().filter(|_| write)) {
                return Err(outage);
            }
            let decision = self.decide(change);
            match write && *self.lost_decisions.lock().unwrap() {
                true => Err(Unavailable::Undecided),
                false => Ok(decision),
            }
        })
    }
}

impl Deliveries for FakeHub {
    fn partitions(&self) -> u32 {
        1
    }

    /// No delivery task runs.
    fn ask(
        &self,
        _: i32,
        _: Question,
    ) -> SinkFuture<'_, Result<delivery_calls::Answer, CallError>> {
        Box::pin(async { Err(CallError::Unknown) })
    }
}

impl Holding for FakeHub {
    fn all(&self) -> Vec<Arc<Hold>> {
        self.holds.lock().unwrap().values().cloned().collect()
    }

    fn hold(&self, hold: Hold) -> SinkFuture<'_, Result<(), Unavailable>> {
        self.holds.lock().unwrap().insert(hold.scope.clone(), Arc::new(hold));
        Box::pin(async { Ok(()) })
    }

    fn lift(&self, scope: Scope) -> SinkFuture<'_, Result<(), Unavailable>> {
        self.holds.lock().unwrap().remove(&scope);
        Box::pin(async { Ok(()) })
    }
}

impl KnownDestinations for FakeHub {
    fn name(&self, sink: &SinkConfig) -> DestinationId {
        DestinationKey::new([1; 32]).id(sink)
    }

    fn open(&self) -> Vec<DestinationRecord> {
        self.open.lock().unwrap().clone()
    }
}

impl StoredLogs for FakeHub {
    fn partitions(&self) -> i32 {
        1
    }

    fn of_tenant(&self, _: &str) -> Vec<i32> {
        vec![0]
    }

    /// Nothing is stored.
    fn read(&self, _: stored::Query) -> SinkFuture<'_, Result<Found, Unreadable>> {
        Box::pin(async { Ok(Found::default()) })
    }
}

impl Overview for FakeHub {
    fn here(&self) -> Here {
        let (tasks, standby, not_ready) = (Vec::new(), Vec::new(), Vec::new());
        Here { instance: "a".into(), tasks, standby, not_ready }
    }

    fn owners(&self) -> Vec<TaskOwner> {
        Vec::new()
    }

    fn application(&self) -> &str {
        "hub"
    }

    fn shape(&self) -> Vec<SubTopologyShape> {
        Vec::new()
    }
}

impl Sink for FakeHub {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        Box::pin(async move {
            let takes = *self.attempt_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            if *self.changes_meanwhile.lock().unwrap() {
                self.change_destination(attempt.subscription.id);
            }
            self.attempts.lock().unwrap().push(attempt);
            self.outcome.lock().unwrap().clone()
        })
    }

    fn admit<'a>(
        &'a self,
        _: &'a TenantId,
        _: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        let refused = |message| Err(NotAdmitted { field: "url", message });
        Box::pin(async move { self.refusal.lock().unwrap().clone().map_or(Ok(()), refused) })
    }
}

impl Readiness for FakeHub {
    fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap().clone()
    }
}

impl Clock for FakeHub {
    fn now(&self) -> UnixMillis {
        // Each look is a millisecond later, so that ids ascend.
        UnixMillis(self.now.fetch_add(1, Ordering::Relaxed))
    }
}

impl Entropy for FakeHub {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let digest = Sha256::digest(drawn.to_be_bytes());
        bytes.copy_from_slice(&digest[..bytes.len()]);
    }
}

/// An answer read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect(&self.text)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks that it is a problem of this status and code, well-formed in every respect.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["code"], code, "{self:?}");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("urn:streaming-hub:problem:{code}"));
        assert!(body["title"].is_string());
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
    }
}

/// A time limit that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The router over a [`FakeHub`].
pub(crate) struct Harness {
    pub(crate) hub: Arc<FakeHub>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) router: Router,
}

/// A subscriber that is interested in everything and writes nothing. `tracing` remembers for the
/// whole process that nobody is interested in a place of the code; with tests side by side, some of
/// them without a subscriber, it would remember that for those that read the log.
fn hear_everything() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let quiet = tracing_subscriber::fmt().with_writer(std::io::sink);
        let quiet = quiet.with_max_level(tracing::Level::TRACE).finish();
        tracing::subscriber::set_global_default(quiet).unwrap();
    });
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), LONG)
    }

    pub(crate) fn with(limits: Limits, request_timeout: Duration) -> Self {
        let (hub, keyring, api) = Self::parts(limits, request_timeout);
        Self { hub, keyring, router: router(api) }
    }

    /// The same before there is a router.
    pub(crate) fn parts(
        limits: Limits,
        request_timeout: Duration,
    ) -> (Arc<FakeHub>, Arc<Keyring>, Api) {
        hear_everything();
        let hub = Arc::new(FakeHub::new());
        let key = SecretString::from(BASE64.encode([7; 32]));
        let keyring = Arc::new(Keyring::new("k1", &key).unwrap());
        let api = Api {
            table: hub.clone(),
            changes: hub.clone(),
            deliveries: hub.clone(),
            sink: hub.clone(),
            keyring: Arc::clone(&keyring),
            operations: Arc::new(Operations {
                clock: hub.clone(),
                entropy: hub.clone(),
                readiness: hub.clone(),
                metrics: Metrics::new(prometheus::Registry::new()).unwrap(),
                request_timeout,
            }),
            operator: crate::OperatorPorts::default(),
            tokens: tokens(),
            destinations: hub.clone(),
            holds: hub.clone(),
            stored: hub.clone(),
            overview: hub.clone(),
            replays: crate::Replays::default(),
            retention_hours: 240,
            pull: hub.clone(),
            reads: Buckets::reads(Rate { per_second: 100, burst: 200 }),
            requests: Buckets::requests(Rate { per_second: 100_000, burst: 100_000 }),
            jwt: None,
            cluster: None,
            limits,
        };
        (hub, keyring, api)
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.raw(request.body(body).unwrap()).await
    }

    /// A request of `acme` with more headers.
    pub(crate) async fn call_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        self.call_as(ACME, (method, path), headers, body).await
    }

    /// A request with more headers.
    pub(crate) async fn call_as(
        &self,
        token: &str,
        (method, path): (Method, &str),
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        request = request.header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value.as_bytes());
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.raw(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Some(ACME), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, Some(ACME), Some(body)).await
    }

    /// Creates a subscription for `acme`; its id.
    pub(crate) async fn created(&self) -> String {
        let answer = self.post("/v1/subscriptions", &body()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

/// The smallest legal creation.
pub(crate) fn body() -> Value {
    json!({
        "name": "accounts",
        "event_types": ["account.created"],
        "sink": {"type": "webhook", "url": "https://example.com/hook"},
    })
}

/// A creation with everything that it may have, the signing secret included.
pub(crate) fn full_body() -> Value {
    json!({
        "name": "accounts of the ledger",
        "event_types": ["account.created", "transfer.*"],
        "origin": "//lerian.midaz/ledger",
        "schema_major": 2,
        "sink": {"type": "webhook", "url": "https://example.com:8443/a?b=c", "secret": GIVEN},
        "enabled": false,
        "retry_schedule": [0, 5000, 36_000_000],
        "max_in_flight": 64,
        "verify": false,
    })
}

fn tokens() -> Tokens {
    let token = |name: &str, role, tenant: Option<&str>, token| {
        let mut sha256 = String::new();
        for byte in Sha256::digest(token) {
            write!(sha256, "{byte:02x}").unwrap();
        }
        let tenant = tenant.map(|tenant| TenantId::parse(tenant).unwrap());
        TokenConfig { name: name.to_owned(), role, tenant, sha256 }
    };
    Tokens::new(&[
        token("a", Role::Tenant, Some("acme"), ACME),
        token("e", Role::Tenant, Some("evil"), EVIL),
        token("o", Role::Operator, None, OPERATOR),
    ])
    .unwrap()
}
