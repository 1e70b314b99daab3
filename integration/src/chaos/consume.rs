//! Pull consumers that read while instances die, as `docs/pull.md` advises: any instance is asked,
//! always with the last `seq` that was processed, and an answer that does not come is asked for
//! again, at the next instance.
//!
//! What they were served is written down as it came; the rules judge it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::api::{Api, Wanted};
use crate::say;
use crate::wait;

/// How long the last entries may take once everything else is at rest.
const LAST: Duration = Duration::from_secs(60);
/// What a consumer does after an error.
const AGAIN: Duration = Duration::from_millis(200);
/// Entries of a page, and for how many seconds one is waited for.
const MORE: &str = "&limit=20&wait=2";

/// What a pull subscription's consumer was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumed {
    /// The subscription's id.
    pub id: String,
    /// What it is subscribed to.
    pub wanted: Wanted,
    /// `seq` and event id of each entry, as they came.
    pub served: Vec<(u64, String)>,
    /// Reads that failed.
    pub failed: usize,
}

impl Consumed {
    /// One read behind what was processed; answers how many entries came.
    fn read(&mut self, api: &Api) -> Result<usize> {
        let after = self.served.last().map_or(0, |(seq, _)| *seq);
        let target = format!("/v1/events?subscription_id={}&after={after}{MORE}", self.id);
        let answer = api.call("GET", &target, None)?;
        ensure!(answer.status == 200, "{}", answer.status);
        let page = answer.json();
        let entry =
            |entry: &Value| Some((entry["seq"].as_u64()?, entry["ceId"].as_str()?.to_owned()));
        let events = page["events"].as_array().context("no page")?;
        let events = events.iter().map(entry).collect::<Option<Vec<_>>>();
        let events = events.context("an entry without seq or id")?;
        let count = events.len();
        self.served.extend(events);
        Ok(count)
    }
}

/// Consumers under way.
pub struct Consumers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Consumed>>,
}

impl Consumers {
    /// Subscribes these tenants to all of their events, on a stage whose hubs are ready, and begins
    /// to read.
    ///
    /// # Errors
    /// When a subscription is refused or not known everywhere in time.
    pub fn start(stage: &Stage, tenants: &[&str]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for tenant in tenants {
            let apis = stage.hubs.iter().map(|hub| hub.api(tenant)).collect::<Vec<_>>();
            let wanted = Wanted::all(tenant, "pull");
            let body = json!({"name": "pull", "event_types": ["*"], "sink": {"type": "pull"}});
            let answer = apis[0].call("POST", "/v1/subscriptions", Some(&body))?;
            ensure!(answer.status == 201, "a pull subscription: {answer:?}");
            let id = answer.json()["id"].as_str().context("no id")?.to_owned();
            for api in &apis {
                wait::until("a pull subscription on every hub", LAST, || {
                    Ok(api.get(&id)?.map(drop).ok_or_else(|| id.clone()))
                })?;
            }
            let own = Consumed { id, wanted, served: Vec::new(), failed: 0 };
            let stop = Arc::clone(&stop);
            let named = std::thread::Builder::new().name("consumer".into());
            threads.push(named.spawn(move || follow(own, &apis, &stop))?);
        }
        Ok(Self { stop, threads })
    }

    /// Has each of them read to the end, and answers what it was served.
    ///
    /// # Errors
    /// When one of them panicked.
    pub fn finish(self) -> Result<Vec<Consumed>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.threads.into_iter().map(JoinHandle::join);
        let ended = ended.map(|ended| ended.map_err(|_| anyhow!("a consumer panicked")));
        let consumed = ended.collect::<Result<Vec<_>>>()?;
        for Consumed { wanted, served, failed, .. } in &consumed {
            say!("{}: {} entries read, {failed} reads failed", wanted.tenant, served.len());
        }
        Ok(consumed)
    }
}

/// Reads until it is told to stop and there is nothing more, or nobody answers any more.
fn follow(mut own: Consumed, apis: &[Api], stop: &AtomicBool) -> Consumed {
    let (mut turn, mut told) = (0, None);
    loop {
        let stops = stop.load(Ordering::Relaxed);
        if stops && told.get_or_insert_with(wait::instant).elapsed() > LAST {
            return own;
        }
        match own.read(&apis[turn % apis.len()]) {
            // The wait is over, and began after the last entry was there.
            Ok(0) if stops => return own,
            Ok(0) => turn += 1,
            Ok(_) => {}
            Err(_) => {
                own.failed += 1;
                turn += 1;
                std::thread::park_timeout(AGAIN);
            }
        }
    }
}
