//! Carries a plan out: begins each action at its time, undoes it at its own, and starts hubs again
//! that ended by themselves. Actions overlap, so nothing here waits for long; what has to wait is
//! looked at again later.

mod topics;

use std::collections::BTreeMap;
use std::process::Child;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::gather::Deleted;
use super::load::Load;
use super::plan::{Action, How, Step, hub_name};
use super::random::Random;
use super::stage::Stage;
use crate::say;
use crate::wait;

/// How long a hub that was asked to end may take: attempts under way get 15 s.
const LEAVES_MS: u64 = 60_000;
/// How long the last undoings may take.
const UNDONE_MS: u64 = 120_000;

/// What is done later.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Later {
    /// A hub starts again.
    Restart(usize),
    /// A stopped hub goes on.
    Continue(usize),
    /// A hub that was asked to end is waited for until then, and stays away for so long.
    Left { hub: usize, until_ms: u64, down_ms: u64 },
    /// A broker starts again.
    StartNode(u16),
    /// A stalled broker goes on.
    ContinueNode(u16),
    /// A receiver works again.
    Heal(String),
    /// New partitions are in use.
    Grown { source: String, partitions: i32 },
    /// A closed topic is deleted once it was read, until then at the latest.
    Delete { source: String, until_ms: u64 },
}

/// What happened.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Hubs killed.
    pub kills: usize,
    /// Hubs stopped for longer than their session.
    pub zombies: usize,
    /// Hubs stopped for less.
    pub pauses: usize,
    /// Hubs that left in order.
    pub leaves: usize,
    /// Hubs that ended by themselves: name and how.
    pub own_ends: Vec<String>,
    /// Brokers killed.
    pub broker_kills: usize,
    /// Brokers stalled.
    pub broker_stalls: usize,
    /// Topics grown.
    pub grown: usize,
    /// Topics made.
    pub made: usize,
    /// Topics deleted.
    pub deleted: usize,
    /// Failures of receivers.
    pub outages: usize,
    /// What went wrong on the way.
    pub faults: Vec<String>,
}

/// A run of a plan.
pub struct Drive<'a> {
    stage: &'a mut Stage,
    load: &'a Load,
    seed: u64,
    random: Random,
    began_ms: i64,
    later: Vec<(u64, Later)>,
    /// Which hubs run, as far as anybody ended them.
    running: Vec<bool>,
    /// How many partitions the topics that grew have.
    partitions: BTreeMap<String, i32>,
    /// The broker that is about to start.
    starting: Option<(u16, Child)>,
    tally: Tally,
    deleted: Vec<Deleted>,
}

impl<'a> Drive<'a> {
    /// On this stage, beside this load.
    #[must_use]
    pub fn new(stage: &'a mut Stage, load: &'a Load, seed: u64) -> Self {
        let running = vec![true; stage.hubs.len()];
        let (later, deleted) = (Vec::new(), Vec::new());
        let (random, began_ms) = (Random::new(seed, 3), wait::unix_ms());
        let (tally, partitions) = (Tally::default(), BTreeMap::new());
        Self {
            stage,
            load,
            seed,
            random,
            began_ms,
            later,
            running,
            partitions,
            starting: None,
            tally,
            deleted,
        }
    }

    /// Carries the plan out, and undoes what is left at its end.
    ///
    /// # Errors
    /// When the harness cannot go on.
    pub fn run(&mut self, plan: &[Step], duration_ms: u64) -> Result<()> {
        let mut steps = plan.iter().peekable();
        let limit = Duration::from_millis(duration_ms + UNDONE_MS);
        wait::until("the end of all faults", limit, || {
            self.supervise()?;
            self.started()?;
            self.undo()?;
            let now = self.now_ms();
            if let Some(step) = steps.next_if(|step| step.at_ms <= now) {
                self.say(format_args!("{}", step.action));
                self.begin(step.action)?;
            }
            let idle = self.later.is_empty() && self.starting.is_none();
            let over = steps.peek().is_none() && now >= duration_ms && idle;
            Ok(if over { Ok(()) } else { Err(format!("{:?} {:?}", self.later, self.starting)) })
        })
    }

    /// What happened, and what was deleted.
    #[must_use]
    pub fn finish(self) -> (Tally, Vec<Deleted>) {
        (self.tally, self.deleted)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(wait::unix_ms() - self.began_ms).unwrap_or(0)
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        let s = Duration::from_millis(self.now_ms()).as_secs_f64();
        say!("seed {} +{s:7.2} s  {what}", self.seed);
    }

    fn after(&mut self, ms: u64, what: Later) {
        self.later.push((self.now_ms() + ms, what));
    }

    fn begin(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Kill { hub, down_ms } => {
                self.kill(hub)?;
                self.after(down_ms, Later::Restart(hub));
            }
            Action::Zombie { hub, ms } => {
                self.tally.zombies += 1;
                self.stop(hub, ms)?;
            }
            Action::Pause { hub, ms } => {
                self.tally.pauses += 1;
                self.stop(hub, ms)?;
            }
            Action::Leave { hub, down_ms } => {
                if self.running[hub] {
                    self.stage.hubs[hub].signal("TERM")?;
                    self.running[hub] = false;
                    let until_ms = self.now_ms() + LEAVES_MS;
                    self.after(100, Later::Left { hub, until_ms, down_ms });
                }
            }
            Action::KillAll { down_ms } => {
                for hub in 0..self.running.len() {
                    self.kill(hub)?;
                    self.after(down_ms, Later::Restart(hub));
                }
                self.new_topic();
            }
            // A busy machine takes its time to start a broker; a second one stays.
            Action::KillNode { .. } | Action::StallNode { .. } if self.starting.is_some() => {
                self.say(format_args!("  not yet: a broker is still starting"));
            }
            Action::KillNode { node, down_ms } => {
                self.stage.broker.kill_node(node)?;
                self.tally.broker_kills += 1;
                self.after(down_ms, Later::StartNode(node));
            }
            Action::StallNode { node, ms } => {
                self.stage.broker.signal_node(node, "STOP")?;
                self.tally.broker_stalls += 1;
                self.after(ms, Later::ContinueNode(node));
            }
            Action::Grow { draw } => self.grow(draw),
            Action::NewTopic => self.new_topic(),
            Action::DeleteTopic { draw } => self.close(draw),
            Action::Outage { draw, how, ms } => self.outage(draw, how, ms),
        }
        Ok(())
    }

    fn kill(&mut self, hub: usize) -> Result<()> {
        if std::mem::take(&mut self.running[hub]) {
            self.stage.hubs[hub].kill9()?;
            self.tally.kills += 1;
        }
        Ok(())
    }

    fn stop(&mut self, hub: usize, ms: u64) -> Result<()> {
        if self.running[hub] {
            self.stage.hubs[hub].signal("STOP")?;
            self.after(ms, Later::Continue(hub));
        }
        Ok(())
    }

    fn outage(&mut self, draw: u64, how: How, ms: u64) {
        let count = self.stage.subscribers.len() as u64;
        let at = usize::try_from(draw % count.max(1)).unwrap_or(0);
        let path = self.stage.subscribers[at].path.clone();
        self.say(format_args!("  it is {path}"));
        self.stage.receiver.script(&path, &[how.behaviour()]);
        self.tally.outages += 1;
        self.after(ms, Later::Heal(path));
    }

    /// Does what is due by now.
    fn undo(&mut self) -> Result<()> {
        let now = self.now_ms();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|l| l.0 <= now);
        self.later = later;
        let due: Vec<(u64, Later)> = due;
        for (_, what) in due {
            match what {
                Later::Restart(hub) => self.restart(hub)?,
                Later::Continue(hub) => {
                    self.say(format_args!("hub {} goes on", hub_name(hub)));
                    self.stage.hubs[hub].signal("CONT")?;
                }
                Later::Left { hub, until_ms, down_ms } => self.left(hub, until_ms, down_ms)?,
                Later::StartNode(node) => {
                    self.starting = Some((node, self.stage.broker.begin_start_node(node)?));
                }
                Later::ContinueNode(node) => {
                    self.stage.broker.signal_node(node, "CONT")?;
                    self.say(format_args!("broker {node} goes on"));
                }
                Later::Heal(path) => {
                    self.say(format_args!("the receiver {path} works again"));
                    self.stage.receiver.script(&path, &[]);
                }
                Later::Grown { source, partitions } => self.grown(&source, partitions),
                Later::Delete { source, until_ms } => self.delete(&source, until_ms),
            }
        }
        Ok(())
    }

    /// Looks whether the broker that was to start answers.
    fn started(&mut self) -> Result<()> {
        let Some((node, child)) = &mut self.starting else { return Ok(()) };
        let Some(status) = child.try_wait()? else { return Ok(()) };
        let node = *node;
        self.starting = None;
        ensure!(status.success(), "broker {node} did not start: {status}");
        self.say(format_args!("broker {node} is back"));
        Ok(())
    }

    fn restart(&mut self, hub: usize) -> Result<()> {
        self.stage.hubs[hub].restart()?;
        self.running[hub] = true;
        self.say(format_args!("hub {} starts again", hub_name(hub)));
        Ok(())
    }

    /// Looks whether a hub that was asked to end has.
    fn left(&mut self, hub: usize, until_ms: u64, down_ms: u64) -> Result<()> {
        let name = hub_name(hub);
        let Some(status) = self.stage.hubs[hub].ended()? else {
            if self.now_ms() < until_ms {
                self.after(100, Later::Left { hub, until_ms, down_ms });
                return Ok(());
            }
            self.say(format_args!("hub {name} did not end"));
            let fault = format!("hub {name} did not end within {LEAVES_MS} ms of SIGTERM");
            self.tally.faults.push(fault);
            self.stage.hubs[hub].kill9()?;
            self.after(down_ms, Later::Restart(hub));
            return Ok(());
        };
        self.say(format_args!("hub {name} has left: {status}"));
        self.tally.leaves += 1;
        if !status.success() {
            self.tally.faults.push(format!("hub {name} was asked to end and did with {status}"));
        }
        self.stage.hubs[hub].kill9()?;
        self.after(down_ms, Later::Restart(hub));
        Ok(())
    }

    /// Starts hubs again that ended by themselves.
    fn supervise(&mut self) -> Result<()> {
        for hub in 0..self.running.len() {
            if !self.running[hub] {
                continue;
            }
            let Some(status) = self.stage.hubs[hub].ended()? else { continue };
            let name = hub_name(hub);
            let tail = self.stage.hubs[hub].log_tail();
            let why = last_words(&tail);
            self.say(format_args!("hub {name} ended by itself: {status}: {why}"));
            self.tally.own_ends.push(format!("{name}: {status}: {why}"));
            self.running[hub] = false;
            self.stage.hubs[hub].kill9()?;
            // A stop that was to be undone ended with the process.
            self.later.retain(|(_, later)| *later != Later::Continue(hub));
            self.after(1_000, Later::Restart(hub));
        }
        Ok(())
    }
}

/// Why a hub ended: the program's own last line, or the error before it that names the thread.
fn last_words(tail: &str) -> String {
    let said = tail.lines().rev().find(|line| line.starts_with("streaming-hub: "));
    let error = tail.lines().rev().find(|line| line.contains(" ERROR "));
    let of_thread = said.is_some_and(|line| line.contains("the stream thread of"));
    let words = if of_thread { error.or(said) } else { said.or(error) };
    words.unwrap_or("its log says nothing").to_owned()
}
