//! The server over real sockets: what a stop does to each kind of connection.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::serve;
use crate::testing::{ACME, Harness};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "a server beside its client")]
async fn served(harness: &Harness, drain: Duration) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move { stopped.await.unwrap() };
    let server = tokio::spawn(serve(listener, harness.router.clone(), shutdown, drain));
    Served { address, stop, server }
}

/// Sends a request on a connection that it keeps, and reads until `end` was read.
async fn exchange(stream: &mut TcpStream, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains(end) {
        let mut chunk = [0; 4096];
        let read = timeout(SOON, stream.read(&mut chunk)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
    }
    text
}

#[tokio::test]
async fn a_stop_closes_idle_connections_and_takes_no_new_one() {
    let served = served(&Harness::new(), SOON).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    let _silent = TcpStream::connect(served.address).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n";
    let answer = exchange(&mut idle, request, "alive").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let before = Instant::now();
    served.stop.send(()).unwrap();
    timeout(SOON, served.server).await.unwrap().unwrap().unwrap();
    assert!(before.elapsed() < SOON / 2, "an idle connection held the stop");
    assert_eq!(timeout(SOON, idle.read(&mut [0; 9])).await.unwrap().unwrap(), 0);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn a_stop_lets_a_running_request_finish() {
    let harness = Harness::new();
    let id = harness.created().await;
    *harness.hub.attempt_takes.lock().unwrap() = Duration::from_millis(300);
    let served = served(&harness, SOON).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = format!(
        "POST /v1/subscriptions/{id}/verify HTTP/1.1\r\nhost: hub\r\n\
         authorization: Bearer {ACME}\r\ncontent-length: 0\r\n\r\n"
    );
    let answer = async {
        let answer = exchange(&mut stream, &request, "\"verification_state\"").await;
        assert!(answer.contains("\"active\""), "{answer}");
    };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        served.stop.send(()).unwrap();
    };
    tokio::join!(answer, stop);
    timeout(SOON, served.server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_holds_the_stop_no_longer_than_the_deadline() {
    const DRAIN: Duration = Duration::from_millis(100);
    let served = served(&Harness::new(), DRAIN).await;
    let mut stuck = TcpStream::connect(served.address).await.unwrap();
    let begun = format!(
        "POST /v1/subscriptions HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {ACME}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stuck.write_all(begun.as_bytes()).await.unwrap();
    let mut other = TcpStream::connect(served.address).await.unwrap();
    exchange(&mut other, "GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n", "alive").await;
    let before = Instant::now();
    served.stop.send(()).unwrap();
    timeout(SOON, served.server).await.unwrap().unwrap().unwrap();
    assert!(before.elapsed() >= DRAIN, "the request was not waited for");
}

#[tokio::test]
async fn headers_beyond_the_limits_are_refused() {
    let served = served(&Harness::new(), SOON).await;
    let large = |bytes: usize| format!("x-a: {}\r\n", "a".repeat(bytes));
    let many = |count| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let (bytes_max, count_max) = (super::HEADER_BYTES_MAX, super::HEADERS_MAX);
    let problem = "\"code\":\"headers_too_large\"";
    // What is far beyond them is not read to its end, and nobody is there to write a body.
    let cases = [
        (large(bytes_max), problem),
        (many(count_max), problem),
        (large(4 * bytes_max), "\r\n\r\n"),
        (many(3 * count_max), "\r\n\r\n"),
    ];
    for (headers, end) in cases {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nhost: hub\r\n{headers}\r\n");
        let answer = exchange(&mut stream, &request, end).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    served.stop.send(()).unwrap();
}
