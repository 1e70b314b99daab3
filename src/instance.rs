//! Who this instance is: a name that outlives restarts (static membership depends on it) and a
//! lock, so that no two processes are the same instance on one machine.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, bail};
use streaming_hub_model::id::uuid_v7;
use streaming_hub_model::ports::{Clock, Entropy};

/// The instance's name and its lock on the state directory, held for the life of the process.
pub(crate) struct Instance {
    /// The name.
    pub(crate) id: String,
    _lock: File,
}

impl Instance {
    /// The configured name, or the one kept in the state directory, or a new one kept there.
    ///
    /// # Errors
    /// When the state directory cannot be used, or another process uses it.
    pub(crate) fn claim(
        configured: Option<&str>,
        state_dir: &Path,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(state_dir)
            .with_context(|| format!("state_dir: cannot make {}", state_dir.display()))?;
        let path = state_dir.join("instance.lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.with_context(|| format!("state_dir: cannot open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "state_dir: another process uses {}; give each instance a directory of its own",
                state_dir.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("locking {}", path.display()));
            }
        }
        let id = match configured {
            Some(id) => id.to_owned(),
            None => kept(&state_dir.join("instance-id"), clock, entropy)?,
        };
        Ok(Self { id, _lock: lock })
    }
}

fn kept(path: &Path, clock: &dyn Clock, entropy: &dyn Entropy) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("reading {}", path.display()));
        }
    }
    let id = uuid_v7(clock.now().0, entropy.ten()).simple().to_string();
    let new = path.with_extension("new");
    fs::write(&new, &id).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("writing {}", path.display()))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streaming_hub_topology::clock::{SystemClock, SystemEntropy};

    fn claim(configured: Option<&str>, dir: &Path) -> anyhow::Result<Instance> {
        Instance::claim(configured, dir, &SystemClock, &SystemEntropy)
    }

    #[test]
    fn a_name_is_made_once_and_kept_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let first = claim(None, dir.path()).unwrap().id;
        assert_eq!(claim(None, dir.path()).unwrap().id, first);
        assert_eq!(claim(Some("hub-1"), dir.path()).unwrap().id, "hub-1");
    }

    #[test]
    fn two_processes_never_share_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let _held = claim(None, dir.path()).unwrap();
        let second = claim(None, dir.path()).err().unwrap().to_string();
        assert!(second.contains("another process"), "{second}");
    }
}
