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

/// The bytes that this hex spells, in either case; `None` for anything else.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_lower_case_digits() {
        assert_eq!(encode(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(decode("000aFF"), Some(vec![0, 0x0a, 0xff]));
        assert_eq!((decode("0"), decode("0g"), decode("éé")), (None, None, None));
    }
}
