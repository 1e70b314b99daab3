//! The floor of every latency: what a small transaction costs on this broker. Three records to
//! three topics and one position, as the hub's match task commits one event.

use std::time::Duration;

use anyhow::Result;
use rdkafka::producer::BaseRecord;

use super::pace::Pace;
use super::percentiles::Percentiles;
use super::report::Report;
use super::transactions::{self, Transactions};
use crate::broker::Broker;
use crate::{say, wait};

const SOURCE: &str = "bench-floor";
const TARGETS: [&str; 3] = ["bench-floor-1", "bench-floor-2", "bench-floor-3"];
/// Commits before the first that is measured: a new broker takes half as long after so many.
const WARM_UP: usize = 1_500;
const COMMITS: usize = 300;
/// As far apart as the facts of the idle latency.
const APART_PER_SECOND: u32 = 20;

/// Measures commits, back to back and apart.
///
/// # Errors
/// The broker's.
pub fn run(broker: &Broker, payload_bytes: usize, report: &mut Report) -> Result<()> {
    for topic in [SOURCE].iter().chain(&TARGETS) {
        broker.create_topic(topic, 1, &[])?;
    }
    let transactions = Transactions::join(broker.bootstrap(), SOURCE, SOURCE)?;
    transactions.wait_joined()?;
    let payload = vec![b'x'; payload_bytes];
    say!("floor: small commits, {WARM_UP} to warm up, {COMMITS} back to back, {COMMITS} apart");
    commits(&transactions, &payload, WARM_UP, None)?;
    let close = commits(&transactions, &payload, COMMITS, None)?;
    report.add_percentiles(
        &close,
        &[
            ("floor.commit_p50_ms", "small commit, back to back, p50", 500),
            ("floor.commit_p99_ms", "small commit, back to back, p99", 990),
        ],
    );
    let pace = Some(Pace::per_second(APART_PER_SECOND));
    let apart = commits(&transactions, &payload, COMMITS, pace)?;
    report.add_percentiles(
        &apart,
        &[
            ("floor.commit_apart_p50_ms", "small commit, 20 a second, p50", 500),
            ("floor.commit_apart_p99_ms", "small commit, 20 a second, p99", 990),
        ],
    );
    Ok(())
}

/// Adds what so many commits, 20 a second, took on this broker, if that was measured.
pub fn add_apart(report: &mut Report, name: &'static str, what: &'static str, commits: f64) {
    if let Some(commit) = report.value("floor.commit_apart_p50_ms") {
        report.add(name, what, commits * commit, "ms");
    }
}

fn commits(
    transactions: &Transactions,
    payload: &[u8],
    count: usize,
    mut pace: Option<Pace>,
) -> Result<Percentiles> {
    let positions = transactions::position(SOURCE, 0, 0)?;
    let mut durations = Vec::with_capacity(count);
    for _ in 0..count {
        if let Some(pace) = &mut pace {
            pace.wait();
        }
        let began = wait::instant();
        for topic in TARGETS {
            transactions
                .send(BaseRecord::to(topic).partition(0).key(SOURCE.as_bytes()).payload(payload))?;
        }
        transactions.commit(&positions)?;
        durations.push(began.elapsed());
        // A member that is not polled is thrown out of its group.
        let _ = transactions.consumer.poll(Duration::ZERO);
    }
    Ok(Percentiles::of(durations))
}
