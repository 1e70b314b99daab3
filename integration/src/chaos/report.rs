//! How a run went, as a table.

use std::fmt::Write as _;

use super::consume::Consumed;
use super::drive::Tally;
use super::gather::Evidence;
use super::options::Options;
use super::rules;
use crate::check;

/// The figures of a run, and what it broke.
#[derive(Debug, Clone)]
pub struct Report {
    /// Names and figures, in order.
    pub lines: Vec<(&'static str, String)>,
    /// Hubs that ended by themselves, each with the last error of its log. That is no broken rule:
    /// they start again.
    pub own_ends: Vec<String>,
    /// Every broken rule.
    pub faults: Vec<String>,
}

impl Report {
    /// The report of a run.
    #[must_use]
    pub fn new(options: &Options, tally: &Tally, evidence: &Evidence, faults: Vec<String>) -> Self {
        let history = &evidence.history;
        let (accepted, own) = rules::accepted(evidence);
        let puts = history.deliveries.iter().filter(|record| record.value.is_some());
        let deliveries = history.requests.iter().filter(|request| !request.is_probe());
        let open = evidence.tiers.values().chain([&history.deliveries]);
        let open = open.map(|records| crate::internal::open_in(records).len()).sum::<usize>();
        let attempts = evidence.attempts.len();
        let jobs = puts.count();
        let read = |each: fn(&Consumed) -> usize| evidence.consumed.iter().map(each).sum::<usize>();
        let lines = vec![
            ("seed", options.seed.to_string()),
            ("seconds of faults", options.seconds.to_string()),
            ("kill -9 of hubs", tally.kills.to_string()),
            ("zombies", tally.zombies.to_string()),
            ("short stops", tally.pauses.to_string()),
            ("orderly leaves", tally.leaves.to_string()),
            ("ended by themselves", tally.own_ends.len().to_string()),
            ("broker kills", tally.broker_kills.to_string()),
            ("broker stalls", tally.broker_stalls.to_string()),
            ("topics grown", tally.grown.to_string()),
            ("topics made", tally.made.to_string()),
            ("topics deleted", tally.deleted.to_string()),
            ("receiver outages", tally.outages.to_string()),
            ("source records", history.sources.len().to_string()),
            ("accepted", accepted.to_string()),
            ("duplicates dropped", (accepted - own).to_string()),
            ("quarantined", history.quarantine.len().to_string()),
            ("inbox", format!("{} of {own}", history.inbox.len())),
            ("jobs", format!("{jobs} of {}", history.counts().jobs)),
            ("delivered", (jobs.saturating_sub(open + evidence.dead_letters.len())).to_string()),
            ("dead letters", evidence.dead_letters.len().to_string()),
            ("still scheduled", open.to_string()),
            ("attempts recorded", attempts.to_string()),
            ("requests", deliveries.count().to_string()),
            ("pull entries", format!("{} read", read(|own| own.served.len()))),
            ("failed pull reads", read(|own| own.failed).to_string()),
            ("verdict", if faults.is_empty() { "holds".into() } else { "BROKEN".into() }),
        ];
        Self { lines, own_ends: tally.own_ends.clone(), faults }
    }

    /// As text, with the first faults.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (name, figure) in &self.lines {
            let _ = writeln!(text, "{name:<20} {figure}");
        }
        for end in &self.own_ends {
            let _ = writeln!(text, "ended by itself: {end}");
        }
        if !self.faults.is_empty() {
            text += &check::summary(&self.faults);
        }
        text
    }
}
