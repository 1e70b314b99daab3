//! Attempts that are due together, in one request to their service: each is put behind those that
//! wait, a task takes what fits into a request and sends it, and every entry gets an outcome of its
//! own. Nothing waits longer than the linger time for company, and while as many requests are under
//! way as may be, the next ones fill up by themselves.
//!
//! Not for: limits of attempts (see [`crate::pool`]) or retries. An attempt whose caller has gone
//! is sent all the same: the delivery is at least once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::sink::SinkFuture;
use tokio::sync::{Semaphore, oneshot};

/// What carries a batch to its service.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// One message.
    type Entry: Clone + Send + 'static;

    /// How much of a request it takes, in bytes as the service counts.
    fn bytes(&self, entry: &Self::Entry) -> usize;

    /// Sends them in one request. The outcomes are in the order of the entries.
    fn send(&self, entries: Vec<Self::Entry>) -> SinkFuture<'_, Vec<Outcome>>;
}

/// Bounds of the requests of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    /// Entries of one request.
    pub(crate) entries: usize,
    /// Bytes of one request.
    pub(crate) bytes: usize,
    /// How long an entry waits for company.
    pub(crate) linger: Duration,
    /// Requests at once; with 1, entries arrive in the order in which they came.
    pub(crate) requests: usize,
}

struct Waiting<E> {
    entry: E,
    outcome: oneshot::Sender<Outcome>,
}

struct State<E> {
    waiting: VecDeque<Waiting<E>>,
    /// Whether a task looks after them.
    is_drained: bool,
}

/// Puts attempts together.
pub(crate) struct Batcher<C: Carrier> {
    carrier: C,
    limits: BatchLimits,
    requests: Arc<Semaphore>,
    state: Mutex<State<C::Entry>>,
}

impl<C: Carrier> Batcher<C> {
    pub(crate) fn new(carrier: C, limits: BatchLimits) -> Self {
        let state = State { waiting: VecDeque::new(), is_drained: false };
        let requests = Arc::new(Semaphore::new(limits.requests));
        Self { carrier, limits, requests, state: Mutex::new(state) }
    }

    /// What sends them.
    pub(crate) fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Sends one entry, with others or alone.
    pub(crate) async fn deliver(self: &Arc<Self>, entry: C::Entry) -> Outcome {
        let (outcome, answer) = oneshot::channel();
        let starts = {
            let mut state = self.state();
            state.waiting.push_back(Waiting { entry, outcome });
            !std::mem::replace(&mut state.is_drained, true)
        };
        if starts {
            spawn(Arc::clone(self).drain());
        }
        answer
            .await
            .unwrap_or_else(|_| Outcome::failed(ErrorClass::Panic, "the sink's own code failed"))
    }

    fn state(&self) -> MutexGuard<'_, State<C::Entry>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends until nothing waits.
    async fn drain(self: Arc<Self>) {
        loop {
            let Ok(turn) = Arc::clone(&self.requests).acquire_owned().await else { return };
            if self.state().waiting.len() < self.limits.entries {
                tokio::time::sleep(self.limits.linger).await;
            }
            let (batch, is_last) = self.take();
            let own = Arc::clone(&self);
            spawn(async move {
                own.carry(batch).await;
                drop(turn);
            });
            if is_last {
                return;
            }
        }
    }

    /// What goes into the next request, and whether nothing is left behind it: then this task ends,
    /// and the next entry starts another.
    fn take(&self) -> (Vec<Waiting<C::Entry>>, bool) {
        let mut state = self.state();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < self.limits.entries {
            let Some(next) = state.waiting.front() else { break };
            bytes += self.carrier.bytes(&next.entry);
            if bytes > self.limits.bytes && !batch.is_empty() {
                break;
            }
            batch.extend(state.waiting.pop_front());
        }
        state.is_drained = !state.waiting.is_empty();
        (batch, !state.is_drained)
    }

    async fn carry(&self, batch: Vec<Waiting<C::Entry>>) {
        let entries = batch.iter().map(|waiting| waiting.entry.clone()).collect();
        let outcomes = self.carrier.send(entries).await;
        for (waiting, outcome) in batch.into_iter().zip(outcomes) {
            // Nobody waits for the outcome of an attempt that was cancelled.
            let _ = waiting.outcome.send(outcome);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a batch outlives the attempt that it began with")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what was sent together; an entry is its size.
    #[derive(Default)]
    struct Recorder {
        sent: Mutex<Vec<Vec<usize>>>,
    }

    impl Carrier for Recorder {
        type Entry = usize;

        fn bytes(&self, entry: &usize) -> usize {
            *entry
        }

        fn send(&self, entries: Vec<usize>) -> SinkFuture<'_, Vec<Outcome>> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let outcome = |size: &usize| Outcome::not_attempted(size.to_string());
                let outcomes = entries.iter().map(outcome).collect();
                self.sent.lock().unwrap().push(entries);
                outcomes
            })
        }
    }

    async fn deliver(limits: BatchLimits, sizes: Vec<usize>) -> Vec<Vec<usize>> {
        let batcher = Arc::new(Batcher::new(Recorder::default(), limits));
        let mut under_way = tokio::task::JoinSet::new();
        for size in sizes {
            let own = Arc::clone(&batcher);
            under_way.spawn(async move { (size, own.deliver(size).await) });
            tokio::task::yield_now().await;
        }
        while let Some(done) = under_way.join_next().await {
            let (size, outcome) = done.unwrap();
            assert_eq!(outcome, Outcome::not_attempted(size.to_string()), "its own outcome");
        }
        std::mem::take(&mut *batcher.carrier().sent.lock().unwrap())
    }

    fn limits(requests: usize) -> BatchLimits {
        // Long enough for all of a test to be due together on a busy machine.
        let linger = Duration::from_millis(100);
        BatchLimits { entries: 3, bytes: 100, linger, requests }
    }

    #[tokio::test]
    async fn what_is_due_together_is_sent_together_in_order() {
        let sent = deliver(limits(1), (1..=7).collect()).await;
        assert_eq!(sent, [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
    }

    #[tokio::test]
    async fn a_request_stays_within_its_bytes_and_a_large_entry_goes_alone() {
        let sent = deliver(limits(1), vec![60, 40, 1, 500, 2]).await;
        assert_eq!(sent, [vec![60, 40], vec![1], vec![500], vec![2]]);
    }

    #[tokio::test]
    async fn nothing_is_lost_or_answered_twice_under_load() {
        let limits = BatchLimits { linger: Duration::from_millis(1), ..limits(4) };
        let sent = deliver(limits, (1..=500).map(|n| n % 50 + 1).collect()).await;
        assert_eq!(sent.iter().map(Vec::len).sum::<usize>(), 500);
        assert!(sent.iter().all(|batch| batch.len() <= 3));
    }
}
