//! What the Rust client cannot do, by `kcat`: header names that are no UTF-8, written and shown.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::facts::Fact;
use crate::reader::Reader;

/// Writes a fact and returns its offset. Nobody else may write its partition meanwhile. A null
/// header or value is beyond it.
///
/// # Errors
/// When it is not written.
pub fn produce(bootstrap: &str, fact: &Fact) -> Result<i64> {
    let reader = Reader::new(bootstrap)?;
    let (_, offset) = reader.watermarks(&fact.topic, fact.partition)?;
    let value = fact.value.as_deref().context("kcat writes no null value")?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), value)?;
    let mut command = Command::new("kcat");
    command.args(["-P", "-b", bootstrap, "-t", &fact.topic, "-p", &fact.partition.to_string()]);
    if let Some(key) = &fact.key {
        command.arg("-k").arg(OsString::from_vec(key.clone()));
    }
    for (name, value) in &fact.headers {
        let value = value.as_deref().context("kcat writes no null header")?;
        command.arg("-H").arg(OsString::from_vec([name, &b"="[..], value].concat()));
    }
    let output = command.arg(file.path()).output().context("kcat")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kcat -P: {}: {told}", output.status);
    let (_, after) = reader.watermarks(&fact.topic, fact.partition)?;
    ensure!(after == offset + 1, "kcat wrote {} records", after - offset);
    Ok(offset)
}

/// The headers of one record as `kcat` prints them, raw bytes: `name=value,name=value,…`.
///
/// # Errors
/// When it cannot be read.
pub fn headers(bootstrap: &str, topic: &str, partition: i32, offset: i64) -> Result<Vec<u8>> {
    let mut command = Command::new("kcat");
    command.args(["-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-c", "1", "-f", "%h"]);
    command.args(["-p", &partition.to_string(), "-o", &offset.to_string()]);
    let output = command.output().context("kcat")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kcat -C: {}: {told}", output.status);
    Ok(output.stdout)
}

/// These headers as [`headers`] shows them.
#[must_use]
pub fn shown(headers: &[crate::facts::Header]) -> Vec<u8> {
    let lines = headers.iter().map(|(name, value)| {
        let value = value.as_deref().unwrap_or(b"NULL");
        [name, &b"="[..], value].concat()
    });
    lines.collect::<Vec<_>>().join(&b","[..])
}
