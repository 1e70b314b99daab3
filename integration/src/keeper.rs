//! Ends what was started, however the harness ends: a small process of its own holds a pipe of
//! ours and runs a command when the pipe closes, be it by a drop, a panic or a kill of the test.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// Runs its command when it is dropped, or when this process is gone.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
}

/// Waits for the end of its input; a line says that the command is not needed any more.
const SCRIPT: &str = r#"read -r line || exec "$@""#;

impl Keeper {
    /// A keeper of this command.
    ///
    /// # Errors
    /// When there is no `bash`.
    pub fn new(command: &[&OsStr]) -> Result<Self> {
        let child = Command::new("bash")
            .args(["-c", SCRIPT, "keeper"])
            .args(command)
            // An interrupt at the terminal is for the harness; the keeper outlives it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("bash")?;
        Ok(Self { child })
    }

    /// Ends the keeper without its command.
    pub fn disarm(mut self) {
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(b"done\n");
        }
        let _ = self.child.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(disarm: bool) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made");
        let keeper = Keeper::new(&[OsStr::new("touch"), file.as_os_str()]).unwrap();
        if disarm {
            keeper.disarm()
        } else {
            drop(keeper)
        }
        file.exists()
    }

    #[test]
    fn a_keeper_runs_its_command_at_the_end_unless_it_was_disarmed() {
        assert!(made(false));
        assert!(!made(true));
    }
}
