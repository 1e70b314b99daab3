//! Webhook signatures, contract section 5. Pure: the caller brings the secret and the time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::hex;
use crate::time::UnixMillis;

/// The value of one `X-Webhook-Signature` header:
/// `v1,sha256=` and the lower-case hex HMAC-SHA256 over `v1:<seconds>.<body>`.
#[must_use]
pub fn signature(secret: &str, at: UnixMillis, body: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        unreachable!("HMAC takes a key of any length (RFC 2104)")
    };
    mac.update(b"v1:");
    mac.update(at.seconds().to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("v1,sha256={}", hex::encode(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;

    #[derive(serde::Deserialize)]
    struct Vector {
        name: String,
        secret: String,
        timestamp: String,
        body_base64: String,
        signature: String,
    }

    #[test]
    fn signatures_equal_those_of_an_independent_implementation() {
        let vectors: Vec<Vector> =
            serde_json::from_str(include_str!("../../fixtures/signatures.json")).unwrap();
        assert!(vectors.len() >= 4);
        for vector in vectors {
            let body = base64::engine::general_purpose::STANDARD.decode(&vector.body_base64);
            let seconds: i64 = vector.timestamp.parse().unwrap();
            let at = UnixMillis(seconds * 1000 + 999);
            let made = signature(&vector.secret, at, &body.unwrap());
            assert_eq!(made, vector.signature, "{}", vector.name);
        }
    }
}
