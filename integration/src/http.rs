//! The few lines of HTTP that asking a hub takes: one request a connection, plain text.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// How long an answer is waited for: longer than the hub's own limit of a request.
const TIMEOUT: Duration = Duration::from_secs(40);

/// One request.
#[derive(Debug, Default)]
pub struct Ask<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Bearer token.
    pub token: Option<&'a str>,
    /// JSON body.
    pub body: Option<&'a Value>,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body as text.
    pub body: String,
    /// The lines of its head.
    head: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut own = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        own.next().map(|(_, value)| value.trim())
    }
}

/// Sends a request and reads its answer.
///
/// # Errors
/// No connection, no answer in time, or none that can be read.
pub fn ask(address: SocketAddr, ask: &Ask<'_>) -> Result<Answer> {
    ask_with(address, ask, &[])
}

/// [`ask()`] with further headers.
///
/// # Errors
/// As [`ask()`].
pub fn ask_with(address: SocketAddr, ask: &Ask<'_>, headers: &[(&str, &str)]) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request(address, ask, headers).as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).with_context(|| format!("{} {}", ask.method, ask.target))
}

fn request(address: SocketAddr, ask: &Ask<'_>, headers: &[(&str, &str)]) -> String {
    let mut text = format!(
        "{} {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n",
        ask.method, ask.target
    );
    if let Some(token) = ask.token {
        text += &format!("Authorization: Bearer {token}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    let body = ask.body.map(Value::to_string).unwrap_or_default();
    if ask.body.is_some() {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    text + "\r\n" + &body
}

fn parse(bytes: &[u8]) -> Result<Answer> {
    let text = std::str::from_utf8(bytes).context("an answer that is no text")?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        bail!("an answer of {} bytes without an end of its head", bytes.len());
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body)? } else { body.to_owned() };
    let status = status.context("an answer without a status")?;
    Ok(Answer { status, body, head: head.to_owned() })
}

fn unchunked(mut rest: &str) -> Result<String> {
    let mut body = String::new();
    loop {
        let (size, data) = rest.split_once("\r\n").context("a chunk without a size")?;
        let size = usize::from_str_radix(size.trim(), 16)?;
        let chunk = data.get(..size).context("a chunk that is cut")?;
        if size == 0 {
            return Ok(body);
        }
        body.push_str(chunk);
        rest = data[size..].trim_start_matches("\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_and_in_chunks() {
        let whole = parse(b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\n{\"x\":1}").unwrap();
        assert_eq!((whole.status, whole.json()["x"].as_i64()), (404, Some(1)));
        assert_eq!((whole.header("A"), whole.header("b")), (Some("b"), None));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let cut = parse(format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(cut.body, "abcde");
        assert!(parse(b"HTTP/1.1 200").is_err());
    }
}
