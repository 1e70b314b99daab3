//! Ingest (contract section 1): classifies each record of the producers' topics and either passes
//! it on to matching, keeps it in the quarantine byte-exact, or drops it. Whatever a record holds,
//! it is a verdict; position and verdict commit together (I7).

use std::convert::Infallible;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use streaming_hub_model::envelope::{
    Envelope, IngestPolicy, Quarantine, RawRecord, Verdict, classify,
};
use streaming_hub_model::headers::HeaderRef;
use streaming_hub_model::hex;
use streaming_hub_model::internal;
use streaming_hub_model::packed;
use streaming_hub_model::reason::ReasonCode;
use streaming_hub_model::routing;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;

use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Processor, Record, Step};
use crate::salting::Salting;
use crate::topics::Topic;

/// Bytes that framing and the hub's own headers take at the most in an internal record.
const FRAMING_BYTES: usize = 64 * 1024;
/// Bytes that the two lengths of a header take in a record at the most.
const HEADER_LENGTHS_BYTES: usize = 10;
/// The most headers of an event that travel: beside the hub's own they fit a stored record.
const HEADERS_MAX: usize = 65_000;
/// The longest name of a header that travels, bytes.
const HEADER_NAME_BYTES_MAX: usize = 65_535;

/// What ingest asks of the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Events without a tenant were quarantined for the first time, and no default is set.
    TenantMissing,
}

/// What all ingest tasks share.
pub struct IngestSettings {
    /// The rules of classification.
    pub policy: IngestPolicy,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// Largest record of an internal topic, bytes.
    pub message_bytes_max: usize,
    /// Which tenants are spread over all partitions.
    pub salting: Arc<Salting>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// The processor of one source partition.
pub struct Ingest {
    settings: Arc<IngestSettings>,
    /// Verdicts of the open transaction.
    tally: Vec<Counted>,
    notice: Option<Notice>,
    noticed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Accepted,
    Dropped,
    Quarantined(ReasonCode),
}

impl Ingest {
    /// A processor with these settings.
    #[must_use]
    pub fn new(settings: Arc<IngestSettings>) -> Self {
        Self { settings, tally: Vec::new(), notice: None, noticed: false }
    }

    /// The bytes that a record's own headers and value may take.
    fn room(&self) -> usize {
        self.settings.message_bytes_max.saturating_sub(FRAMING_BYTES)
    }

    /// Why no internal record can hold an event, if so: a source topic may take larger ones, and
    /// an event that cannot be written would stop its partition for ever.
    fn misfit(&self, record: &Record<'_>) -> Option<Quarantine> {
        let (mut headers, mut bytes) = (0, bytes_of(record.value));
        for (name, value) in record.view().travelling() {
            if name.len() > HEADER_NAME_BYTES_MAX {
                let detail = format!(
                    "a header's name has {} bytes, the limit is {HEADER_NAME_BYTES_MAX}",
                    name.len()
                );
                return Some(Quarantine { reason: ReasonCode::BadHeader, detail });
            }
            headers += 1;
            bytes += header_bytes(&(name.as_bytes(), value));
        }
        let detail = if headers > HEADERS_MAX {
            format!("the event has {headers} headers, the limit is {HEADERS_MAX} headers")
        } else if bytes > self.room() {
            format!("headers and payload have {bytes} bytes, the limit is {}", self.room())
        } else {
            return None;
        };
        Some(Quarantine { reason: ReasonCode::BadHeader, detail })
    }

    fn accept(&self, envelope: &Envelope<'_>, record: &Record<'_>, step: &mut Step<'_>) {
        let partitions = self.settings.partitions;
        let derived = packed::pack([
            &envelope.id.to_string(),
            &envelope.major.to_string(),
            &step.now.0.to_string(),
            &from(record),
            envelope.tenant,
        ]);
        let mut headers: Vec<HeaderRef<'_>> = Vec::with_capacity(record.headers.len() + 1);
        let own = record.view().travelling();
        headers.extend(own.map(|(name, value)| (name.as_bytes(), value)));
        headers.push((packed::EVENT.as_bytes(), Some(derived.as_bytes())));
        step.outputs.emit(Output {
            topic: Topic::IngestRepartition,
            partition: routing::route(
                envelope.tenant,
                envelope.id,
                self.settings.salting.since(envelope.tenant),
                partitions.unsigned_abs(),
            ),
            key: Some(envelope.tenant.as_bytes()),
            headers: &headers,
            value: record.value,
        });
    }

    fn quarantine(&self, verdict: &Quarantine, record: &Record<'_>, step: &mut Step<'_>) {
        let at = record.timestamp_ms.to_string();
        let place = from(record);
        let mut texts = vec![
            (internal::REASON, verdict.reason.as_str().to_owned()),
            (internal::DETAIL, verdict.detail.clone()),
            (internal::FROM, place.clone()),
            (internal::TIMESTAMP, at),
            (internal::AT, step.now.0.to_string()),
        ];
        let room = self.room();
        let headers_bytes: usize = record.headers.iter().map(header_bytes).sum();
        let keyed = headers_bytes + bytes_of(record.key);
        // Contract section 8, last rule: what is above the limit is kept by size and hash.
        let kept = if keyed <= room { record.headers } else { &[] };
        let fits = kept.len() == record.headers.len() && keyed + bytes_of(record.value) <= room;
        if !fits {
            let value = record.value.unwrap_or_default();
            texts.push((internal::VALUE_BYTES, value.len().to_string()));
            texts.push((internal::VALUE_SHA256, hex::encode(&Sha256::digest(value))));
        }
        let mut headers: Vec<HeaderRef<'_>> = kept.to_vec();
        headers.push(internal::version());
        headers.extend(internal::refs(&texts));
        let source_key = (internal::KEY.as_bytes(), record.key.filter(|key| key.len() <= room));
        headers.push(source_key);
        step.outputs.emit(Output {
            topic: Topic::Quarantine,
            partition: record.partition.rem_euclid(self.settings.partitions),
            key: Some(place.as_bytes()),
            headers: &headers,
            value: record.value.filter(|_| fits),
        });
    }
}

impl Processor for Ingest {
    type Message = Infallible;
    type Action = Notice;

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        let raw = RawRecord { topic: record.topic, headers: record.headers, value: record.value };
        let settings = Arc::clone(&self.settings);
        match classify(&raw, &settings.policy) {
            Verdict::Accept(envelope) => match self.misfit(record) {
                None => {
                    self.accept(&envelope, record, step);
                    self.tally.push(Counted::Accepted);
                }
                Some(verdict) => {
                    self.quarantine(&verdict, record, step);
                    self.tally.push(Counted::Quarantined(verdict.reason));
                }
            },
            Verdict::Drop => self.tally.push(Counted::Dropped),
            Verdict::Quarantine(verdict) => {
                self.quarantine(&verdict, record, step);
                self.tally.push(Counted::Quarantined(verdict.reason));
            }
            Verdict::NotFollowed => {}
        }
        Ok(())
    }

    fn message(&mut self, message: &Infallible, _: &mut Step<'_>) -> Result<(), Error> {
        match *message {}
    }

    fn act(
        &mut self,
        _: UnixMillis,
        _: &State,
        actions: &mut Vec<Notice>,
    ) -> Result<Option<UnixMillis>, Error> {
        actions.extend(self.notice.take());
        Ok(None)
    }

    fn committed(&mut self) {
        for counted in self.tally.drain(..) {
            match counted {
                Counted::Accepted => self.settings.metrics.verdict("accept"),
                Counted::Dropped => self.settings.metrics.verdict("drop"),
                Counted::Quarantined(reason) => {
                    self.settings.metrics.verdict("quarantine");
                    self.settings.metrics.quarantined(reason.as_str());
                    if reason == ReasonCode::MissingTenant && !self.noticed {
                        self.noticed = true;
                        self.notice = Some(Notice::TenantMissing);
                    }
                }
            }
        }
    }

    fn aborted(&mut self) {
        self.tally.clear();
    }
}

/// Where a record was read: `<topic>/<partition>/<offset>`.
fn from(record: &Record<'_>) -> String {
    format!("{}/{}/{}", record.topic, record.partition, record.offset)
}

fn bytes_of(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(0, <[u8]>::len)
}

fn header_bytes((name, value): &HeaderRef<'_>) -> usize {
    name.len() + bytes_of(*value) + HEADER_LENGTHS_BYTES
}

#[cfg(test)]
#[path = "ingest/tests.rs"]
mod tests;
