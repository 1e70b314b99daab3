//! Lower-case hexadecimal text.

use std::fmt::Write;

/// The bytes as lower-case hex, two digits each.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_lower_case_digits() {
        assert_eq!(encode(&[0, 0x0a, 0xff]), "000aff");
    }
}
