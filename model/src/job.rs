//! A delivery job's own facts as they stand in the headers of its record, in `<app>-deliveries`,
//! in a tier and in the dead letters alike. The rest of the record is the event.

use crate::headers::Headers;
use crate::id::SubscriptionId;
use crate::internal::{self, Error};
use crate::packed;
use crate::time::UnixMillis;

/// What the delivery engine knows of a job beside its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobFacts {
    /// The subscription that it delivers for.
    pub subscription: SubscriptionId,
    /// When it was matched.
    pub matched: UnixMillis,
    /// The subscriptions table's position at the match: only from there on may a subscription be
    /// taken for absent (design 18).
    pub table: i64,
    /// Attempts with a recorded outcome.
    pub attempts: u32,
    /// When the next attempt is due.
    pub due: UnixMillis,
}

impl JobFacts {
    /// Reads them from a job's record.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(headers: Headers<'_>) -> Result<Self, Error> {
        internal::check_version(headers)?;
        let subscription = internal::text(headers, internal::SUBSCRIPTION)?;
        Ok(Self {
            subscription: SubscriptionId::parse(subscription)
                .map_err(|_| Error::Header(internal::SUBSCRIPTION))?,
            matched: UnixMillis(internal::number(headers, internal::MATCHED)?),
            table: internal::number(headers, internal::TABLE)?,
            attempts: internal::number(headers, internal::ATTEMPTS)?,
            due: UnixMillis(internal::number(headers, internal::DUE)?),
        })
    }

    /// The headers that say it, to be appended to the event's.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, String); 1] {
        let packed = packed::pack([
            &self.subscription.to_string(),
            &self.matched.0.to_string(),
            &self.table.to_string(),
            &self.attempts.to_string(),
            &self.due.0.to_string(),
        ]);
        [(packed::JOB, packed)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SubscriptionId {
        SubscriptionId::from_parts(5, [3; 10])
    }

    fn facts() -> JobFacts {
        JobFacts {
            subscription: id(),
            matched: UnixMillis(9),
            table: 12,
            attempts: 2,
            due: UnixMillis(10),
        }
    }

    #[test]
    fn facts_read_back_as_written() {
        let facts = facts();
        let packed = facts.headers();
        let list: Vec<_> = internal::refs(&packed).collect();
        assert_eq!(list, [(&b"hub-job"[..], Some(format!("2 {} 9 12 2 10", id()).as_bytes()))]);
        assert_eq!(JobFacts::read(Headers::new(&list)), Ok(facts));
        assert_eq!(JobFacts::read(Headers::new(&[])), Err(Error::Header(internal::VERSION)));
    }

    #[test]
    fn facts_of_format_1_are_read() {
        let owned = [
            (internal::VERSION, "1".to_owned()),
            (internal::SUBSCRIPTION, id().to_string()),
            (internal::MATCHED, "9".to_owned()),
            (internal::TABLE, "12".to_owned()),
            (internal::ATTEMPTS, "2".to_owned()),
            (internal::DUE, "10".to_owned()),
        ];
        let list: Vec<_> = internal::refs(&owned).collect();
        assert_eq!(JobFacts::read(Headers::new(&list)), Ok(facts()));
        let missing = JobFacts::read(Headers::new(&list[..5]));
        assert_eq!(missing, Err(Error::Header(internal::DUE)));
    }
}
