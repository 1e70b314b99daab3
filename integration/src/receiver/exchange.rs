//! One connection of a receiver: HTTP/1.1 read and answered by hand, so that nothing between the
//! wire and the record tidies anything up.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::{Behaviour, Request};
use crate::wait;

/// The largest body that is read, bytes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Serves requests until the connection ends.
pub(super) fn serve(
    stream: &TcpStream,
    mut take: impl FnMut(Request) -> Behaviour,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let behaviour = take(request);
        if !behave(stream, &mut reader, behaviour)? {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn line(reader: &mut BufReader<&TcpStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    Ok(line.strip_suffix(b"\r\n").unwrap_or(&line).to_vec())
}

/// The next request, none at the end of the connection.
fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let first = line(reader)?;
    if first.is_empty() {
        return Ok(None);
    }
    let first = String::from_utf8(first).map_err(|_| wrong("request line"))?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let line = line(reader)?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| wrong("header"))?;
        let name = String::from_utf8_lossy(&line[..colon]).into_owned();
        headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
    let mut request = Request { at_ms: 0, method, target, headers, body: Vec::new() };
    let length = request.text("Content-Length").map(str::parse::<usize>);
    let length = length.transpose().map_err(|_| wrong("length"))?.unwrap_or(0);
    if length > BODY_BYTES_MAX || !request.lines("Transfer-Encoding").is_empty() {
        return Err(wrong("a body that this receiver does not read"));
    }
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body)?;
    request.at_ms = wait::unix_ms();
    Ok(Some(request))
}

/// Does what the script says; whether the connection goes on.
fn behave(
    mut stream: &TcpStream,
    reader: &mut BufReader<&TcpStream>,
    behaviour: Behaviour,
) -> io::Result<bool> {
    match behaviour {
        Behaviour::Answer(status) => {
            let body = format!("this is {status}");
            let head = format!("HTTP/1.1 {status} Told\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes())?;
            Ok(true)
        }
        Behaviour::RetryAfter(status, seconds) => {
            let head = format!("HTTP/1.1 {status} Told\r\nContent-Length: 0\r\n");
            stream.write_all(format!("{head}Retry-After: {seconds}\r\n\r\n").as_bytes())?;
            Ok(true)
        }
        Behaviour::Redirect(to) => {
            let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ";
            stream.write_all(format!("{head}{to}\r\n\r\n").as_bytes())?;
            Ok(true)
        }
        Behaviour::Close => Ok(false),
        Behaviour::Hang => {
            gone(reader, None)?;
            Ok(false)
        }
        Behaviour::Endless(status) => {
            let head = format!("HTTP/1.1 {status} Told\r\nTransfer-Encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            let chunk = [&b"1000\r\n"[..], &[b'x'; 0x1000], b"\r\n"].concat();
            // Ends with the error of a sender that has had enough.
            loop {
                stream.write_all(&chunk)?;
            }
        }
        Behaviour::After(pause, then) => {
            if gone(reader, Some(pause))? {
                return Ok(false);
            }
            behave(stream, reader, *then)
        }
    }
}

/// Waits, at most so long, until the sender closes; whether it did. (A sender that goes on talking
/// before its answer is no sender of ours.)
fn gone(reader: &mut BufReader<&TcpStream>, within: Option<Duration>) -> io::Result<bool> {
    reader.get_ref().set_read_timeout(within)?;
    let read = reader.fill_buf().map(<[u8]>::is_empty);
    reader.get_ref().set_read_timeout(None)?;
    match read {
        Ok(at_end) => Ok(at_end),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
