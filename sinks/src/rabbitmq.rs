//! The RabbitMQ sink (contract section 5): each attempt is one persistent, mandatory message, and
//! its outcome is the broker's confirm. `request` says what a message is, `dial` how the broker is
//! reached, `link` keeps one connection, `classify` says what an error means.
//!
//! A connection serves one (tenant, destination, credentials) and has one channel for messages, in
//! which confirms are pipelined; another one is opened for the moment of a verification.

mod classify;
mod dial;
mod link;
mod request;

use std::sync::{Arc, Once};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Confirmation, ExchangeKind};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use streaming_hub_model::attempt::{Attempt, ErrorClass, Outcome};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::secret::{Keyring, Owner};
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::sink_config::{RabbitMqConfig, VerifyWith, credential_generation};
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;
use tokio::time::Instant;

use crate::Error;
use crate::leased::{self, Leased};
use crate::outcome::{delivered, duration_ms, with_permission};
use crate::pool::{Key, Lease, Limits, Pools};
use crate::resolver::Resolver;
use dial::Dialer;
use link::{Link, Login};

/// Attempts of one connection at once; they share its channel.
const ATTEMPTS_MAX: usize = 256;
/// What a look-up needs.
const PERMISSION: &str = "to write to the exchange (or to configure it)";

/// Settings of the RabbitMQ sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RabbitMqSettings {
    /// The limit of an attempt, from the wait for a connection to the confirm, milliseconds.
    pub timeout_ms: u64,
    /// The limit of getting a connection, within the former, milliseconds.
    pub connect_timeout_ms: u64,
    /// How long an attempt may wait for its turn before it begins, milliseconds.
    pub slot_wait_ms: u64,
    /// Seconds between heartbeats: a connection that is silent for twice as long is dead.
    pub heartbeat_s: u16,
    /// How long an unused connection is kept, milliseconds.
    pub idle_ms: u64,
    /// The largest payload that is sent.
    pub payload_bytes_max: usize,
    /// Connections per host name and port, over all tenants.
    pub connections_per_host_max: usize,
    /// Connections in all.
    pub connections_max: usize,
}

impl Default for RabbitMqSettings {
    fn default() -> Self {
        Self {
            timeout_ms: 10_000,
            connect_timeout_ms: 5_000,
            slot_wait_ms: 3_000,
            heartbeat_s: 10,
            idle_ms: 90_000,
            payload_bytes_max: 1 << 20,
            connections_per_host_max: 128,
            connections_max: 1024,
        }
    }
}

impl RabbitMqSettings {
    fn limits(&self) -> Limits {
        Limits {
            per_key: ATTEMPTS_MAX,
            per_host: usize::MAX >> 4,
            clients_per_host: self.connections_per_host_max,
            clients: self.connections_max,
            idle_ms: self.idle_ms,
            wait_ms: self.slot_wait_ms,
        }
    }
}

/// Delivers to exchanges of RabbitMQ.
pub struct RabbitMq {
    settings: RabbitMqSettings,
    resolver: Resolver,
    keyring: Arc<Keyring>,
    dialer: Arc<Dialer>,
    pools: Arc<Pools<Arc<Link>>>,
    sweeper: Once,
}

impl RabbitMq {
    /// A sink that reaches the addresses that `resolver` permits.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(
        settings: RabbitMqSettings,
        resolver: Resolver,
        keyring: Arc<Keyring>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let dialer = Arc::new(Dialer::new(&settings, resolver.clone())?);
        let pools = Arc::new(Pools::new(settings.limits(), clock));
        Ok(Self { settings, resolver, keyring, dialer, pools, sweeper: Once::new() })
    }

    /// How many connections are kept; a gauge.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pools.len()
    }

    /// Sends one message and waits for its confirm.
    async fn publish(
        &self,
        channel: &Channel,
        config: &RabbitMqConfig,
        routing_key: ShortString,
        attempt: &Attempt,
    ) -> Outcome {
        let Ok(exchange) = ShortString::try_new(config.exchange.as_str()) else {
            return Outcome::failed(ErrorClass::NotFound, "the exchange's name is too long");
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = request::properties(attempt);
        let payload = &attempt.event.payload;
        let sent = channel.basic_publish(exchange, routing_key, options, payload, properties);
        let confirmed = match sent.await {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(Confirmation::Ack(None)) => delivered(),
            Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
                let (code, text) = (returned.reply_code, returned.reply_text);
                let detail = format!("the broker gave the message back: {code} {text}");
                Outcome::failed(ErrorClass::Unroutable, detail)
            }
            Ok(Confirmation::Nack(None)) => {
                Outcome::failed(ErrorClass::Rejected, "the broker refused the message (nack)")
            }
            Ok(Confirmation::NotRequested) => {
                Outcome::failed(ErrorClass::Protocol, "the broker does not confirm messages")
            }
            Err(error) => classify::outcome(&error),
        }
    }

    /// Runs an exchange over the channel of a connection, within the time of an attempt.
    async fn in_time(
        &self,
        link: &Link,
        exchange: impl AsyncFnOnce(Channel) -> Outcome,
    ) -> Outcome {
        let began = Instant::now();
        let deadline = began + Duration::from_millis(self.settings.timeout_ms);
        let done = async {
            match link.channel().await {
                Ok(channel) => exchange(channel).await,
                Err(outcome) => outcome,
            }
        };
        let outcome = tokio::time::timeout_at(deadline, done).await.unwrap_or_else(|_| {
            let why = if link.is_blocked() {
                "the broker takes no messages (its connection is blocked)".to_owned()
            } else {
                format!("no confirm within {} ms", self.settings.timeout_ms)
            };
            Outcome::failed(ErrorClass::Timeout, why)
        });
        Outcome { duration_ms: duration_ms(began.elapsed()), ..outcome }
    }

    /// Ends connections that nobody has used for the idle time, whether or not anything else is
    /// delivered. The task ends with the sink.
    #[expect(clippy::disallowed_methods, reason = "the sweeper belongs to the sink")]
    fn sweep_now_and_then(&self) {
        self.sweeper.call_once(|| {
            let pools = Arc::downgrade(&self.pools);
            let pause = Duration::from_millis((self.settings.idle_ms / 4).max(100));
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(pause).await;
                    let Some(pools) = pools.upgrade() else { return };
                    pools.sweep();
                }
            });
        });
    }
}

/// Asks whether the exchange is there, on a channel of its own: a refusal closes the channel.
async fn declare(link: &Link, config: &RabbitMqConfig) -> Outcome {
    if config.exchange.is_empty() {
        // The default exchange is always there, and declaring it is refused.
        return delivered();
    }
    let channel = match link.another_channel().await {
        Ok(channel) => channel,
        Err(error) => return classify::outcome(&error),
    };
    let Ok(exchange) = ShortString::try_new(config.exchange.as_str()) else {
        return Outcome::failed(ErrorClass::NotFound, "the exchange's name is too long");
    };
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    // A passive declaration does not compare the kind.
    let asked =
        channel.exchange_declare(exchange, ExchangeKind::Direct, options, FieldTable::default());
    match asked.await {
        Ok(()) => {
            // It closes with its last reference otherwise, too; an error says nothing more.
            let _ = channel.close(200, ShortString::default()).await;
            delivered()
        }
        Err(error) => with_permission(classify::outcome(&error), PERMISSION),
    }
}

/// What a connection was opened with, beside its target.
fn generation(config: &RabbitMqConfig, password: &SecretString) -> u64 {
    credential_generation(&[
        &config.username,
        password.expose_secret(),
        if config.tls { "tls" } else { "" },
        config.ca_pem.as_deref().unwrap_or_default(),
        config.server_name.as_deref().unwrap_or_default(),
    ])
}

impl Leased for RabbitMq {
    type Config = RabbitMqConfig;
    type Client = Arc<Link>;

    fn config(sink: &SinkConfig) -> Option<&RabbitMqConfig> {
        if let SinkConfig::RabbitMq(config) = sink { Some(config) } else { None }
    }

    fn verify_with(config: &RabbitMqConfig) -> VerifyWith {
        config.verify_with
    }

    async fn lease(
        &self,
        attempt: &Attempt,
        config: &RabbitMqConfig,
    ) -> Result<Lease<Arc<Link>>, Outcome> {
        let subscription = &attempt.subscription;
        let owner = Owner { tenant: &subscription.tenant, subscription: subscription.id };
        let password = self.keyring.open(owner, &config.password);
        let password = password.map_err(|error| Outcome::not_attempted(error.to_string()))?;
        let key = Key::of(subscription, generation(config, &password));
        self.sweep_now_and_then();
        let make = || {
            let login = Login { config: config.clone(), password };
            Ok::<_, std::convert::Infallible>(Arc::new(Link::new(Arc::clone(&self.dialer), login)))
        };
        let host = (config.host.clone(), config.port);
        let lease = self.pools.lease(&key, host, make).await;
        lease.map_err(|error| Outcome::not_attempted(error.to_string()))
    }

    async fn deliver(&self, attempt: &Attempt, config: &RabbitMqConfig) -> Outcome {
        let limit = self.settings.payload_bytes_max;
        if attempt.event.payload.len() > limit {
            let detail = format!("the payload has more than {limit} bytes");
            return Outcome::failed(ErrorClass::TooLarge, detail);
        }
        let Ok(routing_key) = ShortString::try_new(request::routing_key(config, &attempt.event))
        else {
            let detail = "the rendered routing key has more than 255 bytes";
            return Outcome::failed(ErrorClass::RoutingKeyTooLong, detail);
        };
        let lease = match self.lease(attempt, config).await {
            Ok(lease) => lease,
            Err(outcome) => return outcome,
        };
        let publish = async |channel: Channel| {
            self.publish(&channel, config, routing_key.clone(), attempt).await
        };
        self.in_time(&lease.client, publish).await
    }

    async fn look_up(&self, link: &Arc<Link>, config: &RabbitMqConfig) -> Outcome {
        self.in_time(link, async |_| declare(link, config).await).await
    }
}

impl Sink for RabbitMq {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::attempt(self, attempt)
    }

    fn verify(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::verify(self, attempt)
    }

    fn admit<'a>(
        &'a self,
        _: &'a TenantId,
        sink: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        Box::pin(async move {
            let config = leased::admitted::<Self>(sink)?;
            if !config.tls && !self.resolver.policy().allow_private {
                let message = "must be true: passwords and events travel encrypted".to_owned();
                return Err(NotAdmitted { field: "tls", message });
            }
            if let Err(message) = self.dialer.check(config) {
                return Err(NotAdmitted { field: "ca_pem", message });
            }
            let limit = Duration::from_millis(self.settings.connect_timeout_ms);
            let admitted = self.resolver.admit_host(&config.host, limit).await;
            admitted.map_err(|message| NotAdmitted { field: "host", message })
        })
    }
}
