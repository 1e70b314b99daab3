//! A sink of the type `rabbitmq` in a body.

use secrecy::SecretString;
use serde_json::Value;
use streaming_hub_model::secret::Sealed;
use streaming_hub_model::sink_config::{RabbitMqConfig, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;
use url::Host;

use super::Seal;
use super::aws;
use crate::fields::{At, Fault, Fields};
use crate::problem::Problem;

/// The longest short text of AMQP, bytes.
const SHORT_BYTES_MAX: usize = 255;
/// The longest password, bytes.
const PASSWORD_BYTES_MAX: usize = 1024;
/// The longest list of certificates, bytes.
const CA_BYTES_MAX: usize = 64 * 1024;
/// What a routing key may be made of beside its own text.
const PLACEHOLDERS: [&str; 3] = ["type", "tenant", "source"];
/// The ports that AMQP has with and without TLS.
const PORTS: (u16, u16) = (5671, 5672);

/// An exchange as its tenant asks for it.
#[derive(Debug)]
pub(crate) struct RabbitMqDraft {
    host: String,
    port: u16,
    tls: bool,
    vhost: String,
    exchange: String,
    routing_key: String,
    username: String,
    password: SecretDraft,
    ca_pem: Option<String>,
    server_name: Option<String>,
    verify_with: VerifyWith,
}

impl RabbitMqDraft {
    /// Reads the fields; a password that is not given again is that of `current`.
    pub(super) fn read(mut fields: Fields<'_>, current: Option<&SinkConfig>) -> Option<Self> {
        let current = match current {
            Some(SinkConfig::RabbitMq(current)) => Some(current.password.clone()),
            _ => None,
        };
        let host_name = fields.required("host", host);
        let tls = fields.optional("tls", |value, at| at.boolean(&value));
        let port = fields.optional("port", |value, at| {
            at.integer(&value, 1, u16::MAX.into()).and_then(|port| u16::try_from(port).ok())
        });
        let vhost = fields.optional("vhost", short);
        let exchange = fields.required("exchange", short);
        let routing_key = fields.required("routing_key", routing_key);
        let username = fields.required("username", short);
        let password = match current.map(SecretDraft::Kept) {
            Some(kept) => fields.optional("password", password).map(|new| new.unwrap_or(kept)),
            None => fields.required("password", password),
        };
        let ca_pem = fields.optional("ca_pem", |value, at| sized(value, CA_BYTES_MAX, at));
        let server_name = fields.optional("server_name", host);
        let verify_with = aws::verify_with(&mut fields);
        fields.finish();
        let tls = tls?.unwrap_or(true);
        Some(Self {
            host: host_name?,
            port: port?.unwrap_or(if tls { PORTS.0 } else { PORTS.1 }),
            tls,
            vhost: vhost?.unwrap_or_else(|| "/".to_owned()),
            exchange: exchange?,
            routing_key: routing_key?,
            username: username?,
            password: password?,
            ca_pem: ca_pem?,
            server_name: server_name?,
            verify_with: verify_with?,
        })
    }

    /// The configuration as it may leave the process.
    pub(crate) fn sealed(self, seal: &Seal<'_>) -> Result<RabbitMqConfig, Problem> {
        Ok(RabbitMqConfig {
            host: self.host,
            port: self.port,
            tls: self.tls,
            vhost: self.vhost,
            exchange: self.exchange,
            routing_key: self.routing_key,
            username: self.username,
            password: self.password.sealed(seal)?,
            ca_pem: self.ca_pem,
            server_name: self.server_name,
            verify_with: self.verify_with,
        })
    }
}

/// A password that is given, or the sealed one that is there.
#[derive(Debug)]
enum SecretDraft {
    Given(SecretString),
    Kept(Sealed),
}

impl SecretDraft {
    fn sealed(self, seal: &Seal<'_>) -> Result<Sealed, Problem> {
        match self {
            Self::Given(secret) => seal.secret(&secret),
            Self::Kept(sealed) => Ok(sealed),
        }
    }
}

/// The canonical spelling of a host name or an address.
fn host(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = at.text(value)?;
    let bare = text.strip_suffix('.').unwrap_or(&text);
    let is_v6 = bare.parse::<std::net::Ipv6Addr>().is_ok();
    let parsed = if is_v6 { Host::parse(&format!("[{bare}]")) } else { Host::parse(bare) };
    match parsed {
        Ok(Host::Domain(name)) if !name.split('.').any(str::is_empty) => Some(name),
        Ok(Host::Ipv4(ip)) => Some(ip.to_string()),
        Ok(Host::Ipv6(ip)) => Some(ip.to_string()),
        _ => at.fail(Fault::Invalid, "must be a host name or an address, without scheme or port"),
    }
}

fn short(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = sized(value, SHORT_BYTES_MAX, at)?;
    super::without_controls(text, at)
}

fn sized(value: Value, bytes_max: usize, at: &mut At<'_>) -> Option<String> {
    let text = at.text(value)?;
    if text.len() > bytes_max {
        return at.fail(Fault::TooLong, format!("must have at most {bytes_max} bytes"));
    }
    Some(text)
}

fn password(value: Value, at: &mut At<'_>) -> Option<SecretDraft> {
    let text = sized(value, PASSWORD_BYTES_MAX, at)?;
    if text.is_empty() {
        return at.fail(Fault::TooShort, "must not be empty");
    }
    Some(SecretDraft::Given(SecretString::from(text)))
}

/// A routing key, in which only known names stand in braces.
fn routing_key(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = short(value, at)?;
    let mut rest = text.as_str();
    while let Some(open) = rest.find(['{', '}']) {
        let name = rest[open..].strip_prefix('{').and_then(|from| from.split_once('}'));
        match name {
            Some((name, after)) if PLACEHOLDERS.contains(&name) => rest = after,
            _ => {
                let message = "may hold {type}, {tenant} and {source}, and no other braces";
                return at.fail(Fault::Invalid, message);
            }
        }
    }
    Some(text)
}
