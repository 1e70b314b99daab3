//! Consumer groups: static members, sessions, and incremental rebalances as the cooperative-sticky
//! assignor makes them. A partition moves only once its owner gave it back or is gone; a member
//! rejoins only once it has handled what it was told; each rebalance starts a new generation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use streaming_hub_model::follow::Followed;
use streaming_hub_topology::runtime::clients::{GroupEvent, Position};
use streaming_hub_topology::runtime::spec::Source;

use super::{Cluster, TaskId};

/// What a client knows of its membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its static id.
    pub id: String,
    /// Which joining this is; another one has replaced it or it was put out.
    pub token: u64,
    /// The generation that it takes to be current.
    pub generation: u64,
}

#[derive(Debug)]
struct Member {
    instance: String,
    token: u64,
    /// Whether a client sends heartbeats for it, as long as its process does.
    client: bool,
    heard_ms: i64,
    /// Whether the current rebalance is its first.
    is_new: bool,
    events: VecDeque<GroupEvent>,
    unanswered: usize,
    revoking: BTreeSet<TaskId>,
}

/// A consumer group.
#[derive(Debug)]
pub(super) struct Group {
    source: Source,
    topics: Vec<String>,
    members: BTreeMap<String, Member>,
    owners: BTreeMap<TaskId, String>,
    generation: u64,
    preparing: bool,
    next_token: u64,
    positions: BTreeMap<TaskId, (i64, String)>,
}

impl Group {
    fn follows(&self, topic: &str) -> bool {
        match &self.source {
            Source::Facts(follow) => !matches!(follow.classify(topic), Followed::NotFollowed),
            Source::Internal(_) => self.topics.iter().any(|own| own == topic),
        }
    }

    fn member(&mut self, id: &str, token: u64) -> Option<&mut Member> {
        self.members.get_mut(id).filter(|member| member.token == token)
    }
}

impl Cluster {
    /// Makes a group with its source.
    pub fn add_group(&mut self, name: &str, source: &Source, application: &str) {
        let group = Group {
            source: source.clone(),
            topics: source.subscription(application),
            members: BTreeMap::new(),
            owners: BTreeMap::new(),
            generation: 0,
            preparing: false,
            next_token: 0,
            positions: BTreeMap::new(),
        };
        self.groups.insert(name.to_owned(), group);
    }

    /// A static member joins. One that comes back under its id while its session lasts has its
    /// partitions again at once and disturbs nobody.
    pub fn join(&mut self, group: &str, id: &str, instance: &str) -> u64 {
        let now = self.clock.now_ms();
        let Some(group) = self.groups.get_mut(group) else { return 0 };
        group.next_token += 1;
        let token = group.next_token;
        let replaced = group.members.remove(id);
        let mut member = Member {
            instance: instance.to_owned(),
            token,
            client: true,
            heard_ms: now,
            is_new: replaced.is_none(),
            events: VecDeque::new(),
            unanswered: 0,
            revoking: BTreeSet::new(),
        };
        match replaced {
            Some(old) if !old.is_new && !group.preparing => {
                // What the old client was to give back belongs to nobody now.
                group.owners.retain(|task, owner| owner != id || !old.revoking.contains(task));
                let own = group.owners.iter().filter(|(_, owner)| *owner == id);
                let own = own.map(|(task, _)| task.clone()).collect();
                member.events.push_back(GroupEvent::Assigned(own));
            }
            Some(_) => {
                group.owners.retain(|_, owner| owner != id);
                member.is_new = true;
                group.preparing = true;
            }
            None => group.preparing = true,
        }
        group.members.insert(id.to_owned(), member);
        token
    }

    /// A member leaves at once.
    pub fn leave(&mut self, group: &str, id: &str, token: u64) {
        let Some(group) = self.groups.get_mut(group) else { return };
        if group.member(id, token).is_some() {
            group.members.remove(id);
            group.owners.retain(|_, owner| owner != id);
            group.preparing = true;
        }
    }

    /// A client is gone without leaving; its session runs out unless another one comes.
    pub fn drop_client(&mut self, group: &str, id: &str, token: u64) {
        let group = self.groups.get_mut(group);
        if let Some(member) = group.and_then(|group| group.member(id, token)) {
            member.client = false;
        }
    }

    /// The membership as the client's last answer from the group has it; `None` when that answer
    /// was that it is out.
    #[must_use]
    pub fn membership(&self, group: &str, id: &str, token: u64) -> Option<Membership> {
        let group = self.groups.get(group)?;
        let member = group.members.get(id).filter(|member| member.token == token)?;
        let generation = group.generation;
        Some(Membership { id: id.to_owned(), token: member.token, generation })
    }

    pub(super) fn is_current(&self, group: &str, known: &Membership) -> bool {
        self.membership(group, &known.id, known.token).as_ref() == Some(known)
    }

    /// Which member has each partition, as far as given out.
    #[must_use]
    pub fn is_member(&self, group: &str, id: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.members.contains_key(id))
    }

    /// The next event of a member.
    pub fn next_event(&mut self, group: &str, id: &str, token: u64) -> Option<GroupEvent> {
        let member = self.groups.get_mut(group)?.member(id, token)?;
        let event = member.events.pop_front()?;
        match &event {
            GroupEvent::Assigned(_) => member.unanswered += 1,
            GroupEvent::Revoked(tasks) | GroupEvent::Lost(tasks) => {
                member.revoking.extend(tasks.iter().cloned());
            }
        }
        Some(event)
    }

    /// A member has taken its assignment.
    pub fn accept(&mut self, group: &str, id: &str, token: u64) {
        let group = self.groups.get_mut(group);
        if let Some(member) = group.and_then(|group| group.member(id, token)) {
            member.unanswered = member.unanswered.saturating_sub(1);
        }
    }

    /// A member gives partitions back.
    pub fn release(&mut self, group: &str, id: &str, token: u64, tasks: &[TaskId]) {
        let Some(group) = self.groups.get_mut(group) else { return };
        let Some(member) = group.member(id, token) else { return };
        tasks.iter().for_each(|task| {
            member.revoking.remove(task);
        });
        group.owners.retain(|task, owner| owner != id || !tasks.contains(task));
        group.preparing = true;
    }

    /// All partitions of a group's source.
    fn source_partitions(&self, group: &Group) -> Vec<TaskId> {
        let followed = self.topics.iter().filter(|(topic, _)| group.follows(topic));
        let tasks = followed.flat_map(|(topic, logs)| {
            (0..logs.len()).map(|index| TaskId {
                topic: std::sync::Arc::clone(topic),
                partition: i32::try_from(index).unwrap_or(i32::MAX),
            })
        });
        tasks.collect()
    }

    /// Whether a partition belongs to nobody while the group is quiet.
    #[must_use]
    pub fn misses_partitions(&self, name: &str) -> bool {
        let Some(group) = self.groups.get(name) else { return false };
        let all = self.source_partitions(group);
        !group.preparing && all.iter().any(|task| !group.owners.contains_key(task))
    }

    /// A topic appeared or grew: live members see it in their metadata and join again.
    pub(super) fn see_growth(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            let awake =
                |member: &Member| member.client && self.awake.get(&member.instance) == Some(&true);
            if group.follows(topic) && group.members.values().any(awake) {
                group.preparing = true;
            }
        }
    }

    /// Heartbeats of those who are awake; puts out those whose session ended.
    pub(super) fn tick_sessions(&mut self, session_ms: i64) {
        let now = self.clock.now_ms();
        for group in self.groups.values_mut() {
            let mut out = Vec::new();
            for (id, member) in &mut group.members {
                if member.client && self.awake.get(&member.instance) == Some(&true) {
                    member.heard_ms = now;
                } else if now - member.heard_ms > session_ms {
                    out.push(id.clone());
                }
            }
            for id in out {
                group.members.remove(&id);
                group.owners.retain(|_, owner| *owner != id);
                group.preparing = true;
            }
        }
    }

    /// Names of groups whose rebalance can complete now.
    #[must_use]
    pub fn rebalancing(&self) -> Vec<String> {
        let rejoins = |member: &Member| {
            member.client
                && self.awake.get(&member.instance) == Some(&true)
                && member.events.is_empty()
                && member.unanswered == 0
                && member.revoking.is_empty()
        };
        let ready = self.groups.iter().filter(|(_, group)| {
            group.preparing && !group.members.is_empty() && group.members.values().all(rejoins)
        });
        ready.map(|(name, _)| name.clone()).collect()
    }

    /// Whether any group waits for a rebalance.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.groups.values().all(|group| {
            !group.preparing
                && group.members.values().all(|m| m.events.is_empty() && m.revoking.is_empty())
        })
    }

    /// Completes a rebalance.
    pub fn rebalance(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else { return };
        let all = self.source_partitions(group);
        let Some(group) = self.groups.get_mut(name) else { return };
        let members: Vec<String> = group.members.keys().cloned().collect();
        let target = assign(&all, &members, &group.owners);
        group.generation += 1;
        group.preparing = false;
        self.print.add(group.generation);
        for (id, member) in &mut group.members {
            let mine = |task: &&TaskId| target.get(*task) == Some(id);
            let owned = group.owners.iter().filter(|(_, owner)| *owner == id).map(|(t, _)| t);
            let revoked: Vec<_> = owned.filter(|task| !mine(task)).cloned().collect();
            let free = |task: &&TaskId| !group.owners.contains_key(*task);
            let given: Vec<_> = all.iter().filter(mine).filter(free).cloned().collect();
            if !revoked.is_empty() {
                member.events.push_back(GroupEvent::Revoked(revoked));
            }
            if !given.is_empty() || member.is_new {
                member.events.push_back(GroupEvent::Assigned(given.clone()));
            }
            member.is_new = false;
            for task in given {
                group.owners.insert(task, id.clone());
            }
        }
    }

    /// The stable position of a task.
    ///
    /// # Errors
    /// `()` while a transaction on it is pending.
    pub fn stable_position(
        &self,
        group: &str,
        task: &TaskId,
    ) -> Result<Option<(i64, String)>, Pending> {
        if self.laws.positions_are_stable && self.is_pending(group, task) {
            return Err(Pending);
        }
        Ok(self.groups.get(group).and_then(|group| group.positions.get(task).cloned()))
    }

    /// All positions of a group.
    #[must_use]
    pub fn positions(&self, group: &str) -> BTreeMap<TaskId, i64> {
        let group = self.groups.get(group);
        let positions = group.map(|g| g.positions.iter().map(|(t, (o, _))| (t.clone(), *o)));
        positions.map(Iterator::collect).unwrap_or_default()
    }

    /// Partitions of a group's source whose records were not all read.
    #[must_use]
    pub fn unread(&self, name: &str) -> Vec<(TaskId, i64, i64)> {
        let Some(group) = self.groups.get(name) else { return Vec::new() };
        let mut behind = Vec::new();
        for task in self.source_partitions(group) {
            let end = self.log(&task.topic, task.partition).map_or(0, super::Log::last_record_end);
            let position = group.positions.get(&task).map_or(0, |(offset, _)| *offset);
            if position < end {
                behind.push((task, position, end));
            }
        }
        behind
    }

    pub(super) fn take_positions(&mut self, group: &str, positions: Vec<Position>) {
        let Some(group) = self.groups.get_mut(group) else { return };
        for Position { task, offset, metadata } in positions {
            group.positions.insert(task, (offset, metadata));
        }
    }
}

/// A transaction on the position is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending;

/// Who is to have which partition: what a member has it keeps, up to its share.
fn assign(
    all: &[TaskId],
    members: &[String],
    owners: &BTreeMap<TaskId, String>,
) -> BTreeMap<TaskId, String> {
    let mut target = BTreeMap::new();
    if members.is_empty() {
        return target;
    }
    let most = all.len().div_ceil(members.len());
    let mut shares: BTreeMap<&String, usize> = members.iter().map(|m| (m, 0)).collect();
    for task in all {
        let owner = owners.get(task);
        if let Some((owner, share)) = owner.and_then(|o| Some((o, shares.get_mut(o)?)))
            && *share < most
        {
            *share += 1;
            target.insert(task.clone(), owner.clone());
        }
    }
    for task in all {
        if target.contains_key(task) {
            continue;
        }
        let least = shares.iter_mut().min_by_key(|(member, share)| (**share, **member));
        if let Some((member, share)) = least {
            *share += 1;
            target.insert(task.clone(), (*member).clone());
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(partition: i32) -> TaskId {
        TaskId { topic: "t".into(), partition }
    }

    #[test]
    fn a_member_keeps_what_it_has_and_a_new_one_gets_its_share() {
        let all: Vec<_> = (0..4).map(task).collect();
        let owners: BTreeMap<_, _> = all.iter().map(|t| (t.clone(), "a".to_owned())).collect();
        let target = assign(&all, &["a".to_owned(), "b".to_owned()], &owners);
        let of = |id: &str| target.values().filter(|owner| *owner == id).count();
        assert_eq!((of("a"), of("b")), (2, 2));
        let moved = target.iter().filter(|(task, owner)| owners[*task] != **owner);
        assert_eq!(moved.count(), 2);
    }
}
