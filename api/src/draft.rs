//! The body of a creation, read into types that cannot be wrong, with every error at once. What
//! only the outside can tell (may the hub call this address?) is asked afterwards, of the sink.

pub(crate) mod aws;
pub(crate) mod eventbridge;
pub(crate) mod rabbitmq;
pub(crate) mod sqs;

use std::collections::BTreeSet;

use secrecy::SecretString;
use serde_json::Value;
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::retry::{RetrySchedule, STEP_MS_MAX, STEPS_MAX};
use streaming_hub_model::secret::{Owner, Sealed};
use streaming_hub_model::subscription::{MAX_IN_FLIGHT_MAX, Ordering, SinkConfig};
use url::Url;

use crate::fields::{self, At, Fault, FieldError, Fields};
use crate::problem::Problem;
use crate::secrets;
use crate::state::Api;
use eventbridge::EventBridgeDraft;
use rabbitmq::RabbitMqDraft;
use sqs::SqsDraft;

/// The longest name, characters.
pub(crate) const NAME_CHARS_MAX: usize = 200;
/// The longest origin, bytes: that of a `ce-source` (contract section 1).
pub(crate) const ORIGIN_BYTES_MAX: usize = 223;
/// The longest webhook URL, bytes.
pub(crate) const URL_BYTES_MAX: usize = 2048;
/// The shortest signing secret that a tenant may bring, characters.
pub(crate) const SECRET_CHARS_MIN: usize = 24;
/// The longest signing secret that a tenant may bring, characters.
pub(crate) const SECRET_CHARS_MAX: usize = 512;
/// The schema major that is meant when none is given.
const SCHEMA_MAJOR_DEFAULT: u16 = 1;

/// What holds between two fields.
pub(crate) const STRICT_NEEDS_ONE: &str = "must be 1 where `ordering` is \"strict\"";
/// Fields of an answer that no request sets.
const READ_ONLY: [&str; 8] = [
    "id",
    "verification_state",
    "verification_failure",
    "disabled_reason",
    "created_at",
    "updated_at",
    "version",
    "delivery",
];

/// What a body is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// A new subscription.
    Create,
    /// One that is there, merged with what is to change. Its sink has the secrets that no body
    /// shows, so that they need not be given again.
    Patch(&'a SinkConfig),
}

/// A subscription as its tenant asks for it.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) event_types: Vec<KeyPattern>,
    pub(crate) origin: Option<String>,
    pub(crate) schema_major: u16,
    pub(crate) sink: SinkDraft,
    pub(crate) enabled: bool,
    pub(crate) paused: bool,
    pub(crate) ordering: Ordering,
    pub(crate) retry_schedule: Option<RetrySchedule>,
    pub(crate) max_in_flight: u16,
    /// Probe the destination as part of the creation.
    pub(crate) verify: bool,
}

/// A sink as its tenant asks for it.
#[derive(Debug)]
pub(crate) enum SinkDraft {
    /// An HTTP endpoint.
    Webhook {
        /// The canonical URL.
        url: String,
        /// The tenant's own signing secret; the hub makes one when there is none.
        secret: Option<SecretString>,
    },
    /// A queue of Amazon SQS.
    Sqs(SqsDraft),
    /// An event bus of Amazon EventBridge.
    EventBridge(EventBridgeDraft),
    /// An exchange of a RabbitMQ.
    RabbitMq(RabbitMqDraft),
    /// A log that its owner reads.
    Pull,
}

/// Seals what may not leave the process as it is.
pub(crate) struct Seal<'a> {
    /// Has the keys and the randomness.
    pub(crate) api: &'a Api,
    /// For whom.
    pub(crate) owner: Owner<'a>,
}

impl Seal<'_> {
    /// A sealed secret.
    pub(crate) fn secret(&self, secret: &SecretString) -> Result<Sealed, Problem> {
        secrets::sealed(self.api, self.owner, secret)
    }

    /// The external id with which the hub assumes the owner's roles.
    pub(crate) fn external_id(&self) -> Result<String, Problem> {
        let id = self.api.keyring.external_id(self.owner.tenant);
        id.map_err(|error| Problem::internal(error.to_string()))
    }
}

impl Draft {
    /// Reads a body.
    pub(crate) fn parse(
        body: Value,
        event_types_max: usize,
        purpose: Purpose<'_>,
    ) -> Result<Self, Vec<FieldError>> {
        fields::read(body, |fields| Self::read(fields, event_types_max, purpose))
    }

    fn read(mut fields: Fields<'_>, event_types_max: usize, purpose: Purpose<'_>) -> Option<Self> {
        // Every field is read before the first `?`, so that one error does not hide another.
        let name = fields.required("name", name);
        let types = |value, at: &mut At<'_>| event_types(value, event_types_max, at);
        let event_types = fields.required("event_types", types);
        let origin = fields.optional("origin", origin);
        let schema_major = fields.optional("schema_major", |value, at| {
            at.integer(&value, 0, u16::MAX.into()).and_then(|major| u16::try_from(major).ok())
        });
        let current = if let Purpose::Patch(current) = purpose { Some(current) } else { None };
        let sink = fields.object("sink").and_then(|fields| sink(fields, current));
        let enabled = fields.optional("enabled", |value, at| at.boolean(&value));
        let retry_schedule = fields.optional("retry_schedule", retry_schedule);
        let max_in_flight = fields.optional("max_in_flight", |value, at| {
            at.integer(&value, 1, MAX_IN_FLIGHT_MAX.into()).and_then(|n| u16::try_from(n).ok())
        });
        let paused = fields.optional("paused", |value, at| at.boolean(&value));
        let ordering = fields.optional("ordering", ordering);
        let several = max_in_flight.flatten().is_some_and(|count| count != 1);
        if several && ordering == Some(Some(Ordering::Strict)) {
            fields.fail::<()>("max_in_flight", Fault::NotAllowed, STRICT_NEEDS_ONE);
        }
        let verify = match purpose {
            Purpose::Create => fields.optional("verify", |value, at| at.boolean(&value)),
            Purpose::Patch(_) => Some(None),
        };
        fields.read_only(&READ_ONLY);
        if let (Some(Some(true)), Some(SinkDraft::Webhook { secret: None, .. })) = (verify, &sink) {
            // The receiver cannot know a secret that the hub is only about to make.
            let message = "needs a `secret` in `sink`; without one, verify after creation";
            fields.fail::<()>("verify", Fault::NotAllowed, message);
        }
        if let (Some(Some(true)), Some(SinkDraft::Pull)) = (verify, &sink) {
            let message = "a pull subscription has no destination to verify";
            fields.fail::<()>("verify", Fault::NotAllowed, message);
        }
        fields.finish();
        Some(Self {
            name: name?,
            event_types: event_types?,
            origin: origin?,
            schema_major: schema_major?.unwrap_or(SCHEMA_MAJOR_DEFAULT),
            sink: sink?,
            enabled: enabled?.unwrap_or(true),
            paused: paused?.unwrap_or(false),
            ordering: ordering?.unwrap_or_default(),
            retry_schedule: retry_schedule?,
            max_in_flight: max_in_flight?.unwrap_or(1),
            verify: verify?.unwrap_or(false),
        })
    }
}

fn name(value: Value, at: &mut At<'_>) -> Option<String> {
    let name = at.text(value)?;
    if name.is_empty() {
        return at.fail(Fault::TooShort, "must not be empty");
    }
    if name.chars().count() > NAME_CHARS_MAX {
        let message = format!("must have at most {NAME_CHARS_MAX} characters");
        return at.fail(Fault::TooLong, message);
    }
    without_controls(name, at)
}

fn origin(value: Value, at: &mut At<'_>) -> Option<String> {
    // Not the narrow grammar of today's sources: those of contract v1 are free text.
    let origin = at.text(value)?;
    if origin.is_empty() {
        return at.fail(Fault::TooShort, "must not be empty; leave it out to match any origin");
    }
    if origin.len() > ORIGIN_BYTES_MAX {
        return at.fail(Fault::TooLong, format!("must have at most {ORIGIN_BYTES_MAX} bytes"));
    }
    without_controls(origin, at)
}

fn without_controls(text: String, at: &mut At<'_>) -> Option<String> {
    if text.chars().any(char::is_control) {
        return at.fail(Fault::Invalid, "must not hold control characters");
    }
    Some(text)
}

fn event_types(value: Value, max: usize, at: &mut At<'_>) -> Option<Vec<KeyPattern>> {
    let entries = at.list(value, 1, max)?;
    let count = entries.len();
    let (mut patterns, mut seen) = (Vec::with_capacity(count), BTreeSet::new());
    for (index, entry) in entries.into_iter().enumerate() {
        let mut at = at.child(&index.to_string());
        let Some(text) = at.text(entry) else { continue };
        match KeyPattern::parse(&text) {
            Ok(pattern) if seen.insert(pattern.clone()) => patterns.push(pattern),
            Ok(_) => _ = at.fail::<()>(Fault::Duplicate, "is listed twice"),
            Err(error) => _ = at.fail::<()>(Fault::Invalid, error.to_string()),
        }
    }
    (patterns.len() == count).then_some(patterns)
}

fn ordering(value: Value, at: &mut At<'_>) -> Option<Ordering> {
    match &*at.text(value)? {
        "arrival" => Some(Ordering::Arrival),
        "strict" => Some(Ordering::Strict),
        _ => at.fail(Fault::Invalid, "must be \"arrival\" or \"strict\""),
    }
}

fn retry_schedule(value: Value, at: &mut At<'_>) -> Option<RetrySchedule> {
    let entries = at.list(value, 1, STEPS_MAX)?;
    let count = entries.len();
    let mut steps_ms = Vec::with_capacity(count);
    for (index, entry) in entries.iter().enumerate() {
        steps_ms.extend(at.child(&index.to_string()).integer(entry, 0, STEP_MS_MAX));
    }
    if steps_ms.len() != count {
        return None;
    }
    match RetrySchedule::new(steps_ms) {
        Ok(schedule) => Some(schedule),
        Err(error) => at.fail(Fault::Invalid, error.to_string()),
    }
}

fn sink(mut fields: Fields<'_>, current: Option<&SinkConfig>) -> Option<SinkDraft> {
    let kind = fields.required("type", |value, at| {
        let kind = at.text(value)?;
        if matches!(&*kind, "webhook" | "sqs" | "eventbridge" | "rabbitmq" | "pull") {
            return Some(kind);
        }
        let message = "must be \"webhook\", \"sqs\", \"eventbridge\", \"rabbitmq\" or \"pull\"";
        at.fail(Fault::Invalid, message)
    });
    // Of a type that does not exist, no other field is known.
    match &*kind? {
        "pull" => {
            fields.finish();
            return Some(SinkDraft::Pull);
        }
        "sqs" => return SqsDraft::read(fields, current).map(SinkDraft::Sqs),
        "eventbridge" => {
            return EventBridgeDraft::read(fields, current).map(SinkDraft::EventBridge);
        }
        "rabbitmq" => return RabbitMqDraft::read(fields, current).map(SinkDraft::RabbitMq),
        _ => {}
    }
    let url = fields.required("url", url);
    let secret = fields.optional("secret", secret);
    fields.finish();
    Some(SinkDraft::Webhook { url: url?, secret: secret? })
}

/// The canonical spelling, which is what the address guard judges and what is called.
fn url(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = at.text(value)?;
    if text.len() > URL_BYTES_MAX {
        return at.fail(Fault::TooLong, format!("must have at most {URL_BYTES_MAX} bytes"));
    }
    // The parser would drop them in silence, and call another address than the one written.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return at.fail(Fault::Invalid, "must not hold blanks or control characters");
    }
    let Ok(url) = Url::parse(&text) else {
        return at.fail(Fault::Invalid, "must be an absolute URL");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return at.fail(Fault::Invalid, "must be an https URL");
    }
    if url.fragment().is_some() {
        return at.fail(Fault::Invalid, "must not have a fragment; no server would see it");
    }
    if url.as_str().len() > URL_BYTES_MAX {
        let message = format!("must have at most {URL_BYTES_MAX} bytes when it is percent-encoded");
        return at.fail(Fault::TooLong, message);
    }
    Some(url.into())
}

/// A signing secret that a tenant brings.
pub(crate) fn secret(value: Value, at: &mut At<'_>) -> Option<SecretString> {
    let secret = SecretString::from(at.text(value)?);
    let text = secrecy::ExposeSecret::expose_secret(&secret);
    if text.len() < SECRET_CHARS_MIN {
        let message = format!("must have at least {SECRET_CHARS_MIN} characters");
        return at.fail(Fault::TooShort, message);
    }
    if text.len() > SECRET_CHARS_MAX {
        let message = format!("must have at most {SECRET_CHARS_MAX} characters");
        return at.fail(Fault::TooLong, message);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return at.fail(Fault::Invalid, "must be visible ASCII characters without blanks");
    }
    Some(secret)
}

#[cfg(test)]
mod tests;
