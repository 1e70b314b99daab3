//! Every error of librdkafka, folded once into what to do about it.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// What an error asks of the stream thread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The same call may be made again.
    #[error("retry: {0}")]
    Retry(String),
    /// The open transaction is lost; its tasks rewind (design 5).
    #[error("transaction aborted: {0}")]
    Abort(String),
    /// The thread's producer or its view of the transaction cannot be trusted: new clients, and
    /// every task restores its tail (design 5, "unknown commit outcome").
    #[error("clients must be rebuilt: {0}")]
    Rebuild(String),
    /// Somebody else uses our member id, or the coordinator forgot it while it was away: new
    /// clients once, the process ends when it comes again (design 7).
    #[error("fenced: {0}")]
    Fenced(String),
    /// Nothing can be done here: the process ends.
    #[error("fatal: {0}")]
    Fatal(String),
}

impl Error {
    /// Folds an error of a call outside of a commit.
    #[must_use]
    pub fn of(error: &KafkaError) -> Self {
        let text = error.to_string();
        match error {
            KafkaError::Transaction(inner) => {
                let inner_text = format!("{text}: {}", inner.string());
                if inner.is_fatal() || is_fenced(inner.code()) {
                    Self::Rebuild(inner_text)
                } else if inner.txn_requires_abort() {
                    Self::Abort(inner_text)
                } else if inner.is_retriable() {
                    Self::Retry(inner_text)
                } else {
                    Self::Abort(inner_text)
                }
            }
            KafkaError::MessageConsumptionFatal(_) => Self::Fenced(text),
            other => match other.rdkafka_error_code() {
                Some(code) => Self::of_code(code, &text),
                None => Self::Rebuild(text),
            },
        }
    }

    /// Folds an error of `commit_transaction`: what is neither abortable nor fenced leaves the
    /// outcome unknown, which is never guessed.
    #[must_use]
    pub fn of_commit(error: &KafkaError) -> Self {
        match Self::of(error) {
            Self::Retry(text) => Self::Rebuild(format!("the commit's outcome is unknown: {text}")),
            folded => folded,
        }
    }

    /// Folds a bare code, as a delivery or a poll reports it.
    #[must_use]
    pub fn of_code(code: RDKafkaErrorCode, text: &str) -> Self {
        use RDKafkaErrorCode as Code;
        let text = text.to_owned();
        match code {
            Code::FencedInstanceId => Self::Abort(text),
            code if code == Code::Fatal || is_fenced(code) => Self::Rebuild(text),
            Code::QueueFull
            | Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::Resolve
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::NetworkException
            | Code::UnstableOffsetCommit
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::TransactionCoordinatorFenced
            | Code::ConcurrentTransactions => Self::Retry(text),
            _ => Self::Abort(text),
        }
    }
}

/// Whether the broker knows a newer epoch of our transactional id: another user of it, or the
/// coordinator itself after a transaction that took too long. The group tells the two apart: a
/// second user of our member id is a fatal error of the consumer.
fn is_fenced(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use RDKafkaErrorCode as Code;

    #[test]
    fn each_kind_of_error_has_one_consequence() {
        let kind = |code| match Error::of_code(code, "") {
            Error::Retry(_) => "retry",
            Error::Abort(_) => "abort",
            Error::Rebuild(_) => "rebuild",
            Error::Fenced(_) => "fenced",
            Error::Fatal(_) => "fatal",
        };
        for (code, wanted) in [
            (Code::QueueFull, "retry"),
            (Code::BrokerTransportFailure, "retry"),
            (Code::UnstableOffsetCommit, "retry"),
            (Code::FencedInstanceId, "abort"),
            (Code::IllegalGeneration, "abort"),
            (Code::UnknownMemberId, "abort"),
            (Code::MessageTimedOut, "abort"),
            (Code::Fatal, "rebuild"),
            (Code::ProducerFenced, "rebuild"),
            (Code::InvalidProducerEpoch, "rebuild"),
        ] {
            assert_eq!(kind(code), wanted, "{code:?}");
        }
    }

    #[test]
    fn a_fatal_consumer_error_may_mean_that_somebody_else_uses_our_id() {
        let error = KafkaError::MessageConsumptionFatal(Code::FencedInstanceId);
        assert!(matches!(Error::of(&error), Error::Fenced(_)));
    }

    #[test]
    fn an_unknown_commit_outcome_is_never_taken_for_a_failure_or_a_success() {
        let timed_out = KafkaError::Flush(Code::OperationTimedOut);
        assert!(matches!(Error::of(&timed_out), Error::Retry(_)));
        assert!(matches!(Error::of_commit(&timed_out), Error::Rebuild(_)));
    }
}
