//! A delivery job's own facts as they stand in the headers of its record, in `<app>-deliveries`,
//! in a tier and in the dead letters alike. The rest of the record is the event.

use crate::headers::Headers;
use crate::id::SubscriptionId;
use crate::internal::{self, Error};
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
    pub fn headers(&self) -> [(&'static str, String); 5] {
        [
            (internal::SUBSCRIPTION, self.subscription.to_string()),
            (internal::MATCHED, self.matched.0.to_string()),
            (internal::TABLE, self.table.to_string()),
            (internal::ATTEMPTS, self.attempts.to_string()),
            (internal::DUE, self.due.0.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_read_back_as_written() {
        let facts = JobFacts {
            subscription: SubscriptionId::from_parts(5, [3; 10]),
            matched: UnixMillis(9),
            table: 12,
            attempts: 2,
            due: UnixMillis(10),
        };
        let mut owned = facts.headers().to_vec();
        owned.push((internal::VERSION, "1".into()));
        let list: Vec<_> = owned.iter().map(|(n, v)| (n.as_bytes(), Some(v.as_bytes()))).collect();
        assert_eq!(JobFacts::read(Headers::new(&list)), Ok(facts));
        assert_eq!(
            JobFacts::read(Headers::new(&list[1..])),
            Err(Error::Header(internal::SUBSCRIPTION))
        );
    }
}
