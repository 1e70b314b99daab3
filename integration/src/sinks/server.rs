//! A server that one of the project's scripts runs on free ports; it ends with its value.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::keeper::Keeper;
use crate::ports;

/// A running server.
pub(super) struct Server {
    script: PathBuf,
    directory: PathBuf,
    pub(super) port: u16,
    _keeper: Keeper,
}

impl Server {
    /// Starts it by the project's script of this name.
    pub(super) fn start(name: &str) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name);
        // The script's purge removes it, also when this process cannot any more.
        let directory = tempfile::Builder::new().prefix("streaming-hub-sink-").tempdir()?.keep();
        let stop = ["stop", "--purge", "--dir"].map(OsStr::new);
        let keeper =
            Keeper::new(&[&[script.as_os_str()], &stop[..], &[directory.as_os_str()]].concat())?;
        let server = Self { script, directory, port: ports::free(4)?, _keeper: keeper };
        server.start_again()?;
        Ok(server)
    }

    /// Starts it, at the same port and with the same data, after it was stopped.
    pub(super) fn start_again(&self) -> Result<()> {
        self.run(&["start", "--port", &self.port.to_string()])
    }

    /// Runs a command of its script.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.script);
        command.arg(arguments[0]).arg("--dir").arg(&self.directory).args(&arguments[1..]);
        // A file, not a pipe: the server that stays behind must not keep the reader waiting.
        let told = tempfile::NamedTempFile::new()?;
        command.stdout(Stdio::null()).stderr(told.reopen()?);
        let script = self.script.display();
        let status = command.status().with_context(|| script.to_string())?;
        let said = || std::fs::read_to_string(told.path()).unwrap_or_default();
        ensure!(status.success(), "{script} {arguments:?}: {status}\n{}", said());
        Ok(())
    }
}
