//! A sink as its owner sees it: where events go and as whom, and no secret, sealed or not.

use serde::Serialize;
use streaming_hub_model::sink_config::{AwsCredentials, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;

/// A sink without its secrets. Read as the sink of a patch it changes nothing.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum SinkView<'a> {
    Webhook {
        url: &'a str,
    },
    Sqs {
        queue_url: &'a str,
        region: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint: Option<&'a str>,
        credentials: CredentialsView<'a>,
        verify_with: VerifyWith,
    },
    EventBridge {
        event_bus: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint: Option<&'a str>,
        credentials: CredentialsView<'a>,
        verify_with: VerifyWith,
    },
    RabbitMq(Box<RabbitMqView<'a>>),
    Pull,
}

/// The representation of an exchange.
#[derive(Serialize)]
pub(crate) struct RabbitMqView<'a> {
    host: &'a str,
    port: u16,
    tls: bool,
    vhost: &'a str,
    exchange: &'a str,
    routing_key: &'a str,
    username: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_pem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<&'a str>,
    verify_with: VerifyWith,
}

/// The representation of an identity.
#[derive(Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub(crate) enum CredentialsView<'a> {
    Keys { access_key_id: &'a str },
    Role { role_arn: &'a str, external_id: &'a str },
    Ambient,
}

impl<'a> From<&'a SinkConfig> for SinkView<'a> {
    fn from(sink: &'a SinkConfig) -> Self {
        match sink {
            SinkConfig::Pull => Self::Pull,
            SinkConfig::Webhook(webhook) => Self::Webhook { url: &webhook.url },
            SinkConfig::Sqs(sqs) => Self::Sqs {
                queue_url: &sqs.queue_url,
                region: &sqs.region,
                endpoint: sqs.endpoint.as_deref(),
                credentials: (&sqs.credentials).into(),
                verify_with: sqs.verify_with,
            },
            SinkConfig::EventBridge(bus) => Self::EventBridge {
                event_bus: &bus.event_bus,
                endpoint: bus.endpoint.as_deref(),
                credentials: (&bus.credentials).into(),
                verify_with: bus.verify_with,
            },
            SinkConfig::RabbitMq(rabbit) => Self::RabbitMq(Box::new(RabbitMqView {
                host: &rabbit.host,
                port: rabbit.port,
                tls: rabbit.tls,
                vhost: &rabbit.vhost,
                exchange: &rabbit.exchange,
                routing_key: &rabbit.routing_key,
                username: &rabbit.username,
                ca_pem: rabbit.ca_pem.as_deref(),
                server_name: rabbit.server_name.as_deref(),
                verify_with: rabbit.verify_with,
            })),
        }
    }
}

impl<'a> From<&'a AwsCredentials> for CredentialsView<'a> {
    fn from(credentials: &'a AwsCredentials) -> Self {
        match credentials {
            AwsCredentials::Keys { access_key_id, .. } => Self::Keys { access_key_id },
            AwsCredentials::Role { role_arn, external_id } => Self::Role { role_arn, external_id },
            AwsCredentials::Ambient => Self::Ambient,
        }
    }
}
