//! A sink of the type `eventbridge` in a body.

use serde_json::Value;
use streaming_hub_model::destination::{EventBridgeConfig, VerifyWith};

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
    /// Reads the fields; what is left out is taken from `current`, where there is one.
    pub(super) fn read(
        mut fields: Fields<'_>,
        current: Option<&EventBridgeConfig>,
    ) -> Option<Self> {
        let kept = current.map(|current| (current.event_bus.clone(), current.region.clone()));
        let event_bus = super::field(&mut fields, "event_bus", event_bus, kept);
        let endpoint = aws::endpoint(&mut fields, current.map(|current| current.endpoint.as_ref()));
        let credentials =
            aws::credentials(&mut fields, current.map(|current| &current.credentials));
        let verify_with = aws::verify_with(&mut fields, current.map(|current| current.verify_with));
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
