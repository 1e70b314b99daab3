//! What the sinks of AWS have in common in a body: region, endpoint and credentials. A secret is
//! read here and sealed before it goes anywhere; it is never shown again. A patch that does
//! not give it again keeps the one that is there, so credentials change independently of the rest.

use secrecy::SecretString;
use serde_json::Value;
use streaming_hub_model::sink_config::{AwsCredentials, VerifyWith};

use super::Seal;
use crate::fields::{At, Fault, Fields};
use crate::problem::Problem;

/// The longest part of an access key, characters.
const KEY_CHARS_MAX: usize = 256;
/// The longest session token, characters.
const TOKEN_CHARS_MAX: usize = 8192;
/// The longest ARN, characters.
const ARN_CHARS_MAX: usize = 2048;

/// Credentials as a tenant gives them, or as they were.
#[derive(Debug)]
pub(crate) enum CredentialsDraft {
    /// An access key.
    Keys { access_key_id: String, secret_access_key: SecretString, token: Option<SecretString> },
    /// A role to assume.
    Role { role_arn: String },
    /// The hub's own identity.
    Ambient,
    /// Those that the subscription has.
    Kept(AwsCredentials),
}

impl CredentialsDraft {
    /// The same as they may leave the process.
    pub(crate) fn sealed(self, seal: &Seal<'_>) -> Result<AwsCredentials, Problem> {
        Ok(match self {
            Self::Keys { access_key_id, secret_access_key, token } => AwsCredentials::Keys {
                access_key_id,
                secret_access_key: seal.secret(&secret_access_key)?,
                session_token: token.map(|token| seal.secret(&token)).transpose()?,
            },
            Self::Role { role_arn } => {
                AwsCredentials::Role { role_arn, external_id: seal.external_id()? }
            }
            Self::Ambient => AwsCredentials::Ambient,
            Self::Kept(credentials) => credentials,
        })
    }
}

/// The field `credentials`. Where the body shows those that the subscription has, without their
/// secrets, they are kept.
pub(super) fn credentials(
    fields: &mut Fields<'_>,
    current: Option<&AwsCredentials>,
) -> Option<CredentialsDraft> {
    fields.required("credentials", |value, at| given(value, current, at))
}

fn given(
    value: Value,
    current: Option<&AwsCredentials>,
    at: &mut At<'_>,
) -> Option<CredentialsDraft> {
    let mut fields = at.child_object(value)?;
    let mode = fields.required("mode", |value, at| {
        let mode = at.text(value)?;
        if matches!(&*mode, "keys" | "role" | "ambient") {
            return Some(mode);
        }
        at.fail(Fault::Invalid, "must be \"keys\", \"role\" or \"ambient\"")
    })?;
    let draft = match &*mode {
        "keys" => keys(&mut fields, current),
        "role" => fields
            .required("role_arn", |value, at| arn(value, ":role/", at))
            .map(|role_arn| CredentialsDraft::Role { role_arn }),
        _ => Some(CredentialsDraft::Ambient),
    };
    if current.is_some() {
        // A merged body still shows what the former mode had.
        for shown in ["access_key_id", "role_arn", "external_id"] {
            fields.optional(shown, |_, _| Some(()));
        }
    }
    fields.finish();
    draft
}

fn keys(fields: &mut Fields<'_>, current: Option<&AwsCredentials>) -> Option<CredentialsDraft> {
    let id = fields.required("access_key_id", key);
    let secret = fields.optional("secret_access_key", key);
    let token = fields.optional("session_token", |value, at| {
        graphic(value, TOKEN_CHARS_MAX, at).map(SecretString::from)
    });
    let (access_key_id, secret, token) = (id?, secret?, token?);
    match (secret, current) {
        (Some(secret), _) => Some(CredentialsDraft::Keys {
            access_key_id,
            secret_access_key: SecretString::from(secret),
            token,
        }),
        (None, Some(kept @ AwsCredentials::Keys { access_key_id: own, .. }))
            if *own == access_key_id && token.is_none() =>
        {
            Some(CredentialsDraft::Kept(kept.clone()))
        }
        (None, _) => fields.fail("secret_access_key", Fault::Required, "is required"),
    }
}

fn key(value: Value, at: &mut At<'_>) -> Option<String> {
    graphic(value, KEY_CHARS_MAX, at)
}

/// Visible ASCII without blanks.
fn graphic(value: Value, chars_max: usize, at: &mut At<'_>) -> Option<String> {
    let text = at.text(value)?;
    if text.is_empty() {
        return at.fail(Fault::TooShort, "must not be empty");
    }
    if text.len() > chars_max {
        return at.fail(Fault::TooLong, format!("must have at most {chars_max} characters"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return at.fail(Fault::Invalid, "must be visible ASCII characters without blanks");
    }
    Some(text)
}

/// An ARN in which `kind` stands.
pub(super) fn arn(value: Value, kind: &'static str, at: &mut At<'_>) -> Option<String> {
    let text = graphic(value, ARN_CHARS_MAX, at)?;
    if !text.starts_with("arn:") || !text.contains(kind) || text.split(':').count() < 6 {
        return at.fail(Fault::Invalid, format!("must be an ARN with {kind:?} in it"));
    }
    Some(text)
}

/// The field `endpoint`: another server than the region's, which only the address guard judges.
pub(super) fn endpoint(fields: &mut Fields<'_>) -> Option<Option<String>> {
    fields.optional("endpoint", super::url)
}

/// A region's name, which becomes part of a host name.
pub(super) fn region(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = at.text(value)?;
    if !is_region(&text) {
        return at.fail(Fault::Invalid, "must be a region such as \"eu-west-1\"");
    }
    Some(text)
}

/// Whether this is a region's name: letters, digits and single hyphens.
pub(super) fn is_region(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.len() <= 32 && text.split('-').count() >= 3 && text.split('-').all(part)
}

/// The field `verify_with`.
pub(super) fn verify_with(fields: &mut Fields<'_>) -> Option<VerifyWith> {
    let parse = |value, at: &mut At<'_>| match &*at.text(value)? {
        "lookup" => Some(VerifyWith::Lookup),
        "event" => Some(VerifyWith::Event),
        _ => at.fail(Fault::Invalid, "must be \"lookup\" or \"event\""),
    };
    Some(fields.optional("verify_with", parse)?.unwrap_or_default())
}
