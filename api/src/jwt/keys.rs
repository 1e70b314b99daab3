//! The keys that verify tokens: those of the configuration, and those of a JWKS that is fetched and
//! kept until a newer one is there. A fetch that fails changes nothing.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use streaming_hub_model::time::UnixMillis;
use tokio::sync::Mutex;
use url::Url;

use super::Error;

/// The largest document that is read, bytes.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// How long a fetch may take.
const FETCH: Duration = Duration::from_secs(3);
/// A token with an unknown key has the keys fetched at most this often, milliseconds.
const FETCH_AGAIN_MS: u64 = 10_000;
/// How many keys are tried for a token that does not name its key.
const TRIED_MAX: usize = 8;

pub(super) struct Keys {
    own: JwkSet,
    fetched: RwLock<JwkSet>,
    remote: Option<(Url, reqwest::Client)>,
    /// When it was fetched last; held while it is.
    last: Mutex<Option<UnixMillis>>,
}

impl Keys {
    pub(super) fn new(document: Option<&str>, url: Option<Url>) -> Result<Self, Error> {
        if document.is_none() && url.is_none() {
            return Err(Error::NoKeys);
        }
        let own = match document {
            Some(text) => serde_json::from_str::<JwkSet>(text)
                .map_err(|error| Error::Keys(error.to_string()))?,
            None => JwkSet { keys: Vec::new() },
        };
        if let Some(bad) = own.keys.iter().find(|key| DecodingKey::from_jwk(key).is_err()) {
            let name = bad.common.key_id.as_deref().unwrap_or("without a kid");
            return Err(Error::Keys(format!("the key {name} cannot be used")));
        }
        let remote = match url {
            Some(url) => Some((url, crate::forward::client().map_err(Error::Client)?)),
            None => None,
        };
        let fetched = RwLock::new(JwkSet { keys: Vec::new() });
        Ok(Self { own, fetched, remote, last: Mutex::default() })
    }

    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The keys that may have signed a token with this header.
    pub(super) fn candidates(&self, header: &Header) -> Vec<DecodingKey> {
        let fetched = self.fetched.read().unwrap_or_else(PoisonError::into_inner);
        // A shared secret that everybody can fetch is none.
        let public = fetched
            .keys
            .iter()
            .filter(|key| !matches!(key.algorithm, AlgorithmParameters::OctetKey(_)));
        let fits = |key: &&Jwk| fits(key, header);
        let fitting = self.own.keys.iter().chain(public).filter(fits).take(TRIED_MAX);
        fitting.filter_map(|key| DecodingKey::from_jwk(key).ok()).collect()
    }

    /// Fetches the keys anew, unless that was done a moment ago. Whether they are new.
    pub(super) async fn fetch(&self, now: UnixMillis) -> bool {
        let Some((url, client)) = &self.remote else { return false };
        let mut last = self.last.lock().await;
        if last.is_some_and(|last| now.since(last) < FETCH_AGAIN_MS) {
            return false;
        }
        *last = Some(now);
        match tokio::time::timeout(FETCH, document(client, url)).await {
            Ok(Ok(keys)) => {
                *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = keys;
                return true;
            }
            Ok(Err(error)) => tracing::warn!(error, "the keys of tokens could not be fetched"),
            Err(_) => tracing::warn!("the keys of tokens were not fetched in time"),
        }
        false
    }
}

async fn document(client: &reqwest::Client, url: &Url) -> Result<JwkSet, String> {
    let mut response =
        client.get(url.clone()).send().await.map_err(|error| error.without_url().to_string())?;
    if !response.status().is_success() {
        return Err(format!("the answer is {}", response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| e.without_url().to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err("the document is too large".to_owned());
        }
    }
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Whether a key may have signed a token with this header: its id, its use and its kind.
fn fits(key: &Jwk, header: &Header) -> bool {
    let named = header.kid.is_none() || header.kid == key.common.key_id;
    let signs = key.common.public_key_use.as_ref().is_none_or(|u| *u == PublicKeyUse::Signature);
    let algorithm = key.common.key_algorithm.is_none_or(|algorithm| {
        algorithm.to_string().parse::<Algorithm>().is_ok_and(|own| own == header.alg)
    });
    let kind = matches!(
        (&key.algorithm, header.alg),
        (
            AlgorithmParameters::RSA(_),
            Algorithm::RS256
                | Algorithm::RS384
                | Algorithm::RS512
                | Algorithm::PS256
                | Algorithm::PS384
                | Algorithm::PS512
        ) | (AlgorithmParameters::EllipticCurve(_), Algorithm::ES256 | Algorithm::ES384)
            | (AlgorithmParameters::OctetKeyPair(_), Algorithm::EdDSA)
            | (
                AlgorithmParameters::OctetKey(_),
                Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512
            )
    );
    named && signs && algorithm && kind
}
