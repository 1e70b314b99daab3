//! Sends quarantined records through classification again: the ingest processor itself decides, by
//! today's configuration, and what it accepts now goes where it would have gone then.
//!
//! Invariant: a batch is one transaction, and matching takes an event in once by tenant and id
//! (I1): a run that is repeated, or that was killed in the middle, makes no second copy within the
//! dedup horizon. What is refused again is not quarantined a second time.

use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::internal;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::{MemoryBase, State};

use super::Error;
use crate::kafka::client::KafkaSettings;
use crate::kafka::transactor::Transactor;
use crate::processors::ingest::Ingest;
use crate::runtime::processor::{Output, Outputs, Processor as _, Record, Step};
use crate::topics::Topic;

/// Records of one transaction.
const BATCH: usize = 500;

/// A quarantined record as it was at its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, Unix milliseconds.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Why it was quarantined.
    pub reason: String,
    /// The same in words; it may quote a header.
    pub detail: String,
    /// When it was quarantined.
    pub at: UnixMillis,
    /// Whether it is here whole; one that was too large is kept by size and hash only.
    pub is_whole: bool,
}

impl Original {
    /// Reads it from a record of the quarantine; `None` when that is none.
    #[must_use]
    pub fn read(record: &Record<'_>) -> Option<Self> {
        // The hub's own headers are the last ones; a stranger may have forged others before them.
        let own = record.headers.iter().rposition(|(n, _)| *n == internal::VERSION.as_bytes())?;
        let hub = Headers::new(&record.headers[own..]);
        let (rest, offset) = internal::text(hub, internal::FROM).ok()?.rsplit_once('/')?;
        let (topic, partition) = rest.rsplit_once('/')?;
        let (_, key) = record.headers.iter().rev().find(|(n, _)| *n == internal::KEY.as_bytes())?;
        let owned = |(n, v): &HeaderRef<'_>| (n.to_vec(), v.map(<[u8]>::to_vec));
        Some(Self {
            topic: topic.to_owned(),
            partition: partition.parse().ok()?,
            offset: offset.parse().ok()?,
            timestamp_ms: internal::number(hub, internal::TIMESTAMP).ok()?,
            key: key.map(<[u8]>::to_vec),
            headers: record.headers[..own].iter().map(owned).collect(),
            value: record.value.map(<[u8]>::to_vec),
            reason: internal::text(hub, internal::REASON).ok()?.to_owned(),
            detail: hub.last_text(internal::DETAIL).unwrap_or_default().to_owned(),
            at: UnixMillis(internal::number(hub, internal::AT).ok()?),
            is_whole: hub.last(internal::VALUE_BYTES).is_none(),
        })
    }
}

/// What became of the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requeued {
    /// Accepted now.
    pub accepted: u64,
    /// Refused again, or system events by now.
    pub refused: u64,
    /// Not here whole.
    pub incomplete: u64,
}

/// Takes what ingest emits, passes on what it accepts, and counts.
struct OnlyAccepted<'a> {
    inner: Option<&'a mut dyn Outputs>,
    accepted: u64,
}

impl Outputs for OnlyAccepted<'_> {
    fn emit(&mut self, output: Output<'_>) {
        if output.topic == Topic::IngestRepartition {
            self.accepted += 1;
            if let Some(inner) = &mut self.inner {
                inner.emit(output);
            }
        }
    }
}

/// Classifies records again and writes what is accepted.
pub struct Requeue {
    ingest: Ingest,
    transactor: Option<Transactor>,
    state: State,
    now: UnixMillis,
    open: usize,
    done: Requeued,
}

impl Requeue {
    /// With these settings of ingest; `dry_run` writes nothing.
    ///
    /// # Errors
    /// When there is no producer to be had.
    pub fn new(
        settings: &KafkaSettings,
        application: &str,
        (ingest, now): (Ingest, UnixMillis),
        dry_run: bool,
    ) -> Result<Self, Error> {
        let transactor = (!dry_run)
            .then(|| {
                // One run at a time: a second one ends the first one's transaction.
                let config = settings.transactional(&format!("{application}-requeue"));
                Transactor::new(&config, application).map_err(Error::Transaction)
            })
            .transpose()?;
        let state = State::new(Box::new(MemoryBase::new()));
        Ok(Self { ingest, transactor, state, now, open: 0, done: Requeued::default() })
    }

    /// Takes one record.
    ///
    /// # Errors
    /// See [`Error`]; what was committed before stays.
    pub fn take(&mut self, original: &Original) -> Result<bool, Error> {
        if !original.is_whole {
            self.done.incomplete += 1;
            return Ok(false);
        }
        let headers: Vec<HeaderRef<'_>> =
            original.headers.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect();
        let record = Record {
            topic: &original.topic,
            partition: original.partition,
            offset: original.offset,
            timestamp_ms: original.timestamp_ms,
            key: original.key.as_deref(),
            headers: &headers,
            value: original.value.as_deref(),
        };
        let inner = self.transactor.as_mut().map(|own| own as &mut dyn Outputs);
        let mut outputs = OnlyAccepted { inner, accepted: 0 };
        let mut step = Step {
            now: self.now,
            partition: original.partition,
            position: original.offset,
            state: &mut self.state,
            outputs: &mut outputs,
        };
        self.ingest.record(&record, &mut step)?;
        self.ingest.aborted();
        let is_accepted = outputs.accepted > 0;
        if is_accepted {
            self.done.accepted += 1;
            self.open += 1;
        } else {
            self.done.refused += 1;
        }
        if self.open >= BATCH {
            self.commit()?;
        }
        Ok(is_accepted)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.open = 0;
        match &mut self.transactor {
            Some(transactor) if transactor.is_open() => {
                transactor.commit_without_positions().map_err(Error::Transaction)
            }
            _ => Ok(()),
        }
    }

    /// Commits what is left and answers what became of all.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn finish(mut self) -> Result<Requeued, Error> {
        self.commit()?;
        Ok(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantined<'a>(headers: &'a [HeaderRef<'a>], value: Option<&'a [u8]>) -> Record<'a> {
        let (topic, key) = ("hub-quarantine", Some(&b"k"[..]));
        Record { topic, partition: 0, offset: 9, timestamp_ms: 7, key, headers, value }
    }

    const OWN: [HeaderRef<'static>; 6] = [
        (b"hub-v", Some(b"1")),
        (b"hub-reason", Some(b"missing_tenant")),
        (b"hub-detail", Some(b"ce-tenantid")),
        (b"hub-from", Some(b"lerian.streaming.a/3/17")),
        (b"hub-timestamp", Some(b"5")),
        (b"hub-at", Some(b"6")),
    ];

    #[test]
    fn the_original_is_what_stands_before_the_hubs_own_headers() {
        let forged: [HeaderRef<'_>; 3] =
            [(b"ce-id", Some(b"x")), (b"hub-v", Some(b"9")), (b"hub-from", Some(b"b/0/0"))];
        let key: [HeaderRef<'_>; 1] = [(b"hub-key", None)];
        let headers = [&forged[..], &OWN[..], &key[..]].concat();
        let original = Original::read(&quarantined(&headers, Some(b"{}"))).unwrap();
        assert_eq!((original.topic.as_str(), original.partition), ("lerian.streaming.a", 3));
        assert_eq!((original.offset, original.timestamp_ms, original.at.0), (17, 5, 6));
        assert_eq!(original.headers.len(), 3, "the forged ones are the record's own");
        assert_eq!((original.key, original.reason.as_str()), (None, "missing_tenant"));
        assert!(original.is_whole);
    }

    #[test]
    fn a_record_kept_by_size_and_hash_is_not_whole() {
        let more: [HeaderRef<'_>; 2] = [(b"hub-value-bytes", Some(b"9")), (b"hub-key", Some(b"k"))];
        let headers = [&OWN[..], &more[..]].concat();
        assert!(!Original::read(&quarantined(&headers, None)).unwrap().is_whole);
        assert_eq!(Original::read(&quarantined(&[], None)), None);
    }
}
