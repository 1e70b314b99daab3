//! The checker: compares what was produced with what lies in the hub's topics and what the
//! receiver got. It asks the hub nothing and uses none of its code. Every broken rule is a line of
//! text; no line, no fault.

mod outputs;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::Subscriber;
use crate::facts::{Fact, Verdict};
use crate::producer::Source;
use crate::reader::Record;
use crate::receiver::Request;

/// How often a delivery may arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Exactly once: nothing was killed or retried.
    Once,
    /// At least once.
    AtLeastOnce,
}

/// Everything that happened, from outside.
#[derive(Debug, Clone)]
pub struct History {
    /// What was produced, and where it lies.
    pub sources: Vec<Source>,
    /// Who was subscribed all the while.
    pub subscribers: Vec<Subscriber>,
    /// The hub's default tenant.
    pub default_tenant: Option<String>,
    /// The inbox topic.
    pub inbox: Vec<Record>,
    /// The deliveries topic, tombstones included.
    pub deliveries: Vec<Record>,
    /// The quarantine topic.
    pub quarantine: Vec<Record>,
    /// What the receiver got, probes included.
    pub requests: Vec<Arc<Request>>,
    /// How often a delivery may have arrived.
    pub delivered: Delivered,
}

/// How many of each there must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records produced.
    pub produced: usize,
    /// Records of topics that are not followed.
    pub not_followed: usize,
    /// Well-formed records, duplicates included.
    pub accepted: usize,
    /// System events.
    pub dropped: usize,
    /// Malformed records, by reason.
    pub quarantined: BTreeMap<String, usize>,
    /// Well-formed records whose (tenant, id) came before.
    pub duplicates: usize,
    /// Events: well-formed records without duplicates.
    pub events: usize,
    /// Matches of events with subscriptions.
    pub jobs: usize,
}

/// An event's identity: tenant and normalised id.
pub(crate) type EventId = (String, String);

/// What must be there.
pub(crate) struct Expected<'a> {
    /// All copies of each event.
    pub(crate) events: BTreeMap<EventId, Vec<&'a Source>>,
    /// Each match: event, and the subscriber's number.
    pub(crate) jobs: BTreeSet<(EventId, usize)>,
    /// The malformed records, by their place, with their reasons.
    pub(crate) quarantined: BTreeMap<String, (&'a Source, &'a str)>,
}

impl History {
    /// Every broken rule, one line each.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let expected = self.expected();
        let mut faults = Vec::new();
        outputs::inbox(self, &expected, &mut faults);
        outputs::jobs(self, &expected, &mut faults);
        outputs::quarantine(self, &expected, &mut faults);
        requests::requests(self, &expected, &mut faults);
        faults
    }

    /// How many of each there must be.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let expected = self.expected();
        let mut counts = Counts {
            produced: self.sources.len(),
            events: expected.events.len(),
            jobs: expected.jobs.len(),
            ..Counts::default()
        };
        for source in &self.sources {
            match &source.fact.verdict {
                Verdict::Accept => counts.accepted += 1,
                Verdict::Drop => counts.dropped += 1,
                Verdict::NotFollowed => counts.not_followed += 1,
                Verdict::Quarantine(reason) => {
                    *counts.quarantined.entry(reason.clone()).or_default() += 1;
                }
            }
        }
        counts.duplicates = counts.accepted - counts.events;
        counts
    }

    pub(crate) fn expected(&self) -> Expected<'_> {
        let mut events: BTreeMap<EventId, Vec<&Source>> = BTreeMap::new();
        let mut quarantined = BTreeMap::new();
        for source in &self.sources {
            match &source.fact.verdict {
                Verdict::Accept => {
                    events.entry(self.identity(&source.fact)).or_default().push(source);
                }
                Verdict::Quarantine(reason) => {
                    quarantined.insert(source.place(), (source, reason.as_str()));
                }
                Verdict::Drop | Verdict::NotFollowed => {}
            }
        }
        let jobs = events.iter().flat_map(|(id, copies)| {
            // Copies of an event say the same of it.
            let fact = &copies[0].fact;
            let wanting = self.subscribers.iter().enumerate().filter(move |(_, subscriber)| {
                let wanted = &subscriber.wanted;
                let text = |name| fact.text(name).unwrap_or_default();
                let key = (text("ce-resourcetype"), text("ce-eventtype"));
                wanted.tenant == id.0 && wanted.wants(text("ce-source"), key, fact.major())
            });
            wanting.map(move |(number, _)| (id.clone(), number))
        });
        let jobs = jobs.collect();
        Expected { events, jobs, quarantined }
    }

    fn identity(&self, fact: &Fact) -> EventId {
        let tenant = fact.text("ce-tenantid").or(self.default_tenant.as_deref());
        (tenant.unwrap_or_default().to_owned(), fact.id())
    }
}

/// The faults as one text: the first of them, and how many there are.
#[must_use]
pub fn summary(faults: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = format!("{} fault(s):", faults.len());
    for fault in faults.iter().take(SHOWN) {
        text += "\n  ";
        text += fault;
    }
    if faults.len() > SHOWN {
        text += "\n  …";
    }
    text
}

#[cfg(test)]
mod tests;
