//! Words for whoever watches: measured figures and progress, on standard error. Written directly,
//! because the test runner keeps back what a test that passes prints.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes one line. Nobody is told when that fails: there is nowhere to tell it.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// [`say()`] with the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($arguments:tt)*) => { $crate::say::say(format_args!($($arguments)*)) };
}
