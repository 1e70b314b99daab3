//! What the coordinator knows of a consumer group: its members, and which partitions they have.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;

/// How long the coordinator may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A group at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// Whether it is between two rebalances.
    pub(crate) is_stable: bool,
    /// Client ids of its members.
    pub(crate) members: HashSet<String>,
    /// Which member has a partition.
    pub(crate) assigned: HashMap<(String, i32), String>,
}

/// Asks the coordinator of `group`.
pub(crate) fn describe<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    group: &str,
) -> KafkaResult<Group> {
    let list = client.fetch_group_list(Some(group), ANSWER)?;
    let mut found = Group::default();
    for known in list.groups().iter().filter(|known| known.name() == group) {
        found.is_stable = known.state() == "Stable";
        for member in known.members() {
            found.members.insert(member.client_id().to_owned());
            if let Some(partitions) = member.assignment().and_then(assignment) {
                let member = member.client_id();
                found.assigned.extend(partitions.into_iter().map(|p| (p, member.to_owned())));
            }
        }
    }
    Ok(found)
}

/// Reads a member's assignment (the consumer protocol: version, topics with partitions, user data).
fn assignment(bytes: &[u8]) -> Option<Vec<(String, i32)>> {
    let mut reader = Reader(bytes);
    let _version = reader.take::<2>()?;
    let topics = i32::from_be_bytes(reader.take()?);
    let mut found = Vec::new();
    for _ in 0..topics {
        let length = usize::try_from(i16::from_be_bytes(reader.take()?)).ok()?;
        let topic = std::str::from_utf8(reader.bytes(length)?).ok()?;
        let partitions = i32::from_be_bytes(reader.take()?);
        for _ in 0..partitions {
            found.push((topic.to_owned(), i32::from_be_bytes(reader.take()?)));
        }
    }
    Some(found)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_as_the_consumer_protocol_writes_it() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2];
        for (topic, partitions) in [("a", vec![0, 7]), ("lerian.streaming.x", vec![3])] {
            bytes.extend_from_slice(&i16::try_from(topic.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(topic.as_bytes());
            bytes.extend_from_slice(&i32::try_from(partitions.len()).unwrap().to_be_bytes());
            for partition in partitions {
                bytes.extend_from_slice(&i32::to_be_bytes(partition));
            }
        }
        let read = assignment(&bytes).unwrap();
        let named = |topic: &str, partition| (topic.to_owned(), partition);
        assert_eq!(read, [named("a", 0), named("a", 7), named("lerian.streaming.x", 3)]);
        for cut in 0..bytes.len() {
            assert_eq!(assignment(&bytes[..cut]), None, "cut at {cut}");
        }
    }
}
