//! How a batch is carried to a service that answers each entry by itself: in one request, or, when
//! that was refused as a whole for what may be one entry's fault, entry by entry.

use streaming_hub_model::attempt::Outcome;
use streaming_hub_model::sink::SinkFuture;

use super::failure::Failure;
use crate::batch::Carrier;
use crate::outcome::unanswered;

/// A destination at a service, under one identity.
pub(crate) trait Service: Send + Sync + 'static {
    /// One message.
    type Entry: Clone + Send + Sync + 'static;

    /// How much of a request it takes, in bytes as the service counts.
    fn bytes(&self, entry: &Self::Entry) -> usize;

    /// Makes one request. The outcomes are in the order of the entries; a failure is one of the
    /// request as a whole.
    fn request<'a>(
        &'a self,
        entries: &'a [Self::Entry],
    ) -> SinkFuture<'a, Result<Vec<Outcome>, Failure>>;
}

impl<S: Service> Carrier for S {
    type Entry = S::Entry;

    fn bytes(&self, entry: &Self::Entry) -> usize {
        Service::bytes(self, entry)
    }

    fn send(&self, entries: Vec<Self::Entry>) -> SinkFuture<'_, Vec<Outcome>> {
        Box::pin(carry(self, entries))
    }
}

/// The outcome of each entry. A request that was refused as a whole for what may be one entry's
/// fault goes again entry by entry: nothing of it was taken.
async fn carry<S: Service>(service: &S, entries: Vec<S::Entry>) -> Vec<Outcome> {
    match service.request(&entries).await {
        Ok(outcomes) => outcomes,
        Err(failure) if entries.len() > 1 && failure.is_of_the_request() => {
            let mut outcomes = Vec::with_capacity(entries.len());
            for entry in &entries {
                outcomes.push(match service.request(std::slice::from_ref(entry)).await {
                    Ok(alone) => alone.into_iter().next().unwrap_or_else(unanswered),
                    Err(failure) => failure.outcome(),
                });
            }
            outcomes
        }
        Err(failure) => entries.iter().map(|_| failure.outcome()).collect(),
    }
}
