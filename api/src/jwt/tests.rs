//! Tokens that are good, and each way in which one is not.

use std::sync::atomic::{AtomicI64, Ordering};

use jsonwebtoken::{EncodingKey, encode};
use serde_json::json;

use super::*;

mod public;

const NOW_S: i64 = 1_790_000_000;
const SECRET: &[u8] = b"a shared secret of thirty-two bytes or more";

struct FixedClock(AtomicI64);

impl Clock for FixedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

fn keys() -> String {
    let k = BASE64_URL.encode(SECRET);
    json!({"keys": [{"kty": "oct", "kid": "k1", "alg": "HS256", "k": k}]}).to_string()
}

fn settings() -> JwtSettings {
    JwtSettings {
        algorithms: vec!["HS256".into()],
        keys: Some(keys()),
        jwks_url: None,
        refresh: Duration::from_secs(300),
        issuer: Some("https://id.example.com".into()),
        audiences: vec!["streaming-hub".into()],
        leeway_ms: 30_000,
        tenant_claim: "tenantId".into(),
        scope_claim: "scope".into(),
        admin_scope: "streaming-hub:admin".into(),
    }
}

fn verifier(settings: JwtSettings) -> Jwt {
    let clock = Arc::new(FixedClock(AtomicI64::new(NOW_S * 1_000)));
    Jwt::new(settings, clock).unwrap()
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.com", "aud": "streaming-hub", "tenantId": "acme",
        "exp": NOW_S + 60, "nbf": NOW_S - 60,
    })
}

fn signed(algorithm: Algorithm, kid: Option<&str>, claims: &Value, secret: &[u8]) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    encode(&header, claims, &EncodingKey::from_secret(secret)).unwrap()
}

async fn named(settings: JwtSettings, claims: &Value) -> Option<Named> {
    let token = signed(Algorithm::HS256, Some("k1"), claims, SECRET);
    verifier(settings).verify(token.as_bytes()).await
}

fn acme() -> Option<Named> {
    Some(Named::Tenant(TenantId::parse("acme").unwrap()))
}

#[tokio::test]
async fn a_claim_that_is_not_right_names_nobody() {
    assert_eq!(named(settings(), &claims()).await, acme());
    let table: [(&str, Value, bool); 14] = [
        ("exp", json!(NOW_S - 29), true),
        ("exp", json!(NOW_S - 30), false),
        ("exp", json!(null), false),
        ("exp", json!("soon"), false),
        ("nbf", json!(NOW_S + 30), true),
        ("nbf", json!(NOW_S + 31), false),
        ("nbf", json!("now"), false),
        ("iss", json!("https://evil.example.com"), false),
        ("iss", json!(["https://id.example.com"]), false),
        ("aud", json!(["other", "streaming-hub"]), true),
        ("aud", json!("other"), false),
        ("aud", json!(null), false),
        ("tenantId", json!(""), false),
        ("tenantId", json!("a\u{7}b"), false),
    ];
    for (claim, value, good) in table {
        let mut claims = claims();
        claims[claim] = value;
        let found = named(settings(), &claims).await;
        assert_eq!(found, acme().filter(|_| good), "{claims}");
    }
    let mut without = claims();
    without.as_object_mut().unwrap().remove("exp");
    assert_eq!(named(settings(), &without).await, None);
}

#[tokio::test]
async fn only_the_scope_makes_an_operator_and_it_does_beside_a_tenant() {
    let table = [
        (json!("streaming-hub:admin"), Some(Named::Operator)),
        (json!("openid streaming-hub:admin"), Some(Named::Operator)),
        (json!(["openid", "streaming-hub:admin"]), Some(Named::Operator)),
        (json!("streaming-hub:administrator"), acme()),
        (json!(7), acme()),
    ];
    for (scope, expected) in table {
        let mut claims = claims();
        claims["scope"] = scope;
        assert_eq!(named(settings(), &claims).await, expected, "{claims}");
    }
    let mut nobody = claims();
    nobody.as_object_mut().unwrap().remove("tenantId");
    assert_eq!(named(settings(), &nobody).await, Some(Named::Nobody));
}

#[tokio::test]
async fn a_signature_is_by_a_known_key_and_an_allowed_algorithm() {
    let jwt = verifier(settings());
    let good = signed(Algorithm::HS256, None, &claims(), SECRET);
    assert_eq!(jwt.verify(good.as_bytes()).await, acme(), "without a kid each key is tried");
    let (head, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let mut other = claims();
    other["tenantId"] = json!("evil");
    let forged = BASE64_URL.encode(other.to_string());
    let none = BASE64_URL.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let bad = [
        signed(Algorithm::HS256, Some("k1"), &claims(), b"another secret"),
        signed(Algorithm::HS256, Some("k2"), &claims(), SECRET),
        signed(Algorithm::HS384, Some("k1"), &claims(), SECRET),
        format!("{head}.{forged}.{signature}"),
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        format!("{head}.{payload}."),
        format!("{head}.{payload}"),
        String::new(),
        "..".to_owned(),
        "x".repeat(20_000),
    ];
    for token in bad {
        assert_eq!(jwt.verify(token.as_bytes()).await, None, "{token}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let clock = || Arc::new(FixedClock(AtomicI64::new(0)));
    let refuse = |settings| Jwt::new(settings, clock()).err().map(|error| error.to_string());
    let none = JwtSettings { algorithms: vec!["none".into()], ..settings() };
    assert!(refuse(none).unwrap().contains("none"));
    let no_keys = JwtSettings { keys: None, ..settings() };
    assert!(matches!(Jwt::new(no_keys, clock()), Err(Error::NoKeys)));
    let bad = JwtSettings { keys: Some("{}".into()), ..settings() };
    assert!(matches!(Jwt::new(bad, clock()), Err(Error::Keys(_))));
}
