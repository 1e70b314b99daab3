//! Stored events that become jobs again (contract section 7, `POST …/replay`): each under an id
//! derived with the replay's own nonce (design 23), written by the task that owns the subscription,
//! in its transaction. The task reads the jobs from its log like every other, behind what already
//! waits (I9). The same replay made twice makes the same ids: what still waits collapses.

use streaming_hub_model::delivery_calls::{Answer, ReplayedEvent};
use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::internal::Accepted;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::routing;

use super::Delivery;
use super::outcome::with_facts;
use crate::runtime::processor::{Error, Output, Step};
use crate::topics::Topic;

impl Delivery {
    /// Makes jobs of stored events for a subscription that takes jobs.
    pub(super) fn replay(
        &self,
        subscription: SubscriptionId,
        nonce: &str,
        events: &[ReplayedEvent],
        step: &mut Step<'_>,
    ) -> Result<Answer, Error> {
        let record = self.settings.table.get(subscription).filter(|record| record.enabled);
        let Some(record) = record else { return Ok(Answer::Replayed { jobs: 0, refused: true }) };
        let partitions = self.settings.partitions.unsigned_abs();
        let home = routing::partition_for_tenant(record.tenant.as_str(), partitions);
        let nonce = [b"replay/", nonce.as_bytes()].concat();
        let mut jobs = 0;
        for event in events {
            let headers: Vec<HeaderRef<'_>> =
                event.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
            // What is another tenant's, or no event at all, was not this subscription's to ask for.
            let Ok(read) = Accepted::read(Headers::new(&headers)) else { continue };
            if read.tenant != record.tenant.as_str() {
                continue;
            }
            let job = JobId::derive(read.tenant, read.id, subscription, &nonce);
            let facts = JobFacts {
                subscription,
                matched: step.now,
                table: self.settings.table.position(home),
                attempts: 0,
                due: step.now,
            };
            let texts = facts.headers();
            step.outputs.emit(Output {
                topic: Topic::Deliveries,
                partition: step.partition,
                key: Some(job.to_string().as_bytes()),
                headers: &with_facts(&headers, &texts),
                value: Some(&event.payload),
            });
            jobs += 1;
        }
        Ok(Answer::Replayed { jobs, refused: false })
    }
}
