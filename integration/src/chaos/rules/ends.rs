//! Where jobs ended: each in one place, with its attempts recorded once each.

use std::collections::{BTreeMap, BTreeSet};

use super::{Attempt, Evidence};
use crate::internal::open_in;
use crate::reader::Record;

/// A job that has been due for so long should have been attempted.
const OVERDUE_MS: i64 = 60_000;

/// What is known of a job.
#[derive(Default)]
struct Job<'a> {
    /// The places where it is open.
    open: Vec<&'a Record>,
    dead: usize,
    delivered: usize,
}

/// I3: each job is delivered, a dead letter, or waits in one place, not much longer than it should.
pub(super) fn ends<'a>(evidence: &'a Evidence, attempts: &[Attempt], faults: &mut Vec<String>) {
    let deliveries = &evidence.history.deliveries;
    let puts = deliveries.iter().filter(|record| record.value.is_some());
    let mut jobs: BTreeMap<String, Job<'a>> = BTreeMap::new();
    for record in puts {
        jobs.entry(record.key_text().to_owned()).or_default();
    }
    let mut strangers = BTreeSet::new();
    let mut of = |job: &str, note: &mut dyn FnMut(&mut Job<'a>)| match jobs.get_mut(job) {
        Some(job) => note(job),
        None => drop(strangers.insert(job.to_owned())),
    };
    for records in std::iter::once(deliveries).chain(evidence.tiers.values()) {
        for (job, record) in open_in(records) {
            of(&job, &mut |job| job.open.push(record));
        }
    }
    for record in &evidence.dead_letters {
        of(record.key_text(), &mut |job| job.dead += 1);
    }
    for attempt in attempts {
        of(&attempt.job, &mut |job| job.delivered += usize::from(attempt.delivered));
    }
    faults.extend(strangers.iter().map(|job| format!("jobs: {job} was never made")));
    for (id, job) in &jobs {
        if job.open.len() + job.dead + job.delivered != 1 {
            let places = job.open.iter().map(|record| record.place()).collect::<Vec<_>>();
            faults.push(format!(
                "jobs: {id} waits in {places:?}, was delivered {} times, dead-lettered {} times",
                job.delivered, job.dead
            ));
        }
        for record in &job.open {
            let time = |name| record.text(name).and_then(|text| text.parse::<i64>().ok());
            let due = time("hub-due").or_else(|| time("hub-matched")).unwrap_or(0);
            if due + OVERDUE_MS < evidence.read_ms {
                let late = evidence.read_ms - due;
                faults.push(format!("jobs: {id} waits in {}, due for {late} ms", record.place()));
            }
        }
    }
}

/// I4: the recorded attempts of a job are numbered without gap or repetition, no more than its
/// curve has; nothing follows a delivery, every recorded delivery is at the receiver, and a job is
/// given up only when its curve is used up.
pub(super) fn numbers(evidence: &Evidence, attempts: &[Attempt], faults: &mut Vec<String>) {
    let requests = evidence.history.requests.iter();
    let arrived = requests.filter_map(|request| request.text("X-Lerian-Delivery-Id"));
    let arrived: BTreeSet<&str> = arrived.collect();
    let mut jobs: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        jobs.entry(&attempt.job).or_default().push(attempt);
        if attempt.delivered && !arrived.contains(attempt.delivery_id.as_str()) {
            faults.push(format!("attempts: the receiver has not seen {attempt:?}"));
        }
    }
    for (job, attempts) in &jobs {
        let numbers = attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>();
        if !numbers.iter().copied().eq(1..=numbers.len() as u64) {
            faults.push(format!("attempts: {job} has the numbers {numbers:?}"));
        }
        if numbers.len() > evidence.attempts_max {
            faults.push(format!("attempts: {job} has {} of them", numbers.len()));
        }
        let before_last = attempts.len() - 1;
        if attempts[..before_last].iter().any(|attempt| attempt.delivered) {
            faults.push(format!("attempts: {job} was attempted after its delivery"));
        }
    }
    for record in &evidence.dead_letters {
        let (job, reason) = (record.key_text(), record.text("hub-reason").unwrap_or_default());
        let count = jobs.get(job).map_or(0, Vec::len);
        if reason != "exhausted" || count != evidence.attempts_max {
            faults.push(format!("dead letters: {job} is {reason} after {count} attempts"));
        }
    }
}
