//! Questions to a delivery task from outside (`model::delivery_calls`). What only reads is answered
//! at once; what writes is answered once its transaction has committed, and comes again after an
//! abort.
//!
//! Not here: how dead letters are listed (`dead_letters`) and become jobs (`redelivery`), and how
//! attempts are kept (`attempt_log`).

use streaming_hub_model::delivery_calls::{
    Answer, Cursor, DeadLettersPage, DeliveryStats, Filter, JobPlace, JobState, PAGE_MAX, Question,
};
use streaming_hub_model::destination::SpanState;
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_state::State;
use streaming_hub_state::family::{Place, backlog};

use super::outcome::Counted;
use super::places::{self, StoredJob};
use super::{Delivery, dead_letters, failures};
use crate::calls::Reply;
use crate::runtime::processor::{Error, Step};
use crate::topics::RETRY_TIERS;

/// A question and the way back.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is asked.
    pub question: Question,
    /// Who waits for the answer.
    pub reply: Reply<Answer>,
}

impl Delivery {
    /// Answers a question, or writes what it asks for and answers after the commit.
    pub(super) fn answer(&mut self, call: &Call, step: &mut Step<'_>) -> Result<(), Error> {
        if !call.reply.is_awaited() {
            // Nobody would hear of it, so nothing is done that nobody would know.
            return Ok(());
        }
        let answer = match &call.question {
            Question::Redeliver { what, key } => {
                let done = self.redeliver(what, key.as_deref(), step)?;
                self.answers.push((call.reply.clone(), Answer::Redelivered(done)));
                return Ok(());
            }
            Question::Replay { subscription, nonce, events } => {
                let done = self.replay(*subscription, nonce, events, step)?;
                self.answers.push((call.reply.clone(), done));
                return Ok(());
            }
            Question::Forget { tenant, after } => {
                let done = self.forget(tenant, *after, step)?;
                self.answers.push((call.reply.clone(), done));
                return Ok(());
            }
            Question::Attempts { subscription, before, limit } => Answer::Attempts(
                self.attempt_log.page(step.state, *subscription, *before, page(*limit))?,
            ),
            Question::DeadLetters { filter, after, limit } => {
                Answer::DeadLetters(list(step.state, filter, *after, page(*limit))?)
            }
            Question::DeadLetter { job } => {
                let letter = dead_letters::get(step.state, *job)?;
                Answer::DeadLetter { letter: letter.map(|letter| Box::new(letter.in_full())) }
            }
            Question::Stats { subscription } => Answer::Stats(stats(step.state, *subscription)?),
            Question::Jobs { tenant, event, subscriptions } => {
                let jobs = self.jobs(step.state, (tenant, *event), subscriptions)?;
                Answer::Jobs { jobs }
            }
            Question::Destinations { destinations, subscriptions } => {
                let gates = destinations.iter().take(usize::from(PAGE_MAX));
                Answer::Destinations {
                    gates: gates.filter_map(|of| self.gates.state_of(of, step.now)).collect(),
                    spans: spans(step.state, subscriptions)?,
                }
            }
        };
        call.reply.send(answer);
        Ok(())
    }

    /// Throws away some of a tenant's dead letters; at the end says what is still to come.
    fn forget(
        &mut self,
        tenant: &TenantId,
        after: Option<Cursor>,
        step: &mut Step<'_>,
    ) -> Result<Answer, Error> {
        let filter = Filter { tenant: Some(tenant.clone()), ..Filter::default() };
        let (found, next) = dead_letters::list(step.state, &filter, after, page(PAGE_MAX))?;
        let letters = found.len() as u64;
        for job in found {
            dead_letters::end(job, step)?;
            self.tally.push(Counted::LetterGone("forgotten"));
        }
        let ending = if next.is_none() { self.still_ending(step.state)? } else { 0 };
        Ok(Answer::Forgotten { letters, next, ending })
    }

    /// Where the first jobs of an event stand, one for each subscription that has one.
    fn jobs(
        &self,
        state: &State,
        (tenant, event): (&TenantId, EventId),
        subscriptions: &[SubscriptionId],
    ) -> Result<Vec<JobState>, Error> {
        let mut jobs = Vec::new();
        for subscription in subscriptions.iter().take(usize::from(PAGE_MAX)) {
            let job = JobId::derive(tenant.as_str(), event, *subscription, b"");
            if let Some(at) = self.place_of(state, *subscription, job)? {
                jobs.push(JobState { job, subscription: *subscription, at });
            }
        }
        Ok(jobs)
    }

    fn place_of(
        &self,
        state: &State,
        subscription: SubscriptionId,
        job: JobId,
    ) -> Result<Option<JobPlace>, Error> {
        for place in (0..=RETRY_TIERS).filter_map(Place::from_number) {
            if let Some(StoredJob { facts, .. }) = places::get(state, place, job)? {
                let (attempts, due) = (facts.attempts, facts.due);
                return Ok(Some(match place.number() {
                    0 => JobPlace::Ready { due },
                    tier => JobPlace::Retry { tier, attempts, due },
                }));
            }
        }
        if let Some(letter) = dead_letters::get(state, job)? {
            let (reason, ended_at) = letter.end();
            return Ok(Some(JobPlace::DeadLetter { reason, ended_at }));
        }
        let started = self.attempt_log.delivered(state, subscription, job)?;
        Ok(started.map(|started_at| JobPlace::Delivered { started_at }))
    }
}

/// The failure spans of these subscriptions.
fn spans(state: &State, of: &[SubscriptionId]) -> Result<Vec<SpanState>, Error> {
    let mut spans = Vec::new();
    for id in of {
        let span = failures::span_of(state, *id)?;
        spans.extend(span.map(|span| SpanState {
            subscription: *id,
            first: span.first,
            last: span.last,
        }));
    }
    Ok(spans)
}

/// How many entries a page has.
pub(super) fn page(limit: u16) -> usize {
    usize::from(limit.clamp(1, PAGE_MAX))
}

fn list(
    state: &State,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<DeadLettersPage, Error> {
    let (found, next) = dead_letters::list(state, filter, after, limit)?;
    let mut letters = Vec::with_capacity(found.len());
    for job in found {
        letters.extend(dead_letters::get(state, job)?.map(|letter| letter.summary()));
    }
    Ok(DeadLettersPage { letters, next })
}

fn stats(state: &State, id: SubscriptionId) -> Result<DeliveryStats, Error> {
    let waits = backlog::get(state, id.as_bytes())?;
    let first = places::first_ready(state, id, 0, |_| true)?;
    let retry = places::first_due(state, id, |_| true)?;
    let oldest = first.iter().chain(&retry).map(|job| job.facts.matched).min();
    Ok(DeliveryStats { backlog: waits.jobs(), or_more: false, oldest_waiting_at: oldest })
}
