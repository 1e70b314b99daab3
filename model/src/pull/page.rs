//! A page under construction and a finished one: entries joined as they were rendered, cut by the
//! limit or by the byte budget.

use std::ops::ControlFlow;

use super::{Ask, PAGE_BYTES_MAX};

/// Collects entries until the page is full.
#[derive(Debug)]
pub struct PageBuilder {
    page: Page,
    limit: usize,
    bytes_max: usize,
}

/// Entries of one page, joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    body: Vec<u8>,
    /// How many entries it has.
    pub count: usize,
    /// The `seq` of the last one.
    pub last: Option<u64>,
    /// Whether more entries may follow: it is full, or was cut by the byte budget.
    pub more: bool,
}

const OPENING: &[u8] = b"{\"events\":[";

impl PageBuilder {
    /// An empty page for this read.
    #[must_use]
    pub fn new(ask: Ask) -> Self {
        Self::with_bytes_max(ask, PAGE_BYTES_MAX)
    }

    /// The same with another byte budget.
    #[must_use]
    pub fn with_bytes_max(ask: Ask, bytes_max: usize) -> Self {
        let page = Page { body: OPENING.to_vec(), count: 0, last: None, more: ask.limit == 0 };
        Self { page, limit: ask.limit, bytes_max }
    }

    /// Takes the next entry, unless the page is full; breaks once it takes no more.
    pub fn push(&mut self, seq: u64, rendered: &[u8]) -> ControlFlow<()> {
        let page = &mut self.page;
        if page.more {
            return ControlFlow::Break(());
        }
        if page.count > 0 {
            if page.body.len() + rendered.len() > self.bytes_max {
                page.more = true;
                return ControlFlow::Break(());
            }
            page.body.push(b',');
        } else {
            // Entries of one subscription resemble each other.
            let expected = (rendered.len() + 64) * self.limit;
            page.body.reserve(expected.min(self.bytes_max / 16) + rendered.len());
        }
        page.body.extend_from_slice(rendered);
        page.count += 1;
        page.last = Some(seq);
        page.more = page.count == self.limit;
        if page.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The page as far as it came.
    #[must_use]
    pub fn finish(self) -> Page {
        self.page
    }
}

impl Page {
    /// Where the next page begins; `None` on one that ended because there was no more.
    #[must_use]
    pub fn next_cursor(&self) -> Option<u64> {
        self.last.filter(|_| self.more)
    }

    /// The whole answer, with the cursor that the read left behind.
    #[must_use]
    pub fn into_answer(self, cursor: u64) -> Vec<u8> {
        let next = self.next_cursor().map_or_else(|| "null".to_owned(), |next| next.to_string());
        let mut body = self.body;
        body.extend_from_slice(
            format!("],\"next_cursor\":{next},\"cursor\":{cursor}}}").as_bytes(),
        );
        body
    }
}
