//! What happens when, drawn from a seed before anything runs: the same seed, the same plan. It
//! knows how long each fault lasts, so that it never takes a majority of brokers or all hubs away
//! by accident; all hubs at once is an action of its own.

use std::fmt;
use std::time::Duration;

use super::random::Random;
use crate::receiver::Behaviour;

/// Hubs in the run.
pub const HUBS: usize = 3;
/// Brokers in the run.
pub const NODES: u16 = 3;
/// The hubs' session time-out.
pub const SESSION_MS: u64 = 6_000;
/// Left alone at the end, for what was begun to be undone.
const QUIET_MS: u64 = 12_000;
/// After its restart a hub, or a broker, is left alone for so long.
const RECOVERY_MS: u64 = 8_000;

/// How a receiver fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It answers 500.
    Refuses,
    /// It never answers.
    Hangs,
    /// It closes connections.
    Closes,
}

impl How {
    /// As the receiver does it.
    #[must_use]
    pub fn behaviour(self) -> Behaviour {
        match self {
            Self::Refuses => Behaviour::Answer(500),
            Self::Hangs => Behaviour::Hang,
            Self::Closes => Behaviour::Close,
        }
    }
}

/// A fault. What it hits among topics and subscriptions is `draw`, modulo what there is then.
#[expect(missing_docs, reason = "a field is what is hit, or for how long")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `kill -9` of a hub, started again after a while.
    Kill { hub: usize, down_ms: u64 },
    /// `SIGSTOP` of a hub for longer than its session, then `SIGCONT`: a zombie.
    Zombie { hub: usize, ms: u64 },
    /// `SIGSTOP` of a hub for less than its session.
    Pause { hub: usize, ms: u64 },
    /// `SIGTERM` of a hub, started again after a while.
    Leave { hub: usize, down_ms: u64 },
    /// `kill -9` of all hubs; a topic appears while they are down.
    KillAll { down_ms: u64 },
    /// `kill -9` of a broker, started again after a while.
    KillNode { node: u16, down_ms: u64 },
    /// `SIGSTOP` of a broker: its connections stall.
    StallNode { node: u16, ms: u64 },
    /// More partitions for a source topic.
    Grow { draw: u64 },
    /// A new source topic.
    NewTopic,
    /// A source topic is deleted, once all of it was read.
    DeleteTopic { draw: u64 },
    /// A receiver fails.
    Outage { draw: u64, how: How, ms: u64 },
}

/// An action at its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// From the begin on.
    pub at_ms: u64,
    /// What is done.
    pub action: Action,
}

/// The name of a hub by its number: `a`, `b`, `c`.
#[must_use]
pub fn hub_name(hub: usize) -> &'static str {
    ["a", "b", "c"].get(hub).copied().unwrap_or("?")
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        match *self {
            Self::Kill { hub, down_ms } => {
                write!(f, "kill -9 of hub {}, down for {:.1} s", hub_name(hub), s(down_ms))
            }
            Self::Zombie { hub, ms } => {
                write!(f, "hub {} stopped for {:.1} s: a zombie", hub_name(hub), s(ms))
            }
            Self::Pause { hub, ms } => {
                write!(f, "hub {} stopped for {:.1} s", hub_name(hub), s(ms))
            }
            Self::Leave { hub, down_ms } => {
                write!(f, "hub {} leaves, down for {:.1} s", hub_name(hub), s(down_ms))
            }
            Self::KillAll { down_ms } => {
                write!(f, "kill -9 of all hubs, down for {:.1} s", s(down_ms))
            }
            Self::KillNode { node, down_ms } => {
                write!(f, "kill -9 of broker {node}, down for {:.1} s", s(down_ms))
            }
            Self::StallNode { node, ms } => write!(f, "broker {node} stalls for {:.1} s", s(ms)),
            Self::Grow { .. } => write!(f, "a source topic grows"),
            Self::NewTopic => write!(f, "a new source topic"),
            Self::DeleteTopic { .. } => write!(f, "a source topic is to be deleted"),
            Self::Outage { how, ms, .. } => {
                write!(f, "a receiver {} for {:.1} s", format!("{how:?}").to_lowercase(), s(ms))
            }
        }
    }
}

/// The plan of this seed.
#[must_use]
pub fn plan(seed: u64, duration_ms: u64) -> Vec<Step> {
    let mut random = Random::new(seed, 1);
    let mut busy = Busy::default();
    let mut steps = Vec::new();
    let mut at_ms = 3_000;
    while at_ms + QUIET_MS < duration_ms {
        let left_ms = duration_ms - at_ms - QUIET_MS;
        if let Some(action) = busy.take(draw(&mut random), at_ms, left_ms) {
            steps.push(Step { at_ms, action });
            at_ms += random.between(500, 5_000);
        } else {
            at_ms += 100;
        }
    }
    steps
}

/// The short one of the test: each of the main faults once or twice.
#[must_use]
pub fn short() -> Vec<Step> {
    [
        (2_000, Action::Kill { hub: 0, down_ms: 200 }),
        (6_000, Action::Grow { draw: 0 }),
        (8_000, Action::KillNode { node: 2, down_ms: 3_000 }),
        (18_000, Action::Zombie { hub: 1, ms: SESSION_MS + 3_000 }),
        (30_000, Action::Kill { hub: 0, down_ms: 7_500 }),
    ]
    .map(|(at_ms, action)| Step { at_ms, action })
    .to_vec()
}

/// An action, whether it may happen now or not.
fn draw(random: &mut Random) -> Action {
    let hub = random.index(HUBS);
    let node = 1 + u16::try_from(random.below(u64::from(NODES))).unwrap_or(0);
    let draw = random.draw();
    match random.below(100) {
        0..22 => Action::Kill { hub, down_ms: absence(random) },
        22..34 => Action::Zombie { hub, ms: random.between(SESSION_MS + 1_000, 14_000) },
        34..42 => Action::Pause { hub, ms: random.between(300, SESSION_MS - 2_000) },
        42..52 => Action::Leave { hub, down_ms: absence(random) },
        52..56 => Action::KillAll { down_ms: absence(random) },
        56..66 => Action::KillNode { node, down_ms: random.between(0, 8_000) },
        66..72 => Action::StallNode { node, ms: random.between(500, 9_000) },
        72..78 => Action::Grow { draw },
        78..82 => Action::NewTopic,
        82..86 => Action::DeleteTopic { draw },
        _ => {
            let how = [How::Refuses, How::Hangs, How::Closes][random.index(3)];
            Action::Outage { draw, how, ms: random.between(1_000, 10_000) }
        }
    }
}

/// How long a hub stays away: back at once, or so long that others take over.
fn absence(random: &mut Random) -> u64 {
    if random.per_mille(600) { random.between(0, 500) } else { random.between(1_000, 15_000) }
}

/// Until when hubs and brokers are left alone.
#[derive(Default)]
struct Busy {
    hubs: [u64; HUBS],
    nodes: u64,
}

impl Busy {
    /// The action, if it may happen now and is over in time.
    fn take(&mut self, action: Action, now: u64, left_ms: u64) -> Option<Action> {
        let away = self.hubs.iter().filter(|until| **until > now).count();
        let (lasts_ms, free) = match action {
            Action::Kill { hub, down_ms: ms }
            | Action::Leave { hub, down_ms: ms }
            | Action::Zombie { hub, ms }
            | Action::Pause { hub, ms } => (ms, self.hubs[hub] <= now && away + 1 < HUBS),
            Action::KillAll { down_ms } => (down_ms, away == 0),
            Action::KillNode { down_ms: ms, .. } | Action::StallNode { ms, .. } => {
                (ms, self.nodes <= now)
            }
            Action::Outage { ms, .. } => (ms, true),
            Action::Grow { .. } | Action::NewTopic | Action::DeleteTopic { .. } => (0, true),
        };
        if !free || lasts_ms > left_ms {
            return None;
        }
        let until = now + lasts_ms + RECOVERY_MS;
        match action {
            Action::Kill { hub, .. }
            | Action::Leave { hub, .. }
            | Action::Zombie { hub, .. }
            | Action::Pause { hub, .. } => self.hubs[hub] = until,
            Action::KillAll { .. } => self.hubs = [until; HUBS],
            Action::KillNode { .. } | Action::StallNode { .. } => self.nodes = until,
            Action::Grow { .. }
            | Action::NewTopic
            | Action::DeleteTopic { .. }
            | Action::Outage { .. } => {}
        }
        Some(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_another_seed_another() {
        assert_eq!(plan(1, 600_000), plan(1, 600_000));
        assert_ne!(plan(1, 600_000), plan(2, 600_000));
    }

    #[test]
    fn ten_minutes_of_any_seed_hold_every_kind_of_fault() {
        for seed in 0..20 {
            let steps = plan(seed, 600_000);
            let has = |wanted: fn(&Action) -> bool| {
                assert!(steps.iter().any(|step| wanted(&step.action)), "seed {seed}");
            };
            has(|action| matches!(action, Action::Kill { .. }));
            has(|action| matches!(action, Action::Zombie { .. }));
            has(|action| matches!(action, Action::Leave { .. }));
            has(|action| matches!(action, Action::KillNode { .. }));
            has(|action| matches!(action, Action::Outage { .. }));
        }
    }

    #[test]
    fn a_majority_of_brokers_and_a_hub_stay_unless_all_hubs_are_killed() {
        for seed in 0..50 {
            let (mut hubs, mut node) = ([0; HUBS], 0);
            for Step { at_ms, action } in plan(seed, 600_000) {
                match action {
                    Action::Kill { hub, down_ms: ms }
                    | Action::Leave { hub, down_ms: ms }
                    | Action::Zombie { hub, ms }
                    | Action::Pause { hub, ms } => hubs[hub] = at_ms + ms,
                    Action::KillNode { down_ms: ms, .. } | Action::StallNode { ms, .. } => {
                        assert!(node <= at_ms, "seed {seed}: two brokers at {at_ms}");
                        node = at_ms + ms;
                    }
                    Action::KillAll { .. }
                    | Action::Grow { .. }
                    | Action::NewTopic
                    | Action::DeleteTopic { .. }
                    | Action::Outage { .. } => {}
                }
                let there = hubs.iter().filter(|until| **until <= at_ms).count();
                assert!(there > 0, "seed {seed}: no hub at {at_ms}");
            }
        }
    }
}
