//! A Kafka record at rest: headers and payload, byte for byte.
//!
//! Not a parser of CloudEvents. Names are kept as bytes, since Kafka's client hands them on
//! unchecked and nothing here may change what a producer sent.
//!
//! ```text
//! [version u8 = 1]
//! [header count u16]
//! ([name length u16][name][value length u32][value])*     value length 0xffffffff: null
//! [has payload u8][payload to the end]
//! ```
//!
//! Numbers are big-endian. The invariant: decoding gives exactly what was encoded, the order of
//! headers, repeated names and the difference between null and empty included.

use bytes::Bytes;

use crate::error::{Error, Problem};
use crate::wire::Reader;

const WHAT: &str = "stored record";
const VERSION: u8 = 1;
const NULL: u32 = u32::MAX;

/// One header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, UTF-8 in Kafka's protocol; not checked here.
    pub name: Bytes,
    /// The value, or null.
    pub value: Option<Bytes>,
}

/// Headers and payload of a record. Decoded ones share the memory of the bytes they came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The headers in their order; names may repeat.
    pub headers: Vec<Header>,
    /// The payload; `None` is a tombstone's.
    pub payload: Option<Bytes>,
}

impl Record {
    /// The value of the last header of that name, as Kafka's clients choose among repeated ones.
    /// Null counts as absent.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let last = self.headers.iter().rev().find(|header| header.name == name.as_bytes());
        last?.value.as_ref()
    }

    /// The stored form.
    ///
    /// # Errors
    /// As [`Record::encode_parts`].
    pub fn encode(&self) -> Result<Bytes, Error> {
        let headers = self.headers.iter().map(|header| (&header.name[..], header.value.as_deref()));
        Self::encode_parts(headers, self.payload.as_deref())
    }

    /// The stored form of borrowed headers (name and value) and payload, so that a consumed record
    /// is copied once.
    ///
    /// # Errors
    /// [`Error::Decode`] for more than 65,535 headers, a longer name than that, or a value of
    /// 4 GiB: none of which a broker lets through.
    pub fn encode_parts<'a>(
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
        payload: Option<&[u8]>,
    ) -> Result<Bytes, Error> {
        let sized =
            |(name, value): (&[u8], Option<&[u8]>)| 6 + name.len() + value.map_or(0, <[u8]>::len);
        let headers_bytes: usize = headers.clone().map(sized).sum();
        let mut out = Vec::with_capacity(4 + headers_bytes + payload.map_or(0, <[u8]>::len));
        out.push(VERSION);
        let count =
            u16::try_from(headers.clone().count()).map_err(|_| too_large("header count"))?;
        out.extend_from_slice(&count.to_be_bytes());
        for (name, value) in headers {
            let name_len = u16::try_from(name.len()).map_err(|_| too_large("header name"))?;
            out.extend_from_slice(&name_len.to_be_bytes());
            out.extend_from_slice(name);
            let value_len = value.map_or(Some(NULL), |value| {
                u32::try_from(value.len()).ok().filter(|&len| len != NULL)
            });
            let value_len = value_len.ok_or_else(|| too_large("header value"))?;
            out.extend_from_slice(&value_len.to_be_bytes());
            out.extend_from_slice(value.unwrap_or_default());
        }
        out.push(u8::from(payload.is_some()));
        out.extend_from_slice(payload.unwrap_or_default());
        Ok(out.into())
    }

    /// Reads the stored form without copying.
    ///
    /// # Errors
    /// [`Error::Decode`] for another version and for bytes that are no record.
    pub fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.version(VERSION)?;
        let count = reader.u16()?;
        // Room for a usual record: the count is not to be trusted before the headers were read.
        let mut headers = Vec::with_capacity(usize::from(count).min(32));
        for _ in 0..count {
            let name_len = reader.u16()?;
            let name = bytes.slice_ref(reader.take(usize::from(name_len))?);
            let value = match reader.u32()? {
                NULL => None,
                // On a platform where the length does not fit, the bytes cannot be there either.
                len => {
                    let len = usize::try_from(len).unwrap_or(usize::MAX);
                    Some(bytes.slice_ref(reader.take(len)?))
                }
            };
            headers.push(Header { name, value });
        }
        let payload = match reader.u8()? {
            0 => {
                reader.finish()?;
                None
            }
            1 => Some(bytes.slice_ref(reader.rest())),
            _ => return Err(reader.error(Problem::Field("payload flag"))),
        };
        Ok(Self { headers, payload })
    }
}

fn too_large(field: &'static str) -> Error {
    Error::decode(WHAT, Problem::TooLarge(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
    }

    fn record() -> impl Strategy<Value = Record> {
        let header = (bytes(20), prop::option::of(bytes(60)));
        let headers = prop::collection::vec(header, 0..12);
        (headers, prop::option::of(bytes(300))).prop_map(|(headers, payload)| {
            let headers = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
            Record { headers, payload }
        })
    }

    proptest! {
        #[test]
        fn a_record_round_trips_byte_for_byte(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode().unwrap()).unwrap(), record);
        }

        #[test]
        fn a_decoded_record_shares_the_memory_it_came_from(record in record()) {
            let stored = record.encode().unwrap();
            let within = stored.as_ptr_range();
            let decoded = Record::decode(&stored).unwrap();
            let values = decoded.headers.iter().filter_map(|header| header.value.as_ref());
            for part in values.chain(&decoded.payload).filter(|part| !part.is_empty()) {
                prop_assert!(within.contains(&part.as_ptr()));
            }
        }

        #[test]
        fn arbitrary_and_damaged_bytes_never_panic(
            record in record(), noise: Vec<u8>, at: prop::sample::Index, byte: u8,
        ) {
            let _ = Record::decode(&Bytes::from(noise));
            let mut stored = record.encode().unwrap().to_vec();
            let at = at.index(stored.len());
            stored[at] = byte;
            let _ = Record::decode(&Bytes::from(stored.clone()));
            stored.truncate(at);
            let _ = Record::decode(&Bytes::from(stored));
        }
    }

    #[test]
    fn null_and_empty_are_told_apart_and_the_last_of_repeated_headers_wins() {
        let header = |name: &'static str, value: Option<&'static str>| Header {
            name: Bytes::from_static(name.as_bytes()),
            value: value.map(|text| Bytes::from_static(text.as_bytes())),
        };
        let headers = vec![header("a", Some("1")), header("a", Some("")), header("b", None)];
        let record = Record { headers, payload: Some(Bytes::new()) };
        let decoded = Record::decode(&record.encode().unwrap()).unwrap();
        assert_eq!(decoded, record);
        assert_eq!(decoded.header("a"), Some(&Bytes::new()));
        assert_eq!(decoded.header("b"), None);
        let tombstone = Record::default();
        assert_eq!(Record::decode(&tombstone.encode().unwrap()).unwrap().payload, None);
    }

    #[test]
    fn another_version_is_a_clear_error() {
        let error = Record::decode(&Bytes::from_static(&[9, 0, 0, 0])).unwrap_err();
        let expected = "stored record: format version 9, this release reads version 1";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn more_headers_than_the_format_holds_are_refused() {
        let headers = vec![Header { name: Bytes::new(), value: None }; 65_536];
        let error = Record { headers, payload: None }.encode().unwrap_err();
        assert_eq!(error.to_string(), "stored record: header count too large");
    }
}
