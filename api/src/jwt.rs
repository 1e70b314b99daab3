//! JSON web tokens as bearer tokens (RFC 7519): signatures by configured keys or a JWKS that is
//! fetched, algorithms by an allow-list, and the claims that say who calls and until when. Claims
//! are judged here and by the hub's own clock; the library checks signatures and nothing else.
//!
//! Invariant: a token that is not good in every respect names nobody, and the caller learns no
//! more than that. A tenant's claim never makes an operator.

mod keys;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use jsonwebtoken::{Algorithm, Header, crypto, decode_header};
use serde_json::{Map, Value};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use url::Url;

use self::keys::Keys;

/// The longest token that is looked at, bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How tokens are judged.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// Algorithms that count, by their names in RFC 7518; `none` never does.
    pub algorithms: Vec<String>,
    /// A JWKS document (RFC 7517) with keys of any kind.
    pub keys: Option<String>,
    /// Where public keys are fetched.
    pub jwks_url: Option<Url>,
    /// How often they are fetched anew.
    pub refresh: Duration,
    /// What `iss` must be, if anything.
    pub issuer: Option<String>,
    /// One of these must be in `aud`, if there are any.
    pub audiences: Vec<String>,
    /// How far clocks may differ, milliseconds.
    pub leeway_ms: u64,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that lists scopes.
    pub scope_claim: String,
    /// The scope of an operator.
    pub admin_scope: String,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a signature algorithm of RFC 7518 that is supported.
    #[error("{0:?} is no supported algorithm")]
    Algorithm(String),
    /// Not a JWKS, or without a usable key.
    #[error("the keys are no JWKS (RFC 7517): {0}")]
    Keys(String),
    /// Nothing would ever verify.
    #[error("neither keys nor a URL of keys is given")]
    NoKeys,
    /// No HTTP client can be made.
    #[error("no HTTP client: {0}")]
    Client(String),
}

/// Whom a good token names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Tenant(TenantId),
    Operator,
    /// Somebody who may do nothing here.
    Nobody,
}

/// What verifies tokens.
pub struct Jwt {
    settings: JwtSettings,
    algorithms: Vec<Algorithm>,
    keys: Keys,
    clock: Arc<dyn Clock>,
}

impl Jwt {
    /// A verifier with these settings.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(settings: JwtSettings, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let named = |name: &String| name.parse().map_err(|_| Error::Algorithm(name.clone()));
        let algorithms = settings.algorithms.iter().map(named).collect::<Result<_, _>>()?;
        let keys = Keys::new(settings.keys.as_deref(), settings.jwks_url.clone())?;
        Ok(Self { settings, algorithms, keys, clock })
    }

    /// Fetches keys from time to time, for ever. Nothing to do without a URL.
    pub async fn refresh(self: Arc<Self>) {
        while self.keys.is_remote() {
            self.keys.fetch(self.clock.now()).await;
            tokio::time::sleep(self.settings.refresh).await;
        }
    }

    /// Whom this token names; `None` for one that is not good.
    pub(crate) async fn verify(&self, token: &[u8]) -> Option<Named> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let token = std::str::from_utf8(token).ok()?;
        let header = decode_header(token).ok()?;
        if !self.algorithms.contains(&header.alg) {
            return None;
        }
        if !self.signed(token, &header) {
            // Its key may be newer than ours.
            if !self.keys.fetch(self.clock.now()).await || !self.signed(token, &header) {
                return None;
            }
        }
        let payload = BASE64_URL.decode(token.split('.').nth(1)?).ok()?;
        self.named(&serde_json::from_slice(&payload).ok()?)
    }

    fn signed(&self, token: &str, header: &Header) -> bool {
        let Some((message, signature)) = token.rsplit_once('.') else { return false };
        self.keys.candidates(header).iter().any(|key| {
            crypto::verify(signature, message.as_bytes(), key, header.alg).unwrap_or(false)
        })
    }

    fn named(&self, claims: &Map<String, Value>) -> Option<Named> {
        let own = &self.settings;
        if !is_now(claims, self.clock.now(), own.leeway_ms) {
            return None;
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        if own.issuer.as_deref().is_some_and(|wanted| issuer != Some(wanted)) {
            return None;
        }
        let audiences: Vec<_> = texts(claims.get("aud")).collect();
        let meant = |wanted: &String| audiences.contains(&wanted.as_str());
        if !own.audiences.is_empty() && !own.audiences.iter().any(meant) {
            return None;
        }
        let scopes = texts(claims.get(&own.scope_claim));
        if scopes.flat_map(|text| text.split(' ')).any(|scope| scope == own.admin_scope) {
            return Some(Named::Operator);
        }
        let tenant = claims.get(&own.tenant_claim);
        match tenant.and_then(Value::as_str).map(TenantId::parse) {
            Some(Ok(tenant)) => Some(Named::Tenant(tenant)),
            Some(Err(_)) => None,
            None => Some(Named::Nobody),
        }
    }
}

/// Whether a token is valid at this moment: it must say until when, and may say from when.
fn is_now(claims: &Map<String, Value>, now: UnixMillis, leeway_ms: u64) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and is compared only")]
    let at = |name: &str| match claims.get(name) {
        None => Some(None),
        Some(value) => value.as_f64().map(|seconds| Some((seconds * 1_000.0) as i64)),
    };
    let leeway = i64::try_from(leeway_ms).unwrap_or(i64::MAX);
    let (Some(Some(expires)), Some(begins)) = (at("exp"), at("nbf")) else { return false };
    now.0 < expires.saturating_add(leeway)
        && begins.is_none_or(|begins| now.0 >= begins.saturating_sub(leeway))
}

/// A claim that is a text or a list of texts.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = match claim {
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
