//! Destinations, all of them behind the one trait [`Sink`]: whoever delivers or probes knows that
//! trait and [`Sinks`], and nothing of HTTP. What every sink shares is here once: the address
//! guard, the guarded resolver and the connection pools that keep tenants apart (I8).

pub mod aws;
pub mod eventbridge;
pub mod guard;
pub mod pool;
pub mod rabbitmq;
pub mod resolver;
pub mod sqs;
pub mod webhook;

mod batch;
mod http;
mod leased;
mod outcome;
#[cfg(test)]
mod testing;
mod trace_context;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use streaming_hub_model::attempt::{Attempt, Outcome};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;

use crate::aws::{Aws, AwsSettings};
use crate::eventbridge::EventBridge;
use crate::guard::AddressPolicy;
use crate::rabbitmq::{RabbitMq, RabbitMqSettings};
use crate::resolver::Resolver;
use crate::sqs::Sqs;
use crate::webhook::{Webhook, WebhookSettings};

/// Why the sinks cannot be set up. All of these are faults of the configuration or the machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting contradicts another one or itself.
    #[error("sink settings: {0}")]
    Settings(&'static str),
    /// The file of extra root certificates is missing, unreadable or holds none.
    #[error("the CA file {} holds no usable certificate: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No TLS client can be made, for example because the machine has no root certificates.
    #[error("no TLS client can be made: {0}")]
    Tls(#[from] rustls::Error),
}

/// What a sink answers to a configuration of another one's kind: a fault of ours.
const WRONG_SINK: &str = "the destination is of another kind";

/// Settings of all sinks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkSettings {
    /// Which addresses may be called.
    pub addresses: AddressPolicy,
    /// Webhooks.
    pub webhook: WebhookSettings,
    /// SQS and EventBridge.
    pub aws: AwsSettings,
    /// RabbitMQ.
    pub rabbitmq: RabbitMqSettings,
}

/// Every sink that there is, chosen by the kind of a subscription's configuration.
pub struct Sinks {
    webhook: Webhook,
    sqs: Sqs,
    eventbridge: EventBridge,
    rabbitmq: RabbitMq,
    nowhere: Nowhere,
}

/// A log that its owner reads is no destination: nothing is sent there.
struct Nowhere;

impl Sink for Nowhere {
    fn attempt(&self, _: Attempt) -> SinkFuture<'_, Outcome> {
        Box::pin(async { Outcome::not_attempted("a pull subscription has no destination") })
    }

    fn admit<'a>(
        &'a self,
        _: &'a TenantId,
        _: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        Box::pin(async { Ok(()) })
    }
}

impl Sinks {
    /// All sinks, with the machine's own resolver.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(
        settings: SinkSettings,
        keyring: Arc<Keyring>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let resolver = Resolver::new(settings.addresses);
        let aws = Arc::new(Aws::new(settings.aws, resolver.clone(), Arc::clone(&keyring))?);
        let (brokers, keys) = (resolver.clone(), Arc::clone(&keyring));
        Ok(Self {
            sqs: Sqs::new(Arc::clone(&aws), Arc::clone(&clock)),
            eventbridge: EventBridge::new(aws, Arc::clone(&clock)),
            rabbitmq: RabbitMq::new(settings.rabbitmq, brokers, keys, Arc::clone(&clock))?,
            webhook: Webhook::new(settings.webhook, resolver, keyring, clock)?,
            nowhere: Nowhere,
        })
    }

    fn of(&self, config: &SinkConfig) -> &dyn Sink {
        match config {
            SinkConfig::Webhook(_) => &self.webhook,
            SinkConfig::Sqs(_) => &self.sqs,
            SinkConfig::EventBridge(_) => &self.eventbridge,
            SinkConfig::RabbitMq(_) => &self.rabbitmq,
            SinkConfig::Pull => &self.nowhere,
        }
    }
}

impl Sink for Sinks {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        self.of(&attempt.subscription.sink).attempt(attempt)
    }

    fn verify(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        self.of(&attempt.subscription.sink).verify(attempt)
    }

    fn admit<'a>(
        &'a self,
        tenant: &'a TenantId,
        config: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        self.of(config).admit(tenant, config)
    }
}
