//! A receiver that costs little: HTTP/1.1 with connections that stay open, one thread, an answer
//! without a body. It keeps the id and the time of each delivery, nothing else; what a request must
//! look like is for the tests and their receiver.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};

use crate::wait;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
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

type Arrivals = Arc<Mutex<Vec<Arrival>>>;

/// A running receiver; it ends with the process.
pub struct Hook {
    address: SocketAddr,
    arrivals: Arrivals,
}

impl Hook {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let arrivals = Arrivals::default();
        let own = Arc::clone(&arrivals);
        std::thread::Builder::new()
            .name("hook".into())
            .spawn(move || runtime.block_on(accept(listener, own)))?;
        Ok(Self { address, arrivals })
    }

    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many deliveries there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The deliveries behind the first so many.
    #[must_use]
    pub fn since(&self, count: usize) -> Vec<Arrival> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.get(count..).map(<[Arrival]>::to_vec).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, arrivals: Arrivals) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            Handle::current().spawn(serve(stream, Arc::clone(&arrivals)));
        }
    }
}

/// Answers requests until the connection ends.
async fn serve(stream: TcpStream, arrivals: Arrivals) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut chunk = vec![0; READ_BYTES];
    loop {
        while let Some(request) = parse(&buffer)? {
            buffer.drain(..request.bytes);
            if let Some(id) = request.id {
                let arrival = Arrival { id, at: wait::instant() };
                arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
            }
            write(&stream, ANSWER).await?;
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
    let bytes = head + 4 + length;
    let id = id.filter(|_| !probe);
    Ok((buffer.len() >= bytes).then_some(Request { bytes, id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_it_is_whole_and_a_probe_is_none() {
        let head = "POST /t HTTP/1.1\r\nContent-Length: 3\r\nx-lerian-event-id: e-1\r\n";
        let whole = format!("{head}\r\nabcPOST");
        let found = parse(whole.as_bytes()).unwrap();
        assert_eq!(found, Some(Request { bytes: whole.len() - 4, id: Some("e-1".to_owned()) }));
        assert_eq!(parse(&whole.as_bytes()[..whole.len() - 5]).unwrap(), None);
        assert_eq!(parse(head.as_bytes()).unwrap(), None);
        let probe = format!("{head}X-Lerian-Event-Type: subscription.verification\r\n\r\nabc");
        assert_eq!(parse(probe.as_bytes()).unwrap().unwrap().id, None);
    }
}
