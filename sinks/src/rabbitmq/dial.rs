//! How a broker is reached: a name resolved under the address guard, a connection to exactly an
//! address that was judged, TLS over it where the subscription asks for it, and only then AMQP. The
//! client library gets an open stream; it resolves and dials nothing itself.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_compat::Compat;
use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_core::Stream;
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;
use secrecy::ExposeSecret;
use streaming_hub_model::attempt::{ErrorClass, Outcome};
use streaming_hub_model::sink_config::RabbitMqConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::link::Login;
use super::{RabbitMqSettings, classify};
use crate::Error;
use crate::resolver::Resolver;

/// Opens connections.
pub(super) struct Dialer {
    resolver: Resolver,
    provider: Arc<CryptoProvider>,
    /// For brokers whose certificate the machine's roots vouch for.
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    heartbeat_s: u16,
}

/// A stream to a broker, encrypted or not.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
type BoxedIo = Compat<Box<dyn Io>>;

impl Dialer {
    pub(super) fn new(settings: &RabbitMqSettings, resolver: Resolver) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(Arc::clone(&provider))?;
        let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            // "Dangerous" names any verifier of one's own; this one is the platform's.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self {
            resolver,
            provider,
            tls: Arc::new(tls),
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            heartbeat_s: settings.heartbeat_s,
        })
    }

    /// Whether the certificates that a subscription brings can be used.
    pub(super) fn check(&self, config: &RabbitMqConfig) -> Result<(), String> {
        self.tls_of(config).map(|_| ())
    }

    /// An open connection.
    ///
    /// # Errors
    /// The outcome of the attempts that waited for it.
    pub(super) async fn dial(&self, login: &Login) -> Result<Connection, Outcome> {
        match tokio::time::timeout(self.connect_timeout, self.open(login)).await {
            Ok(result) => result,
            Err(_) => {
                let ms = self.connect_timeout.as_millis();
                Err(Outcome::failed(ErrorClass::Connect, format!("no connection within {ms} ms")))
            }
        }
    }

    async fn open(&self, login: &Login) -> Result<Connection, Outcome> {
        let stream = self.stream(&login.config).await?;
        let runtime = Runtime::new(RuntimeParts::new(Tokio::current(), Opened(Tokio::current())));
        // The library asks once; it is told not to dial again by itself.
        let stream = Mutex::new(Some(stream));
        let connect = async move |_, _| {
            let taken = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
            let stream = taken.ok_or_else(|| lapin::Error::from(io::Error::other(TAKEN)))?;
            Ok(AsyncTcpStream::Plain(stream))
        };
        let properties =
            ConnectionProperties::default().with_connection_name("streaming-hub".into());
        let opened = Connection::connector(self.uri(login), runtime, connect, properties).await;
        opened.map_err(|error| classify::outcome(&error))
    }

    fn uri(&self, login: &Login) -> AMQPUri {
        let config = &login.config;
        AMQPUri {
            // TLS is below it already.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: config.username.clone(),
                    password: login.password.expose_secret().to_owned(),
                },
                host: config.host.clone(),
                port: config.port,
            },
            vhost: config.vhost.clone(),
            query: AMQPQueryString {
                heartbeat: Some(self.heartbeat_s),
                ..AMQPQueryString::default()
            },
        }
    }

    /// A stream to one of the addresses that the guard admits.
    async fn stream(&self, config: &RabbitMqConfig) -> Result<BoxedIo, Outcome> {
        let addresses =
            self.resolver.addresses(&config.host).await.map_err(|error| match error.class() {
                Some(class) => Outcome::failed(class, error.to_string()),
                None => Outcome::not_attempted(error.to_string()),
            })?;
        let tcp = first_of(&addresses, config.port).await;
        let tcp = tcp.map_err(|error| {
            Outcome::failed(ErrorClass::Connect, format!("no connection: {error}"))
        })?;
        if !config.tls {
            return Ok(Compat::new(Box::new(tcp)));
        }
        let refused = |detail: String| Outcome::failed(ErrorClass::Tls, detail);
        let tls = self.tls_of(config).map_err(refused)?;
        let name = config.server_name.as_ref().unwrap_or(&config.host);
        let name = ServerName::try_from(name.clone())
            .map_err(|_| refused("the server name is no host name".to_owned()))?;
        let encrypted = TlsConnector::from(tls).connect(name, tcp).await;
        let encrypted =
            encrypted.map_err(|error| refused(format!("no TLS connection: {error}")))?;
        Ok(Compat::new(Box::new(encrypted)))
    }

    /// The subscription's own certificates, where it has some, are trusted, not the machine's.
    fn tls_of(&self, config: &RabbitMqConfig) -> Result<Arc<ClientConfig>, String> {
        let Some(pem) = &config.ca_pem else { return Ok(Arc::clone(&self.tls)) };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| "holds no valid PEM".to_owned())?;
            roots.add(certificate).map_err(|_| "holds no valid certificate".to_owned())?;
        }
        if roots.is_empty() {
            return Err("holds no certificate in PEM".to_owned());
        }
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

const TAKEN: &str = "the connection was used already";

/// A connection to the first address that answers.
async fn first_of(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for ip in addresses {
        match TcpStream::connect(SocketAddr::new(*ip, port)).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Tokio, for a stream that is open already: nothing can be dialled through it.
#[derive(Debug, Clone)]
struct Opened(Tokio);

impl Reactor for Opened {
    type TcpStream = BoxedIo;
    type Sleep = tokio::time::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl futures_io::AsyncRead + futures_io::AsyncWrite + Send + Unpin + 'static>
    {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        std::future::ready(Err(io::Error::other("only checked addresses are dialled")))
    }
}
