//! Signing secrets: made, sealed, rotated, and shown in the one answer that is for that.
//!
//! Invariant: a handler's answer says where a secret lies and does not hold it. [`reveal`] puts it
//! in last, after the answer was kept for its idempotency key, and only while the subscription
//! still has it.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, RawQuery, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use streaming_hub_model::change::{Action, Change};
use streaming_hub_model::idempotency::SecretPlace;
use streaming_hub_model::ports::Entropy;
use streaming_hub_model::secret::{NONCE_BYTES, Owner, Sealed};
use streaming_hub_model::subscription::{SigningSecret, SinkConfig, Subscription};
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::{OperatorCaller, TenantCaller};
use crate::body::{IdInPath, OptionalJsonBody};
use crate::draft;
use crate::fields;
use crate::idempotency::Seed;
use crate::if_match::IfMatch;
use crate::problem::{Code, Problem};
use crate::query::Parameters;
use crate::state::Api;
use crate::view;

/// What scanners for leaked secrets recognise.
const SECRET_PREFIX: &str = "whsec_";

/// Random bytes of a signing secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// Characters of [`SECRET_BYTES`] in base64 without padding. The text is given its full length at
/// once, because growing it would leave a copy behind.
const BASE64_URL_CHARS: usize = (SECRET_BYTES * 4).div_ceil(3);

/// The longest overlap of two secrets, and the one that is meant when none is given, seconds.
pub(crate) const OVERLAP_S_MAX: u64 = 86_400;

/// A new secret.
pub(crate) fn made(entropy: &dyn Entropy) -> SecretString {
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    entropy.fill(&mut *bytes);
    let mut text = String::with_capacity(SECRET_PREFIX.len() + BASE64_URL_CHARS);
    text.push_str(SECRET_PREFIX);
    BASE64_URL.encode_string(bytes.as_slice(), &mut text);
    SecretString::from(text)
}

/// A secret as it may leave the process: sealed for its owner.
pub(crate) fn sealed(
    api: &Api,
    owner: Owner<'_>,
    secret: &SecretString,
) -> Result<Sealed, Problem> {
    let mut nonce = [0; NONCE_BYTES];
    api.operations.entropy.fill(&mut nonce);
    let sealed = api.keyring.seal(owner, secret, nonce);
    sealed.map_err(|error| Problem::internal(error.to_string()))
}

/// What a rotation asks for.
struct Rotation {
    overlap_s: u64,
    /// The tenant's own; the hub makes one when there is none.
    secret: Option<SecretString>,
}

impl Rotation {
    fn parse(body: Value) -> Result<Self, Problem> {
        let read = fields::read(body, |mut fields| {
            let overlap = fields
                .optional("overlap_seconds", |value, at| at.integer(&value, 0, OVERLAP_S_MAX));
            let secret = fields.optional("secret", draft::secret);
            fields.finish();
            Some(Self { overlap_s: overlap?.unwrap_or(OVERLAP_S_MAX), secret: secret? })
        });
        read.map_err(Problem::validation)
    }
}

/// `POST /v1/subscriptions/{id}/rotate-secret`.
pub(crate) async fn rotate(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
    (Seed(seed), condition): (Seed, IfMatch),
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let record = api.find(&tenant, id).await?;
    if record.sink.is_pull() {
        return Err(Code::PullSubscription.into());
    }
    let rotation = Rotation::parse(body)?;
    let owner = Owner { tenant: &tenant, subscription: id };
    let own = rotation.secret.is_some();
    let secret = rotation.secret.unwrap_or_else(|| made(&*api.operations.entropy));
    let action = Action::Rotate {
        // A repetition after this same rotation would find another version.
        expected: condition.expected(Some(record.version)).filter(|_| !has_made(&record, seed)),
        sealed: sealed(&api, owner, &secret)?,
        overlap_ms: rotation.overlap_s * 1_000,
    };
    // Under an idempotency key the change has the key's id, so that it rotates once.
    let change =
        seed.map_or_else(|| api.operations.uuid(), |seed| Uuid::from_bytes(*seed.as_bytes()));
    let change = Change {
        id: change,
        reply_to: String::new(),
        tenant: tenant.clone(),
        subscription: id,
        action,
    };
    let made_by = change.id;
    api.decided(change).await?;
    let record = api.own(&tenant, id).ok_or(Code::NotFound)?;
    let mut response = view::subscription(&record);
    if !own {
        response.extensions_mut().insert(SecretPlace { subscription: id, made_by });
    }
    Ok(response)
}

/// What a rewrapping asks for.
pub(crate) struct RewrapQuery {
    /// Nothing is changed; it is only counted what would be.
    dry_run: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for RewrapQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(RawQuery(query)) = RawQuery::from_request_parts(parts, state).await;
        let mut own = Parameters::new(query.as_deref().unwrap_or_default());
        let dry_run = own.boolean("dry_run");
        own.finish(Self { dry_run: dry_run.unwrap_or(false) })
    }
}

/// `POST /admin/secrets/rewrap`: seals every secret with the current key that is sealed with an
/// older one, so that the older one can be taken out of the configuration. It ends in half of its
/// time, and says how many are left for the next request.
pub(crate) async fn rewrap(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    RewrapQuery { dry_run }: RewrapQuery,
) -> Result<Response, Problem> {
    let until = Instant::now() + api.operations.request_timeout / 2;
    let (mut rewrapped, mut failed, mut left) = (0_u64, 0_u64, 0_u64);
    for record in api.table.all() {
        match resealed(&api, &record) {
            Ok(pairs) if pairs.is_empty() => {}
            Ok(_) if dry_run => rewrapped += 1,
            Ok(_) if Instant::now() >= until => left += 1,
            Ok(pairs) => {
                let action = Action::Resealed { pairs };
                match api.submit(&record.tenant, record.id, action).await {
                    Ok(_) => rewrapped += 1,
                    // Deleted meanwhile: its secrets are gone.
                    Err(problem) if problem.code() == Code::NotFound => {}
                    Err(problem) => return Err(problem),
                }
            }
            Err(problem) => {
                failed += 1;
                let id = record.id;
                tracing::warn!(subscription = %id, cause = problem.cause(), "not rewrapped");
            }
        }
    }
    let answer = json!({
        "dry_run": dry_run, "rewrapped": rewrapped, "failed": failed, "left": left,
    });
    Ok(Json(answer).into_response())
}

/// The secrets of a record that an older key seals, with their new seals.
fn resealed(api: &Api, record: &Subscription) -> Result<Vec<(Sealed, Sealed)>, Problem> {
    let owner = Owner { tenant: &record.tenant, subscription: record.id };
    let old = record.sink.seals().into_iter();
    old.filter(|old| api.keyring.is_old(old))
        .map(|old| {
            let secret = api.keyring.open(owner, old);
            let secret = secret.map_err(|error| Problem::internal(error.to_string()))?;
            Ok((old.clone(), sealed(api, owner, &secret)?))
        })
        .collect()
}

/// Whether the newest secret is the one that a request under this key made.
fn has_made(record: &Subscription, seed: Option<streaming_hub_model::id::SubscriptionId>) -> bool {
    let newest = secrets(&record.sink).first().and_then(|secret| secret.made_by);
    seed.is_some_and(|seed| newest == Some(Uuid::from_bytes(*seed.as_bytes())))
}

/// The signing secrets of a sink, newest first; none where nothing is signed.
pub(crate) fn secrets(sink: &SinkConfig) -> &[SigningSecret] {
    match sink {
        SinkConfig::Webhook(webhook) => &webhook.secrets,
        SinkConfig::Sqs(_)
        | SinkConfig::EventBridge(_)
        | SinkConfig::RabbitMq(_)
        | SinkConfig::Pull => &[],
    }
}

/// Puts the secret that an answer shows into it, while the subscription still has it.
pub(crate) async fn reveal(api: &Api, mut response: Response) -> Result<Response, Problem> {
    let Some(place) = response.extensions_mut().remove::<SecretPlace>() else {
        return Ok(response);
    };
    let now = api.operations.clock.now();
    let record = api.table.get(place.subscription);
    let found = record.as_ref().and_then(|record| {
        let own = secrets(&record.sink);
        own.iter().find(|secret| secret.made_by == Some(place.made_by) && secret.is_valid_at(now))
    });
    let (Some(record), Some(secret)) = (&record, found) else { return Ok(response) };
    let owner = Owner { tenant: &record.tenant, subscription: record.id };
    let secret = api.keyring.open(owner, &secret.sealed);
    let secret = secret.map_err(|error| Problem::internal(error.to_string()))?;
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await;
    let bytes = bytes.map_err(|error| Problem::internal(error.to_string()))?;
    let mut value: Value =
        serde_json::from_slice(&bytes).map_err(|error| Problem::internal(error.to_string()))?;
    value["signing_secret"] = secret.expose_secret().into();
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(value.to_string())))
}

#[cfg(test)]
mod tests;
