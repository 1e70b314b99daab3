//! Log lines: form and filter from the configuration, written to standard error, so that standard
//! output belongs to what a command prints. The filter can be changed while the process runs, and a
//! warning that repeats without end is bounded in rate.

mod bounded;

use std::io::{self, IsTerminal as _};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use streaming_hub_api::LogFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use self::bounded::Bounded;
use crate::config::{Log, LogFormat};

/// The filter in force.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging for the whole process; once.
///
/// # Errors
/// The filter does not parse, or logging was started before.
pub(crate) fn init(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.filter).context("log.filter")?;
    let (filter, handle) = reload::Layer::new(filter);
    let is_json = log.format == LogFormat::Json;
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Human => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines.with_filter(Bounded::new(is_json)))
        .try_init()
        .map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))?;
    // A second start has failed above.
    let _ = FILTER.set(handle);
    Ok(())
}

/// The filter, for whoever may change it.
pub(crate) fn filter() -> Option<Arc<dyn LogFilter>> {
    FILTER.get().map(|handle| Arc::new(Running(handle.clone())) as Arc<dyn LogFilter>)
}

struct Running(reload::Handle<EnvFilter, Registry>);

impl LogFilter for Running {
    fn get(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }

    fn set(&self, directives: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(directives).map_err(|error| error.to_string())?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}
