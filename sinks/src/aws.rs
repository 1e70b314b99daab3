//! What the two sinks of AWS share: with which identity a service is called, the HTTP client under
//! the address guard (`connector`), and what an error of a service means (`failure`).
//!
//! The SDK's own retries are off: a retry is an attempt, and attempts are the delivery engine's.
//! The hub's own identity serves what the operator lists and the assuming of roles, and nothing
//! else; it is never sent to an endpoint that a tenant named (contract section 5).

mod connector;
pub(crate) mod failure;
mod identity;
mod service;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::timeout::TimeoutConfig;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::sink::NotAdmitted;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;

pub(crate) use identity::{Called, Identity};
pub(crate) use service::Service;

use crate::Error;
use crate::guard::{self, AddressPolicy};
use crate::http::{Factory, HttpLimits};
use crate::pool::Limits;
use crate::resolver::Resolver;

/// The most connections of one client.
pub(crate) const REQUESTS_PER_CLIENT_MAX: usize = 32;
/// The most attempts of one client, and to one host: no more connections than that.
const ATTEMPTS_MAX: usize = 128;
const CLIENTS_MAX: usize = 1024;

/// Settings of the sinks of AWS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsSettings {
    /// The limit of a request, milliseconds.
    pub timeout_ms: u64,
    /// The limit of getting a connection, within the former, milliseconds.
    pub connect_timeout_ms: u64,
    /// How long an attempt waits for others to share its request with, milliseconds.
    pub linger_ms: u64,
    /// How long an attempt may wait for its turn before it begins, milliseconds.
    pub slot_wait_ms: u64,
    /// How long an unused client is kept, milliseconds.
    pub pool_idle_ms: u64,
    /// A PEM file of root certificates that are trusted beside the machine's.
    pub ca_file: Option<PathBuf>,
    /// Where roles are assumed, instead of the region's endpoint.
    pub sts_endpoint: Option<String>,
    /// What the hub's own identity may be used for.
    pub ambient: Vec<AmbientGrant>,
    /// The largest message of SQS, attributes included, bytes.
    pub sqs_message_bytes_max: usize,
    /// The largest entry, and request, of EventBridge, bytes.
    pub eventbridge_entry_bytes_max: usize,
}

impl Default for AwsSettings {
    fn default() -> Self {
        Self {
            timeout_ms: 10_000,
            connect_timeout_ms: 5_000,
            linger_ms: 2,
            slot_wait_ms: 3_000,
            pool_idle_ms: 90_000,
            ca_file: None,
            sts_endpoint: None,
            ambient: Vec::new(),
            sqs_message_bytes_max: 1 << 20,
            eventbridge_entry_bytes_max: 256 * 1024,
        }
    }
}

/// A tenant that may have the hub use its own identity, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmbientGrant {
    /// The tenant.
    pub tenant: String,
    /// The ARN of a queue or bus, in which `*` stands for any text.
    pub arn: String,
}

impl AmbientGrant {
    fn covers(&self, tenant: &TenantId, arn: &str) -> bool {
        self.tenant == tenant.as_str() && matches(&self.arn, arn)
    }
}

/// Whether a text is of a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).any(|at| text.get(at..).is_some_and(|tail| matches(rest, tail)))
}

impl AwsSettings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            per_key: ATTEMPTS_MAX,
            per_host: ATTEMPTS_MAX,
            clients_per_host: usize::MAX,
            clients: CLIENTS_MAX,
            idle_ms: self.pool_idle_ms,
            wait_ms: self.slot_wait_ms,
        }
    }

    pub(crate) fn timeouts(&self) -> TimeoutConfig {
        TimeoutConfig::builder().operation_timeout(Duration::from_millis(self.timeout_ms)).build()
    }

    pub(crate) fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }
}

/// What every call of AWS needs.
pub(crate) struct Aws {
    pub(crate) settings: AwsSettings,
    resolver: Resolver,
    factory: Factory,
    keyring: Arc<Keyring>,
    /// The hub's own identity, looked up when it is first needed.
    own: SharedCredentialsProvider,
    /// Calls the machine's metadata service and the operator's endpoint for roles: addresses that
    /// no tenant chooses, so outside of the guard.
    unguarded: SharedHttpClient,
}

impl Aws {
    /// # Errors
    /// See [`Error`].
    pub(crate) fn new(
        settings: AwsSettings,
        resolver: Resolver,
        keyring: Arc<Keyring>,
    ) -> Result<Self, Error> {
        let limits = HttpLimits {
            timeout_ms: settings.timeout_ms,
            connect_timeout_ms: settings.connect_timeout_ms,
            idle_ms: settings.pool_idle_ms,
            connections_max: REQUESTS_PER_CLIENT_MAX,
            ca_file: settings.ca_file.clone(),
        };
        let anywhere = AddressPolicy { allow_private: true, allow: guard::everywhere() };
        let unguarded = Factory::new(&limits, Resolver::new(anywhere.clone()))?.make();
        let unguarded = unguarded.map_err(|_| Error::Settings("no HTTP client can be made"))?;
        let unguarded = connector::client(unguarded, Arc::new(anywhere));
        let factory = Factory::new(&limits, resolver.clone())?;
        let own = identity::own(unguarded.clone());
        Ok(Self { settings, resolver, factory, keyring, own, unguarded })
    }

    /// With which identity a subscription's destination is called.
    ///
    /// # Errors
    /// The outcome of an attempt that cannot have one.
    pub(crate) fn identity(
        &self,
        subscription: &Subscription,
        called: &Called<'_>,
    ) -> Result<Identity, Outcome> {
        Identity::open(self, subscription, called)
    }

    /// An HTTP client under the address guard with connections of its own.
    pub(crate) fn http_client(&self) -> Result<SharedHttpClient, reqwest::Error> {
        let client: Client = self.factory.make()?;
        Ok(connector::client(client, self.resolver.shared_policy()))
    }

    /// The outcome of a delivery, or that there was none within the time.
    pub(crate) async fn in_time(&self, delivery: impl Future<Output = Outcome>) -> Outcome {
        let limit = Duration::from_millis(self.settings.timeout_ms);
        tokio::time::timeout(limit, delivery).await.unwrap_or_else(|_| {
            let detail = format!("no answer within {} ms", self.settings.timeout_ms);
            Outcome::failed(ErrorClass::Timeout, detail)
        })
    }

    /// Whether the hub may call this destination for this tenant.
    pub(crate) async fn admit(
        &self,
        tenant: &TenantId,
        called: &Called<'_>,
    ) -> Result<(), NotAdmitted> {
        if let Err(message) = identity::permitted(&self.settings, tenant, called) {
            return Err(NotAdmitted { field: "credentials", message });
        }
        let Some(endpoint) = called.endpoint else { return Ok(()) };
        let refused = |message| NotAdmitted { field: "endpoint", message };
        let target = guard::target(endpoint, self.resolver.policy())
            .map_err(|error| refused(error.to_string()))?;
        let limit = Duration::from_millis(self.settings.connect_timeout_ms);
        self.resolver.admit(&target, limit).await.map_err(refused)
    }
}
