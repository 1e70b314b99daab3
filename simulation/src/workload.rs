//! What producers and tenants do: facts with duplicates, poison and system events, several tenants
//! and sources; subscriptions that are made, verified, changed, paused, deleted and made again;
//! tenants that are salted; what operators hold. What it writes it also notes, with the fate that
//! each record has to have.

use std::collections::BTreeSet;

use streaming_hub_model::change::{Action, By, Change, Setting};
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::hold::{Hold, Scope};
use streaming_hub_model::id::{EventId, SubscriptionId, uuid_v7};
use streaming_hub_model::routing;
use streaming_hub_model::subscription::{
    Ordering, SinkConfig, Subscription, VerificationState, WebhookConfig,
};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::salting::SaltRecord;
use streaming_hub_topology::topics::Topic;

use crate::cluster::log::Data;
use crate::history::{EventKey, Fact, Fate, History, Wish};
use crate::process::destination_key;
use crate::random::Random;
use crate::seam::Seam;

/// How long before its start a salting is recorded, milliseconds.
const SALT_AHEAD_MS: i64 = 30_000;
/// How long before its arrival an id may have been made, milliseconds.
const ID_AGE_MAX_MS: i64 = 10 * 24 * 3_600_000;
const RESOURCES: [&str; 2] = ["account", "payment"];
const EVENTS: [&str; 2] = ["created", "closed"];
const PATTERNS: [&str; 5] = ["*", "account.*", "payment.*", "account.created", "payment.closed"];

/// An event as it was first produced.
#[derive(Debug, Clone)]
struct Produced {
    topic: String,
    source: String,
    tenant: String,
    id: EventId,
    resource: &'static str,
    event: &'static str,
    major: u16,
}

/// The producers and tenants of one run.
#[derive(Debug)]
pub struct Workload {
    application: String,
    partitions: u32,
    tenants: Vec<String>,
    sources: Vec<String>,
    destinations: u64,
    produced: Vec<Produced>,
    subscriptions: Vec<(String, SubscriptionId)>,
    salted: BTreeSet<String>,
    held: Vec<Scope>,
    /// How many duplicates there are, in a million facts.
    duplicates: u32,
}

/// The size of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Tenants.
    pub tenants: u64,
    /// Producing applications.
    pub sources: u64,
    /// Destinations.
    pub destinations: u64,
    /// Duplicates in a million facts.
    pub duplicates: u32,
}

impl Workload {
    /// A workload of this size.
    #[must_use]
    pub fn new(application: &str, partitions: u32, size: Size) -> Self {
        Self {
            application: application.to_owned(),
            partitions,
            tenants: (0..size.tenants).map(|n| format!("tenant-{n}")).collect(),
            sources: (0..size.sources).map(|n| format!("app{n}")).collect(),
            destinations: size.destinations,
            produced: Vec::new(),
            subscriptions: Vec::new(),
            salted: BTreeSet::new(),
            held: Vec::new(),
            duplicates: size.duplicates,
        }
    }

    /// Topics of the producing applications.
    pub fn topics(&self) -> impl Iterator<Item = String> + '_ {
        self.sources.iter().map(|source| topic_of(source))
    }

    /// One more producing application; answers its topic.
    pub fn new_source(&mut self) -> String {
        let source = format!("app{}", self.sources.len());
        let topic = topic_of(&source);
        self.sources.push(source);
        topic
    }

    /// The pull subscriptions that were ever wished for.
    pub fn pulls(&self) -> Vec<SubscriptionId> {
        self.subscriptions.iter().map(|(_, id)| *id).filter(|id| is_pull(*id)).collect()
    }

    /// Produces one record; answers what it was.
    pub fn fact(&mut self, seam: &Seam<'_>, history: &mut History) -> String {
        let mut random = seam.random.borrow_mut();
        let now = seam.clock.now_ms();
        if random.chance(self.duplicates)
            && let Some(old) = random.pick(&self.produced).cloned()
        {
            return accepted(&old, seam, (&mut random, history), now);
        }
        match random.below(20) {
            0 => self.poison(seam, (&mut random, history), now),
            1 => self.system_event(seam, (&mut random, history), now),
            _ => {
                let new = self.new_event(&mut random, now);
                self.produced.push(new.clone());
                accepted(&new, seam, (&mut random, history), now)
            }
        }
    }

    fn new_event(&self, random: &mut Random, now: i64) -> Produced {
        let source = random.pick(&self.sources).cloned().unwrap_or_default();
        let age_ms = match random.below(4) {
            0 => random.range(0, ID_AGE_MAX_MS),
            _ => random.range(0, 2_000),
        };
        Produced {
            topic: topic_of(&source),
            source,
            tenant: random.pick(&self.tenants).cloned().unwrap_or_default(),
            id: EventId::from_parts(now - age_ms, random.ten()),
            resource: RESOURCES[random.index(RESOURCES.len())],
            event: EVENTS[random.index(EVENTS.len())],
            major: if random.below(10) == 0 { 2 } else { 1 },
        }
    }

    fn poison(
        &self,
        seam: &Seam<'_>,
        (random, history): (&mut Random, &mut History),
        now: i64,
    ) -> String {
        let event = self.new_event(random, now);
        let mut headers = headers_of(&event, now);
        match random.below(4) {
            0 => headers.clear(),
            1 => headers.retain(|(name, _)| *name != "ce-tenantid"),
            2 => headers.push(("ce-source", "somebody-else".to_owned())),
            _ => headers.push(("ce-id", "7".to_owned())),
        }
        write(seam, (random, history), (&event.topic, &headers), Fate::Quarantine)
    }

    fn system_event(
        &self,
        seam: &Seam<'_>,
        (random, history): (&mut Random, &mut History),
        now: i64,
    ) -> String {
        let event = self.new_event(random, now);
        let mut headers = headers_of(&event, now);
        headers.retain(|(name, _)| *name != "ce-tenantid");
        headers.push(("ce-systemevent", "true".to_owned()));
        write(seam, (random, history), (&event.topic, &headers), Fate::Drop)
    }

    /// Wishes something of the registry; answers what.
    pub fn change(&mut self, seam: &Seam<'_>, history: &mut History) -> Option<String> {
        let mut random = seam.random.borrow_mut();
        let now = seam.clock.now_ms();
        let known = random.pick(&self.subscriptions).cloned();
        let few = self.subscriptions.len() < 2 * self.tenants.len();
        let (tenant, id, action) = match (random.below(14), known) {
            (10..=13, Some((tenant, id))) => (tenant, id, patch(settings(&mut random))),
            (0..=3, Some((tenant, id))) => {
                let failure = (random.below(8) == 0).then(|| "no answer".to_owned());
                let sink_generation = if random.below(12) == 0 { 7 } else { 1 };
                (tenant, id, Action::Verified { sink_generation, failure })
            }
            (4, Some((tenant, id))) => (tenant, id, Action::Delete { expected: None }),
            (5, Some((tenant, id))) => {
                let record = self.subscription(&mut random, &tenant, id);
                (tenant, id, Action::Create { record: Box::new(record) })
            }
            _ if few => {
                let tenant = random.pick(&self.tenants).cloned()?;
                let id = SubscriptionId::from_parts(now, random.ten());
                self.subscriptions.push((tenant.clone(), id));
                let record = self.subscription(&mut random, &tenant, id);
                (tenant, id, Action::Create { record: Box::new(record) })
            }
            _ => return None,
        };
        self.wish((&tenant, id, action), seam, (&mut random, history))
    }

    fn wish(
        &self,
        (tenant, id, action): (&str, SubscriptionId, Action),
        seam: &Seam<'_>,
        (random, history): (&mut Random, &mut History),
    ) -> Option<String> {
        let said = format!("{action:?}");
        let change = Change {
            id: uuid_v7(seam.clock.now_ms(), random.ten()),
            reply_to: "nobody".to_owned(),
            tenant: TenantId::parse(tenant).ok()?,
            subscription: id,
            action,
        };
        let value = serde_json::to_vec(&change).ok()?;
        let partition = routing::partition_for_tenant(tenant, self.partitions);
        let topic = Topic::SubscriptionChanges.name(&self.application);
        let data = Data::copy(Some(tenant.as_bytes()), &[], Some(&value));
        let offset = seam.cluster.borrow_mut().produce(&topic, partition, data)?;
        history.changes.push(Wish { place: (partition, offset), change });
        let verb = said.split_whitespace().next().unwrap_or_default();
        Some(format!("{verb} {id} of {tenant}"))
    }

    /// An operator holds something, or lifts a hold; answers what.
    pub fn hold(&mut self, seam: &Seam<'_>) -> Option<String> {
        let mut random = seam.random.borrow_mut();
        if random.below(3) > 0
            && let Some(scope) = random.pick(&self.held).cloned()
        {
            self.held.retain(|held| *held != scope);
            self.record_hold(&scope, None, seam)?;
            return Some(format!("the hold of {scope} is lifted"));
        }
        let (tenant, subscription) = random.pick(&self.subscriptions).cloned()?;
        let scope = match random.below(4) {
            0 => Scope::Everything,
            1 => Scope::Tenant { tenant: TenantId::parse(&tenant).ok()? },
            2 => {
                let sink = webhook(random.below(self.destinations));
                Scope::Destination { destination: destination_key().id(&sink).to_string() }
            }
            _ => Scope::Subscription { subscription },
        };
        let since = UnixMillis(seam.clock.now_ms());
        let hold = Hold { scope: scope.clone(), reason: None, since, by: "operator".to_owned() };
        self.held.push(scope.clone());
        self.record_hold(&scope, Some(&hold), seam)?;
        Some(format!("{scope} is held"))
    }

    fn record_hold(&self, scope: &Scope, hold: Option<&Hold>, seam: &Seam<'_>) -> Option<i64> {
        let value = hold.and_then(|hold| serde_json::to_vec(hold).ok());
        let data = Data::copy(Some(scope.key().as_bytes()), &[], value.as_deref());
        seam.cluster.borrow_mut().produce(&Topic::Holds.name(&self.application), 0, data)
    }

    /// Lifts every hold and every pause: what waits behind them is to come to its end.
    pub fn let_go(&mut self, seam: &Seam<'_>, history: &mut History) {
        for scope in std::mem::take(&mut self.held) {
            self.record_hold(&scope, None, seam);
        }
        let mut random = seam.random.borrow_mut();
        for (tenant, id) in &self.subscriptions {
            let action = patch(vec![Setting::Paused(false)]);
            self.wish((tenant, *id, action), seam, (&mut random, history));
        }
    }

    fn subscription(&self, random: &mut Random, tenant: &str, id: SubscriptionId) -> Subscription {
        let pattern = PATTERNS[random.index(PATTERNS.len())];
        let schedule = [None, None, Some("[0]"), Some("[200,1000]"), Some("\"bad\"")];
        let schedule = schedule[random.index(schedule.len())];
        let webhook = webhook(random.below(self.destinations));
        let (ordering, in_flight) = match random.below(4) {
            0 => (Ordering::Strict, 1),
            _ => (Ordering::Arrival, 1 + u16::try_from(random.below(3)).unwrap_or(0)),
        };
        let (sink, verification_state) = match is_pull(id) {
            true => (SinkConfig::Pull, VerificationState::Active),
            false => (webhook, VerificationState::Pending),
        };
        Subscription {
            id,
            // Both parse: they are made here.
            tenant: TenantId::parse(tenant).unwrap_or_else(|_| unreachable!()),
            name: "simulated".to_owned(),
            event_types: KeyPattern::parse(pattern).into_iter().collect(),
            origin: (random.below(6) == 0).then(|| "app0".to_owned()),
            schema_major: 1,
            sink,
            sink_generation: 1,
            enabled: true,
            verification_state,
            verification_failure: None,
            verified_at: None,
            retry_schedule: schedule.and_then(|text| serde_json::from_str(text).ok()),
            disabled_reason: None,
            paused: false,
            ordering,
            max_in_flight: in_flight,
            created_at: UnixMillis(0),
            updated_at: UnixMillis(0),
            version: 0,
            unknown: serde_json::Map::new(),
        }
    }

    /// Salts a tenant from a moment in the future on; answers which.
    pub fn salt(&mut self, seam: &Seam<'_>) -> Option<String> {
        let tenant = seam.random.borrow_mut().pick(&self.tenants).cloned()?;
        if !self.salted.insert(tenant.clone()) {
            return None;
        }
        let since = UnixMillis(seam.clock.now_ms() + SALT_AHEAD_MS);
        let value = serde_json::to_vec(&SaltRecord { since }).ok()?;
        let data = Data::copy(Some(tenant.as_bytes()), &[], Some(&value));
        let topic = Topic::Salts.name(&self.application);
        seam.cluster.borrow_mut().produce(&topic, 0, data)?;
        Some(tenant)
    }
}

/// Whether a subscription is one of the pull kind, which stays so if it is made again.
fn is_pull(id: SubscriptionId) -> bool {
    id.as_bytes().last().is_some_and(|last| last % 3 == 0)
}

fn webhook(number: u64) -> SinkConfig {
    let url = format!("https://d{number}.example/");
    SinkConfig::Webhook(WebhookConfig { url, secrets: Vec::new() })
}

fn patch(set: Vec<Setting>) -> Action {
    Action::Patch { expected: None, by: By::Tenant, set }
}

/// What a tenant sets anew.
fn settings(random: &mut Random) -> Vec<Setting> {
    match random.below(10) {
        0..=2 => vec![Setting::Paused(true)],
        3..=5 => vec![Setting::Paused(false)],
        6 => vec![Setting::Ordering(Ordering::Strict), Setting::MaxInFlight(1)],
        7 => vec![Setting::Ordering(Ordering::Arrival), Setting::MaxInFlight(2)],
        8 => vec![Setting::Enabled(false)],
        _ => vec![Setting::Enabled(true)],
    }
}

fn topic_of(source: &str) -> String {
    format!("lerian.streaming.{source}")
}

fn headers_of(event: &Produced, now: i64) -> Vec<(&'static str, String)> {
    let Produced { source, resource, event: name, .. } = event;
    vec![
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", event.id.to_string()),
        ("ce-source", source.clone()),
        ("ce-type", format!("studio.lerian.{source}.{resource}.{name}")),
        ("ce-time", UnixMillis(now).to_rfc3339()),
        ("ce-schemaversion", format!("{}.0.0", event.major)),
        ("ce-resourcetype", (*resource).to_owned()),
        ("ce-eventtype", (*name).to_owned()),
        ("ce-tenantid", event.tenant.clone()),
    ]
}

fn accepted(
    event: &Produced,
    seam: &Seam<'_>,
    (random, history): (&mut Random, &mut History),
    now: i64,
) -> String {
    let key: EventKey = (event.tenant.clone(), event.id);
    let headers = headers_of(event, now);
    write(seam, (random, history), (&event.topic, &headers), Fate::Accept(key))
}

fn write(
    seam: &Seam<'_>,
    (random, history): (&mut Random, &mut History),
    (topic, headers): (&str, &[(&str, String)]),
    fate: Fate,
) -> String {
    let refs: Vec<_> = headers.iter().map(|(n, v)| (n.as_bytes(), Some(v.as_bytes()))).collect();
    let value = format!("{{\"n\":{}}}", random.below(1_000));
    let data = Data::copy(Some(b"key"), &refs, Some(value.as_bytes()));
    let mut cluster = seam.cluster.borrow_mut();
    let partition = i32::try_from(random.index(cluster.partitions(topic))).unwrap_or(0);
    let offset = cluster.produce(topic, partition, data).unwrap_or(-1);
    let from = format!("{topic}/{partition}/{offset}");
    let said = format!("{from} is to be {fate:?}");
    history.facts.push(Fact { from, fate });
    said
}
