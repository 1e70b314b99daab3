//! The index of the producers' dead letters: in memory, bounded by count and by age, ordered by
//! time. What an entry holds stays in its topic; here is only what lists show and filters ask for,
//! about 125 bytes each. Rebuilt from the topics at a start, so it needs no disk.
//!
//! Invariant: an entry is in it once, whoever reads it again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use streaming_hub_model::dlq::{Content, Filter, Page, Place, Summary, Writer, application};
use streaming_hub_model::id::EventId;
use streaming_hub_model::time::UnixMillis;

use super::texts::{NONE, Texts};

/// Topics, causes and sources are few; what is beyond is not told apart.
const NAMES_MAX: usize = 10_000;
/// Tenants whose names lists can show. The filter by tenant works beyond it, too.
const TENANTS_MAX: usize = 100_000;
/// Bytes of the texts of one kind.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The order of the list, turned around: time, then where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: i64,
    /// A hash of the topic's name, so that cursors outlive a restart.
    topic: u32,
    partition: i32,
    offset: i64,
}

/// What is kept of an entry.
struct Item {
    event_id: [u8; 16],
    tenant_hash: u64,
    tenant: u32,
    source_topic: u16,
    source: u16,
    cause: u16,
    writer: Writer,
    content: Content,
    has_event_id: bool,
    payload_omitted: bool,
}

/// The index.
pub(super) struct Index {
    items: BTreeMap<Key, Item>,
    topics: BTreeMap<u32, Arc<str>>,
    tenants: Texts,
    names: Texts,
    entries_max: usize,
    pub(super) complete: bool,
}

/// A filter in the index's own terms.
struct Asked<'f> {
    filter: &'f Filter,
    topic: Option<u32>,
    /// The one topic of an application.
    own: Option<u32>,
    tenant_hash: Option<u64>,
    source_topic: Option<u16>,
    source: Option<u16>,
    cause: Option<u16>,
}

impl Index {
    /// An index of at most so many entries.
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            items: BTreeMap::new(),
            topics: BTreeMap::new(),
            tenants: Texts::new(TENANTS_MAX, TEXT_BYTES_MAX),
            names: Texts::new(NAMES_MAX, TEXT_BYTES_MAX),
            entries_max,
            complete: false,
        }
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes an entry in; the oldest goes when there is no room. Answers whether it is new.
    pub(super) fn insert(&mut self, entry: &Summary) -> bool {
        let topic = self.topic(&entry.place.topic);
        let key = Key {
            at: entry.at.0,
            topic,
            partition: entry.place.partition,
            offset: entry.place.offset,
        };
        let event_id = entry.event_id.as_deref().and_then(|id| EventId::parse(id).ok());
        let item = Item {
            event_id: event_id.map_or([0; 16], |id| *id.as_bytes()),
            has_event_id: event_id.is_some(),
            tenant_hash: entry.tenant.as_deref().map_or(0, hash),
            tenant: self.tenants.number(entry.tenant.as_deref()),
            source_topic: self.name(entry.source_topic.as_deref()),
            source: self.name(entry.source.as_deref()),
            cause: self.name(Some(&entry.cause)),
            writer: entry.writer,
            content: entry.content,
            payload_omitted: entry.payload_omitted,
        };
        let is_new = self.items.insert(key, item).is_none();
        if self.items.len() > self.entries_max {
            self.items.pop_first();
        }
        is_new
    }

    /// Removes what is older than this.
    pub(super) fn expire(&mut self, before: UnixMillis) {
        let first = Key { at: before.0, topic: 0, partition: i32::MIN, offset: i64::MIN };
        if self.items.first_key_value().is_some_and(|(key, _)| *key < first) {
            self.items = self.items.split_off(&first);
        }
    }

    /// A page of what the filter admits; `None` when the cursor is none.
    pub(super) fn page(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Option<Page> {
        let after = cursor.map(|text| Key::parse(text).ok_or(())).transpose().ok()?;
        let mut page = Page { complete: self.complete, ..Page::default() };
        let Some(asked) = self.asked(filter) else { return Some(page) };
        let (mut causes, mut topics) = (BTreeMap::new(), BTreeMap::new());
        let mut last = None;
        for (key, item) in self.items.iter().rev().filter(|(key, item)| asked.admits(key, item)) {
            page.total += 1;
            *causes.entry(item.cause).or_insert(0) += 1;
            *topics.entry(key.topic).or_insert(0) += 1;
            if after.is_some_and(|after| *key >= after) {
                continue;
            }
            if page.entries.len() < limit {
                page.entries.push(self.summary(key, item));
                last = Some(*key);
            } else if page.next_cursor.is_none() {
                page.next_cursor = last.map(Key::to_text);
            }
        }
        let name = |number: u16| self.names.text(number.into()).map(ToString::to_string);
        page.by_cause = causes.into_iter().filter_map(|(n, c)| Some((name(n)?, c))).collect();
        let topic = |hash: u32| self.topics.get(&hash).map(ToString::to_string);
        page.by_topic = topics.into_iter().filter_map(|(n, c)| Some((topic(n)?, c))).collect();
        Some(page)
    }

    fn summary(&self, key: &Key, item: &Item) -> Summary {
        let topic = self.topics.get(&key.topic).map_or(String::new(), ToString::to_string);
        let name = |number: u16| self.names.text(number.into()).map(ToString::to_string);
        let event_id = EventId::from_bytes(item.event_id).ok().filter(|_| item.has_event_id);
        Summary {
            at: UnixMillis(key.at),
            application: application(&topic).to_owned(),
            place: Place { topic, partition: key.partition, offset: key.offset },
            writer: item.writer,
            cause: name(item.cause).unwrap_or_default(),
            content: item.content,
            source_topic: name(item.source_topic),
            source: name(item.source),
            tenant: self.tenants.text(item.tenant).map(ToString::to_string),
            event_id: event_id.map(|id| id.to_string()),
            payload_omitted: item.payload_omitted,
        }
    }

    fn asked<'f>(&self, filter: &'f Filter) -> Option<Asked<'f>> {
        let name = |text: &Option<String>| match text {
            None => Some(None),
            Some(text) => Some(Some(u16::try_from(self.names.find(text)?).ok()?)),
        };
        let number = |wanted: &dyn Fn(&str) -> bool| {
            self.topics.iter().find(|(_, name)| wanted(name)).map(|(number, _)| *number)
        };
        let topic = match &filter.topic {
            None => None,
            Some(topic) => Some(number(&|name| name == topic)?),
        };
        let own = match &filter.application {
            None => None,
            Some(own) => Some(number(&|name| application(name) == own)?),
        };
        Some(Asked {
            filter,
            topic,
            own,
            tenant_hash: filter.tenant.as_deref().map(hash),
            source_topic: name(&filter.source_topic)?,
            source: name(&filter.source)?,
            cause: name(&filter.cause)?,
        })
    }

    /// The topic's number: its hash, or the next one that is free.
    fn topic(&mut self, name: &str) -> u32 {
        let mut number = fnv(name);
        loop {
            match self.topics.get(&number) {
                Some(known) if **known == *name => return number,
                Some(_) => number = number.wrapping_add(1),
                None => {
                    self.topics.insert(number, Arc::from(name));
                    return number;
                }
            }
        }
    }

    fn name(&mut self, text: Option<&str>) -> u16 {
        // `NAMES_MAX` is far below.
        u16::try_from(self.names.number(text)).unwrap_or(u16::try_from(NONE).unwrap_or(0))
    }
}

impl Asked<'_> {
    fn admits(&self, key: &Key, item: &Item) -> bool {
        let filter = self.filter;
        self.topic.is_none_or(|topic| topic == key.topic)
            && self.own.is_none_or(|topic| topic == key.topic)
            && self.tenant_hash.is_none_or(|hash| hash == item.tenant_hash && item.tenant != NONE)
            && self.source_topic.is_none_or(|number| number == item.source_topic)
            && self.source.is_none_or(|number| number == item.source)
            && self.cause.is_none_or(|number| number == item.cause)
            && filter.writer.is_none_or(|writer| writer == item.writer)
            && filter.content.is_none_or(|content| content == item.content)
            && filter.since.is_none_or(|since| key.at >= since.0)
            && filter.until.is_none_or(|until| key.at < until.0)
    }
}

impl Key {
    fn to_text(self) -> String {
        format!("{}.{}.{}.{}", self.at, self.topic, self.partition, self.offset)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let key = Self {
            at: parts.next()?.parse().ok()?,
            topic: parts.next()?.parse().ok()?,
            partition: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(key)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// FNV-1a, the same in every process.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
