//! The reference page `docs/configuration.md`, made from the comments of the default file and from
//! what the program checks. Invariant: the committed page equals this module's output (a test).

use std::fmt::Write as _;

use super::kafka::OWNED;
use super::keys::{
    DEFAULT_FILE, ENV_ALIASES, ENV_PREFIX, Keys, Kind, PROPERTIES, environment_name,
};
use super::validate::BOUNDS;

const INTRODUCTION: &str = "\
# Configuration

This page is made from the program: `streaming-hub config reference > docs/configuration.md`.

## Where values come from

Later ones win, setting by setting:

1. the defaults below (`config/default.toml`, part of the program);
2. a TOML file: `--config FILE`, or the variable `STREAMING_HUB_CONFIG`;
3. environment variables: `STREAMING_HUB_<SECTION>__<KEY>`, two underscores between section and
   key, `STREAMING_HUB_<KEY>` for the settings at the top;
4. flags: `--set section.key=value`, as often as needed, and `--roles a,b`.

In the environment and in `--set`, text is taken as it is, numbers are digits, truth is `true` or
`false`, lists are `a,b` or written as in TOML (`[\"a\", \"b\"]`). A list replaces the list
below it, `[kafka.properties]` is merged name by name. Units are in the names: `_ms` milliseconds,
`_hours`, `_bytes`, `_kbytes` KiB.

A name that is no setting is an error, in every layer; variables that Kubernetes makes for a service
called `streaming-hub` are passed over.

## Checking

- `streaming-hub config check` names everything that is wrong at once, and ends with status 2 then.
  A start checks the same.
- `streaming-hub config print` shows the effective values, with `--sources` where each came from.
  Secrets are masked: `encryption.key`, the digests of tokens, and Kafka properties whose names
  speak of a password, secret, token or key.
";

/// The page.
///
/// # Errors
/// The embedded default file is not TOML; a test holds that it is.
pub(crate) fn markdown() -> Result<String, toml::de::Error> {
    let keys = Keys::embedded()?;
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## At the top\n");
    let mut comment = Vec::new();
    let mut section = String::new();
    for line in DEFAULT_FILE.lines() {
        if let Some(text) = line.strip_prefix('#') {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            write_section(&mut page, name, &comment);
            comment.clear();
        } else if let Some((name, _)) = line.split_once(" = ") {
            let key = if section.is_empty() { name.into() } else { format!("{section}.{name}") };
            write_setting(&mut page, &keys, &key, &comment);
            comment.clear();
        } else {
            // A comment that stands alone speaks of the file.
            comment.clear();
        }
    }
    Ok(page)
}

// Writing to a string cannot fail: results of `write!` are dropped below.

fn write_section(page: &mut String, name: &str, comment: &[&str]) {
    let _ = write!(page, "\n## `[{name}]`\n\n{}\n", comment.join("\n"));
    if name == PROPERTIES {
        page.push_str("\nThe hub sets these itself; the configuration may not:\n\n");
        page.push_str("| property | |\n|---|---|\n");
        for (property, instead) in OWNED {
            let _ = writeln!(page, "| `{property}` | {instead} |");
        }
    }
}

fn write_setting(page: &mut String, keys: &Keys, key: &str, comment: &[&str]) {
    let _ = write!(page, "\n### `{key}`\n\n{}\n\n", comment.join("\n"));
    let Some(setting) = keys.get(key) else { return };
    let kind = match setting.kind {
        Kind::Text => "Text",
        Kind::Integer => "Whole number",
        Kind::Boolean => "`true` or `false`",
        Kind::Texts => "List of text",
        Kind::Integers => "List of whole numbers",
        Kind::Tables => "List of tables",
    };
    let _ = write!(page, "- {kind}, default `{}`", setting.default);
    if let Some((_, least, most)) = BOUNDS.iter().find(|(name, _, _)| *name == key) {
        let _ = write!(page, ", {least} to {most}");
    }
    let _ = write!(page, "\n- `{}`", environment_name(key));
    if let Some((alias, _)) = ENV_ALIASES.iter().find(|(_, name)| *name == key) {
        let _ = write!(page, " or `{ENV_PREFIX}{}`", alias.to_uppercase());
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../docs/configuration.md");

    #[test]
    fn the_committed_page_is_the_one_that_the_program_makes() {
        let made = markdown().unwrap();
        let hint = "run: streaming-hub config reference > docs/configuration.md";
        let differs = made.lines().zip(COMMITTED.lines()).find(|(made, old)| made != old);
        assert!(made == COMMITTED, "docs/configuration.md is out of date at {differs:?}; {hint}");
    }

    #[test]
    fn every_setting_has_a_comment_and_every_number_has_bounds() {
        let keys = Keys::embedded().unwrap();
        let page = markdown().unwrap();
        for key in keys.names() {
            let entry = page.split(&format!("\n### `{key}`\n\n")).nth(1);
            let first = entry.and_then(|text| text.lines().next());
            assert!(first.is_some_and(|line| line.len() > 20), "{key} has no comment");
            let bounded = BOUNDS.iter().any(|(name, _, _)| *name == key);
            assert_eq!(bounded, keys.get(key).unwrap().kind == Kind::Integer, "{key}");
        }
        assert!(BOUNDS.iter().all(|(key, _, _)| keys.get(key).is_some()));
    }
}
