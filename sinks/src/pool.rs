//! Clients, and with them connections, per (tenant, destination, credential generation), so that
//! nothing that one tenant opened ever serves another (I8, contract section 4). The map is bounded
//! and forgets what lies idle; what is in use is never forgotten, or its limit would be lost.
//!
//! Limits count attempts under way. A client opens at most one connection for each, so they bound
//! connections too, but for the moment in which one is handed from an attempt to the next.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use streaming_hub_model::ports::Clock;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whose connections these are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The tenant.
    pub tenant: TenantId,
    /// The canonical target. It may be a secret, so it is kept here and shown nowhere.
    pub destination: String,
    /// Another one for other credentials, which open new connections.
    pub generation: u64,
}

impl Key {
    /// The connections to a subscription's destination with the credentials of this generation.
    #[must_use]
    pub fn of(subscription: &Subscription, generation: u64) -> Self {
        let (tenant, destination) = (subscription.tenant.clone(), subscription.sink.target());
        Self { tenant, destination, generation }
    }
}

/// A host name and a port, which tenants share.
pub type HostPort = (String, u16);

/// Bounds of a sink's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Attempts at once under one [`Key`].
    pub per_key: usize,
    /// Attempts at once to one host and port, over all tenants.
    pub per_host: usize,
    /// Clients to one host and port, over all tenants, for clients that are a connection each.
    pub clients_per_host: usize,
    /// How many clients are kept; more only while more are in use.
    pub clients: usize,
    /// How long an unused client is kept, milliseconds.
    pub idle_ms: u64,
    /// How long an attempt waits for its turn, milliseconds.
    pub wait_ms: u64,
}

/// Why there is no client for an attempt.
#[derive(Debug, thiserror::Error)]
pub enum Error<E> {
    /// All turns were taken for all of the waiting time.
    #[error("all connections to the destination were busy for {0} ms")]
    Busy(u64),
    /// The host has as many clients as it may have, and all of them are in use.
    #[error("the host has {0} connections, which is its limit")]
    Full(usize),
    /// No client could be made.
    #[error(transparent)]
    Make(E),
}

/// A client and the right to use it once; dropping it gives the right back.
pub struct Lease<C> {
    /// The client.
    pub client: C,
    _turns: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

/// The pools of one sink.
pub struct Pools<C> {
    limits: Limits,
    clock: Arc<dyn Clock>,
    state: Mutex<State<C>>,
}

struct State<C> {
    entries: HashMap<Key, Entry<C>>,
    /// Owned by the entries, shared by those of one host.
    hosts: HashMap<HostPort, Weak<Semaphore>>,
    swept_at: UnixMillis,
}

struct Entry<C> {
    client: C,
    turns: Arc<Semaphore>,
    host_turns: Arc<Semaphore>,
    host: HostPort,
    used_at: UnixMillis,
}

impl<C> Entry<C> {
    /// Every attempt, waiting or under way, holds a reference of its own.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.turns) > 1
    }
}

impl<C: Clone> Pools<C> {
    /// Empty pools.
    #[must_use]
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let swept_at = clock.now();
        let state = State { entries: HashMap::new(), hosts: HashMap::new(), swept_at };
        Self { limits, clock, state: Mutex::new(state) }
    }

    /// The client of this key, made by `make` if there is none, once an attempt under it and to
    /// its host is within the limits. Attempts get their turn in the order in which they asked.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn lease<E>(
        &self,
        key: &Key,
        host: HostPort,
        make: impl FnOnce() -> Result<C, E>,
    ) -> Result<Lease<C>, Error<E>> {
        let (client, turns, host_turns) = self.entry(key, host, make)?;
        let both = async {
            let own = turns.acquire_owned().await.ok()?;
            Some((own, host_turns.acquire_owned().await.ok()?))
        };
        let wait = Duration::from_millis(self.limits.wait_ms);
        match tokio::time::timeout(wait, both).await {
            Ok(Some(turns)) => Ok(Lease { client, _turns: turns }),
            Ok(None) | Err(_) => Err(Error::Busy(self.limits.wait_ms)),
        }
    }

    /// Forgets what has not been used for the idle time. Every lease does so now and then; this is
    /// for clients whose connections should end although nothing more is delivered.
    pub fn sweep(&self) {
        let now = self.clock.now();
        self.state().sweep(now, self.limits.idle_ms);
    }

    /// How many clients are kept; a gauge.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().entries.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        // Nothing leaves the state half changed, so a panic elsewhere spoils nothing here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry<E>(
        &self,
        key: &Key,
        host: HostPort,
        make: impl FnOnce() -> Result<C, E>,
    ) -> Result<(C, Arc<Semaphore>, Arc<Semaphore>), Error<E>> {
        let now = self.clock.now();
        let mut state = self.state();
        if now.since(state.swept_at) >= self.limits.idle_ms {
            state.sweep(now, self.limits.idle_ms);
        }
        if let Some(entry) = state.entries.get_mut(key) {
            entry.used_at = now;
            return Ok((entry.client.clone(), entry.turns.clone(), entry.host_turns.clone()));
        }
        let per_host = self.limits.clients_per_host;
        if !state.make_room_at(&host, per_host) {
            return Err(Error::Full(per_host));
        }
        let client = make().map_err(Error::Make)?;
        if state.entries.len() >= self.limits.clients {
            state.sweep(now, self.limits.idle_ms);
            state.make_room(self.limits.clients);
        }
        let turns = Arc::new(Semaphore::new(self.limits.per_key));
        let host_turns = state.host_turns(host.clone(), self.limits.per_host);
        let entry = Entry {
            client: client.clone(),
            turns: turns.clone(),
            host_turns: host_turns.clone(),
            host,
            used_at: now,
        };
        state.entries.insert(key.clone(), entry);
        Ok((client, turns, host_turns))
    }
}

impl<C> State<C> {
    /// Forgets what has not been used for the idle time.
    fn sweep(&mut self, now: UnixMillis, idle_ms: u64) {
        self.entries.retain(|_, entry| entry.is_in_use() || now.since(entry.used_at) < idle_ms);
        self.hosts.retain(|_, turns| turns.strong_count() > 0);
        self.swept_at = now;
    }

    /// Forgets the longest unused until one more fits, or all that is left is in use.
    fn make_room(&mut self, clients_max: usize) {
        while self.entries.len() >= clients_max {
            let unused = self.entries.iter().filter(|(_, entry)| !entry.is_in_use());
            let Some((oldest, _)) = unused.min_by_key(|(_, entry)| entry.used_at) else { return };
            let oldest = oldest.clone();
            self.entries.remove(&oldest);
        }
    }

    /// Forgets the longest unused of a host until one more fits; whether it does.
    fn make_room_at(&mut self, host: &HostPort, clients_max: usize) -> bool {
        loop {
            let there = self.entries.iter().filter(|(_, entry)| entry.host == *host);
            if there.clone().count() < clients_max {
                return true;
            }
            let unused = there.filter(|(_, entry)| !entry.is_in_use());
            let Some((oldest, _)) = unused.min_by_key(|(_, entry)| entry.used_at) else {
                return false;
            };
            let oldest = oldest.clone();
            self.entries.remove(&oldest);
        }
    }

    fn host_turns(&mut self, host: HostPort, per_host: usize) -> Arc<Semaphore> {
        if let Some(turns) = self.hosts.get(&host).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Semaphore::new(per_host));
        self.hosts.insert(host, Arc::downgrade(&turns));
        turns
    }
}
