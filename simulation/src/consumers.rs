//! Consumers of pull subscriptions: they read with and without `after`, seek, hang up, and read
//! anew what they did not get. What they are answered is judged elsewhere (`check::pull`).

use std::collections::BTreeMap;

use streaming_hub_model::id::{EventId, SubscriptionId};
use streaming_hub_model::pull::Ask;
use streaming_hub_topology::calls::Reply;
use streaming_hub_topology::processors::pull::{Answer, Read};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use crate::history::{Asked, Served};
use crate::random::Random;

/// The most entries that a page is asked for.
const LIMIT_MAX: u64 = 5;

/// A read that waits for its answer.
struct UnderWay {
    asked: Asked,
    answer: Receiver<Answer>,
}

/// What a page says of an entry.
#[derive(serde::Deserialize)]
struct Entry {
    seq: u64,
    #[serde(rename = "ceId")]
    event: EventId,
}

#[derive(serde::Deserialize)]
struct Body {
    events: Vec<Entry>,
}

/// The consumers of one run; they outlive the processes that they ask.
#[derive(Default)]
pub struct Consumers {
    /// The last `seq` that each has processed.
    processed: BTreeMap<SubscriptionId, u64>,
    under_way: Vec<UnderWay>,
}

impl Consumers {
    /// What a consumer asks next.
    pub fn ask(&self, id: SubscriptionId, random: &mut Random) -> Ask {
        let processed = self.processed.get(&id).copied().unwrap_or(0);
        let after = match random.below(6) {
            0..=2 => None,
            3 => Some(random.below(processed + 4)),
            _ => Some(processed),
        };
        let limit = usize::try_from(1 + random.below(LIMIT_MAX)).unwrap_or(1);
        Ask { after, limit }
    }

    /// The message of a read whose answer is waited for from now on.
    pub fn read(&mut self, asked: Asked) -> Read {
        let (reply, answer) = Reply::new();
        let (subscription, ask) = (asked.subscription, asked.ask);
        self.under_way.push(UnderWay { asked, answer });
        Read { subscription, ask, prepared: None, reply }
    }

    /// One of them hangs up.
    pub fn hang_up(&mut self, random: &mut Random) {
        let index = random.index(self.under_way.len().max(1));
        if index < self.under_way.len() {
            self.under_way.remove(index);
        }
    }

    /// What was answered since the last call, in the order of asking.
    pub fn answered(&mut self) -> Vec<Served> {
        let mut answered = Vec::new();
        self.under_way.retain_mut(|one| match one.answer.try_recv() {
            Ok(Answer::Moved { cursor, page }) => {
                let body = page.map(|page| page.into_answer(cursor)).unwrap_or_default();
                let body: Option<Body> = serde_json::from_slice(&body).ok();
                let entries = body.map(|body| body.events).unwrap_or_default();
                let entries = entries.into_iter().map(|entry| (entry.seq, entry.event)).collect();
                answered.push(Served { asked: one.asked, cursor, entries });
                false
            }
            // Nothing moved, or nobody knows: they read again with `after`.
            Ok(Answer::Failed) | Err(TryRecvError::Closed) => false,
            Err(TryRecvError::Empty) => true,
        });
        for served in &answered {
            if let Some((last, _)) = served.entries.last() {
                self.processed.insert(served.asked.subscription, *last);
            }
        }
        answered
    }
}
