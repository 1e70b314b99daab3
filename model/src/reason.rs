//! Why a record was quarantined: one stable code each, for operators, metrics and stored records
//! (contract section 1, "Verdicts"). A code, once released, keeps its text and its meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The code is none of [`ReasonCode::ALL`]; a newer release may have written it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown quarantine reason {0:?}")]
pub struct Error(pub String);

/// Why a record was quarantined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// A required header is missing, null or empty.
    MissingHeader,
    /// `ce-specversion` is not `1.0`.
    BadSpecversion,
    /// `ce-id` is no UUIDv7 in canonical text.
    BadId,
    /// `ce-source` is no legal application name.
    BadSource,
    /// `ce-source` is not the application that the topic belongs to.
    SourceMismatch,
    /// `ce-resourcetype` or `ce-eventtype` is no segment.
    BadSegment,
    /// `ce-resourcetype`, `ce-eventtype` or the schema major is not what the v1 topic's name says.
    TopicMismatch,
    /// `ce-type` does not have the documented shape.
    BadType,
    /// `ce-type` names another source, resource or event than the other headers.
    TypeMismatch,
    /// `ce-time` is no RFC 3339 timestamp.
    BadTime,
    /// `ce-schemaversion` is no semantic version.
    BadSchemaversion,
    /// An optional header is too long or no UTF-8.
    BadHeader,
    /// The payload is above the limit.
    PayloadTooLarge,
    /// There is no tenant and no default tenant.
    MissingTenant,
    /// `ce-tenantid` is no legal tenant id.
    BadTenant,
}

impl ReasonCode {
    /// Every code, in the order in which the rules are checked.
    pub const ALL: [Self; 15] = [
        Self::MissingHeader,
        Self::BadSpecversion,
        Self::BadId,
        Self::BadSource,
        Self::SourceMismatch,
        Self::BadSegment,
        Self::TopicMismatch,
        Self::BadType,
        Self::TypeMismatch,
        Self::BadTime,
        Self::BadSchemaversion,
        Self::BadHeader,
        Self::PayloadTooLarge,
        Self::MissingTenant,
        Self::BadTenant,
    ];

    /// The stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingHeader => "missing_header",
            Self::BadSpecversion => "bad_specversion",
            Self::BadId => "bad_id",
            Self::BadSource => "bad_source",
            Self::SourceMismatch => "source_mismatch",
            Self::BadSegment => "bad_segment",
            Self::TopicMismatch => "topic_mismatch",
            Self::BadType => "bad_type",
            Self::TypeMismatch => "type_mismatch",
            Self::BadTime => "bad_time",
            Self::BadSchemaversion => "bad_schemaversion",
            Self::BadHeader => "bad_header",
            Self::PayloadTooLarge => "payload_too_large",
            Self::MissingTenant => "missing_tenant",
            Self::BadTenant => "bad_tenant",
        }
    }

    /// The code of this text.
    ///
    /// # Errors
    /// [`Error`] when there is none.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut all = Self::ALL.into_iter();
        all.find(|code| code.as_str() == text).ok_or_else(|| Error(text.to_owned()))
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ReasonCode {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_text_everywhere() {
        for code in ReasonCode::ALL {
            assert_eq!(ReasonCode::parse(code.as_str()), Ok(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
        assert_eq!(ReasonCode::parse("no_such"), Err(Error("no_such".into())));
    }

    #[test]
    fn codes_are_listed_once_each_and_in_order() {
        assert!(ReasonCode::ALL.is_sorted_by(|a, b| a < b));
        assert_eq!(ReasonCode::ALL[14], ReasonCode::BadTenant);
    }
}
