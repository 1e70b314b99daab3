//! A consumer that reads pages over one connection, as cheaply as it can: of a page only its cursor
//! and its size are looked at. What pages hold is for the tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::config::token_of;

/// Longer than any wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A consumer of one subscription.
pub(super) struct Consumer {
    stream: BufReader<TcpStream>,
    id: String,
    head: String,
    body: Vec<u8>,
    /// The last `seq` that it has.
    pub(super) processed: u64,
}

impl Consumer {
    /// A consumer of a tenant's subscription at this address.
    pub(super) fn connect(address: SocketAddr, tenant: &str, id: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let token = token_of(Some(tenant));
        let head = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        let stream = BufReader::with_capacity(128 * 1024, stream);
        Ok(Self { stream, id: id.to_owned(), head, body: Vec::new(), processed: 0 })
    }

    /// The next page: its bytes. It is empty when the cursor stays.
    pub(super) fn read(&mut self, more: &str) -> Result<&[u8]> {
        let Self { id, processed, head, .. } = self;
        let target = format!("/v1/events?subscription_id={id}&after={processed}{more}");
        let request = format!("GET {target} HTTP/1.1\r\n{head}");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (status, length) = self.head()?;
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        let text = String::from_utf8_lossy(&self.body[length.saturating_sub(64)..]);
        if status != 200 {
            bail!("a page: {status} {text}");
        }
        let cursor = text.rsplit_once("\"cursor\":").map(|(_, rest)| rest.trim_end_matches('}'));
        self.processed = cursor.context("no cursor")?.parse()?;
        Ok(&self.body)
    }

    /// Status and length of an answer.
    fn head(&mut self) -> Result<(u16, usize)> {
        let (mut status, mut length, mut line) = (None, None, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the connection ended");
            }
            let own = line.trim_end();
            if own.is_empty() {
                return status.zip(length).context("an answer without status or length");
            }
            if status.is_none() {
                status = own.split(' ').nth(1).and_then(|status| status.parse().ok());
            } else if let Some((name, value)) = own.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
        }
    }
}
