//! Whether bytes are JSON that can be embedded in a larger JSON text as they are: the same bytes,
//! no re-ordering of keys, no change of numbers. A judge, not a parser: it keeps nothing.
//!
//! Stricter than RFC 8259 where readers differ: no byte order mark, no escape of a lone surrogate
//! (many readers refuse or replace it), and no deeper nesting than [`DEPTH_MAX`].

/// The deepest nesting of arrays and objects that is embedded.
pub const DEPTH_MAX: usize = 128;

/// Whether these bytes are one JSON text that can be embedded.
#[must_use]
pub fn is_embeddable(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok() && Judge { bytes, at: 0 }.text().is_some()
}

/// Whether a media type says JSON: `…/json`, or a type with the suffix `+json`. Parameters and
/// case do not matter.
#[must_use]
pub fn is_json_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, sub)) = essence.split_once('/') else { return false };
    let sub = sub.to_ascii_lowercase();
    !kind.is_empty() && (sub == "json" || sub.strip_suffix("+json").is_some_and(|s| !s.is_empty()))
}

/// What surrounds the place that is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Array,
    Object,
}

/// Every method answers `None` for what is no JSON.
struct Judge<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Judge<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(text).then(|| self.at += text.len())
    }

    /// The whole text, without recursion: a deep one must not use up the stack.
    fn text(&mut self) -> Option<()> {
        let mut open: Vec<Within> = Vec::new();
        loop {
            self.blanks();
            let closed = match self.next()? {
                b'[' => self.open(Within::Array, &mut open)?,
                b'{' => self.open(Within::Object, &mut open)?,
                b'"' => self.string().map(|()| true)?,
                b't' => self.expect(b"rue").map(|()| true)?,
                b'f' => self.expect(b"alse").map(|()| true)?,
                b'n' => self.expect(b"ull").map(|()| true)?,
                first @ (b'-' | b'0'..=b'9') => self.number(first).map(|()| true)?,
                _ => return None,
            };
            if closed && self.close(&mut open)? {
                return (self.at == self.bytes.len()).then_some(());
            }
        }
    }

    /// After an opening bracket; answers whether it is closed at once.
    fn open(&mut self, within: Within, open: &mut Vec<Within>) -> Option<bool> {
        if open.len() == DEPTH_MAX {
            return None;
        }
        self.blanks();
        let end = if within == Within::Array { b']' } else { b'}' };
        if self.peek()? == end {
            self.at += 1;
            return Some(true);
        }
        open.push(within);
        if within == Within::Object {
            self.key()?;
        }
        Some(false)
    }

    fn key(&mut self) -> Option<()> {
        self.blanks();
        self.expect(b"\"")?;
        self.string()?;
        self.blanks();
        self.expect(b":")
    }

    /// After a value: on to the next one, or out of what it ends. Answers whether all is closed.
    fn close(&mut self, open: &mut Vec<Within>) -> Option<bool> {
        loop {
            self.blanks();
            let Some(within) = open.last() else { return Some(true) };
            match (self.next()?, within) {
                (b',', Within::Array) => return Some(false),
                (b',', Within::Object) => return self.key().map(|()| false),
                (b']', Within::Array) | (b'}', Within::Object) => _ = open.pop(),
                _ => return None,
            }
        }
    }

    /// The rest of a string after its opening quote.
    fn string(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                0..=0x1f => return None,
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => match self.hex4()? {
                0xd800..=0xdbff => {
                    self.expect(b"\\u")?;
                    matches!(self.hex4()?, 0xdc00..=0xdfff).then_some(())
                }
                0xdc00..=0xdfff => None,
                _ => Some(()),
            },
            _ => None,
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let mut code = 0;
        for _ in 0..4 {
            code = code * 16 + char::from(self.next()?).to_digit(16)?;
        }
        Some(code)
    }

    fn number(&mut self, first: u8) -> Option<()> {
        let lead = if first == b'-' { self.next()? } else { first };
        match lead {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Some(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Option<()> {
        let from = self.at;
        self.digits();
        (self.at > from).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn what_is_embedded_is_json_and_nothing_else() {
        let good: [&[u8]; 12] = [
            b"{}",
            b" [ ] ",
            b"null",
            b"-0.0e+10",
            b"123456789012345678901234567890.0001E-5",
            b"\"\\ud83d\\ude00 \\u0000\"",
            "\"pre\u{e7}o\"".as_bytes(),
            b"{\"b\":1,\"a\":[{},[],\"\",true,false,null],\"b\":2}",
            b"[1,2 , 3]",
            b"\"\\\\\\\"\\/\\b\\f\\n\\r\\t\"",
            b"0",
            b"\r\n\t{\"a\" : {\"b\" : [ 0 ] } }\n",
        ];
        for text in good {
            assert!(is_embeddable(text), "{}", String::from_utf8_lossy(text));
        }
        let bad: [&[u8]; 30] = [
            b"",
            b" ",
            b"\xef\xbb\xbf{}",
            b"\"\\ud800\"",
            b"\"\\udc00\\ud800\"",
            b"\"\\ud800\\u0041\"",
            b"\"\xff\"",
            b"{} {}",
            b"[1,]",
            b"{\"a\":1,}",
            b"{a:1}",
            b"{\"a\"}",
            b"[1 2]",
            b"01",
            b"-",
            b"1.",
            b".5",
            b"1e",
            b"+1",
            b"NaN",
            b"tru",
            b"nul",
            b"\"a\nb\"",
            b"\"\\x\"",
            b"\"\\u12g4\"",
            b"\"open",
            b"[",
            b"]",
            b"[}",
            b"{\"a\":1]",
        ];
        for text in bad {
            assert!(!is_embeddable(text), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn nesting_is_bounded_and_costs_no_stack() {
        let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert!(is_embeddable(&nested(DEPTH_MAX)));
        assert!(!is_embeddable(&nested(DEPTH_MAX + 1)));
        assert!(!is_embeddable(&b"[".repeat(1_000_000)));
        let objects = [b"{\"a\":".repeat(DEPTH_MAX), b"1".to_vec(), b"}".repeat(DEPTH_MAX)];
        assert!(is_embeddable(&objects.concat()));
    }

    #[test]
    fn a_media_type_says_json_by_its_name_or_its_suffix() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.a+json",
            "text/json",
        ] {
            assert!(is_json_type(json), "{json}");
        }
        for other in ["", "json", "text/plain", "application/jsonl", "application/+json", "/json"] {
            assert!(!is_json_type(other), "{other}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_a_json_library_writes_is_embeddable(value in json(), pretty: bool) {
            let text = if pretty {
                serde_json::to_vec_pretty(&value).unwrap()
            } else {
                serde_json::to_vec(&value).unwrap()
            };
            prop_assert!(is_embeddable(&text));
        }

        #[test]
        fn what_is_embeddable_parses_and_what_does_not_parse_is_not_embeddable(
            value in json(), at: prop::sample::Index, byte: u8, cut: bool,
        ) {
            let mut text = serde_json::to_vec(&value).unwrap();
            let at = at.index(text.len());
            if cut { text.truncate(at) } else { text[at] = byte }
            let parses = serde_json::from_slice::<Box<serde_json::value::RawValue>>(&text).is_ok()
                && serde_json::from_slice::<Value>(&text).is_ok();
            // Numbers beyond what a library holds are embedded all the same.
            if is_embeddable(&text) {
                let parsed = serde_json::from_slice::<Value>(&text);
                let is_range = |e: serde_json::Error| e.to_string().contains("out of range");
                prop_assert!(parsed.is_ok() || parsed.is_err_and(is_range));
            } else {
                prop_assert!(!parses);
            }
        }
    }
}
