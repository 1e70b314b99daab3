//! HTTPS: whom the sink trusts, what a failed handshake is called, HTTP/2, and sessions.

use std::io::Write;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;
use crate::testing::server::{Reply, Server, head};

/// A certificate authority that nobody knows, and its file.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: tempfile::NamedTempFile,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(issuer.pem().as_bytes()).unwrap();
        Self { issuer, file }
    }

    /// A server's configuration with a certificate for `hooks.test`.
    fn server(&self, alpn: &[&str], wants_client_certificate: bool) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["hooks.test".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match wants_client_certificate {
            true => builder.with_client_cert_verifier(self.client_verifier().unwrap()),
            false => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    fn client_verifier(
        &self,
    ) -> Result<
        Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>,
        VerifierBuilderError,
    > {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()
    }

    fn settings(&self) -> WebhookSettings {
        let ca_file = Some(self.file.path().to_owned());
        WebhookSettings { ca_file, ..WebhookSettings::default() }
    }
}

fn draft(host: &str, port: u16) -> Draft {
    Draft::new(format!("https://{host}:{port}/hook"))
}

#[tokio::test]
async fn a_receiver_is_trusted_by_the_configured_authority_and_by_its_name() {
    let authority = Authority::new();
    let server = Server::start_tls(authority.server(&[], false), |_| Reply::keep(200)).await;
    let port = server.address.port();
    let trusting = sink(authority.settings());
    let outcome = draft("hooks.test", port).deliver_by(&trusting).await;
    assert!(is_delivered(&outcome), "{outcome:?}");
    let stranger = draft("hooks.test", port).deliver_by(&sink(WebhookSettings::default())).await;
    assert_eq!(class(&stranger), Some(ErrorClass::Tls), "{stranger:?}");
    let misnamed = draft("other.test", port).deliver_by(&trusting).await;
    assert_eq!(class(&misnamed), Some(ErrorClass::Tls), "{misnamed:?}");
    assert!(detail(&misnamed).starts_with("no TLS connection: "), "{misnamed:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_failed_handshake_is_a_tls_failure() {
    let sink = sink(WebhookSettings::default());
    // A port that answers in plain HTTP, one that closes, and one that speaks no TLS at all.
    for plain in [head(400, ""), Vec::new(), b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            stream.write_all(&plain).await.unwrap();
        });
        let outcome = draft("hooks.test", port).deliver_by(&sink).await;
        assert_eq!(class(&outcome), Some(ErrorClass::Tls), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_wants_a_client_certificate_is_a_tls_failure() {
    let authority = Authority::new();
    let server = Server::start_tls(authority.server(&[], true), |_| Reply::keep(200)).await;
    let outcome =
        draft("hooks.test", server.address.port()).deliver_by(&sink(authority.settings())).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Tls), "{outcome:?}");
}

#[tokio::test]
async fn a_tls_session_is_resumed_by_its_own_tenant_only() {
    let authority = Authority::new();
    let closing = || Reply::Close(head(200, "Connection: close\r\nContent-Length: 0\r\n"));
    let server = Server::start_tls(authority.server(&[], false), move |_| closing()).await;
    let sink = sink(authority.settings());
    for tenant in ["a", "a", "b", "b", "a"] {
        let draft = draft("hooks.test", server.address.port()).tenant(tenant);
        let outcome = draft.deliver_by(&sink).await;
        assert!(is_delivered(&outcome), "{outcome:?}");
    }
    assert_eq!(*server.record.resumed.lock().unwrap(), [false, true, false, true, true]);
}

#[tokio::test]
async fn a_receiver_that_offers_http2_gets_it_with_separate_signature_lines() {
    let authority = Authority::new();
    let acceptor = authority.server(&["h2", "http/1.1"], false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut receiver = JoinSet::new();
    receiver.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut received = Vec::new();
        while let Some(Ok((mut request, mut respond))) = connection.accept().await {
            let mut body = Vec::new();
            while let Some(Ok(chunk)) = request.body_mut().data().await {
                body.extend_from_slice(&chunk);
            }
            received.push((request.headers().clone(), body));
            respond.send_response(reply(received.len()), true).unwrap();
            if received.len() == 2 {
                connection.graceful_shutdown();
            }
        }
        received
    });
    let sink = sink(authority.settings());
    let mut draft = draft("hooks.test", port).tenant("São João");
    draft.secrets.push(("whsec_0", None));
    let first = draft.deliver_by(&sink).await;
    assert!(is_delivered(&first), "{first:?}");
    let second = draft.deliver_by(&sink).await;
    assert_eq!(class(&second), Some(ErrorClass::Http5xx), "{second:?}");
    drop(sink);
    let received = receiver.join_next().await.unwrap().unwrap();
    assert_eq!(received.len(), 2, "both came over one connection");
    for (headers, body) in received {
        assert_eq!(headers.get_all("x-webhook-signature").iter().count(), 2);
        assert_eq!(headers["x-lerian-tenant-id"].as_bytes(), "São João".as_bytes());
        assert_eq!(body, draft.payload);
    }
}

/// 200 first and 500 then.
fn reply(count: usize) -> ::http::Response<()> {
    let status = if count == 1 { 200 } else { 500 };
    ::http::Response::builder().status(status).body(()).unwrap()
}

#[test]
fn a_ca_file_without_a_certificate_stops_the_start() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let missing = empty.path().with_extension("missing");
    let mut broken = tempfile::NamedTempFile::new().unwrap();
    broken.write_all(b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    for path in [empty.path().to_owned(), missing, broken.path().to_owned()] {
        let settings = WebhookSettings { ca_file: Some(path), ..WebhookSettings::default() };
        let resolver = Resolver::new(policy(true));
        let made = Webhook::new(settings, resolver, keyring(), Arc::new(Still));
        assert!(matches!(made, Err(Error::CaFile { .. })));
    }
}
