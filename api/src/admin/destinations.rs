//! Destinations of everyone: breakers, gates and failure spans of each (tenant, destination). Which
//! there are says the table of subscriptions, whose breakers are open the topic in which tasks tell
//! each other, and the rest each subscription's owner; an owner that cannot answer now is named.
//!
//! A destination is shown by its keyed hash and its host, never by its target, which may be a
//! secret.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use streaming_hub_model::breaker::{Opening, Phase};
use streaming_hub_model::delivery_calls::{Answer, PAGE_MAX, Question};
use streaming_hub_model::destination::{DestinationId, DestinationRecord, GateState, SpanState};
use streaming_hub_model::hold::Scope;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use super::Query;
use crate::ask::{Missing, ask, home, misfit};
use crate::auth::OperatorCaller;
use crate::forward::Inbound;
use crate::problem::Problem;
use crate::state::Api;

/// Entries of a page when the caller does not say.
const LIMIT_DEFAULT: u64 = 100;
/// So many destinations are looked at for one page; with a filter it may be short, and go on.
const LOOKED_AT_MAX: usize = 2_000;
/// Subscriptions of which one question asks.
const ASKED_MAX: usize = 1_000;

/// What a list can be narrowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Phase(Phase),
    Throttled,
    Held,
    Paused,
    Failing,
}

/// Their names.
pub(crate) const CONDITIONS: [&str; 7] =
    ["closed", "open", "half_open", "throttled", "held", "paused", "failing"];

impl Condition {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "closed" => Self::Phase(Phase::Closed),
            "open" => Self::Phase(Phase::Open),
            "half_open" => Self::Phase(Phase::HalfOpen),
            "throttled" => Self::Throttled,
            "held" => Self::Held,
            "paused" => Self::Paused,
            "failing" => Self::Failing,
            _ => return None,
        })
    }

    /// Whether only what stands in the topic of open breakers can meet it.
    fn is_told(self) -> bool {
        matches!(self, Self::Phase(Phase::Open | Phase::HalfOpen))
    }
}

/// Tenant and destination, the order of the list.
type Name = (TenantId, DestinationId);

fn cursor(name: &Name) -> String {
    BASE64.encode(DestinationRecord::key(&name.0, name.1))
}

fn parse_cursor(text: &str) -> Option<Name> {
    let key = String::from_utf8(BASE64.decode(text).ok()?).ok()?;
    DestinationRecord::parse_key(&key)
}

/// `GET /admin/destinations`.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Query(mut query): Query,
) -> Result<Response, Problem> {
    let tenant = query.take("tenant", "a tenant's id", |text| TenantId::parse(text).ok());
    let condition = query.take("state", "a state of destinations", Condition::parse);
    let limit = query.integer("limit", 1, PAGE_MAX.into()).unwrap_or(LIMIT_DEFAULT);
    let after = query.take("cursor", "a `next_cursor` of this list", parse_cursor);
    query.finish(())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let told_only = condition.is_some_and(Condition::is_told);
    let mut candidates = Candidates::of(&api, tenant.as_ref(), after, told_only);
    let (mut missing, mut looked_at) = (Missing::default(), 0);
    let (mut shown, mut last) = (Vec::new(), None);
    let mut more = !candidates.is_empty();
    while more && shown.len() < limit && looked_at < LOOKED_AT_MAX {
        // With a condition a page may take many to fill, without one each of them is shown.
        let wanted = condition.map_or(limit - shown.len(), |_| usize::from(PAGE_MAX));
        let mut batch = candidates.next(wanted);
        more = !candidates.is_empty();
        looked_at += batch.len();
        look(&api, &inbound.hasty(), &mut batch, &mut missing).await?;
        let now = api.operations.clock.now();
        for one in batch {
            if shown.len() == limit {
                more = true;
                break;
            }
            if condition.is_none_or(|condition| one.meets(condition, now)) {
                shown.push(one.shown(now));
            }
            last = Some(one.name);
        }
        if inbound.remaining().is_zero() {
            break;
        }
    }
    let next = last.filter(|_| more).map(|name| cursor(&name));
    let mut body = json!({"destinations": shown, "next_cursor": next});
    missing.mark(&mut body);
    Ok(Json(body).into_response())
}

/// One destination of a tenant, with what is known of it.
struct Listed {
    name: Name,
    sink: String,
    host: String,
    subscriptions: Vec<Arc<Subscription>>,
    told: Option<DestinationRecord>,
    /// Scopes of holds that are about it or some of its subscriptions.
    holds: BTreeSet<&'static str>,
    gates: Vec<(i32, GateState)>,
    spans: BTreeMap<SubscriptionId, SpanState>,
}

impl Listed {
    fn new(name: Name, sink: &str, host: String) -> Self {
        Self {
            name,
            sink: sink.to_owned(),
            host,
            subscriptions: Vec::new(),
            told: None,
            holds: BTreeSet::new(),
            gates: Vec::new(),
            spans: BTreeMap::new(),
        }
    }

    /// The breaker that lets least through, of those that the owners have; what was told counts
    /// where its teller does not answer.
    fn breaker(&self, now: UnixMillis) -> (Phase, Option<Opening>) {
        let gates = self.gates.iter().map(|(_, gate)| (gate.phase, gate.opening));
        let teller = |told: &&DestinationRecord| {
            !self.gates.iter().any(|(partition, _)| *partition == told.partition)
        };
        let told = self.told.iter().find(teller).map(|told| {
            let is_over = told.opening.until <= now;
            (if is_over { Phase::HalfOpen } else { Phase::Open }, Some(told.opening))
        });
        let rank = |(phase, opening): &(Phase, Option<Opening>)| {
            let rank = match phase {
                Phase::Closed => 0,
                Phase::HalfOpen => 1,
                Phase::Open => 2,
            };
            (rank, opening.map(|opening| opening.until))
        };
        gates.chain(told).max_by_key(rank).unwrap_or((Phase::Closed, None))
    }

    fn throttled_until(&self) -> Option<UnixMillis> {
        self.gates.iter().filter_map(|(_, gate)| gate.throttled_until).max()
    }

    fn meets(&self, condition: Condition, now: UnixMillis) -> bool {
        match condition {
            Condition::Phase(phase) => self.breaker(now).0 == phase,
            Condition::Throttled => self.throttled_until().is_some(),
            Condition::Held => !self.holds.is_empty(),
            Condition::Paused => self.subscriptions.iter().any(|one| one.paused),
            Condition::Failing => !self.spans.is_empty(),
        }
    }

    fn shown(&self, now: UnixMillis) -> Value {
        let (phase, opening) = self.breaker(now);
        let subscription = |one: &Arc<Subscription>| {
            let failing = self.spans.get(&one.id).map(
                |span| json!({"first": span.first.to_rfc3339(), "last": span.last.to_rfc3339()}),
            );
            json!({
                "id": one.id, "enabled": one.enabled, "paused": one.paused, "failing": failing,
            })
        };
        json!({
            "tenant": self.name.0,
            "destination": self.name.1,
            "sink": self.sink,
            "host": self.host,
            "breaker": {
                "state": phase,
                "until": opening.map(|opening| opening.until.to_rfc3339()),
                "openings": opening.map_or(0, |opening| opening.openings),
            },
            "throttled_until": self.throttled_until().map(UnixMillis::to_rfc3339),
            "waiting": self.gates.iter().map(|(_, gate)| gate.waiting).sum::<u64>(),
            "holds": self.holds,
            "subscriptions": self.subscriptions.iter().map(subscription).collect::<Vec<_>>(),
        })
    }
}

/// What is to be listed, tenant by tenant: names of destinations are made only as pages need them.
struct Candidates<'a> {
    api: &'a Api,
    rows: BTreeMap<TenantId, Vec<Arc<Subscription>>>,
    told: BTreeMap<TenantId, Vec<DestinationRecord>>,
    after: Option<Name>,
    told_only: bool,
    /// Those of tenants whose turn has come.
    ready: VecDeque<Listed>,
}

impl<'a> Candidates<'a> {
    fn of(api: &'a Api, only: Option<&TenantId>, after: Option<Name>, told_only: bool) -> Self {
        let all = only.map_or_else(|| api.table.all(), |tenant| api.table.of_tenant(tenant));
        let is_due = |tenant: &TenantId| {
            only.is_none_or(|only| only == tenant)
                && after.as_ref().is_none_or(|(after, _)| tenant >= after)
        };
        let mut told = BTreeMap::<_, Vec<_>>::new();
        for record in api.destinations.open().into_iter().filter(|r| is_due(&r.tenant)) {
            told.entry(record.tenant.clone()).or_default().push(record);
        }
        let mut rows = BTreeMap::<_, Vec<_>>::new();
        for row in all.into_iter().filter(|row| !row.sink.is_pull() && is_due(&row.tenant)) {
            if !told_only || told.contains_key(&row.tenant) {
                rows.entry(row.tenant.clone()).or_default().push(row);
            }
        }
        Self { api, rows, told, after, told_only, ready: VecDeque::new() }
    }

    /// Whether nothing is left.
    fn is_empty(&mut self) -> bool {
        self.prepare();
        self.ready.is_empty()
    }

    /// The next ones: no more than this, and no more than one question asks of.
    fn next(&mut self, limit: usize) -> Vec<Listed> {
        let (mut batch, mut asked) = (Vec::new(), 0);
        while batch.len() < limit && !self.is_empty() {
            let Some(next) = self.ready.front() else { break };
            asked += next.subscriptions.len();
            if asked > ASKED_MAX && !batch.is_empty() {
                break;
            }
            batch.extend(self.ready.pop_front());
        }
        batch
    }

    /// Takes tenants until one has something to list.
    fn prepare(&mut self) {
        while self.ready.is_empty() {
            let first = self.rows.keys().next().into_iter().chain(self.told.keys().next()).min();
            let Some(tenant) = first.cloned() else { return };
            self.take(&tenant);
        }
    }

    fn take(&mut self, tenant: &TenantId) {
        let mut found = BTreeMap::new();
        for row in self.rows.remove(tenant).unwrap_or_default() {
            let name = self.api.destinations.name(&row.sink);
            let one = found.entry(name).or_insert_with(|| {
                Listed::new((tenant.clone(), name), row.sink.kind(), row.sink.host())
            });
            one.subscriptions.push(row);
        }
        for record in self.told.remove(tenant).unwrap_or_default() {
            let name = record.destination;
            let one = found.entry(name).or_insert_with(|| {
                Listed::new((tenant.clone(), name), &record.sink, record.host.clone())
            });
            one.told = Some(record);
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.retain(|one| {
            (!self.told_only || one.told.is_some())
                && self.after.as_ref().is_none_or(|after| one.name > *after)
        });
        self.ready.extend(found);
    }
}

/// Has the owners say what they know of these, and looks which holds are about them.
async fn look(
    api: &Api,
    inbound: &Inbound,
    batch: &mut [Listed],
    missing: &mut Missing,
) -> Result<(), Problem> {
    let mut questions = BTreeMap::<i32, (BTreeSet<Name>, Vec<SubscriptionId>)>::new();
    for one in &*batch {
        for row in &one.subscriptions {
            let (names, ids) = questions.entry(home(api, row.id)).or_default();
            names.insert(one.name.clone());
            ids.push(row.id);
        }
    }
    for (partition, (names, subscriptions)) in questions {
        let destinations = names.into_iter().collect();
        let question = Question::Destinations { destinations, subscriptions };
        let answer = ask(api, inbound, partition, question).await;
        match missing.note(|| format!("delivery/{partition}"), answer)? {
            Some(Answer::Destinations { gates, spans }) => take(batch, partition, gates, &spans),
            Some(_) => return Err(misfit()),
            None => {}
        }
    }
    held(api, batch);
    Ok(())
}

fn take(batch: &mut [Listed], partition: i32, gates: Vec<GateState>, spans: &[SpanState]) {
    for gate in gates {
        let is_of =
            |one: &&mut Listed| (&one.name.0, one.name.1) == (&gate.tenant, gate.destination);
        if let Some(one) = batch.iter_mut().find(is_of) {
            one.gates.push((partition, gate));
        }
    }
    for span in spans {
        let is_of = |one: &&mut Listed| one.subscriptions.iter().any(|s| s.id == span.subscription);
        if let Some(one) = batch.iter_mut().find(is_of) {
            one.spans.insert(span.subscription, *span);
        }
    }
}

fn held(api: &Api, batch: &mut [Listed]) {
    for hold in api.holds.all() {
        for one in batch.iter_mut() {
            let scope = match &hold.scope {
                Scope::Everything => Some("everything"),
                Scope::Tenant { tenant } => (*tenant == one.name.0).then_some("tenant"),
                Scope::Destination { destination } => {
                    (*destination == one.name.1.to_string()).then_some("destination")
                }
                Scope::Subscription { subscription } => {
                    let is_own = one.subscriptions.iter().any(|own| own.id == *subscription);
                    is_own.then_some("subscription")
                }
            };
            one.holds.extend(scope);
        }
    }
}
