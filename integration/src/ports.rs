//! Free ports on loopback, below the range from which outgoing connections take theirs.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// The ports to choose from.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// How many ports were tried by this process; no port is handed out twice.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// The first of `count` consecutive ports that nobody listens on.
///
/// # Errors
/// When there are none.
pub fn free(count: u16) -> Result<u16> {
    let count = u32::from(count);
    for _ in 0..COUNT / count {
        let step = TRIED.fetch_add(count, Ordering::Relaxed);
        // Processes that run side by side begin at places of their own.
        let place = std::process::id().wrapping_mul(7_919).wrapping_add(step) % (COUNT - count);
        let first = u16::try_from(FIRST + place)?;
        let last = first + u16::try_from(count)? - 1;
        if (first..=last).all(is_free) {
            return Ok(first);
        }
    }
    bail!("no {count} consecutive free ports")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice() {
        let (a, b) = (free(2).unwrap(), free(2).unwrap());
        assert!(a.abs_diff(b) >= 2, "{a} {b}");
    }
}
