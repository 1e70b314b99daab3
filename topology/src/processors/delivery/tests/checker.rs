//! I3 and I4 over what was committed, and that the store is what its topics say.

use std::collections::{BTreeMap, BTreeSet};

use streaming_hub_model::headers::Headers;
use streaming_hub_model::id::JobId;
use streaming_hub_model::internal;
use streaming_hub_model::job::JobFacts;
use streaming_hub_state::family::backlog::{self, Backlog};
use streaming_hub_state::family::{Place, claim, dead_letter, due, job, ready};
use streaming_hub_state::{Family, Key, KeyRange, Record as Stored, State};

use super::super::places;
use super::{World, home};
use crate::topics::{RETRY_TIERS, Topic};

/// The topics that a job can lie in.
pub(super) fn topics() -> Vec<Topic> {
    let tiers = (1..=RETRY_TIERS).map(Topic::Retry);
    [Topic::Deliveries].into_iter().chain(tiers).chain([Topic::DeadLetters]).collect()
}

/// Checks everything that holds after a commit.
pub(super) fn check(world: &World) {
    let attempts = recorded_attempts(world);
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in world.bench.logs.all(Topic::Deliveries) {
        places.entry(entry.key_text().to_owned()).or_default();
    }
    for topic in topics() {
        for (job, entry) in world.bench.logs.live(topic) {
            let recorded = attempts.get(&job).map_or(0, Vec::len);
            let said = entry.number(internal::ATTEMPTS);
            assert_eq!(usize::try_from(said).unwrap(), recorded, "{job} in {topic}");
            places.entry(job).or_default().push(topic.to_string());
        }
    }
    for (job, outcomes) in &attempts {
        let done = outcomes.iter().filter(|outcome| *outcome == "delivered");
        places.entry(job.clone()).or_default().extend(done.map(|_| "done".to_owned()));
        assert!(outcomes.len() <= world.attempts_max, "I4: {job} had {}", outcomes.len());
    }
    // A dead letter that was ended again was redelivered, or had to go.
    for entry in world.bench.logs.all(Topic::DeadLetters) {
        if entry.value.is_none() {
            places.entry(entry.key_text().to_owned()).or_default().push("gone".to_owned());
        }
    }
    for (job, places) in &places {
        assert_eq!(places.len(), 1, "I3: {job} is in {places:?}");
    }
    ended_for_a_reason(world);
    backlog_counts(&world.bench.state);
    store_is_a_view(world);
    letters_agree(world);
    claims_agree(world);
    indexes_agree(&world.bench.state);
}

/// The outcomes of each job's attempts, in order; checks that they are counted without gaps.
fn recorded_attempts(world: &World) -> BTreeMap<String, Vec<String>> {
    let mut attempts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in world.bench.logs.all(Topic::Attempts) {
        let line = line.json();
        let outcomes = attempts.entry(line["job"].as_str().unwrap().to_owned()).or_default();
        outcomes.push(line["outcome"].as_str().unwrap().to_owned());
        assert_eq!(line["attempt"], outcomes.len(), "each attempt is recorded once");
    }
    attempts
}

/// A job ended for its subscription only when the table was as new as its match (design 18).
fn ended_for_a_reason(world: &World) {
    for (job, entry) in world.bench.logs.live(Topic::DeadLetters) {
        if entry.text(internal::REASON).starts_with("subscription_") {
            let known = world.table.position(home());
            assert!(entry.number(internal::TABLE) <= known, "{job} ended too early");
        }
    }
}

/// Each place of the store holds what its topic holds, the deliveries as far as they were read.
fn store_is_a_view(world: &World) {
    for number in 0..=RETRY_TIERS {
        let place = Place::from_number(number).unwrap();
        let mut live = world.bench.logs.live(places::topic_of(place));
        live.retain(|_, e| place != places::DELIVERIES || e.offset < world.bench.position);
        let text = |id: [u8; 16]| JobId::from_bytes(id).unwrap().to_string();
        let stored = world.bench.state.collect(&job::in_place(place), usize::MAX).unwrap();
        let stored: BTreeSet<String> =
            stored.iter().map(|(key, _)| text(job::decode_key(key).unwrap().1)).collect();
        assert_eq!(stored, live.into_keys().collect::<BTreeSet<_>>(), "{place}");
    }
}

/// Subscriptions and places count what is there.
fn backlog_counts(state: &State) {
    let mut counts: BTreeMap<[u8; 16], Backlog> = BTreeMap::new();
    let mut places: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
    for (key, value) in state.collect(&KeyRange::family(Family::Job), usize::MAX).unwrap() {
        let (place, _) = job::decode_key(&key).unwrap();
        let (entry, _) = job::decode_value(&value).unwrap();
        let count = counts.entry(entry.subscription).or_default();
        *(if place == places::DELIVERIES { &mut count.ready } else { &mut count.retries }) += 1;
        count.bytes += value.len() as u64;
        let total = places.entry(place).or_default();
        *total = (total.0 + 1, total.1 + value.len() as u64);
    }
    for (subscription, count) in &counts {
        assert_eq!(backlog::get(state, subscription).unwrap(), *count);
    }
    for (place, total) in &places {
        assert_eq!(backlog::in_place(state, *place).unwrap(), *total);
    }
    assert_eq!(
        state.collect(&backlog::all(), usize::MAX).unwrap().len(),
        counts.len() + places.len()
    );
}

/// The store holds the dead letters that the topic holds, each listed once and counted.
fn letters_agree(world: &World) {
    let state = &world.bench.state;
    let live = world.bench.logs.live(Topic::DeadLetters);
    let all = |family| state.collect(&KeyRange::family(family), usize::MAX).unwrap();
    let text = |id: [u8; 16]| JobId::from_bytes(id).unwrap().to_string();
    let mut counts: BTreeMap<[u8; 16], u64> = BTreeMap::new();
    let mut listed = BTreeSet::new();
    for (key, _) in all(Family::DeadLetterListed) {
        let (entry, job) = dead_letter::decode_listed_key(&key).unwrap();
        *counts.entry(entry.subscription).or_default() += 1;
        assert!(listed.insert(text(job)), "listed twice");
    }
    assert_eq!(listed, live.into_keys().collect(), "dead letters");
    assert_eq!(all(Family::DeadLetter).len(), listed.len());
    for (subscription, letters) in &counts {
        assert_eq!(dead_letter::count(state, subscription).unwrap(), *letters);
    }
    assert_eq!(all(Family::DeadLetterCount).len(), counts.len());
}

/// The store holds the claims that their topic holds, and each is of a job that waits.
fn claims_agree(world: &World) {
    let live = world.bench.logs.live(Topic::Claims);
    let stored = world.bench.state.collect(&KeyRange::family(Family::Claim), usize::MAX).unwrap();
    let text = |key: &Key| JobId::from_bytes(claim::decode_key(key).unwrap()).unwrap().to_string();
    let stored: BTreeSet<String> = stored.iter().map(|(key, _)| text(key)).collect();
    for job in live.keys() {
        let place = world.place(JobId::parse(job).unwrap());
        let waits = place.as_deref().is_some_and(|place| place != "dead-letters");
        assert!(waits, "{job} in {place:?} has a claim");
    }
    assert_eq!(stored, live.into_keys().collect(), "claims");
}

/// Every job has its one entry in the order of its place, and there is no other entry.
pub(super) fn indexes_agree(state: &State) {
    // In tiers with the same due time, in the middle of a restore, a job has one entry for both.
    let mut expected: BTreeMap<Key, Vec<Vec<u8>>> = BTreeMap::new();
    let all = |family| state.collect(&KeyRange::family(family), usize::MAX).unwrap();
    for (key, value) in all(Family::Job) {
        let (place, id) = job::decode_key(&key).unwrap();
        let (entry, encoded) = job::decode_value(&value).unwrap();
        let stored = Stored::decode(&encoded).unwrap();
        let headers: Vec<_> =
            stored.headers.iter().map(|h| (&h.name[..], h.value.as_deref())).collect();
        let facts = JobFacts::read(Headers::new(&headers)).unwrap();
        assert_eq!(facts.subscription.as_bytes(), &entry.subscription);
        let (key, value) = if place == places::DELIVERIES {
            (ready::key(&entry.subscription, entry.order), ready::value(&id).to_vec())
        } else {
            assert_eq!(u64::try_from(facts.due.0).unwrap(), entry.order);
            (due::key(&entry.subscription, entry.order, &id), due::value(place).to_vec())
        };
        expected.entry(key).or_default().push(value);
    }
    for (key, value) in all(Family::Ready).into_iter().chain(all(Family::Due)) {
        let values = expected.remove(&key).unwrap_or_default();
        assert!(values.contains(&value.to_vec()), "{key:?} leads to no job");
    }
    assert!(expected.is_empty(), "jobs without an entry: {expected:?}");
}
