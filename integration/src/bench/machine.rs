//! What the figures were measured on, and what this process itself used of it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Ticks of `/proc/self/stat` in a second: `USER_HZ`, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processors, memory and system, as far as the system tells.
#[must_use]
pub fn describe() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let load = read("/proc/loadavg");
    json!({
        "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "model": field(&read("/proc/cpuinfo"), "model name"),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        // What else ran on it, at the end.
        "load_average": load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

/// The processor time that this process has used, seconds.
///
/// # Errors
/// When the system does not tell.
pub fn own_cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name in parentheses, user and system time are the 12th and 13th field.
    let fields = stat.rsplit_once(") ").context("/proc/self/stat")?.1;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
}
