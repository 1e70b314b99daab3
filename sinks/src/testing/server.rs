//! A receiver of webhooks that speaks just enough HTTP/1.1 and keeps every byte it was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::HandshakeKind;

/// What a receiver does once it has read a request.
pub(crate) enum Reply {
    /// Sends these bytes and waits for the next request.
    Keep(Vec<u8>),
    /// The same, once a permit can be taken.
    After(Arc<Semaphore>, Vec<u8>),
    /// Sends these bytes and closes.
    Close(Vec<u8>),
    /// Sends these bytes and then nothing more.
    Hang(Vec<u8>),
    /// Sends these bytes and then others for as long as they are taken.
    Endless(Vec<u8>),
}

impl Reply {
    /// A whole answer of this status without a body.
    pub(crate) fn keep(status: u16) -> Self {
        Self::Keep(head(status, "Content-Length: 0\r\n"))
    }
}

/// The head of an answer, with these header lines.
pub(crate) fn head(status: u16, lines: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Whatever\r\n{lines}\r\n").into_bytes()
}

/// One request and the number of the connection that brought it.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) connection: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Received {
    fn head_len(&self) -> usize {
        self.bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4
    }

    /// The request line and the header lines.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        let head = &self.bytes[..self.head_len() - 4];
        head.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end().to_vec()).collect()
    }

    /// The values of all header lines of this name, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}: ");
        let value = |line: Vec<u8>| Some(line.strip_prefix(prefix.as_bytes())?.to_vec());
        let values = self.lines().into_iter().filter_map(value);
        values.map(|value| String::from_utf8(value).unwrap()).collect()
    }

    /// What follows the head.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.head_len()..]
    }
}

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) requests: Mutex<Vec<Received>>,
    /// Whether each TLS connection resumed a session, in order.
    pub(crate) resumed: Mutex<Vec<bool>>,
    pub(crate) accepted: AtomicUsize,
    pub(crate) open: AtomicUsize,
    /// The most connections that were open at once.
    pub(crate) peak: AtomicUsize,
    /// Bytes of endless bodies that were taken.
    pub(crate) endless: AtomicUsize,
}

type Script = dyn Fn(&Received) -> Reply + Send + Sync;

/// A running receiver; dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) record: Arc<Record>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A receiver of plain HTTP.
    pub(crate) async fn start(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(None, Arc::new(script)).await
    }

    /// A receiver of HTTPS.
    pub(crate) async fn start_tls(
        acceptor: TlsAcceptor,
        script: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(acceptor), Arc::new(script)).await
    }

    async fn listen(tls: Option<TlsAcceptor>, script: Arc<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Record::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, script, record.clone()));
        Self { address, record, _tasks: tasks }
    }

    /// Its plain URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Everything received so far.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.record.requests.lock().unwrap().clone()
    }

    /// The only request.
    pub(crate) fn request(&self) -> Received {
        let requests = self.requests();
        assert_eq!(requests.len(), 1);
        requests[0].clone()
    }
}

/// Waits until it holds, ten seconds at most.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("it never came true");
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    script: Arc<Script>,
    record: Arc<Record>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = record.accepted.fetch_add(1, SeqCst);
        record.peak.fetch_max(record.open.fetch_add(1, SeqCst) + 1, SeqCst);
        let (tls, script, record) = (tls.clone(), script.clone(), record.clone());
        connections.spawn(async move {
            serve_either(stream, tls, connection, (&*script, &record)).await;
            record.open.fetch_sub(1, SeqCst);
        });
    }
}

async fn serve_either(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    connection: usize,
    ground: (&Script, &Record),
) {
    let Some(tls) = tls else { return serve(stream, connection, ground).await };
    let Ok(stream) = tls.accept(stream).await else { return };
    let kind = stream.get_ref().1.handshake_kind();
    ground.1.resumed.lock().unwrap().push(kind == Some(HandshakeKind::Resumed));
    serve(stream, connection, ground).await;
}

async fn serve<S>(mut stream: S, connection: usize, (script, record): (&Script, &Record))
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(bytes) = read_request(&mut stream).await {
        let received = Received { connection, bytes };
        record.requests.lock().unwrap().push(received.clone());
        match script(&received) {
            Reply::Keep(bytes) => stream.write_all(&bytes).await.unwrap_or_default(),
            Reply::After(gate, bytes) => {
                gate.acquire().await.unwrap().forget();
                stream.write_all(&bytes).await.unwrap_or_default();
            }
            Reply::Close(bytes) => {
                stream.write_all(&bytes).await.unwrap_or_default();
                return stream.shutdown().await.unwrap_or_default();
            }
            Reply::Hang(bytes) => {
                stream.write_all(&bytes).await.unwrap_or_default();
                // Ends when the other side goes.
                return drop(stream.read(&mut [0]).await);
            }
            Reply::Endless(bytes) => {
                stream.write_all(&bytes).await.unwrap_or_default();
                while stream.write_all(&[b'x'; 1024]).await.is_ok() {
                    record.endless.fetch_add(1024, SeqCst);
                }
                return;
            }
        }
    }
}

/// Reads one request with its body, none when the connection ends.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut missing = 1;
    while missing > 0 {
        let mut buffer = [0; 4096];
        let len =
            stream.read(&mut buffer[..missing.min(4096)]).await.ok().filter(|len| *len > 0)?;
        bytes.extend_from_slice(&buffer[..len]);
        missing = match bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            None => 1,
            Some(end) => end + 4 + content_length(&bytes[..end]) - bytes.len(),
        };
    }
    Some(bytes)
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.map_or(0, |value| value.trim().parse().unwrap())
}
