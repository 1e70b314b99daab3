//! The logs of pull subscriptions: reads are answered what a test says.

use std::time::Duration;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::{PullAnswer, PullLogs, PullStanding};
use streaming_hub_model::pull::Ask;
use streaming_hub_model::sink::SinkFuture;

use super::FakeHub;

/// What reads are answered, and what was read last.
#[derive(Default)]
pub(crate) struct FakeLog {
    leftover: u64,
    answer: Option<Result<PullAnswer, CallError>>,
    standing: Option<PullStanding>,
    last: Option<(Ask, Duration)>,
}

impl FakeHub {
    /// What every read is answered from now on.
    pub(crate) fn answer_reads(&self, answer: Result<PullAnswer, CallError>) {
        self.log.lock().unwrap().answer = Some(answer);
    }

    /// Where every pull subscription stands from now on.
    pub(crate) fn stand(&self, standing: PullStanding) {
        self.log.lock().unwrap().standing = Some(standing);
    }

    /// So many deleted subscriptions have entries when this is asked next, and one less each time.
    pub(crate) fn leave_over(&self, subscriptions: u64) {
        self.log.lock().unwrap().leftover = subscriptions;
    }

    /// What was read last, and how long it was to wait.
    pub(crate) fn last_read(&self) -> Option<(Ask, Duration)> {
        self.log.lock().unwrap().last
    }
}

impl PullLogs for FakeHub {
    fn is_here(&self, _: SubscriptionId) -> Result<(), CallError> {
        match &self.log.lock().unwrap().answer {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn read(
        &self,
        _: SubscriptionId,
        ask: Ask,
        (wait, _): (Duration, Duration),
    ) -> SinkFuture<'_, Result<PullAnswer, CallError>> {
        Box::pin(async move {
            let mut log = self.log.lock().unwrap();
            log.last = Some((ask, wait));
            log.answer.clone().unwrap_or(Err(CallError::Unknown))
        })
    }

    fn standing(&self, _: SubscriptionId) -> SinkFuture<'_, Result<PullStanding, CallError>> {
        Box::pin(async { self.log.lock().unwrap().standing.ok_or(CallError::TimedOut) })
    }

    fn leftover(&self, _: i32, _: Vec<SubscriptionId>) -> SinkFuture<'_, Result<u64, CallError>> {
        let mut log = self.log.lock().unwrap();
        let left = log.leftover;
        log.leftover = left.saturating_sub(1);
        Box::pin(async move { Ok(left) })
    }
}
