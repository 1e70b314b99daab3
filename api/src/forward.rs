//! Calls to tasks that another instance runs (design 24). A handler asks its own instance's task;
//! when that runs elsewhere, the request is sent once to the owner with an internal token, never
//! with the caller's own, and the owner's answer is the answer. Nothing is forwarded twice, and
//! nothing to a host that `cluster.hosts` does not name.
//!
//! While a task is between two owners the request waits for the new one, a little; then it is a 503
//! that says when to come again.

mod admit;
mod client;
mod hosts;
#[cfg(test)]
mod tests;
mod token;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use secrecy::SecretSlice;
use streaming_hub_model::peer::{CallError, Peer};
use streaming_hub_model::time::UnixMillis;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::admit::{Internal, InternalCaller, admit};
pub(crate) use self::client::{Failure, make as client, returned};
use self::hosts::Hosts;
pub(crate) use self::token::Principal;
use self::token::{Bound, CARRIED, Claims, KEY_BYTES_MIN, Key, NONCE_BYTES, Nonces, Saying};
use crate::exchange::Deadline;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// How long a request waits for a task's new owner.
const OWNER_WITHIN: Duration = Duration::from_secs(2);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);
/// What the owner's answer needs to travel back within the caller's own time.
const WAY_BACK: Duration = Duration::from_millis(200);

/// Why the configured cluster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key is too short.
    #[error("a cluster key has at least {KEY_BYTES_MIN} bytes")]
    ShortKey,
    /// An entry of the list of hosts is none.
    #[error("{0:?} is no host name, `*.` and a domain, address or network")]
    BadHost(String),
    /// No HTTP client can be made.
    #[error("no HTTP client: {0}")]
    Client(String),
}

/// The way to the other instances, and what admits their requests here.
pub struct Cluster {
    key: Key,
    hosts: Hosts,
    instance: String,
    client: reqwest::Client,
    nonces: Mutex<Nonces>,
}

impl Cluster {
    /// The cluster that shares `key` (at least 32 bytes), as seen by `instance`. Requests go only
    /// to `hosts`: names, `*.` and a domain, addresses, networks.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(key: SecretSlice<u8>, hosts: &[String], instance: String) -> Result<Self, Error> {
        Ok(Self {
            key: Key::new(key).ok_or(Error::ShortKey)?,
            hosts: Hosts::parse(hosts).map_err(Error::BadHost)?,
            instance,
            client: client().map_err(Error::Client)?,
            nonces: Mutex::default(),
        })
    }

    /// Whether keys and hosts can be used, for a configuration that is only checked.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn check(key_bytes: usize, hosts: &[String]) -> Result<(), Error> {
        Hosts::parse(hosts).map_err(Error::BadHost)?;
        if key_bytes < KEY_BYTES_MIN { Err(Error::ShortKey) } else { Ok(()) }
    }

    fn accept(&self, claims: &Claims, now: UnixMillis) -> bool {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner).accept(claims, now)
    }
}

/// What a request is to its handler beside its own parts: enough to make it again elsewhere. Asked
/// for behind the caller, who is part of it.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    principal: Principal,
    internal: bool,
    /// Whether it may be made again when it is not known what became of it.
    safe: bool,
    /// How long it waits for a task's new owner.
    patience: Duration,
    deadline: Instant,
}

impl FromRequestParts<Arc<Api>> for Inbound {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal =
            principal.ok_or_else(|| Problem::internal("a handler asked before its caller"))?;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let deadline = parts.extensions.get::<Deadline>().map(|deadline| deadline.0);
        let mut headers = HeaderMap::new();
        for name in CARRIED {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Ok(Self {
            method: parts.method.clone(),
            target: target.to_owned(),
            headers,
            body: Bytes::new(),
            principal,
            internal: parts.extensions.get::<Internal>().is_some(),
            safe: parts.method.is_safe(),
            patience: OWNER_WITHIN,
            deadline: deadline.unwrap_or_else(|| Instant::now() + api.operations.request_timeout),
        })
    }
}

impl Inbound {
    /// The same request with this JSON body; without, it has none.
    #[must_use]
    pub(crate) fn with_json(mut self, body: impl Into<Bytes>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { body: body.into(), ..self }
    }

    /// The same, which only reads whatever its method: asking again does no harm.
    #[must_use]
    pub(crate) fn reading(self) -> Self {
        Self { safe: true, ..self }
    }

    /// The same, which waits for no new owner: for answers that name what they are without.
    #[must_use]
    pub(crate) fn hasty(&self) -> Self {
        Self { patience: Duration::ZERO, ..self.clone() }
    }

    /// The headers that travel with it.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What logs and records call the caller's token.
    pub(crate) fn token(&self) -> &str {
        &self.principal.token
    }

    /// The same request, whose answer is an acknowledgement: it is not repeated unseen.
    #[must_use]
    pub(crate) fn acknowledging(self) -> Self {
        Self { safe: false, ..self }
    }

    /// How long its handler has.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).saturating_sub(WAY_BACK)
    }

    /// Another request for the same caller.
    #[must_use]
    pub(crate) fn another(&self, method: Method, target: impl Into<String>) -> Self {
        let (target, body, headers) = (target.into(), Bytes::new(), HeaderMap::new());
        let safe = method.is_safe();
        Self { method, target, body, headers, safe, ..self.clone() }
    }
}

/// What a call came to.
pub(crate) enum Owned<T> {
    /// The task is here and answered.
    Here(T),
    /// Its owner answered, or there is none.
    There(Response),
}

impl<T> Owned<T> {
    /// The answer; `render` shows what a task here said.
    pub(crate) fn answer<R: IntoResponse>(self, render: impl FnOnce(T) -> R) -> Response {
        match self {
            Self::Here(value) => render(value).into_response(),
            Self::There(response) => response,
        }
    }
}

/// Asks a task: `call` asks the one of this instance. When it runs elsewhere the whole request goes
/// there; when it runs nowhere it is waited for, for at most two seconds.
///
/// # Errors
/// 503 `no_owner` when the call surely had no effect, `timeout` when that is not known.
pub(crate) async fn owned<T, F>(
    api: &Api,
    inbound: &Inbound,
    call: impl Fn() -> F,
) -> Result<Owned<T>, Problem>
where
    F: Future<Output = Result<T, CallError>>,
{
    let give_up = Instant::now() + inbound.patience.min(inbound.remaining());
    loop {
        let why = match call().await {
            Ok(value) => return Ok(Owned::Here(value)),
            Err(CallError::TimedOut) => return Err(Problem::timeout()),
            Err(CallError::Abandoned) if !inbound.safe => return Err(Problem::timeout()),
            Err(CallError::Elsewhere(_)) if inbound.internal => return Ok(not_owner()),
            Err(CallError::Elsewhere(peer)) => match forward(api, inbound, &peer).await {
                Ok(answer) if !answer.headers().contains_key(&client::NOT_OWNER) => {
                    return Ok(Owned::There(client::returned(answer)));
                }
                Ok(_) => format!("instance {:?} does not run the task either", peer.instance),
                Err(Failure::NotSent(why)) => why,
                Err(Failure::Unknown(why)) if inbound.safe => why,
                Err(Failure::Unknown(why)) => return Err(Problem::timeout().because(why)),
            },
            Err(error @ (CallError::Unknown | CallError::Abandoned)) => error.to_string(),
        };
        if Instant::now() + LOOK >= give_up {
            return if inbound.internal { Ok(not_owner()) } else { Err(Problem::no_owner(why)) };
        }
        sleep(LOOK).await;
    }
}

/// What an instance answers another that takes it for an owner.
fn not_owner<T>() -> Owned<T> {
    let mut response = Problem::from(Code::NoOwner).into_response();
    response.headers_mut().insert(client::NOT_OWNER, HeaderValue::from_static("1"));
    Owned::There(response)
}

/// Sends a request once to another instance, for its caller. An answer of 401 is a failure: it is
/// about our token, not about the caller's.
pub(crate) async fn forward(
    api: &Api,
    inbound: &Inbound,
    peer: &Peer,
) -> Result<reqwest::Response, Failure> {
    let not_sent = |why: &str| Failure::NotSent(why.to_owned());
    let cluster = api.cluster.as_ref().ok_or_else(|| not_sent("cluster.key is not set"))?;
    let base = cluster.hosts.base(&peer.url);
    let base = base.ok_or_else(|| not_sent("an instance's host is not among cluster.hosts"))?;
    let url = base.join(&inbound.target).map_err(|_| not_sent("no URL"))?;
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    if target != inbound.target || url.origin() != base.origin() {
        // The parser took it for something else than the router did.
        return Err(not_sent("the request's path cannot be sent on"));
    }
    let within = inbound.remaining();
    let mut nonce = [0; NONCE_BYTES];
    api.operations.entropy.fill(&mut nonce);
    let saying = Saying {
        to: &peer.instance,
        principal: &inbound.principal,
        at: api.operations.clock.now(),
        nonce,
        within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        body: &inbound.body,
    };
    let bound = Bound { method: &inbound.method, target, headers: &inbound.headers };
    let token = cluster.key.sign(&saying, &bound);
    let request = cluster.client.request(inbound.method.clone(), url.clone());
    let request = request
        .headers(inbound.headers.clone())
        .header(admit::TOKEN, token)
        .body(inbound.body.clone())
        .build()
        .map_err(|error| not_sent(&error.without_url().to_string()))?;
    let sent = timeout(within, client::send(&cluster.client, request)).await;
    let answer = sent.map_err(|_| Failure::Unknown("no answer within the time".to_owned()))??;
    if answer.status() == StatusCode::UNAUTHORIZED {
        return Err(not_sent(
            "an instance refused the internal token: cluster.key or a clock differs",
        ));
    }
    Ok(answer)
}
