//! Secrets at rest: AES-256-GCM under a key that the operator brings, bound to the tenant and the
//! subscription as associated data (contract section 5, "Secrets"). What is sealed for one
//! subscription does not open for another (I8).

use std::collections::BTreeMap;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::destination::DestinationKey;
use crate::hex;
use crate::id::SubscriptionId;
use crate::tenant::TenantId;

/// Bytes of a nonce; each is used once, so it comes from a cryptographic source of randomness.
pub const NONCE_BYTES: usize = 12;

/// Bytes of an encryption key.
pub const KEY_BYTES: usize = 32;

/// Why a secret could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record names a key that the configuration does not have.
    #[error("no encryption key with the id {0:?} is configured")]
    UnknownKey(String),
    /// The key does not fit the ciphertext, or it was sealed for somebody else, or altered.
    #[error("a sealed secret does not open with the key {0:?}")]
    DoesNotOpen(String),
    /// The configured key text is not 32 bytes of base64.
    #[error("an encryption key is 32 bytes in base64 (44 characters)")]
    BadKey,
}

/// A sealed secret as it lies in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Id of the key that sealed it.
    pub key_id: String,
    /// Nonce and ciphertext, base64.
    pub data: String,
}

/// Whose secret it is: the associated data of the seal.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The subscription.
    pub subscription: SubscriptionId,
}

impl Owner<'_> {
    fn associated_data(&self) -> Vec<u8> {
        // The id has a fixed length, so the two parts cannot run into each other.
        let mut data = self.subscription.to_string().into_bytes();
        data.extend_from_slice(self.tenant.as_str().as_bytes());
        data
    }
}

/// The configured keys: the current one seals, all of them open.
pub struct Keyring {
    current: String,
    keys: BTreeMap<String, SecretSlice<u8>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("key_ids", &self.keys.keys()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// A keyring with one key, given as base64 of 32 bytes.
    ///
    /// # Errors
    /// [`Error::BadKey`] when the text is anything else.
    pub fn new(key_id: &str, key_base64: &SecretString) -> Result<Self, Error> {
        let key = BASE64.decode(key_base64.expose_secret().trim()).map_err(|_| Error::BadKey)?;
        if key.len() != KEY_BYTES {
            return Err(Error::BadKey);
        }
        let keys = BTreeMap::from([(key_id.to_owned(), SecretSlice::from(key))]);
        Ok(Self { current: key_id.to_owned(), keys })
    }

    /// The same with a key that opens what it sealed before, and seals nothing.
    ///
    /// # Errors
    /// [`Error::BadKey`] when the text is anything else.
    pub fn with_old(mut self, key_id: &str, key_base64: &SecretString) -> Result<Self, Error> {
        let old = Self::new(key_id, key_base64)?;
        for (id, key) in old.keys {
            self.keys.entry(id).or_insert(key);
        }
        Ok(self)
    }

    /// Whether this was sealed with another key than the current one.
    #[must_use]
    pub fn is_old(&self, sealed: &Sealed) -> bool {
        sealed.key_id != self.current
    }

    /// Seals `secret` for its owner with the current key. `nonce` must never repeat under a key.
    ///
    /// # Errors
    /// [`Error::DoesNotOpen`] when the cipher refuses (an input above 64 GiB; never in practice).
    pub fn seal(
        &self,
        owner: Owner<'_>,
        secret: &SecretString,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Sealed, Error> {
        let cipher = self.cipher(&self.current)?;
        let aad = owner.associated_data();
        let payload = Payload { msg: secret.expose_secret().as_bytes(), aad: &aad };
        let ciphertext = cipher
            .encrypt(&Nonce::from(nonce), payload)
            .map_err(|_| Error::DoesNotOpen(self.current.clone()))?;
        let mut data = nonce.to_vec();
        data.extend_from_slice(&ciphertext);
        Ok(Sealed { key_id: self.current.clone(), data: BASE64.encode(data) })
    }

    /// Opens what was sealed for this owner.
    ///
    /// # Errors
    /// [`Error::UnknownKey`] for a key that is not configured, [`Error::DoesNotOpen`] for anything
    /// that was sealed for another owner, altered, or is no text.
    pub fn open(&self, owner: Owner<'_>, sealed: &Sealed) -> Result<SecretString, Error> {
        let cipher = self.cipher(&sealed.key_id)?;
        let refuse = || Error::DoesNotOpen(sealed.key_id.clone());
        let data = BASE64.decode(&sealed.data).map_err(|_| refuse())?;
        let (nonce, ciphertext) = data.split_first_chunk::<NONCE_BYTES>().ok_or_else(refuse)?;
        let aad = owner.associated_data();
        let payload = Payload { msg: ciphertext, aad: &aad };
        let plain = cipher.decrypt(&Nonce::from(*nonce), payload).map_err(|_| refuse())?;
        String::from_utf8(plain).map(SecretString::from).map_err(|_| refuse())
    }

    /// The external id with which the hub assumes roles for a tenant: an HMAC of it under the
    /// current key. No tenant can make another's, so none can have the hub assume another's role
    /// (the confused deputy), and it tells nothing about the key.
    ///
    /// # Errors
    /// [`Error::UnknownKey`] when there is no current key; never in practice.
    pub fn external_id(&self, tenant: &TenantId) -> Result<String, Error> {
        let key = self.keys.get(&self.current);
        let key = key.ok_or_else(|| Error::UnknownKey(self.current.clone()))?;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key.expose_secret()).map_err(|_| Error::BadKey)?;
        mac.update(b"streaming-hub external id\0");
        mac.update(tenant.as_str().as_bytes());
        Ok(hex::encode(&mac.finalize().into_bytes()))
    }

    /// The key under which destinations get their ids: derived from the current key, and telling
    /// nothing about it. Another current key gives every destination another id.
    ///
    /// # Errors
    /// [`Error::UnknownKey`] when there is no current key; never in practice.
    pub fn destination_key(&self) -> Result<DestinationKey, Error> {
        let key = self.keys.get(&self.current);
        let key = key.ok_or_else(|| Error::UnknownKey(self.current.clone()))?;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key.expose_secret()).map_err(|_| Error::BadKey)?;
        mac.update(b"streaming-hub destination key\0");
        Ok(DestinationKey::new(mac.finalize().into_bytes().into()))
    }

    fn cipher(&self, key_id: &str) -> Result<Aes256Gcm, Error> {
        let key = self.keys.get(key_id).ok_or_else(|| Error::UnknownKey(key_id.to_owned()))?;
        let key = Key::<Aes256Gcm>::try_from(key.expose_secret());
        key.map(|key| Aes256Gcm::new(&key)).map_err(|_| Error::BadKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(id: &str, byte: u8) -> Keyring {
        Keyring::new(id, &SecretString::from(BASE64.encode([byte; KEY_BYTES]))).unwrap()
    }

    fn owner(tenant: &TenantId, n: u8) -> Owner<'_> {
        Owner { tenant, subscription: SubscriptionId::from_parts(1, [n; 10]) }
    }

    #[test]
    fn a_secret_opens_for_its_owner_only() {
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let ring = ring("k1", 7);
        let sealed = ring.seal(owner(&a, 1), &"whsec_x".into(), [9; NONCE_BYTES]).unwrap();
        assert_eq!(ring.open(owner(&a, 1), &sealed).unwrap().expose_secret(), "whsec_x");
        assert!(matches!(ring.open(owner(&b, 1), &sealed), Err(Error::DoesNotOpen(_))));
        assert!(matches!(ring.open(owner(&a, 2), &sealed), Err(Error::DoesNotOpen(_))));
    }

    #[test]
    fn a_lost_or_wrong_key_is_named() {
        let a = TenantId::parse("a").unwrap();
        let sealed = ring("k1", 7).seal(owner(&a, 1), &"s".into(), [1; NONCE_BYTES]).unwrap();
        let lost = ring("k2", 7).open(owner(&a, 1), &sealed);
        assert!(matches!(lost, Err(Error::UnknownKey(id)) if id == "k1"));
        let wrong = ring("k1", 8).open(owner(&a, 1), &sealed);
        assert!(matches!(wrong, Err(Error::DoesNotOpen(_))));
    }

    #[test]
    fn an_old_key_opens_and_the_current_one_seals() {
        let a = TenantId::parse("a").unwrap();
        let old = ring("k1", 7).seal(owner(&a, 1), &"s".into(), [1; NONCE_BYTES]).unwrap();
        let text = SecretString::from(BASE64.encode([7; KEY_BYTES]));
        let ring = ring("k2", 8).with_old("k1", &text).unwrap();
        assert!(ring.is_old(&old));
        assert_eq!(ring.open(owner(&a, 1), &old).unwrap().expose_secret(), "s");
        let new = ring.seal(owner(&a, 1), &"s".into(), [2; NONCE_BYTES]).unwrap();
        assert!(!ring.is_old(&new));
        assert_eq!(new.key_id, "k2");
    }

    #[test]
    fn a_key_of_the_wrong_length_is_refused() {
        let short = SecretString::from(BASE64.encode([1; 16]));
        assert!(matches!(Keyring::new("k", &short), Err(Error::BadKey)));
    }

    #[test]
    fn an_external_id_is_a_tenants_own_and_stable() {
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let id = ring("k1", 7).external_id(&a).unwrap();
        assert_eq!(id.len(), 64);
        assert_eq!(ring("k2", 7).external_id(&a).unwrap(), id);
        assert_ne!(ring("k1", 7).external_id(&b).unwrap(), id);
        assert_ne!(ring("k1", 8).external_id(&a).unwrap(), id);
    }

    #[test]
    fn debug_output_of_a_keyring_holds_no_key() {
        assert!(!format!("{:?}", ring("k1", 7)).contains('7'));
    }
}
