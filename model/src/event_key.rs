//! Event keys: what happened to what, `<resource>.<event>`, and the patterns by which a
//! subscription chooses them (contract sections 1 and 3). A key says nothing about its producer.
//! Invariant: a segment holds no dot, so a key splits in one way only.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest segment, bytes.
pub const SEGMENT_BYTES_MAX: usize = 128;

/// Why a text is no segment, key or pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A segment has no bytes.
    #[error("a segment is not empty")]
    Empty,
    /// A segment has more than [`SEGMENT_BYTES_MAX`] bytes.
    #[error("a segment has at most {SEGMENT_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A segment holds a dot: there are more than two of them.
    #[error("a segment has no dot")]
    Dot,
    /// A segment holds a C0, DEL or C1 character.
    #[error("a segment has no control character, this one holds U+{:04X}", u32::from(*.0))]
    Control(char),
    /// A segment begins or ends with a space (U+0020).
    #[error("a segment has no space at either end")]
    EdgeSpace,
    /// There is no dot between a resource and an event.
    #[error("an event key is `<resource>.<event>`")]
    OneSegment,
    /// A wildcard in a place that has none.
    #[error("a pattern is `<resource>.<event>`, `<resource>.*` or `*`")]
    Wildcard,
}

/// Checks one segment, the rule of `ce-resourcetype` and `ce-eventtype`: 1 to 128 bytes, no dot,
/// no control character (C0, DEL, C1), no space at either end.
///
/// # Errors
/// See [`Error`].
pub fn validate_segment(segment: &str) -> Result<(), Error> {
    if segment.is_empty() {
        return Err(Error::Empty);
    }
    if segment.len() > SEGMENT_BYTES_MAX {
        return Err(Error::TooLong(segment.len()));
    }
    if segment.contains('.') {
        return Err(Error::Dot);
    }
    if let Some(control) = segment.chars().find(|c| c.is_control()) {
        return Err(Error::Control(control));
    }
    if segment.starts_with(' ') || segment.ends_with(' ') {
        return Err(Error::EdgeSpace);
    }
    Ok(())
}

/// The key of an event, `<resource>.<event>`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventKey(Arc<str>);

impl EventKey {
    /// The key that this text spells.
    ///
    /// # Errors
    /// [`Error::OneSegment`] without a dot, otherwise what is wrong with a segment.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (resource, event) = text.split_once('.').ok_or(Error::OneSegment)?;
        validate_segment(resource)?;
        validate_segment(event)?;
        Ok(Self(Arc::from(text)))
    }

    /// The key of this resource and this event.
    ///
    /// # Errors
    /// What is wrong with a segment.
    pub fn new(resource: &str, event: &str) -> Result<Self, Error> {
        Self::parse(&format!("{resource}.{event}"))
    }

    /// `<resource>.<event>`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What something happened to, the part before the dot.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.segments().0
    }

    /// What happened, the part after the dot.
    #[must_use]
    pub fn event(&self) -> &str {
        self.segments().1
    }

    /// Both parts.
    #[must_use]
    pub fn segments(&self) -> (&str, &str) {
        self.0.split_once('.').unwrap_or((&self.0, ""))
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for EventKey {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl TryFrom<String> for EventKey {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<EventKey> for String {
    fn from(key: EventKey) -> Self {
        key.as_str().to_owned()
    }
}

/// What a subscription lists: one key, all events of a resource, or everything.
///
/// `*` is a legal character of a segment, so `5*.created` is the exact key of a resource so named.
/// A segment that is nothing but `*` is refused outside the two forms: `*.created` reads like a
/// wildcard that does not exist, and would silently match nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyPattern {
    /// `<resource>.<event>`.
    Exact(EventKey),
    /// `<resource>.*`; holds the resource.
    Resource(Arc<str>),
    /// `*`.
    Any,
}

impl KeyPattern {
    /// The pattern that this text spells.
    ///
    /// # Errors
    /// [`Error::Wildcard`] for a `*` elsewhere, otherwise what is wrong with the key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (resource, event) = text.split_once('.').ok_or(Error::OneSegment)?;
        if resource == "*" {
            return Err(Error::Wildcard);
        }
        if event == "*" {
            validate_segment(resource)?;
            return Ok(Self::Resource(Arc::from(resource)));
        }
        EventKey::parse(text).map(Self::Exact)
    }

    /// Whether an event of this resource and name is meant. Bytewise, case included.
    #[must_use]
    pub fn matches(&self, resource: &str, event: &str) -> bool {
        match self {
            Self::Exact(key) => key.segments() == (resource, event),
            Self::Resource(wanted) => &**wanted == resource,
            Self::Any => true,
        }
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(key) => key.fmt(f),
            Self::Resource(resource) => write!(f, "{resource}.*"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl std::str::FromStr for KeyPattern {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl TryFrom<String> for KeyPattern {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<KeyPattern> for String {
    fn from(pattern: KeyPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_real_producers_name_their_resources_is_a_segment() {
        let long = "r".repeat(128);
        for good in ["Conta Corrente", "transação", "account/sub", "status:changed", "a-b", &long]
        {
            assert_eq!(validate_segment(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn a_segment_has_no_dot_no_control_no_edge_space_and_at_most_128_bytes() {
        assert_eq!(validate_segment(""), Err(Error::Empty));
        assert_eq!(validate_segment(&"r".repeat(129)), Err(Error::TooLong(129)));
        assert_eq!(validate_segment(&"ç".repeat(65)), Err(Error::TooLong(130)));
        assert_eq!(validate_segment("a.b"), Err(Error::Dot));
        assert_eq!(validate_segment("a\u{85}b"), Err(Error::Control('\u{85}')));
        assert_eq!(validate_segment("a "), Err(Error::EdgeSpace));
        assert_eq!(validate_segment(" a"), Err(Error::EdgeSpace));
    }

    #[test]
    fn a_key_is_two_segments() {
        let key = EventKey::parse("Conta Corrente.created").unwrap();
        assert_eq!((key.resource(), key.event()), ("Conta Corrente", "created"));
        assert_eq!(EventKey::new("Conta Corrente", "created"), Ok(key));
        assert_eq!(EventKey::parse("account"), Err(Error::OneSegment));
        assert_eq!(EventKey::parse("a.b.c"), Err(Error::Dot));
        assert_eq!(EventKey::parse("a."), Err(Error::Empty));
        assert_eq!(EventKey::parse(".a"), Err(Error::Empty));
    }

    #[test]
    fn a_wildcard_stands_alone_or_for_the_event() {
        let parse = KeyPattern::parse;
        assert_eq!(parse("*"), Ok(KeyPattern::Any));
        assert_eq!(parse("account.*"), Ok(KeyPattern::Resource("account".into())));
        assert_eq!(parse("*.created"), Err(Error::Wildcard));
        assert_eq!(parse("*.*"), Err(Error::Wildcard));
        assert_eq!(parse("account.*.x"), Err(Error::Dot));
        assert_eq!(parse("account"), Err(Error::OneSegment));
        assert_eq!(parse(".*"), Err(Error::Empty));
        assert_eq!(parse(""), Err(Error::OneSegment));
        assert!(matches!(parse("5*.created"), Ok(KeyPattern::Exact(_))));
    }

    #[test]
    fn a_pattern_matches_what_it_says() {
        let table = [
            ("account.created", "account", "created", true),
            ("account.created", "account", "deleted", false),
            ("account.created", "Account", "created", false),
            ("account.*", "account", "deleted", true),
            ("account.*", "accounts", "deleted", false),
            ("*", "anything", "at all", true),
        ];
        for (pattern, resource, event, matches) in table {
            let pattern = KeyPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(resource, event), matches, "{pattern} {resource} {event}");
        }
    }

    const SEGMENT: &str = "[^\\p{Cc}. *]{1,20}";

    proptest! {
        #[test]
        fn every_legal_key_matches_itself_its_resource_and_everything(
            resource in SEGMENT, event in SEGMENT, other in SEGMENT,
        ) {
            let key = EventKey::new(&resource, &event).unwrap();
            let exact = KeyPattern::parse(key.as_str()).unwrap();
            let all = KeyPattern::parse(&format!("{resource}.*")).unwrap();
            prop_assert!(exact.matches(key.resource(), key.event()));
            prop_assert!(all.matches(&resource, &event));
            prop_assert!(KeyPattern::Any.matches(&resource, &event));
            prop_assert_eq!(exact.matches(&other, &event), other == resource);
            prop_assert_eq!(all.matches(&other, &event), other == resource);
        }

        #[test]
        fn patterns_survive_json_and_display(
            text in "(\\*|[a-z/]{1,9}\\.(\\*|[a-z ç]{0,3}[a-z]))",
        ) {
            let Ok(pattern) = KeyPattern::parse(&text) else { return Ok(()) };
            prop_assert_eq!(pattern.to_string(), text);
            let json = serde_json::to_string(&pattern).unwrap();
            prop_assert_eq!(serde_json::from_str::<KeyPattern>(&json).unwrap(), pattern);
        }
    }
}
