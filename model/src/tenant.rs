//! Tenant ids: whose an event, a subscription or an answer is. Validated once, where they enter;
//! compared bytewise ever after (contract sections 1 and 7). The same rule holds for `ce-tenantid`,
//! for `default_tenant`, for a token's claim and for an operator's query.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest tenant id, bytes.
pub const TENANT_BYTES_MAX: usize = 256;

/// Why a text is no tenant id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It has no bytes.
    #[error("a tenant id is not empty")]
    Empty,
    /// It has more than [`TENANT_BYTES_MAX`] bytes.
    #[error("a tenant id has at most {TENANT_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// It holds a C0, DEL or C1 character.
    #[error("a tenant id has no control character, this one holds U+{:04X}", u32::from(*.0))]
    Control(char),
    /// It begins or ends with a space (U+0020; other blanks are characters like any other).
    #[error("a tenant id has no space at either end")]
    EdgeSpace,
}

/// Checks the rule without keeping the text; the hot path of ingest.
///
/// # Errors
/// See [`Error`].
pub fn validate(text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text.len() > TENANT_BYTES_MAX {
        return Err(Error::TooLong(text.len()));
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(Error::Control(control));
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return Err(Error::EdgeSpace);
    }
    Ok(())
}

/// A tenant id: 1 to 256 bytes, no control character (C0, DEL, C1), no space at either end.
///
/// Cheap to clone. Equality, order and hash are those of the bytes: two spellings that look alike
/// are two tenants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The tenant that this text names.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        validate(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// The id as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TenantId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TenantId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for TenantId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl TryFrom<String> for TenantId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<TenantId> for String {
    fn from(tenant: TenantId) -> Self {
        tenant.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_tenant_id_has_one_to_256_bytes_no_controls_and_no_space_at_its_ends() {
        for good in ["a", "acme-payments", "São João", "a b", "a/b:c.d*", &"t".repeat(256)] {
            assert_eq!(validate(good), Ok(()), "{good:?}");
        }
        assert_eq!(validate(""), Err(Error::Empty));
        assert_eq!(validate(&"t".repeat(257)), Err(Error::TooLong(257)));
        assert_eq!(validate(&"ç".repeat(129)), Err(Error::TooLong(258)));
        for control in ['\0', '\t', '\n', '\u{1f}', '\u{7f}', '\u{80}', '\u{85}', '\u{9f}'] {
            assert_eq!(validate(&format!("a{control}b")), Err(Error::Control(control)));
        }
        for edge in [" a", "a ", " "] {
            assert_eq!(validate(edge), Err(Error::EdgeSpace));
        }
    }

    #[test]
    fn tenants_compare_bytewise() {
        let composed = TenantId::parse("S\u{e3}o").unwrap();
        let decomposed = TenantId::parse("Sa\u{303}o").unwrap();
        assert_ne!(composed, decomposed);
        assert_ne!(TenantId::parse("Acme").unwrap(), TenantId::parse("acme").unwrap());
    }

    #[test]
    fn a_map_by_tenant_is_asked_with_a_plain_text() {
        let map = BTreeMap::from([(TenantId::parse("acme").unwrap(), 1)]);
        assert_eq!(map.get("acme"), Some(&1));
    }

    #[test]
    fn json_with_an_illegal_tenant_is_refused() {
        assert!(serde_json::from_str::<TenantId>("\" a\"").is_err());
        assert!(serde_json::from_str::<TenantId>("7").is_err());
    }

    proptest! {
        #[test]
        fn a_legal_tenant_survives_json_and_display(text in "[^\\p{Cc} ]{1,40}") {
            let tenant = TenantId::parse(&text).unwrap();
            let json = serde_json::to_string(&tenant).unwrap();
            prop_assert_eq!(&serde_json::from_str::<TenantId>(&json).unwrap(), &tenant);
            prop_assert_eq!(tenant.to_string(), text);
        }
    }
}
