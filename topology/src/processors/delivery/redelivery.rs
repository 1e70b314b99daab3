//! Dead letters that become jobs again (contract section 4): each under a new id, derived with a
//! fresh nonce (design 23), so that it is a job like any other and its own end another one. The
//! letter ends and the new job begins in one transaction (I3); the task reads the job from the
//! deliveries like every other, behind what already waits (I9).

use streaming_hub_model::delivery_calls::{
    Chosen, Redelivered, RedeliveredJob, Refused, RefusedJob,
};
use streaming_hub_model::id::JobId;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::routing;

use super::Delivery;
use super::dead_letters::{self, Letter};
use super::outcome::{Counted, with_facts};
use super::places::refs;
use super::questions::page;
use crate::runtime::processor::{Error, Output, Step};
use crate::topics::Topic;

/// A batch ends once its jobs have this much payload, bytes.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

impl Delivery {
    /// Redelivers what was chosen, a bounded batch.
    pub(super) fn redeliver(
        &mut self,
        what: &Chosen,
        key: Option<&str>,
        step: &mut Step<'_>,
    ) -> Result<Redelivered, Error> {
        let (chosen, next) = match what {
            Chosen::One { job } => (vec![*job], None),
            Chosen::Filtered { filter, after, limit } => {
                dead_letters::list(step.state, filter, *after, page(*limit))?
            }
        };
        let (mut done, mut bytes) = (Redelivered { next, ..Redelivered::default() }, 0);
        let mut last = None;
        for dead_letter in chosen {
            if bytes >= BATCH_BYTES_MAX {
                done.next = last;
                break;
            }
            let Some(letter) = dead_letters::get(step.state, dead_letter)? else {
                done.refused.push(RefusedJob { dead_letter, because: Refused::NotFound });
                continue;
            };
            last = Some(letter.cursor());
            if let Err(because) = self.may_be_redelivered(&letter) {
                done.refused.push(RefusedJob { dead_letter, because });
                continue;
            }
            bytes += letter.payload.len();
            let job = self.make_again(&letter, key, step)?;
            done.redelivered.push(RedeliveredJob { dead_letter, job });
        }
        Ok(done)
    }

    /// Whether a letter's subscription takes jobs: one that does not would end it again at once.
    fn may_be_redelivered(&self, letter: &Letter) -> Result<(), Refused> {
        match self.settings.table.get(letter.facts.subscription) {
            None => Err(Refused::SubscriptionDeleted),
            Some(subscription) if subscription.tenant.as_str() != letter.tenant => {
                Err(Refused::SubscriptionDeleted)
            }
            Some(subscription) if !subscription.enabled => Err(Refused::SubscriptionDisabled),
            Some(_) => Ok(()),
        }
    }

    fn make_again(
        &mut self,
        letter: &Letter,
        key: Option<&str>,
        step: &mut Step<'_>,
    ) -> Result<JobId, Error> {
        let old = refs(letter.record());
        let (subscription, nonce) = (letter.facts.subscription, self.nonce(letter, key));
        let job = JobId::derive(&letter.tenant, letter.event, subscription, &nonce);
        let partitions = self.settings.partitions.unsigned_abs();
        let home = routing::partition_for_tenant(&letter.tenant, partitions);
        let facts = JobFacts {
            subscription,
            matched: step.now,
            table: self.settings.table.position(home).max(letter.facts.table),
            attempts: 0,
            due: step.now,
        };
        let texts = facts.headers();
        let headers = with_facts(&old, &texts);
        step.outputs.emit(Output {
            topic: Topic::Deliveries,
            partition: step.partition,
            key: Some(job.to_string().as_bytes()),
            headers: &headers,
            value: Some(&letter.payload),
        });
        dead_letters::end(letter.job, step)?;
        self.tally.push(Counted::LetterGone("redelivered"));
        Ok(job)
    }

    /// What tells this redelivery from every other: the caller's key and the letter that it is of,
    /// or chance.
    fn nonce(&self, letter: &Letter, key: Option<&str>) -> Vec<u8> {
        match key {
            Some(key) => [b"redeliver/", key.as_bytes(), b"/", letter.job.as_bytes()].concat(),
            None => self.settings.entropy.ten().to_vec(),
        }
    }
}
