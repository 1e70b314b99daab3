//! A receiver that costs little: HTTP/1.1 with connections that stay open, one thread, an answer
//! without a body. It keeps the id and the time of each delivery, nothing else; what a request must
//! look like is for the tests and their receiver. It may have several hosts, loopback addresses of
//! their own: one host's connections are limited. What it does with deliveries to paths that begin
//! with [`TOLD`] is told meanwhile; all others are answered at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};

use crate::wait;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const REFUSAL: &[u8] = b"HTTP/1.1 503 Told\r\nContent-Length: 0\r\n\r\n";
/// Paths that begin so are answered as [`Hook::behave`] says.
pub const TOLD: &str = "/told/";
/// Longer than a sender waits.
const HANG: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// A delivery: the event's id, and when it was read in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The event's id.
    pub id: String,
    /// When.
    pub at: Instant,
}

/// What becomes of deliveries to the paths below [`TOLD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Taken, after so many milliseconds.
    After(u64),
    /// Answered with 503 at once.
    Refuse,
    /// Not answered.
    Hang,
}

const REFUSE: u64 = u64::MAX;
const NEVER: u64 = u64::MAX - 1;

#[derive(Default)]
struct Shared {
    arrivals: Mutex<Vec<Arrival>>,
    /// A [`Manner`]: milliseconds, [`REFUSE`] or [`NEVER`].
    manner: AtomicU64,
}

impl Shared {
    fn keep(&self, id: String) {
        let arrival = Arrival { id, at: wait::instant() };
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
    }
}

/// A running receiver; it ends with the process.
pub struct Hook {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

impl Hook {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start() -> Result<Self> {
        Self::start_at(&[Ipv4Addr::LOCALHOST])
    }

    /// Starts it on a free port of each of these addresses.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start_at(hosts: &[Ipv4Addr]) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (shared, mut addresses) = (Arc::<Shared>::default(), Vec::new());
        for host in hosts {
            let listener = runtime.block_on(TcpListener::bind((*host, 0)))?;
            addresses.push(listener.local_addr()?);
            runtime.spawn(accept(listener, Arc::clone(&shared)));
        }
        std::thread::Builder::new()
            .name("hook".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(Self { addresses, shared })
    }

    /// The URL of a path at the first host.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        self.url_at(0, path)
    }

    /// The URL of a path at the host of this number; they go round.
    #[must_use]
    pub fn url_at(&self, host: usize, path: &str) -> String {
        format!("http://{}{path}", self.addresses[host % self.addresses.len()])
    }

    /// What becomes of deliveries to paths below [`TOLD`] from now on.
    pub fn behave(&self, manner: Manner) {
        let coded = match manner {
            Manner::After(ms) => ms,
            Manner::Refuse => REFUSE,
            Manner::Hang => NEVER,
        };
        self.shared.manner.store(coded, Ordering::Relaxed);
    }

    /// How many deliveries there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The deliveries behind the first so many.
    #[must_use]
    pub fn since(&self, count: usize) -> Vec<Arrival> {
        let arrivals = self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.get(count..).map(<[Arrival]>::to_vec).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            Handle::current().spawn(serve(stream, Arc::clone(&shared)));
        }
    }
}

/// Answers requests until the connection ends.
async fn serve(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut chunk = vec![0; READ_BYTES];
    loop {
        while let Some(request) = parse(&buffer)? {
            buffer.drain(..request.bytes);
            let told = request.told && request.id.is_some();
            if let Some(id) = request.id {
                shared.keep(id);
            }
            let answer = match shared.manner.load(Ordering::Relaxed) {
                REFUSE if told => REFUSAL,
                NEVER if told => {
                    tokio::time::sleep(HANG).await;
                    return Ok(());
                }
                ms if told && ms > 0 => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    ANSWER
                }
                _ => ANSWER,
            };
            write(&stream, answer).await?;
        }
        match read(&stream, &mut chunk).await? {
            0 => return Ok(()),
            count => buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

async fn read(stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => bytes = &bytes[done?..],
        }
    }
    Ok(())
}

/// A whole request at the beginning of a buffer.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    bytes: usize,
    /// The event's id; none for the probe of a verification.
    id: Option<String>,
    /// Whether its path is below [`TOLD`].
    told: bool,
}

/// The first request, none while it is not whole.
fn parse(buffer: &[u8]) -> io::Result<Option<Request>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let Some(head) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&buffer[..head]).map_err(|_| wrong("a head that is no text"))?;
    let (mut length, mut id, mut probe) = (0, None, false);
    for line in text.split("\r\n").skip(1).take(HEADERS_MAX) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().map_err(|_| wrong("a length that is no number"))?;
        } else if name.eq_ignore_ascii_case("x-lerian-event-id") {
            id = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("x-lerian-event-type") {
            probe = value == "subscription.verification";
        }
    }
    let told = text.strip_prefix("POST ").is_some_and(|rest| rest.starts_with(TOLD));
    let bytes = head + 4 + length;
    let id = id.filter(|_| !probe);
    Ok((buffer.len() >= bytes).then_some(Request { bytes, id, told }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_it_is_whole_and_a_probe_is_none() {
        let head = "POST /t HTTP/1.1\r\nContent-Length: 3\r\nx-lerian-event-id: e-1\r\n";
        let whole = format!("{head}\r\nabcPOST");
        let found = parse(whole.as_bytes()).unwrap();
        let (bytes, id) = (whole.len() - 4, Some("e-1".to_owned()));
        assert_eq!(found, Some(Request { bytes, id, told: false }));
        let told = parse(whole.replace("/t ", "/told/t ").as_bytes()).unwrap();
        assert!(told.unwrap().told);
        assert_eq!(parse(&whole.as_bytes()[..whole.len() - 5]).unwrap(), None);
        assert_eq!(parse(head.as_bytes()).unwrap(), None);
        let probe = format!("{head}X-Lerian-Event-Type: subscription.verification\r\n\r\nabc");
        assert_eq!(parse(probe.as_bytes()).unwrap().unwrap().id, None);
    }
}
