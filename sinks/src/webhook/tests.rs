//! The webhook sink against real sockets. Each file holds the tests of one subject.

mod failures;
mod pools;
mod tls;
mod wire;

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use serde_json::json;
use streaming_hub_model::attempt::AttemptResult;
use streaming_hub_model::event::Event;
use streaming_hub_model::id::{EventId, JobId};
use streaming_hub_model::secret::KEY_BYTES;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use uuid::Uuid;

use super::*;
use crate::guard::AddressPolicy;
use crate::resolver::Lookup;
use crate::testing::server::{Reply, Server};

const EVENT_ID: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de0aa";
const SUBSCRIPTION_ID: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
const AT: UnixMillis = UnixMillis(1_790_000_000_123);

struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMillis {
        AT
    }
}

/// `….test` is this machine, `private.example` a private address, `slow.example` never answers.
struct Names;

impl Lookup for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            match host {
                "slow.example" => std::future::pending().await,
                "private.example" => Ok(vec![IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1))]),
                "link-local.example" => Ok(vec![IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1))]),
                "public.example" => Ok(vec![IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8))]),
                name if name.ends_with(".test") => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
                _ => Err(io::Error::other("no such name")),
            }
        })
    }
}

fn keyring() -> Arc<Keyring> {
    // Base64 of 32 zero bytes.
    let zeroes = format!("{}=", "A".repeat(KEY_BYTES * 4 / 3 + 1));
    Arc::new(Keyring::new("k1", &SecretString::from(zeroes)).unwrap())
}

fn policy(allow_private: bool) -> AddressPolicy {
    AddressPolicy { allow_private, allow: Vec::new() }
}

fn sink_under(policy: AddressPolicy, settings: WebhookSettings) -> Webhook {
    let resolver = Resolver::with_lookup(policy, Arc::new(Names));
    Webhook::new(settings, resolver, keyring(), Arc::new(Still)).unwrap()
}

/// A sink that may call this machine.
fn sink(settings: WebhookSettings) -> Webhook {
    sink_under(policy(true), settings)
}

/// Limits short enough to be waited for, long enough for a busy machine.
fn short() -> WebhookSettings {
    WebhookSettings { timeout_ms: 400, connect_timeout_ms: 400, ..WebhookSettings::default() }
}

/// What an attempt is made of.
struct Draft {
    tenant: &'static str,
    url: String,
    generation: u64,
    secrets: Vec<(&'static str, Option<i64>)>,
    headers: Vec<(String, String)>,
    payload: Bytes,
}

impl Draft {
    fn new(url: impl Into<String>) -> Self {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-source", "ledger"),
            ("ce-resourcetype", "account"),
            ("ce-eventtype", "created"),
            ("ce-schemaversion", "v2.1.0-rc.1"),
        ];
        Self {
            tenant: "acme",
            url: url.into(),
            generation: 1,
            secrets: vec![("whsec_1", None)],
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            payload: Bytes::from_static(b"{\"a\": 1}"),
        }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn tenant(mut self, tenant: &'static str) -> Self {
        self.tenant = tenant;
        self
    }

    fn subscription(&self) -> Subscription {
        let tenant = TenantId::parse(self.tenant).unwrap();
        let subscription = SUBSCRIPTION_ID.parse().unwrap();
        let owner = Owner { tenant: &tenant, subscription };
        let seal = |(secret, until): &(&str, Option<i64>)| {
            let sealed = keyring().seal(owner, &SecretString::from(*secret), [7; 12]).unwrap();
            match until {
                Some(until) => json!({"sealed": sealed, "valid_until": until}),
                None => json!({"sealed": sealed}),
            }
        };
        let secrets: Vec<_> = self.secrets.iter().map(seal).collect();
        serde_json::from_value(json!({
            "id": SUBSCRIPTION_ID,
            "tenant": self.tenant,
            "name": "accounts",
            "event_types": ["account.created"],
            "schema_major": 2,
            "sink": {"type": "webhook", "url": self.url, "secrets": secrets},
            "sink_generation": self.generation,
            "enabled": true,
            "verification_state": "active",
            "created_at": 1, "updated_at": 1, "version": 1,
        }))
        .unwrap()
    }

    fn build(&self) -> Attempt {
        let tenant = TenantId::parse(self.tenant).unwrap();
        let id = EventId::parse(&EVENT_ID.to_uppercase()).unwrap();
        let event = Event::made(id, tenant, self.headers.clone(), self.payload.clone());
        Attempt {
            job: JobId::from_bytes([0x88; 16]).unwrap(),
            delivery_id: Uuid::from_u128(0xABCD),
            subscription: Arc::new(self.subscription()),
            event: Arc::new(event),
            at: AT,
        }
    }

    async fn deliver_by(&self, sink: &Webhook) -> Outcome {
        sink.attempt(self.build()).await
    }
}

fn class(outcome: &Outcome) -> Option<ErrorClass> {
    match &outcome.result {
        AttemptResult::Failed { class, .. } => Some(*class),
        AttemptResult::Delivered | AttemptResult::NotAttempted { .. } => None,
    }
}

fn detail(outcome: &Outcome) -> &str {
    match &outcome.result {
        AttemptResult::Failed { detail, .. } | AttemptResult::NotAttempted { detail } => detail,
        AttemptResult::Delivered => "",
    }
}

fn is_delivered(outcome: &Outcome) -> bool {
    outcome.result == AttemptResult::Delivered
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let default = WebhookSettings::default;
    assert!(default().validate().is_ok());
    let broken = [
        WebhookSettings { timeout_ms: 4_999, ..default() },
        WebhookSettings { connect_timeout_ms: 0, ..default() },
        WebhookSettings { connections_per_destination_max: 0, ..default() },
        WebhookSettings { connections_per_host_max: 0, ..default() },
        WebhookSettings { pools_max: 0, ..default() },
    ];
    for settings in broken {
        assert!(matches!(settings.validate(), Err(Error::Settings(_))), "{settings:?}");
    }
}

#[tokio::test]
async fn a_destination_is_admitted_only_if_it_may_be_called_and_resolves() {
    let sink = sink_under(policy(false), short());
    let table = [
        ("https://public.example/hook", ""),
        ("https://8.8.8.8/", ""),
        ("http://public.example/", "the URL's scheme is not https"),
        (
            "https://private.example/",
            "the host name resolves to an address that is not permitted: the \
            address is private, which this hub does not call",
        ),
        ("https://0x7f.1/", "the address is a loopback address, which this hub does not call"),
        ("https://nope.example/", "the host name does not resolve: no such name"),
        ("https://slow.example/", "the host name did not resolve in time"),
    ];
    for (url, expected) in table {
        let subscription = Draft::new(url).subscription();
        let refused = sink.admit(&subscription.tenant, &subscription.sink).await;
        let found = refused.err().map(|refused| refused.message).unwrap_or_default();
        assert_eq!(found, expected, "{url}");
    }
}

#[tokio::test]
async fn every_sink_is_reached_through_the_registry_by_its_kind() {
    let settings =
        crate::SinkSettings { addresses: policy(true), ..crate::SinkSettings::default() };
    let sinks = crate::Sinks::new(settings, keyring(), Arc::new(Still)).unwrap();
    let server = Server::start(|_| Reply::keep(200)).await;
    let draft = Draft::new(server.url());
    assert!(is_delivered(&sinks.attempt(draft.build()).await));
    let subscription = draft.subscription();
    assert_eq!(sinks.admit(&subscription.tenant, &subscription.sink).await, Ok(()));
}
