//! Internal tokens (design 24): what one instance shows another instead of the caller's own token.
//! An HMAC under the cluster's key binds who calls (role, tenant, the token's name), which instance
//! is called, method, path with query, the headers that matter and the body's hash. It is valid for
//! 30 s and accepted once. Pure: clock and randomness come in as parameters.

use std::collections::{HashSet, VecDeque};

use axum::http::header::{CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, Method};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use streaming_hub_model::hex;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use crate::auth::Role;

/// The least bytes of a cluster key: those of the hash.
pub(crate) const KEY_BYTES_MIN: usize = 32;
/// How long a token is valid, milliseconds.
const VALID_MS: i64 = 30_000;
/// How far the clocks of two instances may be apart, milliseconds.
const LEEWAY_MS: i64 = 5_000;
/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 16;
/// The most nonces that are remembered; beyond it tokens are refused until some expire.
const NONCES_MAX: usize = 131_072;
/// The longest token that is looked at, bytes.
const TOKEN_BYTES_MAX: usize = 4_096;

/// Separates these codes from every other use of the key.
const DOMAIN: &[u8] = b"streaming-hub/internal/1";

/// The headers of a request that travel with it, and are bound.
pub(crate) const CARRIED: [HeaderName; 4] =
    [CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, HeaderName::from_static("idempotency-key")];

/// For whom a request is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Principal {
    /// What the caller's token may do.
    pub(crate) role: Role,
    /// Whose it is, with [`Role::Tenant`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) tenant: Option<TenantId>,
    /// What logs call it.
    pub(crate) token: String,
}

/// A request as a token binds it.
pub(crate) struct Bound<'a> {
    pub(crate) method: &'a Method,
    /// Path and query, as they stand on the request line.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// The instance that may accept it.
    to: String,
    /// For whom.
    #[serde(flatten)]
    pub(crate) principal: Principal,
    /// When it was made, Unix milliseconds.
    at: i64,
    /// Accepted once.
    nonce: String,
    /// How long the answer is waited for, milliseconds.
    pub(crate) within_ms: u64,
    /// SHA-256 of the body, hex.
    body: String,
}

/// What is said when a token is made.
pub(crate) struct Saying<'a> {
    pub(crate) to: &'a str,
    pub(crate) principal: &'a Principal,
    pub(crate) at: UnixMillis,
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) within_ms: u64,
    pub(crate) body: &'a [u8],
}

/// The cluster's key.
pub(crate) struct Key(SecretSlice<u8>);

impl Key {
    /// `None` for a key that is too short.
    pub(crate) fn new(bytes: SecretSlice<u8>) -> Option<Self> {
        (bytes.expose_secret().len() >= KEY_BYTES_MIN).then_some(Self(bytes))
    }

    fn mac(&self, claims: &[u8], bound: &Bound<'_>) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.expose_secret()) else {
            unreachable!("HMAC takes a key of any length (RFC 2104)")
        };
        let mut part = |bytes: &[u8]| {
            mac.update(&(bytes.len() as u64).to_be_bytes());
            mac.update(bytes);
        };
        for bytes in [DOMAIN, claims, bound.method.as_str().as_bytes(), bound.target.as_bytes()] {
            part(bytes);
        }
        for name in CARRIED {
            let values: Vec<_> = bound.headers.get_all(&name).iter().collect();
            part(&(values.len() as u64).to_be_bytes());
            values.iter().for_each(|value| part(value.as_bytes()));
        }
        mac
    }

    /// A token for one request.
    pub(crate) fn sign(&self, saying: &Saying<'_>, bound: &Bound<'_>) -> String {
        let claims = Claims {
            to: saying.to.to_owned(),
            principal: saying.principal.clone(),
            at: saying.at.0,
            nonce: hex::encode(&saying.nonce),
            within_ms: saying.within_ms,
            body: body_hash(saying.body),
        };
        // A struct of texts and numbers always has a JSON text.
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let code = self.mac(&claims, bound).finalize().into_bytes();
        format!("{}.{}", BASE64_URL.encode(&claims), BASE64_URL.encode(code))
    }

    /// The claims of a token that this key made for this instance and this request, and that is
    /// neither too old nor of the future. Nonce and body are the caller's to check.
    pub(crate) fn check(
        &self,
        token: &[u8],
        instance: &str,
        bound: &Bound<'_>,
        now: UnixMillis,
    ) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (claims, code) = std::str::from_utf8(token).ok()?.split_once('.')?;
        let (claims, code) = (BASE64_URL.decode(claims).ok()?, BASE64_URL.decode(code).ok()?);
        // Compared in constant time.
        self.mac(&claims, bound).verify_slice(&code).ok()?;
        let claims: Claims = serde_json::from_slice(&claims).ok()?;
        let age_ms = now.0.checked_sub(claims.at)?;
        let is_current = (-LEEWAY_MS..=VALID_MS).contains(&age_ms);
        (is_current && claims.to == instance).then_some(claims)
    }
}

impl Claims {
    /// Whether the token was made for this body.
    pub(crate) fn is_of(&self, body: &[u8]) -> bool {
        self.body == body_hash(body)
    }
}

fn body_hash(body: &[u8]) -> String {
    hex::encode(&Sha256::digest(body))
}

/// The nonces of tokens that may still be valid. Bounded: when it is full, nothing more is
/// accepted until the oldest expire.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    seen: HashSet<String>,
    /// In order of arrival, with the time at which the token is surely too old.
    order: VecDeque<(i64, String)>,
}

impl Nonces {
    /// Takes the nonce of a checked token; `false` when it came before, or there is no room.
    pub(crate) fn accept(&mut self, claims: &Claims, now: UnixMillis) -> bool {
        while let Some((until, _)) = self.order.front()
            && *until < now.0
        {
            if let Some((_, nonce)) = self.order.pop_front() {
                self.seen.remove(&nonce);
            }
        }
        if self.seen.len() >= NONCES_MAX || !self.seen.insert(claims.nonce.clone()) {
            return false;
        }
        // Not by the token's own time: the queue must be in order.
        self.order.push_back((now.0 + VALID_MS + LEEWAY_MS, claims.nonce.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_790_000_000_000);

    fn key(byte: u8) -> Key {
        Key::new(vec![byte; KEY_BYTES_MIN].into()).unwrap()
    }

    fn principal(role: Role, tenant: Option<&str>) -> Principal {
        let tenant = tenant.map(|tenant| TenantId::parse(tenant).unwrap());
        Principal { role, tenant, token: "billing".into() }
    }

    fn token(key: &Key, bound: &Bound<'_>, body: &[u8]) -> String {
        let principal = principal(Role::Tenant, Some("acme"));
        let saying = Saying {
            to: "b",
            principal: &principal,
            at: NOW,
            nonce: [7; NONCE_BYTES],
            within_ms: 9_000,
            body,
        };
        key.sign(&saying, bound)
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_is_for_one_request_to_one_instance() {
        let key = key(1);
        let post = headers(&[(CONTENT_TYPE, "application/json")]);
        let other = headers(&[(CONTENT_TYPE, "application/json"), (IF_MATCH, "\"2\"")]);
        let bound = |method, target, headers| Bound { method, target, headers };
        let of = bound(&Method::POST, "/v1/a?b=c", &post);
        let token = token(&key, &of, b"{}");
        let check = |instance, bound: &Bound<'_>| key.check(token.as_bytes(), instance, bound, NOW);
        let claims = check("b", &of).unwrap();
        assert_eq!(claims.principal, principal(Role::Tenant, Some("acme")));
        assert_eq!(claims.within_ms, 9_000);
        assert!(claims.is_of(b"{}") && !claims.is_of(b"{ }"));
        assert_eq!(check("c", &of), None);
        assert_eq!(check("b", &bound(&Method::PUT, "/v1/a?b=c", &post)), None);
        assert_eq!(check("b", &bound(&Method::POST, "/v1/a?b=d", &post)), None);
        assert_eq!(check("b", &bound(&Method::POST, "/v1/a", &post)), None);
        assert_eq!(check("b", &bound(&Method::POST, "/v1/a?b=c", &other)), None);
    }

    #[test]
    fn an_altered_token_and_one_of_another_key_are_refused() {
        let (none, own) = (HeaderMap::new(), key(1));
        let bound = Bound { method: &Method::GET, target: "/", headers: &none };
        let good = token(&own, &bound, b"");
        assert!(own.check(good.as_bytes(), "b", &bound, NOW).is_some());
        assert!(key(2).check(good.as_bytes(), "b", &bound, NOW).is_none());
        for at in 0..good.len() {
            let mut altered = good.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert!(own.check(&altered, "b", &bound, NOW).is_none(), "{at}");
        }
        for text in ["", ".", "a", "a.b", &format!("{good}A"), &"A".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(own.check(text.as_bytes(), "b", &bound, NOW).is_none(), "{text}");
        }
    }

    #[test]
    fn a_token_is_valid_for_half_a_minute() {
        let (none, key) = (HeaderMap::new(), key(1));
        let bound = Bound { method: &Method::GET, target: "/", headers: &none };
        let token = token(&key, &bound, b"");
        let table = [(0, true), (30_000, true), (30_001, false), (-5_000, true), (-5_001, false)];
        for (later_ms, valid) in table {
            let now = UnixMillis(NOW.0 + later_ms);
            assert_eq!(key.check(token.as_bytes(), "b", &bound, now).is_some(), valid, "{now:?}");
        }
    }

    #[test]
    fn a_nonce_is_accepted_once_and_forgotten_when_no_token_can_bring_it_again() {
        let claims = |nonce: &str| Claims {
            to: "b".into(),
            principal: principal(Role::Operator, None),
            at: NOW.0,
            nonce: nonce.into(),
            within_ms: 1,
            body: String::new(),
        };
        let mut nonces = Nonces::default();
        assert!(nonces.accept(&claims("1"), NOW) && nonces.accept(&claims("2"), NOW));
        let last = UnixMillis(NOW.0 + VALID_MS + LEEWAY_MS);
        assert!(!nonces.accept(&claims("1"), last), "a token of that time may still be valid");
        assert!(nonces.accept(&claims("3"), UnixMillis(last.0 + 1)));
        assert_eq!(nonces.seen.len(), 1);
    }

    #[test]
    fn when_nonces_have_no_room_nothing_is_accepted() {
        let claims = |n: usize| Claims {
            to: "b".into(),
            principal: principal(Role::Operator, None),
            at: NOW.0,
            nonce: n.to_string(),
            within_ms: 1,
            body: String::new(),
        };
        let mut nonces = Nonces::default();
        assert!((0..NONCES_MAX).all(|n| nonces.accept(&claims(n), NOW)));
        assert!(!nonces.accept(&claims(NONCES_MAX), NOW));
    }

    #[test]
    fn a_short_key_is_no_key() {
        assert!(Key::new(vec![1; KEY_BYTES_MIN - 1].into()).is_none());
    }
}
