//! Keeps values until the end of a run, so that sessions may borrow what they run with although
//! both belong to a world that makes and drops processes as it goes. Append only, and safe.

use std::cell::OnceCell;

struct Node<T> {
    value: T,
    next: Link<T>,
}

type Link<T> = OnceCell<Box<Node<T>>>;

/// An append-only list.
pub struct Arena<T> {
    head: Link<T>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { head: OnceCell::new() }
    }
}

impl<T> Arena<T> {
    /// Keeps a value as long as the arena.
    pub fn keep(&self, value: T) -> &T {
        let mut link = &self.head;
        while let Some(node) = link.get() {
            link = &node.next;
        }
        &link.get_or_init(|| Box::new(Node { value, next: OnceCell::new() })).value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_where_it_is() {
        let arena = Arena::default();
        let (first, second) = (arena.keep(String::from("a")), arena.keep(String::from("b")));
        assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
    }
}
