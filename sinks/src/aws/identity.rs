//! With which identity AWS is called for a subscription: its own access key, a role that the hub
//! assumes for it, or the hub's own where the operator allows that. Opened at the attempt, kept in
//! a client for as long as the client is.

use std::sync::Arc;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_sts::config::{BehaviorVersion, Region};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::retry::RetryConfig;
use secrecy::{ExposeSecret, SecretString};
use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::secret::{self, Owner, Sealed};
use streaming_hub_model::sink_config::{AwsCredentials, credential_generation};
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use tokio::sync::OnceCell;

use super::failure::{self, Failure};
use super::{Aws, AwsSettings};

/// How the hub names its sessions in the logs of a role's account.
const SESSION: &str = "streaming-hub";

/// What is called, as far as the choice of an identity depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called<'a> {
    /// The configured credentials.
    pub(crate) credentials: &'a AwsCredentials,
    /// The destination's ARN, if it has one.
    pub(crate) arn: Option<&'a str>,
    /// Its region.
    pub(crate) region: &'a str,
    /// An endpoint that the tenant named.
    pub(crate) endpoint: Option<&'a str>,
}

/// An opened identity.
pub(crate) struct Identity {
    /// Tells it from every other one in a pool's key.
    pub(crate) generation: u64,
    /// Where the SDK gets it from.
    pub(crate) provider: SharedCredentialsProvider,
}

impl Identity {
    pub(super) fn open(
        aws: &Aws,
        subscription: &Subscription,
        called: &Called<'_>,
    ) -> Result<Self, Outcome> {
        permitted(&aws.settings, &subscription.tenant, called)
            .map_err(|detail| Outcome::failed(ErrorClass::AccessDenied, detail))?;
        match called.credentials {
            AwsCredentials::Keys { access_key_id, secret_access_key, session_token } => {
                let cannot = |error: secret::Error| Outcome::not_attempted(error.to_string());
                let open = |sealed: &Sealed| {
                    let owner =
                        Owner { tenant: &subscription.tenant, subscription: subscription.id };
                    aws.keyring.open(owner, sealed).map_err(cannot)
                };
                let secret = open(secret_access_key)?;
                let token = session_token.as_ref().map(open).transpose()?;
                Ok(keys(access_key_id, &secret, token.as_ref()))
            }
            AwsCredentials::Role { role_arn, external_id } => Ok(Self {
                generation: credential_generation(&["role", role_arn, external_id]),
                provider: SharedCredentialsProvider::new(Role {
                    sts: sts(aws, called.region),
                    role_arn: role_arn.clone(),
                    external_id: external_id.clone(),
                }),
            }),
            AwsCredentials::Ambient => Ok(Self {
                generation: credential_generation(&["ambient"]),
                provider: aws.own.clone(),
            }),
        }
    }
}

fn keys(id: &str, secret: &SecretString, token: Option<&SecretString>) -> Identity {
    let (secret, token) = (secret.expose_secret(), token.map(ExposeSecret::expose_secret));
    let credentials = Credentials::new(id, secret, token.map(str::to_owned), None, "keys");
    Identity {
        generation: credential_generation(&["keys", id, secret, token.unwrap_or_default()]),
        provider: SharedCredentialsProvider::new(credentials),
    }
}

/// Whether the operator lets this tenant use what it asks for. Only the hub's own identity is
/// a question of his.
pub(super) fn permitted(
    settings: &AwsSettings,
    tenant: &TenantId,
    called: &Called<'_>,
) -> Result<(), String> {
    if *called.credentials != AwsCredentials::Ambient {
        return Ok(());
    }
    if called.endpoint.is_some() {
        return Err("the hub's own identity is not used with an endpoint of one's own".to_owned());
    }
    let listed = |arn: &str| settings.ambient.iter().any(|grant| grant.covers(tenant, arn));
    match called.arn {
        Some(arn) if listed(arn) => Ok(()),
        _ => Err("the hub's operator does not allow its own identity for this".to_owned()),
    }
}

/// The service that roles are assumed at, called with the hub's own identity.
fn sts(aws: &Aws, region: &str) -> aws_sdk_sts::Client {
    let config = aws_sdk_sts::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .credentials_provider(aws.own.clone())
        .http_client(aws.unguarded.clone())
        .retry_config(RetryConfig::disabled())
        .timeout_config(aws.settings.timeouts());
    let config = match &aws.settings.sts_endpoint {
        Some(endpoint) => config.endpoint_url(endpoint),
        None => config,
    };
    aws_sdk_sts::Client::from_conf(config.build())
}

/// A role of a tenant. The SDK keeps its session until shortly before it ends.
#[derive(Debug)]
struct Role {
    sts: aws_sdk_sts::Client,
    role_arn: String,
    external_id: String,
}

/// The role could not be assumed.
#[derive(Debug, thiserror::Error)]
#[error("the role cannot be assumed: {}", .0.detail)]
pub(super) struct NotAssumed(pub(super) Failure);

impl Role {
    async fn assume(&self) -> Result<Credentials, CredentialsError> {
        let answer = self
            .sts
            .assume_role()
            .role_arn(&self.role_arn)
            .external_id(&self.external_id)
            .role_session_name(SESSION)
            .send()
            .await
            .map_err(|error| CredentialsError::provider_error(NotAssumed(failure::of(&error))))?;
        let session = answer.credentials.ok_or_else(|| {
            CredentialsError::invalid_configuration("the answer holds no credentials")
        })?;
        let until = session.expiration.try_into().ok();
        let (id, secret) = (session.access_key_id, session.secret_access_key);
        Ok(Credentials::new(id, secret, Some(session.session_token), until, "role"))
    }
}

impl ProvideCredentials for Role {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.assume())
    }
}

/// The hub has no identity of its own, or cannot use it: no fault of a destination.
#[derive(Debug, thiserror::Error)]
#[error("the hub has no AWS identity of its own: {0}")]
pub(super) struct NoOwnIdentity(CredentialsError);

/// The hub's own identity, from its environment, its files or its machine (the SDK's usual chain).
#[derive(Debug)]
struct Own {
    http: SharedHttpClient,
    chain: OnceCell<Arc<DefaultCredentialsChain>>,
}

pub(super) fn own(http: SharedHttpClient) -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Own { http, chain: OnceCell::new() })
}

impl Own {
    async fn find(&self) -> Result<Credentials, CredentialsError> {
        let chain = self.chain.get_or_init(|| async {
            let config = ProviderConfig::without_region().with_http_client(self.http.clone());
            Arc::new(DefaultCredentialsChain::builder().configure(config).build().await)
        });
        let found = chain.await.provide_credentials().await;
        found.map_err(|error| CredentialsError::provider_error(NoOwnIdentity(error)))
    }
}

impl ProvideCredentials for Own {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.find())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::AmbientGrant;

    #[test]
    fn the_hubs_own_identity_is_for_what_the_operator_lists_and_never_elsewhere() {
        let settings = AwsSettings {
            ambient: vec![AmbientGrant { tenant: "acme".into(), arn: "arn:aws:sqs:*".into() }],
            ..AwsSettings::default()
        };
        let ask = |tenant: &str, arn: Option<&str>, endpoint: Option<&str>| {
            let called = Called {
                credentials: &AwsCredentials::Ambient,
                arn,
                region: "eu-west-1",
                endpoint,
            };
            permitted(&settings, &TenantId::parse(tenant).unwrap(), &called).is_ok()
        };
        let queue = Some("arn:aws:sqs:eu-west-1:123456789012:q");
        assert!(ask("acme", queue, None));
        assert!(!ask("other", queue, None));
        assert!(!ask("acme", Some("arn:aws:events:eu-west-1:1:event-bus/b"), None));
        assert!(!ask("acme", None, None));
        assert!(!ask("acme", queue, Some("https://collector.example")));
    }
}
