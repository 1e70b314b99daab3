//! Where a job lies (I3): in the deliveries log with an entry in arrival order, or in one tier with
//! an entry by due time. Each place is a view of one topic; moving a job ends it in one place and
//! puts it in another, in one transaction.

use std::ops::ControlFlow;

use bytes::Bytes;
use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::internal;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::tenant;
use streaming_hub_state::family::{Place, backlog, due, job, ready};
use streaming_hub_state::{Key, Record as Stored, State};

use super::must_stop;
use crate::runtime::processor::{Error, Record};
use crate::topics::{RETRY_TIERS, Topic};

/// The place of jobs that wait for their first attempt.
pub const DELIVERIES: Place = Place::DELIVERIES;

/// A job as it lies in the store.
#[derive(Debug, Clone)]
pub struct StoredJob {
    /// Its id.
    pub id: JobId,
    /// Where it lies.
    pub place: Place,
    /// Its order there: log offset in the deliveries, due time (Unix milliseconds) in a tier.
    pub order: u64,
    /// Its own facts.
    pub facts: JobFacts,
    /// Its tenant.
    pub tenant: String,
    /// Its event's data.
    pub payload: Bytes,
    record: Stored,
    encoded: Bytes,
}

/// The place that a topic is the log of.
#[must_use]
pub fn of_topic(topic: Topic) -> Option<Place> {
    match topic {
        Topic::Deliveries => Some(DELIVERIES),
        Topic::Retry(tier) => Place::tier(tier),
        _ => None,
    }
}

/// The topic that is the log of a place.
#[must_use]
pub fn topic_of(place: Place) -> Topic {
    match place.number() {
        0 => Topic::Deliveries,
        tier => Topic::Retry(tier),
    }
}

impl StoredJob {
    /// The job of a record of the deliveries log at this offset; `None` when it does not parse, or
    /// has more headers than an accepted event can have: then it is a stranger's.
    pub(super) fn of_record(
        id: JobId,
        order: u64,
        record: &Record<'_>,
    ) -> Result<Option<Self>, Error> {
        let headers = record.headers.iter().map(|(name, value)| (*name, *value));
        let Ok(encoded) = Stored::encode_parts(headers, record.value) else { return Ok(None) };
        Self::decode(id, DELIVERIES, order, encoded)
    }

    /// The same job in another place: in a tier its order is its due time.
    #[must_use]
    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = place;
        if place != DELIVERIES {
            self.order = u64::try_from(self.facts.due.0).unwrap_or(0);
        }
        self
    }

    /// This job with these headers in place of its own.
    pub(super) fn rewritten(&self, headers: &[HeaderRef<'_>]) -> Result<Option<Self>, Error> {
        let encoded = Stored::encode_parts(headers.iter().copied(), Some(&self.payload))?;
        Self::decode(self.id, self.place, self.order, encoded)
    }

    fn decode(id: JobId, place: Place, order: u64, encoded: Bytes) -> Result<Option<Self>, Error> {
        let record = Stored::decode(&encoded)?;
        let list = refs(&record);
        let view = Headers::new(&list);
        let read = JobFacts::read(view).and_then(|facts| {
            let event = internal::text(view, internal::ID)?;
            let tenant = internal::text(view, internal::TENANT)?;
            // What an attempt will need: a job that could not be attempted would stop the task.
            EventId::parse(event).map_err(|_| internal::Error::Header(internal::ID))?;
            tenant::validate(tenant).map_err(|_| internal::Error::Header(internal::TENANT))?;
            Ok((facts, tenant.to_owned()))
        });
        let (facts, tenant) = match read {
            Ok(read) => read,
            Err(error) if must_stop(&error) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        let payload = record.payload.clone().unwrap_or_default();
        Ok(Some(Self { id, place, order, facts, tenant, payload, record, encoded }))
    }

    /// Its record's headers.
    #[must_use]
    pub fn headers(&self) -> Vec<HeaderRef<'_>> {
        refs(&self.record)
    }

    /// Whether it waits for its first attempt.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.place == DELIVERIES
    }
}

pub(super) fn refs(record: &Stored) -> Vec<HeaderRef<'_>> {
    record.headers.iter().map(|h| (&h.name[..], h.value.as_deref())).collect()
}

/// Puts a job where it says that it lies.
pub(super) fn put(state: &mut State, stored: &StoredJob) -> Result<(), Error> {
    let (id, subscription) = (stored.id.as_bytes(), stored.facts.subscription);
    let entry = job::Entry { subscription: *subscription.as_bytes(), order: stored.order };
    let value = entry.value(&stored.encoded);
    backlog::count(state, subscription.as_bytes(), (stored.place, value.len()), true)?;
    state.put(job::key(stored.place, id), value);
    if stored.is_first() {
        state.put(ready::key(subscription.as_bytes(), stored.order), ready::value(id));
    } else {
        let key = due::key(subscription.as_bytes(), stored.order, id);
        state.put(key, due::value(stored.place));
    }
    Ok(())
}

/// Removes a job from a place; one that is not there changes nothing.
pub(super) fn remove(state: &mut State, place: Place, id: JobId) -> Result<(), Error> {
    let key = job::key(place, id.as_bytes());
    let Some(value) = state.get(&key)? else { return Ok(()) };
    let (entry, _) = job::decode_value(&value)?;
    state.delete(key);
    backlog::count(state, &entry.subscription, (place, value.len()), false)?;
    if place == DELIVERIES {
        state.delete(ready::key(&entry.subscription, entry.order));
        return Ok(());
    }
    let key = due::key(&entry.subscription, entry.order, id.as_bytes());
    match other_tier(state, id, entry)? {
        Some(tier) => state.put(key, due::value(tier)),
        None => state.delete(key),
    }
    Ok(())
}

/// Another tier that a job lies in with the same due time. While topics are restored in any
/// interleaving, a job may be in the tier that it left and in the one that it went to; when it
/// moved within a millisecond, the two share one entry by due time.
fn other_tier(state: &State, id: JobId, own: job::Entry) -> Result<Option<Place>, Error> {
    for tier in (1..=RETRY_TIERS).filter_map(Place::tier) {
        if let Some(value) = state.get(&job::key(tier, id.as_bytes()))?
            && job::decode_value(&value)?.0 == own
        {
            return Ok(Some(tier));
        }
    }
    Ok(None)
}

/// A job in a place.
pub(super) fn get(state: &State, place: Place, id: JobId) -> Result<Option<StoredJob>, Error> {
    let Some(value) = state.get(&job::key(place, id.as_bytes()))? else { return Ok(None) };
    let (entry, encoded) = job::decode_value(&value)?;
    StoredJob::decode(id, place, entry.order, encoded)
}

/// The first unclaimed job of a subscription in arrival order, from this log offset on.
pub(super) fn first_ready(
    state: &State,
    subscription: SubscriptionId,
    from: u64,
    unclaimed: impl Fn(&JobId) -> bool,
) -> Result<Option<StoredJob>, Error> {
    let id = subscription.as_bytes();
    let range = ready::of_subscription(id).starting_at(ready::key(id, from));
    let mut found = Ok(None);
    let _ = state.scan(&range, &mut |_, value| {
        found = ready::decode_value(value).map(JobId::from_bytes).map(Result::ok);
        match &found {
            Ok(Some(job)) if !unclaimed(job) => {
                found = Ok(None);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    })?;
    match found? {
        Some(job) => get(state, DELIVERIES, job),
        None => Ok(None),
    }
}

/// Some retries of a subscription in the order in which they fall due, behind this entry of it, and
/// the last entry that was looked at; none at their end.
pub(super) fn some_due(
    state: &State,
    subscription: SubscriptionId,
    (after, at_most): (Option<&Key>, usize),
) -> Result<(Vec<StoredJob>, Option<Key>), Error> {
    let all = due::of_subscription(subscription.as_bytes());
    let range = match after {
        Some(after) => all.starting_after(after),
        None => all,
    };
    let (mut jobs, entries) = (Vec::new(), state.collect(&range, at_most)?);
    for (key, value) in &entries {
        let (.., job) = due::decode_key(key)?;
        let Ok(job) = JobId::from_bytes(job) else { continue };
        jobs.extend(get(state, due::decode_value(value)?, job)?);
    }
    let last = entries.last().filter(|_| entries.len() == at_most);
    Ok((jobs, last.map(|(key, _)| key.clone())))
}

/// The unclaimed retry of a subscription that is due first.
pub(super) fn first_due(
    state: &State,
    subscription: SubscriptionId,
    unclaimed: impl Fn(&JobId) -> bool,
) -> Result<Option<StoredJob>, Error> {
    let mut found = Ok(None);
    let range = due::of_subscription(subscription.as_bytes());
    let _ = state.scan(&range, &mut |key, value| {
        let entry = due::decode_key(key)
            .and_then(|(.., job)| Ok((due::decode_value(value)?, JobId::from_bytes(job).ok())));
        match entry {
            Ok((_, Some(job))) if !unclaimed(&job) => ControlFlow::Continue(()),
            Ok((place, job)) => {
                found = Ok(job.map(|job| (place, job)));
                ControlFlow::Break(())
            }
            Err(error) => {
                found = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    match found? {
        Some((place, job)) => get(state, place, job),
        None => Ok(None),
    }
}
