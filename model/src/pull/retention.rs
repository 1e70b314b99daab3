//! How long read entries are kept (contract section 8): as long behind the cursor as configured,
//! which needs to know where the cursor stood then. A few marks of where it stood when are kept in
//! the cursor's record; what lies at or below the newest mark that is old enough may go.

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

/// How many marks a period is cut into: an entry is kept a quarter of the period longer at most.
const MARKS_PER_PERIOD: u64 = 4;

/// A subscription's cursor as it lies in `<app>-cursors` (JSON) and in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Everything up to this `seq` is acknowledged.
    pub cursor: u64,
    /// When it last moved, Unix milliseconds.
    pub moved_at: i64,
    /// When it stood where, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<(i64, u64)>,
}

impl Cursor {
    /// The cursor moved on to `cursor` now.
    #[must_use]
    pub fn moved_to(&self, cursor: u64, now: UnixMillis, period_ms: u64) -> Self {
        let mut marks = self.marks.clone();
        let age = |at: i64| now.since(UnixMillis(at));
        let moved_at = UnixMillis(self.moved_at);
        let is_apart = |(at, _): &(i64, u64)| moved_at.since(UnixMillis(*at)) >= spacing(period_ms);
        if self.cursor > 0 && marks.last().is_none_or(is_apart) {
            marks.push((self.moved_at, self.cursor));
        }
        // Of the marks that are old enough only the newest says anything.
        let old = marks.iter().rposition(|(at, _)| age(*at) >= period_ms).unwrap_or(0);
        marks.drain(..old);
        Self { cursor, moved_at: now.0, marks }
    }

    /// Up to which `seq` entries were read so long ago that they may go; 0 for none.
    #[must_use]
    pub fn settled(&self, now: UnixMillis, period_ms: u64) -> u64 {
        let age = |at: i64| now.since(UnixMillis(at));
        if age(self.moved_at) >= period_ms {
            return self.cursor;
        }
        let old = self.marks.iter().rev().find(|(at, _)| age(*at) >= period_ms);
        old.map_or(0, |(_, cursor)| *cursor)
    }
}

fn spacing(period_ms: u64) -> u64 {
    period_ms / MARKS_PER_PERIOD
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1_000;

    #[test]
    fn a_cursor_that_stands_settles_after_the_period() {
        let cursor = Cursor::default().moved_to(9, UnixMillis(5_000), PERIOD);
        assert_eq!(cursor.settled(UnixMillis(5_999), PERIOD), 0);
        assert_eq!(cursor.settled(UnixMillis(6_000), PERIOD), 9);
        assert_eq!(Cursor::default().settled(UnixMillis(i64::MAX), PERIOD), 0);
    }

    proptest! {
        #[test]
        fn an_entry_is_kept_for_the_period_after_it_was_read_and_not_much_longer(
            steps in prop::collection::vec((1i64..400, 1u64..5), 1..60),
        ) {
            let (mut now, mut cursor) = (10_000, Cursor::default());
            let mut read: Vec<(i64, u64)> = Vec::new();
            for (later, further) in steps {
                now += later;
                cursor = cursor.moved_to(cursor.cursor + further, UnixMillis(now), PERIOD);
                read.push((now, cursor.cursor));
                let settled = cursor.settled(UnixMillis(now), PERIOD);
                let period = PERIOD.cast_signed();
                let may = read.iter().rev().find(|(at, _)| now - at >= period).map_or(0, |r| r.1);
                prop_assert!(settled <= may, "removed too early");
                // A move within a quarter of the last mark has no mark of its own.
                let late = period + period / 4 + 400;
                let must = read.iter().rev().find(|(at, _)| now - at >= late).map_or(0, |r| r.1);
                prop_assert!(settled >= must, "kept too long");
                prop_assert!(cursor.marks.len() <= 6, "{:?}", cursor.marks);
            }
        }
    }
}
