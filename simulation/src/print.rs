//! A fingerprint: FNV-1a over everything that happens in a run, so that two runs can be compared.

/// The fingerprint so far.
#[derive(Debug, Clone, Copy)]
pub struct Print(u64);

impl Default for Print {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Print {
    /// Takes a number in.
    pub fn add(&mut self, number: u64) {
        self.add_bytes(&number.to_le_bytes());
    }

    /// Takes bytes in.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}
