//! What `doctor` sees of this machine: disk, inodes, file limits, the encryption key.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use secrecy::ExposeSecret as _;

use super::Findings;
use crate::config::{Config, Role};

/// Below this share of free space or inodes, per cent, something will fail soon.
const FREE_PROBLEM: u64 = 5;
/// Below this it is time to act.
const FREE_WARNING: u64 = 15;
/// Open files that a hub with stores, connections and receivers should have.
const FILES_MIN: u64 = 16_384;

pub(super) fn look(config: &Config, findings: &mut Findings) {
    disk(config, findings);
    files(findings);
    if config.roles.has(Role::Api) || config.roles.has(Role::Delivery) {
        key(config, findings);
    }
}

fn disk(config: &Config, findings: &mut Findings) {
    // Where the directory is not there yet, its first ancestor that is.
    let there = config.state_dir.ancestors().find(|path| path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for (check, flag, unit) in [("disk", "-Pk", "KiB"), ("inodes", "-Pi", "inodes")] {
        let output = Command::new("df").arg(flag).arg(there).env("LC_ALL", "C").output();
        let text = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
        let Some((total, free)) = text.as_deref().and_then(df) else {
            findings.warning(check, format!("`df {flag}` says nothing"), "look by hand");
            continue;
        };
        let percent = (free * 100).checked_div(total).unwrap_or(100);
        let what = format!("{free} {unit} ({percent} %) free at {}", there.display());
        let remedy = "stores are a cache: `streaming-hub reset --scope local --execute` on the \
                      stopped instance frees them; then give it a larger volume";
        if percent < FREE_PROBLEM {
            findings.problem(check, what, remedy);
        } else if percent < FREE_WARNING {
            findings.warning(check, what, remedy);
        } else {
            findings.ok(check, what);
        }
    }
}

/// Total and free of the one file system that `df -P` printed. Some have no inodes to count.
fn df(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.lines().nth(1)?.split_whitespace().skip(1);
    let total = fields.next()?;
    let free = fields.nth(1)?;
    let number = |text: &str| if text == "-" { Some(0) } else { text.parse().ok() };
    Some((number(total)?, number(free)?))
}

fn files(findings: &mut Findings) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = soft.and_then(|rest| rest.split_whitespace().next());
    match soft.map(|soft| (soft, soft.parse::<u64>())) {
        None => findings.warning("files", "no limit of open files is to be seen", "look by hand"),
        Some((soft, Ok(count))) if count < FILES_MIN => findings.warning(
            "files",
            format!("{soft} open files are allowed here"),
            "allow 65536 (LimitNOFILE= in the unit, ulimit -n): stores, brokers and receivers each \
             hold some",
        ),
        Some((soft, _)) => findings.ok("files", format!("{soft} open files are allowed here")),
    }
}

fn key(config: &Config, findings: &mut Findings) {
    if let Err(error) = config.encryption.keyring() {
        let remedy = "give encryption.key_file, the same on every instance";
        findings.problem("key", error.to_string(), remedy);
        return;
    }
    match (&config.encryption.key, &config.encryption.key_file) {
        (_, Some(path)) => match std::fs::metadata(path) {
            Ok(meta) if meta.permissions().mode() & 0o077 != 0 => findings.warning(
                "key",
                format!("{} can be read by others", path.display()),
                "chmod 400 it, owned by the hub's user",
            ),
            _ => findings.ok("key", format!("{} is the hub's alone", path.display())),
        },
        (Some(key), None) if key.expose_secret().is_empty() => {}
        _ => findings.warning(
            "key",
            "the encryption key stands in the configuration or the environment",
            "put it into a file of mode 400 and name that in encryption.key_file",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_df_is_read() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                    /dev/vda 264165376 42130000 53000000 45% /\n";
        assert_eq!(df(text), Some((264_165_376, 53_000_000)));
        let none = "Filesystem Inodes IUsed IFree IUse% Mounted on\nbtrfs 0 0 0 - /\n";
        assert_eq!(df(none), Some((0, 0)));
        assert_eq!(df("nothing"), None);
    }
}
