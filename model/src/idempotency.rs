//! Idempotency keys (contract section 7): what the registry knows of one, and what it decides about
//! it. Pure. A key is known by the hash of its scope (caller, method, path, key), so a store holds
//! nothing that a caller wrote but the answer.
//!
//! Invariant: an answer that is kept holds no secret, only where to find one that is shown with it.
//!
//! A request that never came to its answer (a crash, an outage) leaves a claim that lapses. Whoever
//! repeats it then works with the same seed, so that what the first attempt made is found and not
//! made again.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::change::{Decision, Refusal};
use crate::id::SubscriptionId;
use crate::time::UnixMillis;

/// How long an answer is kept, milliseconds (contract section 7: 24 h).
pub const KEPT_MS: u64 = 24 * 3_600_000;

/// What the API asks about a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "snake_case")]
pub enum Wish {
    /// To answer a request under it.
    Claim {
        /// Hash of the scope, hex.
        scope: String,
        /// Hash of the body, hex.
        body: String,
        /// How long the claim holds without an answer, milliseconds.
        lease_ms: u64,
    },
    /// To keep the answer.
    Keep {
        /// Hash of the scope, hex.
        scope: String,
        /// What was answered.
        answer: Box<Answer>,
    },
    /// To let the next request try again at once: this one's answer is not to be kept.
    Release {
        /// Hash of the scope, hex.
        scope: String,
    },
}

impl Wish {
    /// The hash of the scope, hex.
    #[must_use]
    pub fn scope(&self) -> &str {
        match self {
            Self::Claim { scope, .. } | Self::Keep { scope, .. } | Self::Release { scope } => scope,
        }
    }
}

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers to repeat, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without any secret.
    pub body: String,
    /// The secret that the answer showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretPlace>,
}

/// Where a secret lies that an answer shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretPlace {
    /// Whose it is.
    pub subscription: SubscriptionId,
    /// Names it among the subscription's secrets, see `SigningSecret::made_by`.
    pub made_by: Uuid,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was first seen.
    pub at: UnixMillis,
    /// Hash of the body that came with it, hex.
    pub body: String,
    /// The id of whatever the request makes.
    pub seed: SubscriptionId,
    /// Until when a request may be under way, if there is no answer.
    pub claimed_until: UnixMillis,
    /// What was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

impl Entry {
    /// Whether it counts no longer.
    #[must_use]
    pub fn is_over(&self, now: UnixMillis) -> bool {
        now.since(self.at) >= KEPT_MS
    }
}

/// Decides a wish against what is known of its key. `seed` is what a new claim would get.
#[must_use]
pub fn decide(
    wish: Wish,
    known: Option<Entry>,
    seed: SubscriptionId,
    now: UnixMillis,
) -> (Option<Entry>, Decision) {
    let known = known.filter(|entry| !entry.is_over(now));
    match (wish, known) {
        (Wish::Claim { body, lease_ms, .. }, None) => {
            let claimed_until = now.plus(lease_ms);
            let entry = Entry { at: now, body, seed, claimed_until, answer: None };
            (Some(entry), Decision::Claimed { seed })
        }
        (Wish::Claim { body, .. }, Some(entry)) if entry.body != body => {
            (None, Decision::Refused { refusal: Refusal::OtherBody })
        }
        (Wish::Claim { .. }, Some(Entry { answer: Some(answer), .. })) => {
            (None, Decision::Repeated { answer: Box::new(answer) })
        }
        (Wish::Claim { .. }, Some(entry)) if now < entry.claimed_until => {
            (None, Decision::Refused { refusal: Refusal::InProgress })
        }
        (Wish::Claim { lease_ms, .. }, Some(mut entry)) => {
            entry.claimed_until = now.plus(lease_ms);
            let seed = entry.seed;
            (Some(entry), Decision::Claimed { seed })
        }
        (Wish::Keep { answer, .. }, Some(mut entry)) if entry.answer.is_none() => {
            entry.answer = Some(*answer);
            (Some(entry), Decision::Noted)
        }
        (Wish::Release { .. }, Some(mut entry)) if entry.answer.is_none() => {
            entry.claimed_until = now;
            (Some(entry), Decision::Noted)
        }
        (Wish::Keep { .. } | Wish::Release { .. }, _) => (None, Decision::Noted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> SubscriptionId {
        SubscriptionId::from_parts(1, [n; 10])
    }

    fn claim(body: &str) -> Wish {
        Wish::Claim { scope: "s".into(), body: body.into(), lease_ms: 100 }
    }

    fn keep() -> Wish {
        let answer = Answer { status: 201, headers: Vec::new(), body: "{}".into(), secret: None };
        Wish::Keep { scope: "s".into(), answer: Box::new(answer) }
    }

    /// Decides in a row, each against what the one before left.
    fn run(wishes: Vec<(Wish, i64)>) -> Vec<Decision> {
        let mut known = None;
        let mut decisions = Vec::new();
        for (n, (wish, at)) in (1u8..).zip(wishes) {
            let (write, decision) = decide(wish, known.clone(), id(n), UnixMillis(at));
            known = write.or(known);
            decisions.push(decision);
        }
        decisions
    }

    fn refused(refusal: Refusal) -> Decision {
        Decision::Refused { refusal }
    }

    #[test]
    fn a_second_request_waits_for_the_first_and_then_hears_its_answer() {
        let decisions =
            run(vec![(claim("a"), 0), (claim("a"), 50), (keep(), 60), (claim("a"), 70)]);
        assert_eq!(decisions[0], Decision::Claimed { seed: id(1) });
        assert_eq!(decisions[1], refused(Refusal::InProgress));
        assert!(matches!(&decisions[3], Decision::Repeated { answer } if answer.status == 201));
    }

    #[test]
    fn another_body_is_refused_whether_there_is_an_answer_or_not() {
        let decisions = run(vec![(claim("a"), 0), (claim("b"), 5), (keep(), 6), (claim("b"), 7)]);
        assert_eq!(decisions[1], refused(Refusal::OtherBody));
        assert_eq!(decisions[3], refused(Refusal::OtherBody));
    }

    #[test]
    fn a_lapsed_or_released_claim_is_taken_over_with_the_same_seed() {
        let release = Wish::Release { scope: "s".into() };
        let decisions = run(vec![
            (claim("a"), 0),
            (claim("a"), 100),
            (release, 110),
            (claim("a"), 111),
            (keep(), 112),
            (keep(), 113),
        ]);
        assert_eq!(decisions[1], Decision::Claimed { seed: id(1) });
        assert_eq!(decisions[3], Decision::Claimed { seed: id(1) });
        assert_eq!(decisions[5], Decision::Noted);
    }

    #[test]
    fn after_a_day_a_key_is_new() {
        let day = i64::try_from(KEPT_MS).unwrap();
        let decisions = run(vec![(claim("a"), 0), (keep(), 1), (claim("b"), day)]);
        assert_eq!(decisions[2], Decision::Claimed { seed: id(3) });
    }
}
