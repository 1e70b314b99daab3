//! A webhook receiver on loopback that answers as it is told, path by path, and keeps every request
//! as it came: header lines in their order, body bytes, time.

mod exchange;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use crate::{signature, wait};

/// What the receiver does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with this status and a short body.
    Answer(u16),
    /// Answers with this status and a wish to be left alone for so many seconds.
    RetryAfter(u16, u32),
    /// Never answers, until the sender gives up.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// Sends the sender elsewhere.
    Redirect(String),
    /// Answers with this status and a body that never ends.
    Endless(u16),
    /// Does something after a while.
    After(Duration, Box<Behaviour>),
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// When it was read in full, Unix milliseconds.
    pub at_ms: i64,
    /// Its method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header lines in their order, names as they were written.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Request {
    /// The values of all lines of this name, in any case, in order.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<&[u8]> {
        let lines = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_slice()).collect()
    }

    /// The value of the only line of this name, as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.lines(name)[..] {
            [value] => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }

    /// Whether it is the test event of a verification.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.text("X-Lerian-Event-Type") == Some("subscription.verification")
    }

    /// Checks its signature with the secrets that are valid, the newest first.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify(&self, secrets: &[&str]) -> Result<(), signature::Fault> {
        signature::verify(
            &self.lines("X-Webhook-Timestamp"),
            &self.lines("X-Webhook-Signature"),
            (&self.body, self.at_ms),
            secrets,
        )
    }
}

/// What a path does, and how many requests it has had.
#[derive(Default)]
struct Script {
    behaviours: Vec<Behaviour>,
    had: usize,
}

#[derive(Default)]
struct Shared {
    scripts: Mutex<BTreeMap<String, Script>>,
    requests: Mutex<Vec<Arc<Request>>>,
    stopped: AtomicBool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Keeps a request and says what to do with it. Probes are always answered with 200: a script
    /// is about deliveries.
    fn take(&self, request: Request) -> Behaviour {
        let request = Arc::new(request);
        held(&self.requests).push(Arc::clone(&request));
        if request.is_probe() {
            return Behaviour::Answer(200);
        }
        let path = request.target.split('?').next().unwrap_or_default();
        let mut scripts = held(&self.scripts);
        let Some(script) = scripts.get_mut(path) else { return Behaviour::Answer(200) };
        let behaviour = script.behaviours.get(script.had).or(script.behaviours.last());
        script.had += 1;
        behaviour.cloned().unwrap_or(Behaviour::Answer(200))
    }
}

/// A receiver.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Starts a receiver on a free port. Every path answers 200 until it is told otherwise.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        wait::spawn(move || accept(&listener, &accepting));
        Ok(Self { address, shared })
    }

    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Lets a path behave so, request by request; the last goes on for ever.
    pub fn script(&self, path: &str, behaviours: &[Behaviour]) {
        let script = Script { behaviours: behaviours.to_vec(), had: 0 };
        held(&self.shared.scripts).insert(path.to_owned(), script);
    }

    /// All requests so far, probes included.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        held(&self.shared.requests).clone()
    }

    /// The deliveries to a path so far, in their order, without probes.
    #[must_use]
    pub fn deliveries(&self, path: &str) -> Vec<Arc<Request>> {
        let requests = held(&self.shared.requests);
        requests.iter().filter(|r| r.target == path && !r.is_probe()).cloned().collect()
    }

    /// How many deliveries there were, on all paths.
    #[must_use]
    pub fn delivered(&self) -> usize {
        held(&self.shared.requests).iter().filter(|request| !request.is_probe()).count()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread; it sees the mark and ends.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        wait::spawn(move || {
            // A connection that breaks is the sender's affair; what it sent in full is kept.
            let _ = exchange::serve(&stream, |request| shared.take(request));
        });
    }
}

#[cfg(test)]
mod tests;
