//! Destinations beside the webhook as they lie in a subscription's record, and of every kind its
//! canonical target: what a destination *is* (contract section 4, "Circuit breaker") and what its
//! connections are kept under. Secrets are sealed; everything else here may be shown to the owner.
//!
//! A target may itself be a secret (a webhook's URL often is), so it is hashed or kept in memory,
//! never written to a log or a metric. The host may be shown.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::secret::Sealed;
use crate::subscription::SinkConfig;

/// How a destination is verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyWith {
    /// By asking the service for the destination, with the least permission that shows it is there.
    #[default]
    Lookup,
    /// By delivering a test event to it.
    Event,
}

impl VerifyWith {
    fn is_lookup(&self) -> bool {
        *self == Self::Lookup
    }
}

/// With which identity AWS is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum AwsCredentials {
    /// An access key of the tenant.
    Keys {
        /// Its id, which is no secret.
        access_key_id: String,
        /// The secret half.
        secret_access_key: Sealed,
        /// The third part of temporary keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_token: Option<Sealed>,
    },
    /// A role of the tenant that the hub assumes.
    Role {
        /// The role's ARN.
        role_arn: String,
        /// What the hub proves to act for this tenant with; made by the hub, never settable
        /// (contract section 5).
        external_id: String,
    },
    /// The hub's own identity, for what the operator lists only.
    Ambient,
}

/// A queue of Amazon SQS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqsConfig {
    /// The queue's URL, in its canonical spelling.
    pub queue_url: String,
    /// Its region.
    pub region: String,
    /// Another endpoint than the region's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// With which identity it is called.
    pub credentials: AwsCredentials,
    /// How it is verified.
    #[serde(default, skip_serializing_if = "VerifyWith::is_lookup")]
    pub verify_with: VerifyWith,
}

impl SqsConfig {
    /// Whether the queue keeps order: its name ends in `.fifo`, as the service demands.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.queue_url.ends_with(".fifo")
    }

    /// The queue's ARN, if its URL is of the service's form `…/<account>/<name>`.
    #[must_use]
    pub fn arn(&self) -> Option<String> {
        let mut path = self.queue_url.rsplit('/');
        let (name, account) = (path.next()?, path.next()?);
        (account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit())).then(|| {
            format!("arn:{}:sqs:{}:{account}:{name}", partition_of(&self.region), self.region)
        })
    }
}

/// An event bus of Amazon EventBridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBridgeConfig {
    /// The bus's ARN: account, region and name in one.
    pub event_bus: String,
    /// The region in it.
    pub region: String,
    /// Another endpoint than the region's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// With which identity it is called.
    pub credentials: AwsCredentials,
    /// How it is verified.
    #[serde(default, skip_serializing_if = "VerifyWith::is_lookup")]
    pub verify_with: VerifyWith,
}

/// The partition (of AWS's, not of Kafka's) that a region lies in.
#[must_use]
pub fn partition_of(region: &str) -> &'static str {
    match region {
        region if region.starts_with("cn-") => "aws-cn",
        region if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

/// An exchange of a RabbitMQ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RabbitMqConfig {
    /// The host name or address, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether the connection is TLS (`amqps`).
    pub tls: bool,
    /// The virtual host.
    pub vhost: String,
    /// The exchange; empty for the default exchange, which routes by the queue's name.
    pub exchange: String,
    /// The routing key, in which `{type}`, `{tenant}` and `{source}` stand for the event's.
    pub routing_key: String,
    /// The user.
    pub username: String,
    /// The password.
    pub password: Sealed,
    /// Certificates (PEM) that are trusted instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// The name that the certificate must be for and that SNI asks for; the host when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// How it is verified.
    #[serde(default, skip_serializing_if = "VerifyWith::is_lookup")]
    pub verify_with: VerifyWith,
}

impl SinkConfig {
    /// The canonical target: two configurations with the same one are one destination, whatever
    /// their credentials. It begins with the sink's type, so targets of two types never meet.
    #[must_use]
    pub fn target(&self) -> String {
        let kind = self.kind();
        match self {
            Self::Webhook(webhook) => format!("{kind} {}", webhook.url),
            Self::Pull => kind.to_owned(),
            // An endpoint is another server, whatever the queue's URL says.
            Self::Sqs(sqs) => with_endpoint(kind, &sqs.queue_url, sqs.endpoint.as_deref()),
            Self::EventBridge(bus) => with_endpoint(kind, &bus.event_bus, bus.endpoint.as_deref()),
            // No length is ambiguous: the exchange is the last part, the virtual host is counted.
            Self::RabbitMq(rabbit) => format!(
                "{kind} {}:{} {}:{} {}",
                rabbit.host,
                rabbit.port,
                rabbit.vhost.len(),
                rabbit.vhost,
                rabbit.exchange
            ),
        }
    }

    /// Every secret in it, as it lies at rest.
    #[must_use]
    pub fn seals(&self) -> Vec<&Sealed> {
        match self {
            Self::Pull => Vec::new(),
            Self::Webhook(webhook) => webhook.secrets.iter().map(|own| &own.sealed).collect(),
            Self::Sqs(SqsConfig { credentials, .. })
            | Self::EventBridge(EventBridgeConfig { credentials, .. }) => match credentials {
                AwsCredentials::Keys { secret_access_key, session_token, .. } => {
                    [secret_access_key].into_iter().chain(session_token).collect()
                }
                AwsCredentials::Role { .. } | AwsCredentials::Ambient => Vec::new(),
            },
            Self::RabbitMq(rabbit) => vec![&rabbit.password],
        }
    }

    /// The same, to be sealed anew.
    pub fn seals_mut(&mut self) -> Vec<&mut Sealed> {
        match self {
            Self::Pull => Vec::new(),
            Self::Webhook(webhook) => {
                webhook.secrets.iter_mut().map(|own| &mut own.sealed).collect()
            }
            Self::Sqs(SqsConfig { credentials, .. })
            | Self::EventBridge(EventBridgeConfig { credentials, .. }) => match credentials {
                AwsCredentials::Keys { secret_access_key, session_token, .. } => {
                    [secret_access_key].into_iter().chain(session_token).collect()
                }
                AwsCredentials::Role { .. } | AwsCredentials::Ambient => Vec::new(),
            },
            Self::RabbitMq(rabbit) => vec![&mut rabbit.password],
        }
    }

    /// The host that is called, which may be shown where the target may not.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Webhook(webhook) => host_of(&webhook.url),
            Self::Pull => String::new(),
            Self::Sqs(sqs) => host_of(sqs.endpoint.as_deref().unwrap_or(&sqs.queue_url)),
            Self::EventBridge(bus) => match &bus.endpoint {
                Some(endpoint) => host_of(endpoint),
                None => format!("events.{}.amazonaws.com", bus.region),
            },
            Self::RabbitMq(rabbit) => rabbit.host.clone(),
        }
    }
}

fn with_endpoint(kind: &str, target: &str, endpoint: Option<&str>) -> String {
    match endpoint {
        Some(endpoint) => format!("{kind} {target} {endpoint}"),
        None => format!("{kind} {target}"),
    }
}

/// The host in a URL that was canonical when it was written.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.to_owned()
}

/// Which credentials these are, for keeping connections apart: changed or other credentials never
/// meet a connection that was opened with these (contract section 4). Of the opened texts, since
/// the same secret sealed twice differs; never leaves memory.
#[must_use]
pub fn credential_generation(parts: &[&str]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let digest: [u8; 32] = digest.finalize().into();
    digest.first_chunk().map_or(0, |head| u64::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sink(value: serde_json::Value) -> SinkConfig {
        serde_json::from_value(value).unwrap()
    }

    fn rabbit(vhost: &str, exchange: &str) -> SinkConfig {
        sink(json!({
            "type": "rabbitmq", "host": "mq.example.com", "port": 5671, "tls": true,
            "vhost": vhost, "exchange": exchange, "routing_key": "{type}", "username": "hub",
            "password": {"key_id": "k", "data": ""},
        }))
    }

    #[test]
    fn a_target_names_what_is_called_and_nothing_of_the_credentials() {
        let sqs = json!({
            "type": "sqs", "queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/q",
            "region": "eu-west-1", "credentials": {"mode": "ambient"},
        });
        let target = "sqs https://sqs.eu-west-1.amazonaws.com/123456789012/q";
        assert_eq!(sink(sqs.clone()).target(), target);
        assert_eq!(sink(sqs.clone()).host(), "sqs.eu-west-1.amazonaws.com");
        let mut other = sqs;
        other["endpoint"] = json!("http://[::1]:4566/");
        assert_ne!(sink(other.clone()).target(), target);
        assert_eq!(sink(other).host(), "::1");
        assert_eq!(rabbit("/", "events").target(), "rabbitmq mq.example.com:5671 1:/ events");
    }

    #[test]
    fn no_two_exchanges_share_a_target() {
        assert_ne!(rabbit("a b", "c").target(), rabbit("a", "b c").target());
        assert_ne!(rabbit("a", "").target(), rabbit("a ", "").target());
    }

    #[test]
    fn a_webhooks_host_is_shown_without_user_port_and_path() {
        for (url, host) in [
            ("https://example.com/hook?token=1", "example.com"),
            ("https://example.com:8443", "example.com"),
            ("https://[2001:db8::1]:443/x", "2001:db8::1"),
            ("https://example.com?x=//y", "example.com"),
        ] {
            let webhook = sink(json!({"type": "webhook", "url": url, "secrets": []}));
            assert_eq!(webhook.host(), host, "{url}");
        }
    }

    #[test]
    fn a_queues_arn_is_read_from_a_url_of_the_services_form_only() {
        let queue = |url: &str, region: &str| SqsConfig {
            queue_url: url.into(),
            region: region.into(),
            endpoint: None,
            credentials: AwsCredentials::Ambient,
            verify_with: VerifyWith::Lookup,
        };
        let arn = |url, region| queue(url, region).arn();
        let url = "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders.fifo";
        let expected = "arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo";
        assert_eq!(arn(url, "cn-north-1").as_deref(), Some(expected));
        assert!(queue(url, "cn-north-1").is_fifo());
        assert_eq!(arn("https://example.com/orders", "eu-west-1"), None);
        assert_eq!(arn("https://example.com/123/orders", "eu-west-1"), None);
    }

    #[test]
    fn other_credentials_are_another_generation() {
        assert_eq!(credential_generation(&["a", "b"]), credential_generation(&["a", "b"]));
        assert_ne!(credential_generation(&["a", "b"]), credential_generation(&["ab", ""]));
    }
}
