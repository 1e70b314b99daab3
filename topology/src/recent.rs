//! What changed lately in a view, for tasks that look now and then: whoever missed nothing hears of
//! each change, whoever slept too long hears that anything may have changed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many changes are kept.
const KEPT: usize = 1_024;

/// The latest changes.
#[derive(Debug)]
pub struct Recent<T> {
    revision: AtomicU64,
    kept: Mutex<VecDeque<T>>,
}

/// What changed since somebody looked.
#[derive(Debug, PartialEq, Eq)]
pub enum Changes<T> {
    /// Nothing.
    None,
    /// These.
    Some(Vec<T>),
    /// More than is kept.
    Any,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { revision: AtomicU64::new(0), kept: Mutex::default() }
    }
}

impl<T: Clone> Recent<T> {
    /// Something changed; it can be read already.
    pub fn push(&self, changed: T) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(changed);
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// The revision now; every change up to it can be read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// What changed since the revision `seen`, which is moved up. One load when nothing did.
    pub fn since(&self, seen: &mut u64) -> Changes<T> {
        if self.revision() == *seen {
            return Changes::None;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.revision();
        let missed = revision - std::mem::replace(seen, revision);
        match usize::try_from(missed) {
            Ok(missed) if missed <= kept.len() => {
                Changes::Some(kept.range(kept.len() - missed..).cloned().collect())
            }
            _ => Changes::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_looks_in_time_hears_of_each_change_and_who_does_not_of_any() {
        let (recent, mut seen) = (Recent::default(), 0);
        assert_eq!(recent.since(&mut seen), Changes::None);
        recent.push(1);
        recent.push(2);
        assert_eq!(recent.since(&mut seen), Changes::Some(vec![1, 2]));
        assert_eq!(recent.since(&mut seen), Changes::None);
        for n in 0..=KEPT {
            recent.push(n);
        }
        assert_eq!(recent.since(&mut seen), Changes::Any);
        recent.push(7);
        assert_eq!(recent.since(&mut seen), Changes::Some(vec![7]));
    }
}
