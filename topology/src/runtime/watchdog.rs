//! The watchdog over blocking calls (design 6): a thread inside librdkafka cannot be stopped, so
//! when one does not come back, the process ends with a message that says where it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Watch;

/// Exit code of a process that its watchdog ended.
pub const EXIT_STUCK: i32 = 70;

/// Milliseconds since the watchdog's start at which a thread entered a blocking call; 0 outside.
#[derive(Debug, Default)]
struct Post {
    name: String,
    entered_ms: AtomicU64,
}

/// Watches stream threads.
pub struct Watchdog {
    started: Watch,
    limit: Duration,
    posts: Mutex<Vec<Arc<Post>>>,
}

/// One thread's post: says when it is inside a blocking call.
#[derive(Clone)]
pub struct Guard {
    started: Watch,
    post: Arc<Post>,
}

impl Watchdog {
    /// A watchdog that lets one call take `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self { started: Watch::start(), limit, posts: Mutex::new(Vec::new()) })
    }

    /// A post for the thread of this name.
    #[must_use]
    pub fn guard(&self, name: &str) -> Guard {
        let post = Arc::new(Post { name: name.to_owned(), entered_ms: AtomicU64::new(0) });
        if let Ok(mut posts) = self.posts.lock() {
            posts.push(Arc::clone(&post));
        }
        Guard { started: self.started, post }
    }

    /// The name of a thread that has been inside one call for longer than the limit.
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        let now = millis(self.started);
        let limit = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        let posts = self.posts.lock().ok()?;
        let late = posts.iter().find(|post| {
            let entered = post.entered_ms.load(Ordering::Relaxed);
            entered > 0 && now.saturating_sub(entered) > limit
        });
        late.map(|post| post.name.clone())
    }

    /// Looks once a second until `stop` says so; ends the process when a thread is stuck.
    pub fn watch(&self, stop: impl Fn() -> bool) {
        while !stop() {
            std::thread::park_timeout(Duration::from_secs(1));
            if let Some(name) = self.stuck() {
                tracing::error!(
                    thread = name,
                    limit_s = self.limit.as_secs(),
                    "a call into the Kafka client did not return; the process ends so that \
                     another instance or a restart takes over"
                );
                std::process::exit(EXIT_STUCK);
            }
        }
    }
}

impl Guard {
    /// Runs a call that may block.
    pub fn watched<R>(&self, call: impl FnOnce() -> R) -> R {
        self.post.entered_ms.store(millis(self.started).max(1), Ordering::Relaxed);
        let result = call();
        self.post.entered_ms.store(0, Ordering::Relaxed);
        result
    }
}

fn millis(since: Watch) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_does_not_return_is_noticed_and_one_that_does_is_not() {
        let dog = Watchdog::new(Duration::ZERO);
        let guard = dog.guard("match-0");
        assert_eq!(dog.stuck(), None);
        guard.watched(|| {
            let waited = Watch::start();
            while dog.stuck().is_none() {
                assert!(waited.elapsed() < Duration::from_secs(5), "never noticed");
            }
            assert_eq!(dog.stuck(), Some("match-0".to_owned()));
        });
        assert_eq!(dog.stuck(), None);
    }
}
