//! Tokens signed with private keys: RS256, ES256 and EdDSA, by keys of the configuration and by
//! those of a JWKS server that rotates them, is slow to know them, or is away. The keys in
//! `testing/` were made for these tests and are of no use elsewhere.

use std::sync::atomic::AtomicU32;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;

use super::*;

const JWKS: &str = include_str!("../testing/jwks.json");
/// A key that nobody is told of.
const STRANGER: &str = "s1";

/// The algorithms of the default configuration, with the id and the private half of a key.
fn pairs() -> [(Algorithm, &'static str, EncodingKey); 3] {
    [
        (Algorithm::RS256, "r1", EncodingKey::from_rsa_der(include_bytes!("../testing/rsa.der"))),
        (Algorithm::ES256, "e1", EncodingKey::from_ec_der(include_bytes!("../testing/ec.p8"))),
        (Algorithm::EdDSA, "d1", EncodingKey::from_ed_der(include_bytes!("../testing/ed.p8"))),
    ]
}

fn public() -> JwtSettings {
    let algorithms = ["RS256", "ES256", "EdDSA"].map(str::to_owned).into();
    JwtSettings { algorithms, keys: Some(JWKS.into()), ..settings() }
}

fn token(algorithm: Algorithm, kid: &str, key: &EncodingKey) -> String {
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
    encode(&header, &claims(), key).unwrap()
}

/// A JWKS document with these keys only.
fn only(kids: &[&str]) -> String {
    let mut document: Value = serde_json::from_str(JWKS).unwrap();
    let keys = document["keys"].as_array_mut().unwrap();
    keys.retain(|key| kids.contains(&key["kid"].as_str().unwrap()));
    document.to_string()
}

#[tokio::test]
async fn each_kind_of_key_verifies_its_own_signatures_only() {
    let jwt = verifier(public());
    let pairs = pairs();
    for (algorithm, kid, key) in &pairs {
        let good = token(*algorithm, kid, key);
        assert_eq!(jwt.verify(good.as_bytes()).await, acme(), "{algorithm:?}");
        // The last byte of a signature, and a byte of what is signed.
        for at in [good.len() - 3, good.find('.').unwrap() + 5] {
            let mut altered = good.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(jwt.verify(&altered).await, None, "{algorithm:?}");
        }
        for (_, other, _) in pairs.iter().filter(|(_, other, _)| other != kid) {
            let wrong = token(*algorithm, other, key);
            assert_eq!(jwt.verify(wrong.as_bytes()).await, None, "{algorithm:?} as {other}");
        }
        let one = JwtSettings { keys: Some(only(&[kid])), ..public() };
        assert_eq!(verifier(one).verify(good.as_bytes()).await, acme());
        let others: Vec<_> = ["r1", "e1", "d1"].into_iter().filter(|id| id != kid).collect();
        let others = JwtSettings { keys: Some(only(&others)), ..public() };
        assert_eq!(verifier(others).verify(good.as_bytes()).await, None);
    }
}

#[tokio::test]
async fn a_public_key_is_never_a_shared_secret_and_none_is_no_algorithm() {
    let every = ["HS256", "RS256", "ES256", "EdDSA"].map(str::to_owned).to_vec();
    let jwt = verifier(JwtSettings { algorithms: every, ..public() });
    let document: Value = serde_json::from_str(JWKS).unwrap();
    for key in document["keys"].as_array().unwrap() {
        let kid = key["kid"].as_str().unwrap();
        // Whatever a careless verifier might take for the secret.
        let mut secrets = vec![key.to_string(), JWKS.to_owned()];
        secrets
            .extend(["n", "x", "y"].iter().filter_map(|name| key[name].as_str()).map(Into::into));
        let bytes: Vec<Vec<u8>> = secrets.iter().map(|text| text.clone().into_bytes()).collect();
        let decoded = secrets.iter().filter_map(|text| BASE64_URL.decode(text).ok());
        for secret in bytes.into_iter().chain(decoded) {
            let forged = signed(Algorithm::HS256, Some(kid), &claims(), &secret);
            assert_eq!(jwt.verify(forged.as_bytes()).await, None, "{kid}");
        }
        for alg in ["none", "None", "NONE", ""] {
            let head = BASE64_URL.encode(json!({"alg": alg, "kid": kid}).to_string());
            let payload = BASE64_URL.encode(claims().to_string());
            for unsigned in [format!("{head}.{payload}."), format!("{head}.{payload}")] {
                assert_eq!(jwt.verify(unsigned.as_bytes()).await, None, "{unsigned}");
            }
        }
    }
}

/// A JWKS server: what it answers, and how often it was asked.
#[derive(Clone)]
struct Server {
    answer: Arc<std::sync::Mutex<(StatusCode, String)>>,
    asked: Arc<AtomicU32>,
    url: Url,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a server beside its client")]
    async fn start(document: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap()).parse().unwrap();
        let answer = Arc::new(std::sync::Mutex::new((StatusCode::OK, document)));
        let own = Self { answer, asked: Arc::default(), url };
        let server = own.clone();
        let handler = async move || {
            server.asked.fetch_add(1, Ordering::Relaxed);
            server.answer.lock().unwrap().clone()
        };
        let router = Router::new().route("/keys", get(handler));
        tokio::spawn(axum::serve(listener, router).into_future());
        own
    }

    fn answers(&self, status: StatusCode, text: impl Into<String>) {
        *self.answer.lock().unwrap() = (status, text.into());
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// A verifier that has only what this server says, and the clock that it goes by.
fn remote(server: &Server) -> (Jwt, Arc<FixedClock>) {
    let clock = Arc::new(FixedClock(AtomicI64::new(NOW_S * 1_000)));
    let jwks_url = Some(server.url.clone());
    let settings = JwtSettings { keys: None, jwks_url, ..public() };
    (Jwt::new(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap(), clock)
}

#[tokio::test]
async fn an_unknown_key_has_the_keys_fetched_but_not_again_and_again() {
    let server = Server::start(only(&["r1"])).await;
    let (jwt, clock) = remote(&server);
    let [rsa, ec, _] = pairs().map(|(algorithm, kid, key)| token(algorithm, kid, &key));
    assert_eq!(jwt.verify(rsa.as_bytes()).await, acme(), "fetched when first asked for");
    assert_eq!((jwt.verify(rsa.as_bytes()).await, server.asked()), (acme(), 1));
    // The issuer has a new key; nobody can make the hub ask more often than once in ten seconds.
    server.answers(StatusCode::OK, only(&["e1"]));
    let stranger = token(Algorithm::RS256, STRANGER, &pairs()[0].2);
    for _ in 0..20 {
        assert_eq!(jwt.verify(stranger.as_bytes()).await, None);
        assert_eq!(jwt.verify(ec.as_bytes()).await, None);
    }
    assert_eq!(server.asked(), 1);
    clock.0.fetch_add(10_000, Ordering::Relaxed);
    assert_eq!(jwt.verify(ec.as_bytes()).await, acme());
    assert_eq!(jwt.verify(rsa.as_bytes()).await, None, "a key that is withdrawn counts no more");
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn keys_stay_while_their_server_is_away_or_answers_nonsense() {
    let server = Server::start(JWKS.to_owned()).await;
    let (jwt, clock) = remote(&server);
    let [rsa, ..] = pairs().map(|(algorithm, kid, key)| token(algorithm, kid, &key));
    assert_eq!(jwt.verify(rsa.as_bytes()).await, acme());
    let stranger = token(Algorithm::RS256, STRANGER, &pairs()[0].2);
    let table = [
        (StatusCode::INTERNAL_SERVER_ERROR, JWKS.to_owned()),
        (StatusCode::FOUND, JWKS.to_owned()),
        (StatusCode::OK, "<html>".to_owned()),
        (StatusCode::OK, r#"{"keys": 7}"#.to_owned()),
        (StatusCode::OK, " ".repeat(2 * 1024 * 1024)),
    ];
    for (asked, (status, text)) in (2..).zip(table) {
        server.answers(status, text);
        clock.0.fetch_add(10_000, Ordering::Relaxed);
        assert_eq!(jwt.verify(stranger.as_bytes()).await, None);
        assert_eq!((jwt.verify(rsa.as_bytes()).await, server.asked()), (acme(), asked));
    }
    // A server that is not there at all.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap()).parse().unwrap();
    drop(gone);
    let (jwt, _) = remote(&Server { url, ..server });
    assert_eq!(jwt.verify(rsa.as_bytes()).await, None, "without keys nobody is named");
}

#[tokio::test]
async fn a_fetched_secret_is_none() {
    let server = Server::start(keys()).await;
    let jwks_url = Some(server.url.clone());
    let jwt = verifier(JwtSettings { keys: None, jwks_url, ..settings() });
    let forged = signed(Algorithm::HS256, Some("k1"), &claims(), SECRET);
    assert_eq!(jwt.verify(forged.as_bytes()).await, None);
    assert_eq!(server.asked(), 1);
}
