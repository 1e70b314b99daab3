//! Which topics hold facts (contract section 1, "Follow set") and which are producers' dead-letter
//! topics (section 6): the grammar of topic names, without a regular expression on the hot path.
//!
//! Two readings of one policy: [`FollowSet::classify`] is exact and decides;
//! [`FollowSet::subscription_patterns`] is what the Kafka client subscribes to, and may take in
//! more. Invariant: whatever `classify` follows, a pattern matches.

/// What every topic of the platform begins with.
pub const PREFIX: &str = "lerian.streaming.";

/// The longest topic name that Kafka takes, bytes.
pub const TOPIC_BYTES_MAX: usize = 249;

/// Last segments that never name an event: queues of another grammar, and dead letters.
const RESERVED: [&str; 2] = ["commands", "dlq"];

/// Why a pattern of `follow_extra` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Empty, a lone `*`, or longer than a topic name can be.
    #[error("follow_extra {0:?}: a pattern has 1 to {TOPIC_BYTES_MAX} characters before any `*`")]
    Length(String),
    /// A character that no topic name has, or a `*` before the end.
    #[error("follow_extra {0:?}: letters, digits, `.`, `_`, `-`, and one `*` at the end at most")]
    Character(String),
    /// An exact name that the v1 rules cannot read.
    #[error("follow_extra {0:?} is no `<source>.<resource>.<event>`, or is a command or DLQ topic")]
    NotReadable(String),
}

/// What the configuration says about topics to follow. The default follows fact topics only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowPolicy {
    /// Also follow `lerian.streaming.<resource>.<event>`, the layout of contract v1.
    pub follow_v1: bool,
    /// Further topics, read by the v1 rules: each an exact topic name, or the beginning of one
    /// followed by a single `*`. `ledger.*` takes in `ledger.account.created`.
    pub follow_extra: Vec<String>,
}

/// What a topic is to ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed<'t> {
    /// A producing application's fact topic.
    Fact {
        /// The application: the topic's last segment, which `ce-source` must equal.
        source: &'t str,
    },
    /// A topic of contract v1, one per resource and event.
    FactV1 {
        /// What `ce-resourcetype` must equal.
        resource: &'t str,
        /// What `ce-eventtype` must equal.
        event: &'t str,
        /// The schema major that the topic's name ends in; `None` without such an ending. Then
        /// the header alone says it: one of the two documented v1 layouts never names a major.
        major: Option<u16>,
    },
    /// No fact topic.
    NotFollowed,
}

/// One pattern of `follow_extra`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Extra {
    Exact(String),
    StartsWith(String),
}

impl Extra {
    fn new(pattern: &str) -> Result<Self, Error> {
        let (name, open_ended) = match pattern.strip_suffix('*') {
            Some(name) => (name, true),
            None => (pattern, false),
        };
        if name.is_empty() || name.len() > TOPIC_BYTES_MAX {
            return Err(Error::Length(pattern.to_owned()));
        }
        if !name.split('.').all(|segment| segment.bytes().all(is_topic_byte)) {
            return Err(Error::Character(pattern.to_owned()));
        }
        if open_ended {
            return Ok(Self::StartsWith(name.to_owned()));
        }
        match read_v1(name) {
            Followed::FactV1 { .. } => Ok(Self::Exact(name.to_owned())),
            Followed::Fact { .. } | Followed::NotFollowed => {
                Err(Error::NotReadable(pattern.to_owned()))
            }
        }
    }

    fn matches(&self, topic: &str) -> bool {
        match self {
            Self::Exact(name) => name == topic,
            Self::StartsWith(start) => topic.starts_with(start.as_str()),
        }
    }

    /// Of all characters that a pattern may hold, the dot alone means something to an engine.
    fn regex(&self) -> String {
        match self {
            Self::Exact(name) => format!("^{}$", name.replace('.', "\\.")),
            Self::StartsWith(start) => format!("^{}", start.replace('.', "\\.")),
        }
    }
}

/// A checked [`FollowPolicy`]. The default follows fact topics only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowSet {
    v1: bool,
    extra: Vec<Extra>,
}

impl FollowSet {
    /// Checks a policy.
    ///
    /// # Errors
    /// What is wrong with a pattern of `follow_extra`; see [`Error`].
    pub fn new(policy: &FollowPolicy) -> Result<Self, Error> {
        let extra = policy.follow_extra.iter().map(|pattern| Extra::new(pattern));
        Ok(Self { v1: policy.follow_v1, extra: extra.collect::<Result<_, _>>()? })
    }

    /// What this topic is. Fact topics come first, so no pattern of `follow_extra` changes how
    /// one is read. Command topics and dead-letter topics are never followed, whatever the policy.
    #[must_use]
    pub fn classify<'t>(&self, topic: &'t str) -> Followed<'t> {
        if let Some(source) = topic.strip_prefix(PREFIX).filter(|source| is_source(source)) {
            return Followed::Fact { source };
        }
        let v1 = self.v1 && topic.starts_with(PREFIX);
        if v1 || self.extra.iter().any(|extra| extra.matches(topic)) {
            return read_v1(topic);
        }
        Followed::NotFollowed
    }

    /// Regular expressions to subscribe to, each anchored with `^` as librdkafka wants it, in the
    /// subset that POSIX extended and the usual engines read alike. They take in more than
    /// [`Self::classify`] follows (commands and DLQ topics under v1; names that an open-ended
    /// pattern merely begins), never less.
    #[must_use]
    pub fn subscription_patterns(&self) -> Vec<String> {
        let mut patterns = vec![r"^lerian\.streaming\.[a-z0-9][a-z0-9_-]*$".to_owned()];
        if self.v1 {
            patterns.push(r"^lerian\.streaming\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$".to_owned());
            patterns
                .push(r"^lerian\.streaming\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.v[0-9]+$".to_owned());
        }
        patterns.extend(self.extra.iter().map(Extra::regex));
        patterns
    }

    /// Whether this is a producers' dead-letter topic, read for observability only (section 6).
    #[must_use]
    pub fn producer_dlq(&self, topic: &str) -> bool {
        let name = topic.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(".dlq"));
        name.is_some_and(|name| is_source(name) || (self.v1 && !name.is_empty()))
    }

    /// The regular expression of the topics that [`Self::producer_dlq`] names, exactly.
    #[must_use]
    pub fn dlq_pattern(&self) -> &'static str {
        if self.v1 {
            r"^lerian\.streaming\..+\.dlq$"
        } else {
            r"^lerian\.streaming\.[a-z0-9][a-z0-9_-]*\.dlq$"
        }
    }
}

/// Whether this is a producing application's name as v3 has it: `^[a-z0-9][a-z0-9_-]*$`. Its
/// length is a rule of `ce-source`, not of the follow set.
#[must_use]
pub fn is_source(text: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = text.bytes();
    bytes.next().is_some_and(lower) && bytes.all(|b| lower(b) || b == b'_' || b == b'-')
}

fn is_topic_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Reads `<anything>.<resource>.<event>[.v<major>]`; under the platform's prefix exactly two
/// segments, or two and a major, must follow it.
///
/// A reserved event name stays reserved with a major behind it: `….commands.v2` is the second
/// version of a command topic.
fn read_v1(topic: &str) -> Followed<'_> {
    let (head, name) = match topic.strip_prefix(PREFIX) {
        Some(name) => (PREFIX, name),
        None => topic.split_once('.').unwrap_or((topic, "")),
    };
    let legal = |segment: &str| !segment.is_empty() && segment.bytes().all(is_topic_byte);
    if head.is_empty() || !name.split('.').all(legal) {
        return Followed::NotFollowed;
    }
    let (name, major) = split_major(name);
    let Some((start, event)) = name.rsplit_once('.') else { return Followed::NotFollowed };
    // The source of an unprefixed topic may hold dots itself (`lerian.midaz.ledger`).
    let resource = start.rsplit('.').next().unwrap_or(start);
    if RESERVED.contains(&event) || (head == PREFIX && resource != start) {
        return Followed::NotFollowed;
    }
    Followed::FactV1 { resource, event, major }
}

/// Splits `.v<major>`, a major from 2, off a name that keeps two segments without it.
fn split_major(name: &str) -> (&str, Option<u16>) {
    let split = || {
        let (rest, last) = name.rsplit_once('.')?;
        let digits = last.strip_prefix('v')?;
        let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        let major = digits.parse().ok().filter(|major| *major >= 2 && canonical)?;
        rest.contains('.').then_some((rest, Some(major)))
    };
    split().unwrap_or((name, None))
}

#[cfg(test)]
mod tests;
