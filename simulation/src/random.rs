//! A small generator of pseudo-random numbers: xoshiro256** seeded through splitmix64 (both public
//! domain, Blackman and Vigna). One generator draws everything of a run, so a seed is a run.

/// The generator.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { state: std::array::from_fn(|_| splitmix(&mut state)) }
    }

    /// The next number, all 64 bits.
    #[expect(clippy::should_implement_trait, reason = "a source of numbers, not an iterator")]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of a remainder is far below what any schedule notices.
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index into something of this length; 0 for nothing.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A number from `from` to `to`, both included.
    pub fn range(&mut self, from: i64, to: i64) -> i64 {
        let span = to.saturating_sub(from).unsigned_abs().saturating_add(1);
        from.saturating_add(i64::try_from(self.below(span)).unwrap_or(0))
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// One of these, if there are any.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.next().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }

    /// Ten random bytes, what a UUIDv7 takes beside its time.
    pub fn ten(&mut self) -> [u8; 10] {
        let mut bytes = [0; 10];
        self.fill(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_another_seed_another() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = Random::new(7);
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!((-2..=2).contains(&random.range(-2, 2)));
        }
        assert_eq!((random.below(0), random.index(0)), (0, 0));
        assert!(!random.chance(0) && random.chance(1_000_000));
    }
}
