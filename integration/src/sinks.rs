//! One flow through destinations of all kinds, for the demonstration and its test: a webhook
//! receiver, SQS and EventBridge (an emulator), RabbitMQ (a real broker), and a pull consumer.
//! Each is read as its page under `docs/sinks/` tells a consumer to, by clients that are none of
//! the hub's.

mod emulator;
mod rabbitmq;
mod server;
mod servers;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Api, Subscriber, Wanted};
use crate::facts::Fact;
use crate::generate::Generator;
use crate::wait;
use crate::world::World;

pub use self::emulator::{ACCOUNT, Aws, REGION};
pub use self::rabbitmq::RabbitMq;
pub use self::servers::Servers;

/// Whose events they are.
pub const TENANT: &str = "acme-payments";
/// How long all may take from the record to the last destination.
const ARRIVED: Duration = Duration::from_secs(60);

/// What an event's payload was where it arrived.
enum Payload {
    Bytes(Vec<u8>),
    /// The emulator of EventBridge writes JSON anew: the same value, not the same bytes.
    Value(Value),
}

/// An event at a destination: its id and payload.
type Received = (String, Payload);

/// What became of an event at a destination.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The destination's kind.
    pub sink: &'static str,
    /// What was sent.
    pub event: String,
    /// How often it arrived.
    pub times: usize,
    /// What was compared.
    pub compared: &'static str,
    /// Whether it arrived as it was sent, each time.
    pub same: bool,
}

impl Arrival {
    fn of(sink: &'static str, fact: &Fact, received: &[Received]) -> Self {
        let (sent, id) = (fact.value.as_deref().unwrap_or_default(), fact.id());
        let own = received.iter().filter(|(other, _)| *other == id).map(|(_, payload)| payload);
        let (mut times, mut compared, mut same) = (0, "nothing", true);
        for payload in own {
            times += 1;
            let (what, equal) = match payload {
                Payload::Bytes(bytes) => ("bytes", bytes == sent),
                Payload::Value(value) => {
                    ("value", serde_json::from_slice(sent).is_ok_and(|sent: Value| sent == *value))
                }
            };
            (compared, same) = (what, same && equal);
        }
        Self { sink, event: fact.name.clone(), times, compared, same: same && times > 0 }
    }
}

/// Two events: JSON with an order, spaces and numbers of its own, and bytes that are no text.
#[must_use]
pub fn facts() -> Vec<Fact> {
    let mut generator = Generator::new(wait::unix_ms().unsigned_abs());
    let mut fact = || Fact::new("ledger", TENANT, &generator.id(), ("account", "created"));
    let text = "{\"b\":1.10,\n\"a\":12345678901234567890,\t\"é\":\"\\u20ac\"}";
    let bytes = (0..=u8::MAX).collect();
    vec![
        fact().named("JSON").carrying(Some(text.as_bytes().to_vec())),
        fact()
            .named("256 bytes")
            .with("ce-datacontenttype", "application/octet-stream")
            .carrying(Some(bytes)),
    ]
}

/// The subscriptions of all kinds.
pub struct Subscriptions {
    webhook: Subscriber,
    pull: String,
}

impl Subscriptions {
    /// Creates and verifies one of each kind.
    ///
    /// # Errors
    /// When one of them is refused, or its destination not found.
    pub fn create(world: &mut World, servers: &Servers) -> Result<Self> {
        let webhook = world.subscribe(Wanted::all(TENANT, "webhook"))?;
        let api = world.hub.api(TENANT);
        let body = |name, sink| json!({"name": name, "event_types": ["*"], "sink": sink});
        for (name, sink) in servers.sinks() {
            subscribe(&api, &body(name, sink))?;
        }
        let pull = create(&api, &body("pull", json!({"type": "pull"})))?;
        Ok(Self { webhook, pull })
    }

    /// Waits until the jobs of all push destinations have ended and the pull consumer has as many
    /// entries as there are events; what arrived where.
    ///
    /// # Errors
    /// When they have not in time, or a destination does not answer.
    pub fn arrivals(
        &self,
        world: &mut World,
        servers: &Servers,
        facts: &[Fact],
    ) -> Result<Vec<Arrival>> {
        world.settle(ARRIVED)?;
        let received = [
            ("webhook", self.webhooks(world)?),
            ("sqs", servers.take_queue()?),
            ("eventbridge", servers.take_bus()?),
            ("rabbitmq", servers.take_exchange()?),
            ("pull", self.pulled(world, facts.len())?),
        ];
        let of = |(sink, received): &(&'static str, Vec<Received>)| {
            facts.iter().map(|fact| Arrival::of(sink, fact, received)).collect::<Vec<_>>()
        };
        Ok(received.iter().flat_map(of).collect())
    }

    fn webhooks(&self, world: &World) -> Result<Vec<Received>> {
        let mut received = Vec::new();
        for request in world.receiver.deliveries(&self.webhook.path) {
            if let Err(fault) = request.verify(&[&self.webhook.secret]) {
                bail!("the webhook's signature: {fault}");
            }
            let id = request.text("X-Lerian-Event-Id").context("a webhook without its id")?;
            received.push((id.to_owned(), Payload::Bytes(request.body.clone())));
        }
        Ok(received)
    }

    fn pulled(&self, world: &World, count: usize) -> Result<Vec<Received>> {
        let (api, mut after, mut received) = (world.hub.api(TENANT), 0, Vec::new());
        wait::until("the pull consumer's entries", ARRIVED, || {
            let target = format!("/v1/events?subscription_id={}&after={after}&wait=5", self.pull);
            let answer = api.call("GET", &target, None)?;
            ensure!(answer.status == 200, "{target}: {answer:?}");
            let page: Page = serde_json::from_str(&answer.body)?;
            for Entry { seq, id, payload, payload_base64 } in page.events {
                let text = payload.map(|payload| payload.get().as_bytes().to_vec());
                let bytes = match payload_base64 {
                    Some(encoded) => BASE64.decode(encoded)?,
                    None => text.unwrap_or_default(),
                };
                received.push((id, Payload::Bytes(bytes)));
                after = seq;
            }
            let seen = received.len();
            Ok(if seen >= count { Ok(()) } else { Err(format!("{seen} of {count}")) })
        })?;
        Ok(received)
    }
}

/// A page of a pull subscription, payloads as they are written.
#[derive(Deserialize)]
struct Page {
    events: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    seq: u64,
    #[serde(rename = "ceId")]
    id: String,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
}

fn create(api: &Api, body: &Value) -> Result<String> {
    let made = api.call("POST", "/v1/subscriptions", Some(body))?;
    ensure!(made.status == 201, "{body}: {made:?}");
    Ok(made.json()["id"].as_str().context("a creation without an id")?.to_owned())
}

/// Creates a subscription of this body and has it verified: its id.
///
/// # Errors
/// When it is refused, or its destination not found.
pub fn subscribe(api: &Api, body: &Value) -> Result<String> {
    let id = create(api, body)?;
    let verified = api.verify(&id)?;
    ensure!(verified["verification_state"] == "active", "{verified}");
    Ok(id)
}
