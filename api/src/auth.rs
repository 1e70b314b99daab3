//! Who calls: a static bearer token of the configuration, or a JWT ([`crate::jwt`]). The
//! configuration holds the SHA-256 of a static token and never the token. A caller's role is the
//! type that a handler asks for ([`TenantCaller`]), so a route cannot forget to check it (I8).
//!
//! Every failure to name a caller is the same 401 without detail.

use std::collections::HashSet;
use std::hint::black_box;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use streaming_hub_model::hex;
use streaming_hub_model::tenant::TenantId;

use crate::forward::Principal;
use crate::jwt::Named;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Bytes of a SHA-256 digest.
const DIGEST_BYTES: usize = 32;

/// What the log calls a caller with a JWT.
const JWT: &str = "jwt";

/// Why the configured tokens cannot be used; each names the token at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not 64 hex digits.
    #[error("token {0:?}: `sha256` is the SHA-256 of the token as 64 hex digits")]
    BadDigest(String),
    /// A tenant's token without a tenant.
    #[error("token {0:?}: role `tenant` needs a `tenant`")]
    TenantMissing(String),
    /// An operator's token with a tenant, which it would not be bound to.
    #[error("token {0:?}: role `operator` has no `tenant`")]
    TenantGiven(String),
    /// Two tokens of one name or of one digest.
    #[error("token {0:?}: another token has the same name or the same digest")]
    Duplicate(String),
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Its own tenant's resources under `/v1`.
    Tenant,
    /// `/admin`; nothing under `/v1`.
    Operator,
}

/// One static token as the configuration holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// What logs call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Whose it is; with role `tenant` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// SHA-256 of the token's bytes, 64 hex digits.
    pub sha256: String,
}

/// Whom a token names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Caller {
    Tenant(TenantId),
    Operator,
}

/// A token ready to be compared.
#[derive(Debug)]
struct Known {
    name: String,
    digest: [u8; DIGEST_BYTES],
    caller: Caller,
}

/// All tokens of the configuration.
#[derive(Debug, Default)]
pub struct Tokens(Vec<Known>);

impl Tokens {
    /// Checks and takes the configured tokens.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(tokens: &[TokenConfig]) -> Result<Self, Error> {
        let known: Vec<_> = tokens.iter().map(known).collect::<Result<_, _>>()?;
        let (mut names, mut digests) = (HashSet::new(), HashSet::new());
        for token in &known {
            if !names.insert(&token.name) || !digests.insert(token.digest) {
                return Err(Error::Duplicate(token.name.clone()));
            }
        }
        Ok(Self(known))
    }

    /// The token that was presented, if it is one of ours. Compares with all of them in constant
    /// time, so that neither a match nor its place shows in how long it takes.
    fn find(&self, token: &[u8]) -> Option<&Known> {
        let digest: [u8; DIGEST_BYTES] = Sha256::digest(token).into();
        let mut found = None;
        for known in &self.0 {
            if equal(&known.digest, &digest) {
                found = Some(known);
            }
        }
        found
    }
}

fn known(config: &TokenConfig) -> Result<Known, Error> {
    let name = || config.name.clone();
    let digest = hex::decode(&config.sha256).and_then(|digest| digest.try_into().ok());
    let digest = digest.ok_or_else(|| Error::BadDigest(name()))?;
    let caller = match (config.role, &config.tenant) {
        (Role::Tenant, Some(tenant)) => Caller::Tenant(tenant.clone()),
        (Role::Tenant, None) => return Err(Error::TenantMissing(name())),
        (Role::Operator, None) => Caller::Operator,
        (Role::Operator, Some(_)) => return Err(Error::TenantGiven(name())),
    };
    Ok(Known { name: name(), digest, caller })
}

fn equal(a: &[u8; DIGEST_BYTES], b: &[u8; DIGEST_BYTES]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    // Keeps the compiler from turning the fold into a comparison that ends early.
    black_box(difference) == 0
}

/// The token of the one `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

/// Who calls, as a bearer token or another instance of the hub says; noted for the log and for
/// what is forwarded.
pub(crate) async fn principal(parts: &mut Parts, api: &Api) -> Result<Principal, Problem> {
    // Another instance has named the caller already: its token was checked before any handler.
    if let Some(principal) = parts.extensions.get::<Principal>() {
        tracing::Span::current().record("token", &principal.token);
        return Ok(principal.clone());
    }
    let token = bearer(&parts.headers).ok_or(Code::Unauthenticated)?;
    let (caller, name) = match (api.tokens.find(token), &api.jwt) {
        (Some(known), _) => (known.caller.clone(), known.name.as_str()),
        (None, Some(jwt)) => match jwt.verify(token).await.ok_or(Code::Unauthenticated)? {
            Named::Tenant(tenant) => (Caller::Tenant(tenant), JWT),
            Named::Operator => (Caller::Operator, JWT),
            Named::Nobody => return Err(Code::Forbidden.into()),
        },
        (None, None) => return Err(Code::Unauthenticated.into()),
    };
    tracing::Span::current().record("token", name);
    let (role, tenant) = match caller {
        Caller::Tenant(tenant) => (Role::Tenant, Some(tenant)),
        Caller::Operator => (Role::Operator, None),
    };
    let principal = Principal { role, tenant, token: name.to_owned() };
    parts.extensions.insert(principal.clone());
    Ok(principal)
}

/// A request made with a tenant's token.
pub(crate) struct TenantCaller {
    /// The only tenant whose resources exist for this request.
    pub(crate) tenant: TenantId,
}

// The guard around each route has named the caller, after it looked at the route's access. Without
// one (a route without a guard) nobody may.
impl<S: Send + Sync> FromRequestParts<S> for TenantCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get() {
            Some(Principal { role: Role::Tenant, tenant: Some(tenant), .. }) => {
                Ok(Self { tenant: tenant.clone() })
            }
            Some(_) => Err(Code::Forbidden.into()),
            None => Err(Code::Unauthenticated.into()),
        }
    }
}

/// A request made with an operator's token.
pub(crate) struct OperatorCaller;

impl<S: Send + Sync> FromRequestParts<S> for OperatorCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get() {
            Some(Principal { role: Role::Operator, tenant: None, .. }) => Ok(Self),
            Some(_) => Err(Code::Forbidden.into()),
            None => Err(Code::Unauthenticated.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, role: Role, tenant: Option<&str>, token: &str) -> TokenConfig {
        use std::fmt::Write;
        let mut sha256 = String::new();
        for byte in Sha256::digest(token) {
            write!(sha256, "{byte:02x}").unwrap();
        }
        let tenant = tenant.map(|tenant| TenantId::parse(tenant).unwrap());
        TokenConfig { name: name.into(), role, tenant, sha256 }
    }

    #[test]
    fn a_token_names_its_caller_and_nothing_else_does() {
        let acme = TenantId::parse("acme").unwrap();
        let tokens = Tokens::new(&[
            config("a", Role::Tenant, Some("acme"), "token-a"),
            config("o", Role::Operator, None, "token-o"),
        ])
        .unwrap();
        assert_eq!(tokens.find(b"token-a").unwrap().caller, Caller::Tenant(acme));
        assert_eq!(tokens.find(b"token-o").unwrap().caller, Caller::Operator);
        assert!(tokens.find(b"token-b").is_none());
        assert!(tokens.find(b"").is_none());
        assert!(Tokens::default().find(b"token-a").is_none());
    }

    #[test]
    fn a_configuration_that_says_two_things_is_refused() {
        let good = config("a", Role::Tenant, Some("acme"), "x");
        let table = [
            (
                vec![TokenConfig { sha256: "é".repeat(32), ..good.clone() }],
                Error::BadDigest("a".into()),
            ),
            (
                vec![TokenConfig { sha256: "ab".into(), ..good.clone() }],
                Error::BadDigest("a".into()),
            ),
            (vec![TokenConfig { tenant: None, ..good.clone() }], Error::TenantMissing("a".into())),
            (
                vec![TokenConfig { role: Role::Operator, ..good.clone() }],
                Error::TenantGiven("a".into()),
            ),
            (
                vec![good.clone(), TokenConfig { name: "b".into(), ..good.clone() }],
                Error::Duplicate("b".into()),
            ),
            (
                vec![good, config("a", Role::Tenant, Some("acme"), "y")],
                Error::Duplicate("a".into()),
            ),
        ];
        for (tokens, error) in table {
            assert_eq!(Tokens::new(&tokens).unwrap_err(), error);
        }
    }

    #[test]
    fn a_bearer_token_stands_in_one_header() {
        let table: [(&[&str], Option<&[u8]>); 8] = [
            (&["Bearer abc"], Some(b"abc")),
            (&["bearer  abc "], Some(b"abc")),
            (&["Bearer "], None),
            (&["Bearer"], None),
            (&["Basic abc"], None),
            (&["Bearerabc"], None),
            (&[], None),
            (&["Bearer abc", "Bearer abc"], None),
        ];
        for (values, token) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers), token, "{values:?}");
        }
    }

    #[test]
    fn a_misspelt_field_of_the_configuration_is_refused() {
        let json = serde_json::json!({"name": "a", "role": "tenant", "tenent": "x", "sha256": ""});
        assert!(serde_json::from_value::<TokenConfig>(json).is_err());
    }
}
