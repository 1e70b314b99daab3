//! Two instances, each a router behind a socket: a task of the one is asked through the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

use super::*;
use crate::Limits;
use crate::auth::TenantCaller;
use crate::body::JsonBody;
use crate::exchange::exchange;
use crate::guard::{Guard, guard};
use crate::routes::Access;
use crate::testing::{ACME, Harness, LONG, OPERATOR};

const SECRET: &str = "a-cluster-key-of-32-bytes-at-least";

/// What an instance knows of the one task of these tests.
type Place = Arc<Mutex<Result<(), CallError>>>;

/// One instance.
#[derive(Clone)]
struct Node {
    router: Router,
    place: Place,
    /// How often its own task was asked.
    asked: Arc<AtomicUsize>,
}

fn node(instance: &str, hosts: &[&str]) -> Node {
    let (_, _, mut api) = Harness::parts(Limits::default(), LONG);
    let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    let key = SECRET.as_bytes().to_vec().into();
    api.cluster = Some(Cluster::new(key, &hosts, instance.to_owned()).unwrap());
    let api = Arc::new(api);
    let (place, asked) = (Arc::new(Mutex::new(Ok(()))), Arc::new(AtomicUsize::new(0)));
    let task = (Arc::clone(&place), Arc::clone(&asked));
    let read = move |State(api): State<Arc<Api>>, caller: TenantCaller, inbound: Inbound| {
        ask(api, caller, inbound, task.clone(), Value::Null)
    };
    let task = (Arc::clone(&place), Arc::clone(&asked));
    let write = move |State(api): State<Arc<Api>>,
                      caller: TenantCaller,
                      inbound: Inbound,
                      body: JsonBody| {
        let inbound = inbound.with_json(body.0.to_string());
        ask(api, caller, inbound, task.clone(), body.0)
    };
    let guarded = Guard { api: Arc::clone(&api), access: Access::Tenant };
    let router = Router::new()
        .route("/v1/task", get(read).post(write))
        .layer(from_fn_with_state(guarded, guard))
        .layer(DefaultBodyLimit::max(1_000))
        .layer(from_fn_with_state(Arc::clone(&api), admit))
        .layer(from_fn_with_state(Arc::clone(&api.operations), exchange))
        .with_state(api);
    Node { router, place, asked }
}

async fn ask(
    api: Arc<Api>,
    caller: TenantCaller,
    inbound: Inbound,
    (place, asked): (Place, Arc<AtomicUsize>),
    body: Value,
) -> Result<Response, Problem> {
    let call = || async {
        let place = place.lock().unwrap().clone();
        place.map(|()| asked.fetch_add(1, Ordering::Relaxed))
    };
    let answered = owned(&api, &inbound, call).await?;
    Ok(answered.answer(|n| Json(json!({"tenant": caller.tenant, "asked": n, "body": body}))))
}

impl Node {
    /// Lets it answer over a socket.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = self.router.clone();
        #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn set(&self, place: Result<(), CallError>) {
        *self.place.lock().unwrap() = place;
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, HeaderMap, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self) -> (StatusCode, HeaderMap, Value) {
        self.send(as_caller(Request::get("/v1/task?a=b%20c"), ACME, None)).await
    }

    async fn post(&self, body: &Value) -> (StatusCode, HeaderMap, Value) {
        self.send(as_caller(Request::post("/v1/task"), ACME, Some(body))).await
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn as_caller(
    request: axum::http::request::Builder,
    token: &str,
    body: Option<&Value>,
) -> Request<Body> {
    let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    let request = request.header(CONTENT_TYPE, "application/json");
    request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
}

fn elsewhere(instance: &str, url: &str) -> Result<(), CallError> {
    Err(CallError::Elsewhere(Peer { instance: instance.into(), url: url.into() }))
}

#[tokio::test]
async fn a_request_for_a_task_elsewhere_is_answered_by_its_owner() {
    let (a, b) = (node("a", &["127.0.0.1"]), node("b", &[]));
    a.set(elsewhere("b", &b.serve().await));
    let (status, headers, body) = a.get().await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body, json!({"tenant": "acme", "asked": 0, "body": null}));
    assert_eq!(headers["cache-control"], "no-store");
    let (status, _, body) = a.post(&json!({"x": [1, "ü"]})).await;
    assert_eq!((status, &body["body"]), (StatusCode::OK, &json!({"x": [1, "ü"]})));
    assert_eq!((a.asked(), b.asked()), (0, 2));
}

#[tokio::test]
async fn the_problem_of_the_owner_is_the_answer() {
    let (a, b) = (node("a", &["127.0.0.1"]), node("b", &[]));
    a.set(elsewhere("b", &b.serve().await));
    b.set(Err(CallError::TimedOut));
    let (status, headers, body) = a.get().await;
    assert_eq!((status.as_u16(), body["code"].as_str()), (503, Some("timeout")));
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(body["request_id"], headers["x-request-id"].to_str().unwrap());
}

#[tokio::test]
async fn nothing_is_forwarded_twice() {
    let (a, b, c) = (node("a", &["127.0.0.1"]), node("b", &["127.0.0.1"]), node("c", &[]));
    a.set(elsewhere("b", &b.serve().await));
    b.set(elsewhere("c", &c.serve().await));
    let (status, headers, body) = a.post(&json!({})).await;
    assert_eq!((status.as_u16(), body["code"].as_str()), (503, Some("no_owner")));
    assert_eq!(headers["retry-after"], "2");
    assert!(!headers.contains_key(client::NOT_OWNER));
    assert_eq!((a.asked(), b.asked(), c.asked()), (0, 0, 0));
}

#[tokio::test]
async fn a_task_between_two_owners_is_waited_for() {
    let (a, b) = (node("a", &["127.0.0.1"]), node("b", &[]));
    a.set(Err(CallError::Unknown));
    let url = b.serve().await;
    let moving = async {
        sleep(LOOK * 2).await;
        // Nobody listens there: the old owner is gone.
        a.set(elsewhere("gone", "http://127.0.0.1:9/"));
        sleep(LOOK * 2).await;
        a.set(elsewhere("b", &url));
    };
    let body = json!({});
    let ((status, _, body), ()) = tokio::join!(a.post(&body), moving);
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(b.asked(), 1);
}

#[tokio::test]
async fn a_strangers_record_gets_no_request() {
    let (a, b) = (node("a", &["10.0.0.0/8", "hub-b"]), node("b", &[]));
    a.set(elsewhere("b", &b.serve().await));
    let (status, _, body) = a.post(&json!({})).await;
    assert_eq!((status.as_u16(), body["code"].as_str()), (503, Some("no_owner")));
    assert_eq!(b.asked(), 0);
}

/// A request as instance `a` makes it for `acme`, to instance `b`, at the time of its clock.
fn internal(at_ms: i64, nonce: u8, body: &Value) -> Request<Body> {
    let key = Key::new(SECRET.as_bytes().to_vec().into()).unwrap();
    let tenant = Some(streaming_hub_model::tenant::TenantId::parse("acme").unwrap());
    let principal = Principal { role: crate::Role::Tenant, tenant, token: "billing".into() };
    let text = body.to_string();
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let headers: HeaderMap = headers.into_iter().collect();
    let saying = Saying {
        to: "b",
        principal: &principal,
        at: UnixMillis(at_ms),
        nonce: [nonce; NONCE_BYTES],
        within_ms: 5_000,
        body: text.as_bytes(),
    };
    let bound = Bound { method: &Method::POST, target: "/v1/task", headers: &headers };
    let token = key.sign(&saying, &bound);
    let request = Request::post("/v1/task").header(CONTENT_TYPE, "application/json");
    request.header(admit::TOKEN, token).body(Body::from(text)).unwrap()
}

#[tokio::test]
async fn expired_replayed_and_altered_tokens_are_the_plain_401() {
    let now = 1_790_000_000_000;
    let body = json!({"x": 1});
    let b = node("b", &[]);
    assert_eq!(b.send(internal(now, 1, &body)).await.0, StatusCode::OK);
    let altered = |change: &dyn Fn(&mut Request<Body>)| {
        let mut request = internal(now, 2, &body);
        change(&mut request);
        request
    };
    let requests = [
        ("replayed", internal(now, 1, &body)),
        ("expired", internal(now - 31_000, 3, &body)),
        ("of the future", internal(now + 60_000, 4, &body)),
        ("another body", altered(&|r| *r.body_mut() = Body::from("{\"x\":2}"))),
        ("too large a body", altered(&|r| *r.body_mut() = Body::from("x".repeat(1 << 20)))),
        ("another query", altered(&|r| *r.uri_mut() = "/v1/task?a".parse().unwrap())),
        ("another method", altered(&|r| *r.method_mut() = Method::GET)),
        (
            "an idempotency key",
            altered(&|r| {
                r.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
            }),
        ),
        (
            "a token of the caller beside it",
            altered(&|r| {
                let bearer = HeaderValue::from_str(&format!("Bearer {ACME}")).unwrap();
                r.headers_mut().insert(AUTHORIZATION, bearer);
            }),
        ),
        (
            "two tokens",
            altered(&|r| {
                let token = r.headers()[admit::TOKEN].clone();
                r.headers_mut().append(admit::TOKEN, token);
            }),
        ),
        (
            "no token",
            altered(&|r| {
                r.headers_mut().insert(admit::TOKEN, HeaderValue::from_static(""));
            }),
        ),
    ];
    let (_, _, mut plain) = b.send(as_caller(Request::get("/v1/task"), "nobody", None)).await;
    plain["request_id"] = Value::Null;
    for (what, request) in requests {
        let (status, headers, mut problem) = b.send(request).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}");
        assert_eq!(headers["www-authenticate"], "Bearer", "{what}");
        problem["request_id"] = Value::Null;
        assert_eq!(problem, plain, "{what}");
    }
    // What was refused for another reason has not used up its nonce.
    assert_eq!(b.send(internal(now, 2, &body)).await.0, StatusCode::OK);
    assert_eq!(b.asked(), 2);
}

#[tokio::test]
async fn an_instance_of_another_cluster_does_not_show_as_the_callers_bad_token() {
    let (a, b) = (node("a", &["127.0.0.1"]), node("b", &[]));
    // It announces itself under another id than it has.
    a.set(elsewhere("c", &b.serve().await));
    let (status, _, body) = a.get().await;
    assert_eq!((status.as_u16(), body["code"].as_str()), (503, Some("no_owner")));
}

#[tokio::test]
async fn a_caller_is_checked_where_it_calls() {
    let (a, b) = (node("a", &["127.0.0.1"]), node("b", &[]));
    a.set(elsewhere("b", &b.serve().await));
    let refused = |token| as_caller(Request::get("/v1/task"), token, None);
    assert_eq!(a.send(refused("nobody")).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(a.send(refused(OPERATOR)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(b.asked(), 0);
}
