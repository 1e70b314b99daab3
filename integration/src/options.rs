//! Options of a tool: environment variables, overruled by flags of the same names.

use anyhow::{Context as _, Result, bail};

/// Hands each option that is given to `set`: those of the environment (names in capitals), then
/// the flags (`--name value`).
///
/// # Errors
/// A flag of another name, or without a value, and what `set` answers.
pub fn read(
    names: &[&str],
    usage: &str,
    environment: impl Fn(&str) -> Option<String>,
    flags: impl IntoIterator<Item = String>,
    mut set: impl FnMut(&str, &str) -> Result<()>,
) -> Result<()> {
    for name in names {
        if let Some(value) = environment(&name.to_ascii_uppercase()) {
            set(name, &value)?;
        }
    }
    let mut flags = flags.into_iter();
    while let Some(flag) = flags.next() {
        let Some(name) = flag.strip_prefix("--").filter(|name| names.contains(name)) else {
            bail!("unknown option {flag}\n\n{usage}");
        };
        let value = flags.next().with_context(|| format!("{flag} needs a value"))?;
        set(name, &value)?;
    }
    Ok(())
}
