//! The webhook sink (contract section 5): one signed `POST` per attempt. `request` says what goes
//! out, [`crate::http`] how, `classify` what the answer means; this file ties them to the clock,
//! the secrets and the limits.
//!
//! What the hub itself cannot do (open a secret, make a client, get a turn within the waiting
//! time) is no attempt. The wait for a turn comes before the attempt's own time begins, so a
//! future of this sink ends within [`WebhookSettings::slot_wait_ms`] plus
//! [`WebhookSettings::timeout_ms`].

mod classify;
mod request;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Request};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use streaming_hub_model::attempt::{Attempt, ErrorClass, Outcome};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::secret::{self, Keyring, Owner};
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::subscription::{SinkConfig, WebhookConfig};
use streaming_hub_model::tenant::TenantId;
use tokio::time::Instant;

use crate::Error;
use crate::WRONG_SINK;
use crate::guard::{self, Target};
use crate::http::{self, Factory, HttpLimits};
use crate::pool::{Key, Lease, Limits, Pools};
use crate::resolver::Resolver;

/// Settings of the webhook sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookSettings {
    /// The limit of an attempt, from the name's resolution to the answer, milliseconds.
    pub timeout_ms: u64,
    /// The limit of getting a connection, within the former, milliseconds.
    pub connect_timeout_ms: u64,
    /// How long an attempt may wait for its turn before it begins, milliseconds.
    pub slot_wait_ms: u64,
    /// The largest payload that is sent.
    pub payload_bytes_max: usize,
    /// Connections per (tenant, destination, generation).
    pub connections_per_destination_max: usize,
    /// Connections per host name and port, over all tenants.
    pub connections_per_host_max: usize,
    /// How many destinations' clients are kept.
    pub pools_max: usize,
    /// How long an unused client, and an unused connection in it, is kept, milliseconds.
    pub pool_idle_ms: u64,
    /// A PEM file of root certificates that are trusted beside the machine's.
    pub ca_file: Option<PathBuf>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            timeout_ms: 10_000,
            connect_timeout_ms: 5_000,
            slot_wait_ms: 3_000,
            payload_bytes_max: 1 << 20,
            connections_per_destination_max: 32,
            connections_per_host_max: 128,
            pools_max: 1024,
            pool_idle_ms: 90_000,
            ca_file: None,
        }
    }
}

impl WebhookSettings {
    /// Whether the settings make sense together.
    ///
    /// # Errors
    /// [`Error::Settings`] with what does not.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            (self.connect_timeout_ms > 0, "webhook.connect_timeout_ms is 0"),
            (
                self.connect_timeout_ms <= self.timeout_ms,
                "webhook.connect_timeout_ms is above webhook.timeout_ms",
            ),
            (
                self.connections_per_destination_max > 0,
                "webhook.connections_per_destination_max is 0",
            ),
            (self.connections_per_host_max > 0, "webhook.connections_per_host_max is 0"),
            (self.pools_max > 0, "webhook.pools_max is 0"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(Error::Settings(broken)),
            None => Ok(()),
        }
    }

    fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            timeout_ms: self.timeout_ms,
            connect_timeout_ms: self.connect_timeout_ms,
            idle_ms: self.pool_idle_ms,
            connections_max: self.connections_per_destination_max,
            ca_file: self.ca_file.clone(),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            per_key: self.connections_per_destination_max,
            per_host: self.connections_per_host_max,
            clients_per_host: usize::MAX,
            clients: self.pools_max,
            idle_ms: self.pool_idle_ms,
            wait_ms: self.slot_wait_ms,
        }
    }
}

/// Delivers to HTTP endpoints.
pub struct Webhook {
    settings: WebhookSettings,
    resolver: Resolver,
    keyring: Arc<Keyring>,
    factory: Factory,
    pools: Pools<Client>,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// A webhook sink that reaches the addresses that `resolver` permits, opens signing secrets
    /// with `keyring`, and ages its connections by `clock`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(
        settings: WebhookSettings,
        resolver: Resolver,
        keyring: Arc<Keyring>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        settings.validate()?;
        let factory = Factory::new(&settings.http_limits(), resolver.clone())?;
        let pools = Pools::new(settings.limits(), Arc::clone(&clock));
        Ok(Self { settings, resolver, keyring, factory, pools, clock })
    }

    async fn deliver(&self, attempt: &Attempt) -> Outcome {
        let Some(config) = config(&attempt.subscription.sink) else {
            return Outcome::not_attempted(WRONG_SINK);
        };
        if attempt.event.payload.len() > self.settings.payload_bytes_max {
            let detail =
                format!("the payload has more than {} bytes", self.settings.payload_bytes_max);
            return Outcome::failed(ErrorClass::TooLarge, detail);
        }
        // An address in the URL itself is judged here, before each attempt: no resolver sees it.
        let target = match guard::target(&config.url, self.resolver.policy()) {
            Ok(target) => target,
            Err(refused) => {
                return Outcome::failed(ErrorClass::RefusedAddress, refused.to_string());
            }
        };
        let secrets = match self.secrets(attempt, config) {
            Ok(secrets) if secrets.is_empty() => {
                return Outcome::not_attempted("the subscription has no valid signing secret");
            }
            Ok(secrets) => secrets,
            Err(error) => return Outcome::not_attempted(error.to_string()),
        };
        let request = match request::build(attempt, &target, &secrets) {
            Ok(request) => request,
            Err(error) => return Outcome::failed(ErrorClass::Protocol, error.to_string()),
        };
        let lease = match self.lease(attempt, &target).await {
            Ok(lease) => lease,
            Err(detail) => return Outcome::not_attempted(detail),
        };
        let began = Instant::now();
        let mut outcome = self.exchange(&lease.client, request, began).await;
        outcome.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        outcome
    }

    /// The secrets that sign at the attempt's moment, newest first.
    fn secrets(
        &self,
        attempt: &Attempt,
        config: &WebhookConfig,
    ) -> Result<Vec<SecretString>, secret::Error> {
        let subscription = &attempt.subscription;
        let owner = Owner { tenant: &subscription.tenant, subscription: subscription.id };
        let valid = config.secrets.iter().filter(|secret| secret.is_valid_at(attempt.at));
        valid.map(|secret| self.keyring.open(owner, &secret.sealed)).collect()
    }

    async fn lease(&self, attempt: &Attempt, target: &Target) -> Result<Lease<Client>, String> {
        let key = Key {
            tenant: attempt.subscription.tenant.clone(),
            destination: target.as_str().to_owned(),
            generation: attempt.subscription.sink_generation,
        };
        let host = (target.host().to_owned(), target.port());
        let lease = self.pools.lease(&key, host, || self.factory.make()).await;
        lease.map_err(|error| error.to_string())
    }

    async fn exchange(&self, client: &Client, request: Request, began: Instant) -> Outcome {
        let deadline = began + Duration::from_millis(self.settings.timeout_ms);
        let sent = http::foreground(client.execute(request));
        match tokio::time::timeout_at(deadline, sent).await {
            Ok(Ok(response)) => classify::response(response, self.clock.now(), deadline).await,
            Ok(Err(error)) => http::failure::outcome(&error),
            Err(_) => Outcome::failed(
                ErrorClass::Timeout,
                format!("no answer within {} ms", self.settings.timeout_ms),
            ),
        }
    }

    async fn check(&self, config: &WebhookConfig) -> Result<(), NotAdmitted> {
        let message = self.reachable(config).await;
        message.map_err(|message| NotAdmitted { field: "url", message })
    }

    async fn reachable(&self, config: &WebhookConfig) -> Result<(), String> {
        let target = guard::target(&config.url, self.resolver.policy())
            .map_err(|refused| refused.to_string())?;
        let limit = Duration::from_millis(self.settings.connect_timeout_ms);
        self.resolver.admit(&target, limit).await
    }
}

impl Sink for Webhook {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        Box::pin(async move { self.deliver(&attempt).await })
    }

    fn admit<'a>(
        &'a self,
        _: &'a TenantId,
        sink: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        Box::pin(async move {
            match config(sink) {
                Some(config) => self.check(config).await,
                None => Err(NotAdmitted { field: "type", message: WRONG_SINK.to_owned() }),
            }
        })
    }
}

fn config(sink: &SinkConfig) -> Option<&WebhookConfig> {
    if let SinkConfig::Webhook(config) = sink { Some(config) } else { None }
}
