//! Webhook signatures as a receiver checks them: an implementation of its own of contract section
//! 5, from the secret, the lines as they came and the body, and nothing of the hub's.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// What is wrong with a request's signature.
pub type Fault = String;

/// How far a timestamp may lie from the time of receipt, seconds.
const TOLERANCE_S: i64 = 300;

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The value that one secret gives for a body at a timestamp's digits.
#[must_use]
pub fn expected(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        unreachable!("HMAC takes a key of any length")
    };
    for part in [b"v1:", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,sha256={}", hex(&mac.finalize().into_bytes()))
}

/// Checks the lines of a request: one timestamp of plain digits near the time of receipt, and one
/// signature line for each secret, in their order, the newest first.
///
/// # Errors
/// What is wrong.
pub fn verify(
    timestamps: &[&[u8]],
    signatures: &[&[u8]],
    (body, at_ms): (&[u8], i64),
    secrets: &[&str],
) -> Result<(), Fault> {
    let [timestamp] = timestamps else {
        return Err(format!("{} timestamp lines", timestamps.len()));
    };
    let digits = std::str::from_utf8(timestamp)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let digits = digits.ok_or("the timestamp is no number")?;
    let seconds: i64 = digits.parse().map_err(|_| "the timestamp is out of range")?;
    if (at_ms / 1000 - seconds).abs() > TOLERANCE_S {
        return Err(format!("the timestamp is {} s off", at_ms / 1000 - seconds));
    }
    if signatures.len() != secrets.len() {
        return Err(format!("{} signature lines, not {}", signatures.len(), secrets.len()));
    }
    for (place, (found, secret)) in signatures.iter().zip(secrets).enumerate() {
        if *found != expected(secret, digits, body).as_bytes() {
            return Err(format!("signature line {} does not match", place + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn signatures_equal_the_vectors() {
        let text = include_str!("../../fixtures/signatures.json");
        let vectors: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        for vector in vectors {
            let text = |name: &str| vector[name].as_str().unwrap();
            let body = STANDARD.decode(text("body_base64")).unwrap();
            assert_eq!(expected(text("secret"), text("timestamp"), &body), text("signature"));
        }
    }

    #[test]
    fn a_request_is_valid_only_with_the_lines_of_its_secrets_in_order() {
        let (new, old) = (expected("n", "100", b"x"), expected("o", "100", b"x"));
        let check = |time: &str, lines: &[&String], secrets: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            verify(&[time.as_bytes()], &lines, (b"x", 100_900), secrets)
        };
        assert_eq!(check("100", &[&new], &["n"]), Ok(()));
        assert_eq!(check("100", &[&new, &old], &["n", "o"]), Ok(()));
        assert!(check("100", &[&old, &new], &["n", "o"]).is_err());
        assert!(check("100", &[&new], &["n", "o"]).is_err());
        assert!(check("101", &[&new], &["n"]).is_err());
        assert!(check("100 ", &[&new], &["n"]).is_err());
        assert!(verify(&[b"100"], &[new.as_bytes()], (b"x", 1_000_000), &["n"]).is_err());
        assert!(verify(&[], &[new.as_bytes()], (b"x", 100_000), &["n"]).is_err());
    }
}
