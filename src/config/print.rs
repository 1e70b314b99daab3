//! Shows a configuration: as TOML that could be a file (but for the masks), or one line a setting
//! with its origin.

use std::fmt::Write as _;

use super::keys::leaves;
use super::load::{DEFAULT_ORIGIN, Loaded};

impl Loaded {
    /// The effective values as TOML, secrets masked.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub(crate) fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.config)
    }

    /// One line for each value: dotted key, value, and the layer that it came from.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub(crate) fn to_toml_with_origins(&self) -> Result<String, toml::ser::Error> {
        let values = toml::Table::try_from(&self.config)?;
        let mut lines = String::new();
        for (path, value) in leaves(&values) {
            let origin = self.origins.get(&path.join(".")).map_or(DEFAULT_ORIGIN, String::as_str);
            let key: Vec<_> = path.iter().map(|part| quoted(part)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{} = {value}  # {origin}", key.join("."));
        }
        Ok(lines)
    }
}

fn quoted(part: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if part.bytes().all(bare) { part.to_owned() } else { toml::Value::from(part).to_string() }
}
