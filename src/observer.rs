//! Starts the observer of the producers' dead-letter topics, where the instance has that role.

use std::sync::Arc;

use prometheus::Registry;
use streaming_hub_model::ports::ProducerDeadLetters;
use streaming_hub_topology::dlq::{Metrics, Observer};

use crate::config::{Config, Role};
use crate::hub::Parts;
use crate::settings;

/// Starts the thread, and answers what the API asks.
pub(crate) fn start(
    config: &Config,
    parts: &Parts,
    metrics: &Registry,
) -> anyhow::Result<Option<Arc<dyn ProducerDeadLetters>>> {
    if !config.roles.has(Role::Dlq) {
        return Ok(None);
    }
    let (observer, index) = Observer::new(
        Arc::clone(&parts.shared),
        settings::follow(config)?,
        (settings::dlq(config), Metrics::new(metrics)?),
        parts.stop.clone(),
    );
    std::thread::Builder::new().name("dlq-observer".into()).spawn(move || observer.run())?;
    Ok(Some(Arc::new(index)))
}
