//! Validity of W3C trace context headers. A receiver is sent a valid `traceparent`, and a valid
//! `tracestate` only beside one; anything else is left out. Nothing is repaired.

/// The longest `tracestate` that is passed on, bytes. The standard asks for 512 at least; beyond
/// half of the 8 KiB that servers commonly take as header it could cost the delivery itself.
const TRACESTATE_BYTES_MAX: usize = 4096;

/// The most members of a `tracestate`.
const TRACESTATE_MEMBERS_MAX: usize = 32;

/// Bytes of a version 00 `traceparent`: `vv-<32>-<16>-ff`.
const TRACEPARENT_BYTES: usize = 55;

/// Whether this is a valid `traceparent`: version 00 exactly, or a later version that begins alike.
pub(crate) fn is_traceparent(text: &str) -> bool {
    let Some((known, rest)) = text.split_at_checked(TRACEPARENT_BYTES) else { return false };
    let mut fields = known.split('-');
    let (Some(version), Some(trace), Some(parent), Some(flags), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    is_hex(version, 2)
        && version != "ff"
        && (rest.is_empty() || (version != "00" && is_later_tail(rest)))
        && is_hex(trace, 32)
        && trace.bytes().any(|digit| digit != b'0')
        && is_hex(parent, 16)
        && parent.bytes().any(|digit| digit != b'0')
        && is_hex(flags, 2)
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// What a later version may append.
fn is_later_tail(text: &str) -> bool {
    text.len() <= TRACEPARENT_BYTES
        && text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether this is a valid `tracestate`: at most 32 members `key=value`, no key twice.
pub(crate) fn is_tracestate(text: &str) -> bool {
    if text.len() > TRACESTATE_BYTES_MAX {
        return false;
    }
    let mut keys = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
        // Empty members are legal and mean nothing.
        if member.is_empty() {
            continue;
        }
        let Some((key, value)) = member.split_once('=') else { return false };
        if !is_key(key) || !is_value(value) || keys.contains(&key) {
            return false;
        }
        keys.push(key);
    }
    (1..=TRACESTATE_MEMBERS_MAX).contains(&keys.len())
}

/// `simple` or `tenant@system`.
fn is_key(key: &str) -> bool {
    match key.split_once('@') {
        None => is_name(key, 256, |b| b.is_ascii_lowercase()),
        Some((tenant, system)) => {
            is_name(tenant, 241, |b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && is_name(system, 14, |b| b.is_ascii_lowercase())
        }
    }
}

fn is_name(name: &str, bytes_max: usize, may_begin: impl Fn(u8) -> bool) -> bool {
    let is_inner = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
    name.len() <= bytes_max
        && name.bytes().next().is_some_and(may_begin)
        && name.bytes().all(is_inner)
}

/// 1 to 256 printable characters without comma and equals sign, the last one no space (which the
/// caller's trimming has seen to).
fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b',' && b != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_valid_by_the_letter_of_the_standard() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let table = [
            (VALID.to_owned(), true),
            (format!("cc-{trace}-b7ad6b7169203331-01"), true),
            (format!("cc-{trace}-b7ad6b7169203331-01-what-else"), true),
            (format!("cc-{trace}-b7ad6b7169203331-01.what"), false),
            (format!("cc-{trace}-b7ad6b7169203331-01-a b"), false),
            (format!("{VALID}-more"), false),
            (format!("ff-{trace}-b7ad6b7169203331-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (format!("00-{trace}-0000000000000000-01"), false),
            (format!("00-{trace}-b7ad6b7169203331-0g"), false),
            (format!("00-{trace}-b7ad6b7169203331"), false),
            (format!("00_{trace}_b7ad6b7169203331_01"), false),
            (format!("00-{trace}-b7ad6b716920333ç-1"), false),
            (format!(" {VALID}"), false),
            (String::new(), false),
        ];
        for (text, valid) in table {
            assert_eq!(is_traceparent(&text), valid, "{text:?}");
        }
    }

    #[test]
    fn a_tracestate_is_valid_by_the_letter_of_the_standard() {
        let many = |n: usize| (0..n).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join(",");
        let table = [
            ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE".to_owned(), true),
            ("a=b, c=d ,\te=f".to_owned(), true),
            ("a=b,,c=d".to_owned(), true),
            ("1fw529a3039@nr=x y".to_owned(), true),
            (format!("{}=v", "k".repeat(256)), true),
            (format!("{}=v", "k".repeat(257)), false),
            (format!("k={}", "v".repeat(257)), false),
            (many(32), true),
            (many(33), false),
            ("1a=b".to_owned(), false),
            ("A=b".to_owned(), false),
            ("a@1b=c".to_owned(), false),
            ("a=b,a=c".to_owned(), false),
            ("a".to_owned(), false),
            ("a=".to_owned(), false),
            ("a=b=c".to_owned(), false),
            ("a=ç".to_owned(), false),
            (String::new(), false),
            (" , ".to_owned(), false),
            (vec![format!("k={}", "v".repeat(250)); 20].join(","), false),
        ];
        for (text, valid) in table {
            assert_eq!(is_tracestate(&text), valid, "{text:?}");
        }
    }
}
