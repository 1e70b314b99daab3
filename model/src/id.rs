//! Ids: of an event (the producer's UUIDv7), of a subscription (ours, UUIDv7) and of a delivery
//! job (derived, UUIDv8). Sixteen bytes in memory and in stores, lower-case canonical text
//! outside. Nothing here reads a clock or draws a random number: both come in as parameters.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// Length of the canonical text, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
const TEXT_LEN: usize = 36;

/// Separates job ids from every other hash in the hub; part of the format, so it never changes.
const JOB_DOMAIN: &[u8] = b"streaming-hub/job/1";

/// Why a text or sixteen bytes are no such id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not the canonical 36-character text of a UUID.
    #[error("not a UUID in its canonical text of 36 characters")]
    NotCanonical,
    /// A UUID of another version.
    #[error("a UUID of version {found}, not {wanted}")]
    Version {
        /// The version that was wanted.
        wanted: usize,
        /// The version that its bits name.
        found: usize,
    },
    /// A UUID whose variant bits are not those of RFC 9562.
    #[error("a UUID of another variant than that of RFC 9562")]
    Variant,
}

/// Sixteen bytes as a UUID of this version and the variant of RFC 9562.
fn checked(uuid: Uuid, wanted: usize) -> Result<Uuid, Error> {
    let found = uuid.get_version_num();
    if found != wanted {
        return Err(Error::Version { wanted, found });
    }
    if uuid.get_variant() != uuid::Variant::RFC4122 {
        return Err(Error::Variant);
    }
    Ok(uuid)
}

fn parse(text: &str, wanted: usize) -> Result<Uuid, Error> {
    // The parser also takes the simple, the braced and the URN form, all of other lengths.
    if text.len() != TEXT_LEN {
        return Err(Error::NotCanonical);
    }
    checked(Uuid::try_parse(text).map_err(|_| Error::NotCanonical)?, wanted)
}

/// Milliseconds since the Unix epoch in a UUIDv7's first 48 bits (RFC 9562, section 5.7).
fn unix_millis(bytes: [u8; 16]) -> i64 {
    bytes[..6].iter().fold(0, |millis, byte| millis << 8 | i64::from(*byte))
}

/// A UUIDv7 of this time (milliseconds since the Unix epoch; clamped to the 48 bits that there
/// are) and these random bytes, six bits of which give way to version and variant.
#[must_use]
pub fn uuid_v7(unix_millis: i64, random: [u8; 10]) -> Uuid {
    let millis = u64::try_from(unix_millis).unwrap_or(0).min((1 << 48) - 1);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// Text form, parsing and serde of an id type around a checked [`Uuid`].
macro_rules! text_id {
    ($name:ident, $version:literal) => {
        impl $name {
            /// Parses the canonical 36-character text, hex digits of any case.
            ///
            /// # Errors
            /// See [`Error`].
            pub fn parse(text: &str) -> Result<Self, Error> {
                parse(text, $version).map(|uuid| Self(uuid.into_bytes()))
            }

            /// Takes sixteen bytes as a store or a topic key holds them.
            ///
            /// # Errors
            /// [`Error::Version`] or [`Error::Variant`].
            pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, Error> {
                checked(Uuid::from_bytes(bytes), $version).map(|_| Self(bytes))
            }

            /// The sixteen bytes, big-endian.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Uuid::from_bytes(self.0).as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

/// The id of an event, its `ce-id`: a UUIDv7, version and variant checked (RFC 9562). Identity is
/// that of the sixteen bytes, so the case of the producer's text does not matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId([u8; 16]);

text_id!(EventId, 7);

impl EventId {
    /// A new id of this time (milliseconds since the Unix epoch); see [`uuid_v7`].
    #[must_use]
    pub fn from_parts(unix_millis: i64, random: [u8; 10]) -> Self {
        Self(uuid_v7(unix_millis, random).into_bytes())
    }

    /// When the id was made, milliseconds since the Unix epoch, as the id itself says.
    #[must_use]
    pub fn unix_millis(&self) -> i64 {
        unix_millis(self.0)
    }
}

/// The id of a subscription: a UUIDv7 that the hub makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SubscriptionId([u8; 16]);

text_id!(SubscriptionId, 7);

impl SubscriptionId {
    /// A new id of this time (milliseconds since the Unix epoch); see [`uuid_v7`].
    #[must_use]
    pub fn from_parts(unix_millis: i64, random: [u8; 10]) -> Self {
        Self(uuid_v7(unix_millis, random).into_bytes())
    }
}

/// The id of a delivery job: a UUIDv8 that follows from what the job is about (design 23), so that
/// a reprocessed event yields the same job and the duplicate collapses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId([u8; 16]);

text_id!(JobId, 8);

impl JobId {
    /// The job that delivers this tenant's event to this subscription. `nonce` tells replays and
    /// other manual deliveries apart from the first and from each other; empty for the first.
    ///
    /// SHA-256 over a domain tag and, each behind its length in eight big-endian bytes, the
    /// tenant, the event id, the subscription id and the nonce, cut to sixteen bytes. Job ids are
    /// keys in compacted topics: this may never change.
    #[must_use]
    pub fn derive(
        tenant: &str,
        event: EventId,
        subscription: SubscriptionId,
        nonce: &[u8],
    ) -> Self {
        let mut hash = Sha256::new_with_prefix(JOB_DOMAIN);
        for part in [tenant.as_bytes(), event.as_bytes(), subscription.as_bytes(), nonce] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V7: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";

    #[test]
    fn an_event_id_is_a_canonical_uuid_v7() {
        assert_eq!(EventId::parse(V7).unwrap().to_string(), V7);
        let table = [
            ("evt-1", Error::NotCanonical),
            ("", Error::NotCanonical),
            ("0198f3a211aa7c3e9d215b8f0c4de001", Error::NotCanonical),
            ("{0198f3a2-11aa-7c3e-9d21-5b8f0c4de001}", Error::NotCanonical),
            ("0198f3a2-11aa-7c3e-9d215-b8f0c4de001", Error::NotCanonical),
            ("0198f3a2-11aa-7c3e-9d21-5b8f0c4de00g", Error::NotCanonical),
            ("0198f3a2-11aa-7c3e-9d21-5b8f0c4de0ç", Error::NotCanonical),
            ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", Error::Version { wanted: 7, found: 4 }),
            ("00000000-0000-0000-0000-000000000000", Error::Version { wanted: 7, found: 0 }),
            ("0198f3a2-11aa-7c3e-0d21-5b8f0c4de001", Error::Variant),
            ("0198f3a2-11aa-7c3e-cd21-5b8f0c4de001", Error::Variant),
            ("0198f3a2-11aa-7c3e-fd21-5b8f0c4de001", Error::Variant),
        ];
        for (text, error) in table {
            assert_eq!(EventId::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_case_of_an_event_id_does_not_make_another_event() {
        let upper = EventId::parse(&V7.to_uppercase()).unwrap();
        assert_eq!(upper, EventId::parse(V7).unwrap());
        assert_eq!(upper.to_string(), V7);
    }

    #[test]
    fn an_event_id_tells_when_it_was_made() {
        let id = EventId::parse("01a0c450-6d12-7c2b-8128-9b05b624f924").unwrap();
        assert_eq!(id.unix_millis(), 0x01a0_c450_6d12);
    }

    #[test]
    fn a_time_outside_of_48_bits_is_clamped() {
        assert_eq!(EventId::from_parts(-5, [0; 10]).unix_millis(), 0);
        assert_eq!(EventId::from_parts(i64::MAX, [0; 10]).unix_millis(), (1 << 48) - 1);
    }

    fn derive(tenant: &str, event: u8, subscription: u8, nonce: &[u8]) -> JobId {
        let event = EventId::from_parts(1, [event; 10]);
        JobId::derive(tenant, event, SubscriptionId::from_parts(2, [subscription; 10]), nonce)
    }

    #[test]
    fn job_ids_are_pinned() {
        assert_eq!(derive("acme", 1, 2, b"").to_string(), "b8ab169b-ae68-8628-bc67-b3d0fe8949ac");
        assert_eq!(
            derive("acme", 1, 2, b"replay-1").to_string(),
            "027cbf6e-a76d-8adc-a5ae-de8ff7ebe0b0"
        );
    }

    #[test]
    fn a_job_id_depends_on_each_of_its_parts_and_on_their_borders() {
        let base = derive("acme", 1, 2, b"n");
        assert_eq!(base, derive("acme", 1, 2, b"n"));
        for other in [
            derive("acmf", 1, 2, b"n"),
            derive("acme", 3, 2, b"n"),
            derive("acme", 1, 3, b"n"),
            derive("acme", 1, 2, b""),
            derive("acm", 1, 2, b"en"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn one_kind_of_id_is_not_taken_for_another() {
        let job = derive("acme", 1, 2, b"");
        assert!(EventId::parse(&job.to_string()).is_err());
        assert!(JobId::parse(V7).is_err());
        assert!(JobId::from_bytes([0; 16]).is_err());
    }

    proptest! {
        #[test]
        fn ids_survive_text_bytes_and_json(millis in 0i64..1 << 48, random: [u8; 10]) {
            let id = EventId::from_parts(millis, random);
            prop_assert_eq!(id.unix_millis(), millis);
            prop_assert_eq!(EventId::parse(&id.to_string()), Ok(id));
            prop_assert_eq!(EventId::from_bytes(*id.as_bytes()), Ok(id));
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
            let subscription = SubscriptionId::from_parts(millis, random);
            prop_assert_eq!(SubscriptionId::parse(&subscription.to_string()), Ok(subscription));
        }

        #[test]
        fn every_derived_job_id_is_a_uuid_v8(tenant in ".{0,20}", nonce: Vec<u8>) {
            let job = derive(&tenant, 1, 2, &nonce);
            prop_assert_eq!(JobId::parse(&job.to_string()), Ok(job));
            prop_assert_eq!(JobId::from_bytes(*job.as_bytes()), Ok(job));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = EventId::parse(&text);
        }
    }
}
