//! Made-up facts in any number, the same for the same seed.

use crate::facts::Fact;

/// The time of the first id, Unix milliseconds.
const EPOCH_MS: u64 = 1_796_000_000_000;
/// How far back a duplicate's original may lie.
const DUPLICATE_REACH: u64 = 1_000;

/// What generated facts look like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Producing applications.
    pub sources: Vec<String>,
    /// Tenants.
    pub tenants: Vec<String>,
    /// Partitions of each application's topic.
    pub partitions: i32,
    /// Duplicates in a thousand facts.
    pub duplicates_per_mille: u64,
    /// Bytes of a payload, about.
    pub payload_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            sources: list(&["ledger", "lender", "crm"]),
            tenants: list(&["t-1", "t-2", "t-3", "t-4"]),
            partitions: 3,
            duplicates_per_mille: 20,
            payload_bytes: 300,
        }
    }
}

/// A source of facts.
#[derive(Debug)]
pub struct Generator {
    random: u64,
    made: u64,
}

impl Generator {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, made: 0 }
    }

    /// So many facts, duplicates included. A duplicate is a copy of an earlier one, at times on
    /// another partition, as a salting producer writes it.
    #[must_use]
    pub fn facts(&mut self, count: usize, shape: &Shape) -> Vec<Fact> {
        let mut facts: Vec<Fact> = Vec::with_capacity(count);
        while facts.len() < count {
            let known = facts.len() as u64;
            let fact = if known > 0 && self.below(1_000) < shape.duplicates_per_mille {
                let back = 1 + self.below(known.min(DUPLICATE_REACH));
                let original = &facts[facts.len() - usize::try_from(back).unwrap_or(1)];
                let mut copy = original.clone();
                copy.name = format!("duplicate of {}", original.name);
                copy.partition = self.partition(shape);
                copy
            } else {
                self.fact(shape)
            };
            facts.push(fact);
        }
        facts
    }

    fn fact(&mut self, shape: &Shape) -> Fact {
        const KEYS: [(&str, &str); 4] = [
            ("account", "created"),
            ("account", "deleted"),
            ("transaction", "posted"),
            ("balance", "changed"),
        ];
        let source = self.pick(&shape.sources).clone();
        let tenant = self.pick(&shape.tenants).clone();
        let key = *self.pick(&KEYS);
        let id = self.id();
        let mut fact = Fact::new(&source, &tenant, &id, key);
        fact.partition = self.partition(shape);
        let filling = "x".repeat(shape.payload_bytes.saturating_sub(60));
        fact.carrying(Some(format!("{{\"id\":\"{id}\",\"filling\":\"{filling}\"}}").into_bytes()))
    }

    /// A UUIDv7 (RFC 9562): the time of its number, random otherwise.
    pub fn id(&mut self) -> String {
        let ms = EPOCH_MS + self.made;
        self.made += 1;
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
            ms >> 16,
            ms & 0xffff,
            a & 0xfff,
            0x8000 | (a >> 16 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    fn partition(&mut self, shape: &Shape) -> i32 {
        let partitions = u64::from(shape.partitions.unsigned_abs().max(1));
        i32::try_from(self.below(partitions)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// Uniform enough in `0..limit`.
    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    /// xorshift64* (Vigna, 2014).
    fn next(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_makes_the_same_facts_with_about_as_many_duplicates_as_asked() {
        let shape = Shape::default();
        let (a, b) =
            (Generator::new(7).facts(5_000, &shape), Generator::new(7).facts(5_000, &shape));
        assert!(a.iter().zip(&b).all(|(a, b)| a.headers == b.headers && a.value == b.value));
        let ids = a.iter().map(Fact::id).collect::<BTreeSet<_>>();
        assert!((4_850..4_950).contains(&ids.len()), "{}", ids.len());
    }

    #[test]
    fn an_id_is_a_canonical_uuid_of_version_7() {
        let mut generator = Generator::new(1);
        for _ in 0..1_000 {
            let id = generator.id();
            assert_eq!(id.len(), 36, "{id}");
            assert_eq!(&id[14..15], "7");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
