//! What lies on this machine: the state directory, its stores, and whether a hub uses them.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::config::Config;

/// Whether a process holds the state directory.
pub(super) fn is_in_use(state_dir: &Path) -> anyhow::Result<bool> {
    let path = state_dir.join("instance.lock");
    match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        },
    }
}

/// Directories of stores of the application, and the bytes in each.
pub(super) fn stores(config: &Config) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let root = config.state_dir.join(&config.application_id);
    let mut found = Vec::new();
    for sub_topology in entries(&root)? {
        for store in entries(&sub_topology)? {
            let bytes = size(&store);
            found.push((store, bytes));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes the stores; the instance's name and lock stay.
pub(super) fn remove(config: &Config) -> anyhow::Result<()> {
    let root = config.state_dir.join(&config.application_id);
    match fs::remove_dir_all(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", root.display()))
        }
        _ => Ok(()),
    }
}

fn entries(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
        Ok(entries) => Ok(entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()),
    }
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let bytes = |path: PathBuf| match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => size(&path),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(|entry| bytes(entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn stores_are_found_measured_and_removed_and_the_name_stays() {
        let dir = tempfile::tempdir().unwrap();
        let set = vec![format!("state_dir={}", dir.path().display())];
        let config = Sources { set, ..Sources::default() }.load().unwrap().config;
        assert!(stores(&config).unwrap().is_empty());
        let store = dir.path().join("streaming-hub/match/3/db");
        fs::create_dir_all(&store).unwrap();
        fs::write(store.join("x.sst"), [0; 100]).unwrap();
        fs::write(dir.path().join("instance-id"), "a").unwrap();
        let found = stores(&config).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1, 100);
        remove(&config).unwrap();
        remove(&config).unwrap();
        assert!(stores(&config).unwrap().is_empty());
        assert!(dir.path().join("instance-id").exists());
    }

    #[test]
    fn a_directory_that_a_process_holds_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_in_use(dir.path()).unwrap());
        let held = File::create(dir.path().join("instance.lock")).unwrap();
        held.lock().unwrap();
        assert!(is_in_use(dir.path()).unwrap());
        held.unlock().unwrap();
        assert!(!is_in_use(dir.path()).unwrap());
    }
}
