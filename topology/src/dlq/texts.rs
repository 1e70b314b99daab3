//! Texts that many entries share, kept once and named by a number. Bounded: beyond its bounds a
//! text is not kept, and the entries that have it say so.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of no text.
pub(super) const NONE: u32 = 0;
/// The number of every text beyond the bounds.
pub(super) const NOT_KEPT: u32 = 1;
/// What stands for a text that is not kept.
const NOT_KEPT_TEXT: &str = "(not indexed)";

/// The texts of one kind.
pub(super) struct Texts {
    by_number: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl Texts {
    /// At most so many texts of together so many bytes.
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Self {
        let by_number = vec![Arc::from(""), Arc::from(NOT_KEPT_TEXT)];
        Self { by_number, numbers: HashMap::new(), bytes: 0, count_max, bytes_max }
    }

    /// The number of a text, given one if there is room.
    pub(super) fn number(&mut self, text: Option<&str>) -> u32 {
        let Some(text) = text else { return NONE };
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let has_room =
            self.numbers.len() < self.count_max && self.bytes + text.len() <= self.bytes_max;
        match u32::try_from(self.by_number.len()) {
            Ok(number) if has_room => {
                let text: Arc<str> = Arc::from(text);
                self.bytes += text.len();
                self.by_number.push(Arc::clone(&text));
                self.numbers.insert(text, number);
                number
            }
            _ => NOT_KEPT,
        }
    }

    /// The number of a text that is kept.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// The text of a number.
    pub(super) fn text(&self, number: u32) -> Option<&Arc<str>> {
        if number == NONE {
            return None;
        }
        self.by_number.get(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_and_what_has_no_room_is_not_kept() {
        let mut texts = Texts::new(2, 8);
        assert_eq!(texts.number(None), NONE);
        let a = texts.number(Some("aaaa"));
        assert_eq!(texts.number(Some("aaaa")), a);
        assert_eq!(texts.number(Some("too long")), NOT_KEPT);
        let b = texts.number(Some("b"));
        assert_ne!(a, b);
        assert_eq!(texts.number(Some("c")), NOT_KEPT, "the count is reached");
        assert_eq!(texts.text(b).map(AsRef::as_ref), Some("b"));
        assert_eq!(texts.text(NONE), None);
        assert_eq!(texts.text(NOT_KEPT).map(AsRef::as_ref), Some(NOT_KEPT_TEXT));
        assert_eq!((texts.find("b"), texts.find("c")), (Some(b), None));
    }
}
