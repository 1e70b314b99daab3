//! Reading and writing of bytes for the codecs of this crate.
//!
//! Not a serialisation framework: each format spells its own layout. The invariant: whatever the
//! bytes, a [`Reader`] answers an error and never panics, and never allocates by a length that it
//! only read.

use crate::error::{Error, Problem};

/// A cursor over bytes of the format `what`.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(crate) fn error(&self, problem: Problem) -> Error {
        Error::decode(self.what, problem)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| self.error(Problem::Truncated))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) =
            self.rest.split_first_chunk().ok_or_else(|| self.error(Problem::Truncated))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Error> {
        self.array().map(i64::from_be_bytes)
    }

    /// LEB128, at most ten bytes.
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error(Problem::Field("varint")))
    }

    /// Bytes with their length before them as a varint.
    pub(crate) fn varbytes(&mut self) -> Result<&'a [u8], Error> {
        let len = usize::try_from(self.varint()?).map_err(|_| self.error(Problem::Truncated))?;
        self.take(len)
    }

    /// Reads the version byte and refuses every other than `known`.
    pub(crate) fn version(&mut self, known: u8) -> Result<(), Error> {
        match self.u8()? {
            found if found == known => Ok(()),
            found => Err(self.error(Problem::Version { found, known })),
        }
    }

    /// Reads the discriminant of a key.
    pub(crate) fn family(&mut self, family: crate::Family) -> Result<(), Error> {
        match self.u8()? {
            found if found == family as u8 => Ok(()),
            _ => Err(self.error(Problem::Field("key family"))),
        }
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Refuses bytes that are left over.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.error(Problem::Trailing(left))),
        }
    }
}

/// Appends `value` as LEB128.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `bytes` with their length before them as a varint.
pub(crate) fn put_varbytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps numbers near zero, of either sign, to small ones.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_and_zigzag_round_trip(value: u64, signed: i64, shift in 0u32..64) {
            let mut out = Vec::new();
            put_varint(&mut out, value >> shift);
            prop_assert!(out.len() <= 10);
            let mut reader = Reader::new("test", &out);
            prop_assert_eq!(reader.varint().unwrap(), value >> shift);
            reader.finish().unwrap();
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }

        #[test]
        fn arbitrary_bytes_never_panic_the_reader(bytes: Vec<u8>) {
            let mut reader = Reader::new("test", &bytes);
            while reader.varbytes().is_ok() {}
            let _ = reader.varint();
        }
    }

    #[test]
    fn a_varint_beyond_64_bits_is_an_error() {
        let mut reader = Reader::new("test", &[0xff; 11]);
        assert!(reader.varint().is_err());
        let mut high = [0xff; 10];
        high[9] = 0x02;
        assert!(Reader::new("test", &high).varint().is_err());
    }
}
