//! What is wrong with a configuration, said so that it can be put right: which key, its value,
//! where that came from, what is wrong, what to do. Invariant: a problem never shows a secret.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The key, or the flag or variable that names none.
    pub(crate) key: String,
    /// Its value as TOML, masked where it is secret.
    pub(crate) value: Option<String>,
    /// The layer that the value came from.
    pub(crate) origin: Option<String>,
    /// What is wrong: completes "It …".
    pub(crate) wrong: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Problem {
    /// A problem whose value and origin are not known or do not matter.
    pub(super) fn new(
        key: impl Into<String>,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            value: None,
            origin: None,
            wrong: wrong.into(),
            remedy: remedy.into(),
        }
    }

    /// The same, found in this layer.
    pub(super) fn in_layer(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        write!(f, "\n    It {}.\n    {}.", self.wrong, self.remedy)
    }
}

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "1 problem in the configuration:")?,
            count => write!(f, "{count} problems in the configuration:")?,
        }
        self.0.iter().try_for_each(|problem| write!(f, "\n\n  {problem}"))
    }
}

impl std::error::Error for Problems {}
