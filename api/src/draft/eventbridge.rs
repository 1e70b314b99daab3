//! A sink of the type `eventbridge` in a body.

use serde_json::Value;
use streaming_hub_model::sink_config::{EventBridgeConfig, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;

use super::Seal;
use super::aws::{self, CredentialsDraft};
use crate::fields::{At, Fault, Fields};
use crate::problem::Problem;

/// A bus as its tenant asks for it.
#[derive(Debug)]
pub(crate) struct EventBridgeDraft {
    event_bus: (String, String),
    endpoint: Option<String>,
    credentials: CredentialsDraft,
    verify_with: VerifyWith,
}

impl EventBridgeDraft {
    /// Reads the fields; secrets that are not given again are those of `current`.
    pub(super) fn read(mut fields: Fields<'_>, current: Option<&SinkConfig>) -> Option<Self> {
        let current = match current {
            Some(SinkConfig::EventBridge(current)) => Some(&current.credentials),
            _ => None,
        };
        let event_bus = fields.required("event_bus", event_bus);
        let endpoint = aws::endpoint(&mut fields);
        let credentials = aws::credentials(&mut fields, current);
        let verify_with = aws::verify_with(&mut fields);
        fields.finish();
        Some(Self {
            event_bus: event_bus?,
            endpoint: endpoint?,
            credentials: credentials?,
            verify_with: verify_with?,
        })
    }

    /// The configuration as it may leave the process.
    pub(crate) fn sealed(self, seal: &Seal<'_>) -> Result<EventBridgeConfig, Problem> {
        let (event_bus, region) = self.event_bus;
        Ok(EventBridgeConfig {
            event_bus,
            region,
            endpoint: self.endpoint,
            credentials: self.credentials.sealed(seal)?,
            verify_with: self.verify_with,
        })
    }
}

/// The bus's ARN and the region in it.
fn event_bus(value: Value, at: &mut At<'_>) -> Option<(String, String)> {
    let arn = aws::arn(value, ":event-bus/", at)?;
    let region = arn.split(':').nth(3).unwrap_or_default().to_owned();
    if !arn.contains(":events:") || !aws::is_region(&region) {
        let message = "must be arn:aws:events:<region>:<account>:event-bus/<name>";
        return at.fail(Fault::Invalid, message);
    }
    Some((arn, region))
}
