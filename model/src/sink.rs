//! The trait behind which every destination stands. The delivery engine and the API's probe know
//! this and nothing else of a sink, so that a new one adds no new path.

use std::future::Future;
use std::pin::Pin;

use crate::attempt::{Attempt, Outcome};
use crate::subscription::SinkConfig;
use crate::tenant::TenantId;

/// A future that a sink returns.
pub type SinkFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a destination is not one that the hub calls; said to the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The field of the sink's configuration that is at fault.
    pub field: &'static str,
    /// What is wrong with it.
    pub message: String,
}

/// Delivers events to destinations.
pub trait Sink: Send + Sync {
    /// Makes exactly one attempt. Ends by itself within the sink's own time-out; dropping the
    /// future cancels the attempt.
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome>;

    /// Finds out whether the destination is there and takes what this attempt would bring it. A
    /// sink whose service can be asked does that instead of delivering, unless the subscription
    /// wants the test event itself (contract section 7, "Verification").
    fn verify(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        self.attempt(attempt)
    }

    /// Whether the hub may and can address this destination for this tenant at all, asked when a
    /// subscription is written.
    fn admit<'a>(
        &'a self,
        tenant: &'a TenantId,
        config: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>>;
}
