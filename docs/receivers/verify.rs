//! Verifies deliveries of the hub (docs/receivers/README.md). Needs the crates `hmac` and `sha2`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const TOLERANCE: Duration = Duration::from_secs(300);

/// Whether `body`, the bytes as they came, was signed with one of `secrets` a moment ago.
/// `signatures` are all header lines: `headers.get_all("x-webhook-signature")`.
#[must_use]
pub fn verify(secrets: &[&str], timestamp: &str, signatures: &[&str], body: &[u8]) -> bool {
    let Ok(seconds) = timestamp.parse::<u64>() else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if now.abs_diff(Duration::from_secs(seconds)) > TOLERANCE {
        return false;
    }
    let given = signatures.iter().filter_map(|text| decode(text.strip_prefix("v1,sha256=")?));
    let given: Vec<_> = given.collect();
    secrets.iter().any(|secret| {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
        mac.update(format!("v1:{timestamp}.").as_bytes());
        mac.update(body);
        // In constant time.
        given.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    })
}

fn decode(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}
