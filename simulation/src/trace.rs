//! What is told of a run when somebody listens: one line for each thing that happened.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// How many of the last lines are kept.
const LINES_MAX: usize = 50_000;

/// The lines of a run.
#[derive(Debug, Default)]
pub struct Trace {
    listens: Cell<bool>,
    lines: RefCell<VecDeque<String>>,
    /// Said only once something follows from it.
    heading: RefCell<Option<String>>,
}

impl Trace {
    /// A trace that keeps its last lines, or none.
    #[must_use]
    pub fn new(listens: bool) -> Self {
        Self { listens: Cell::new(listens), ..Self::default() }
    }

    /// Names what comes next, in case that anything does.
    pub fn head(&self, line: impl FnOnce() -> String) {
        if self.listens.get() {
            *self.heading.borrow_mut() = Some(line());
        }
    }

    /// Adds a line, if anybody listens.
    pub fn say(&self, line: impl FnOnce() -> String) {
        if !self.listens.get() {
            return;
        }
        let heading = self.heading.borrow_mut().take();
        if let Some(heading) = heading {
            self.add(heading);
        }
        self.add(line());
    }

    fn add(&self, line: String) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().iter().cloned().collect()
    }
}
