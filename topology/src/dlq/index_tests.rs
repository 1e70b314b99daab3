//! What is asked of the index, and what it costs.

use super::*;

fn entry(number: i64) -> Summary {
    let topic = format!("lerian.streaming.app-{}.dlq", number % 3);
    Summary {
        application: application(&topic).to_owned(),
        place: Place { topic, partition: 0, offset: number },
        at: UnixMillis(1_000 + number / 2),
        writer: if number % 2 == 0 { Writer::Producer } else { Writer::Consumer },
        cause: if number % 2 == 0 { "topic_not_found" } else { "codec" }.to_owned(),
        content: Content::Fact,
        source_topic: Some(format!("lerian.streaming.app-{}", number % 3)),
        source: Some(format!("app-{}", number % 3)),
        tenant: (number % 5 != 0).then(|| format!("tenant-{}", number % 5)),
        event_id: Some(EventId::from_parts(1_000 + number, [7; 10]).to_string()),
        payload_omitted: number % 7 == 0,
    }
}

fn filled(count: i64) -> Index {
    let mut index = Index::new(1_000_000);
    for number in 0..count {
        assert!(index.insert(&entry(number)));
    }
    index
}

fn all(index: &Index, filter: &Filter, limit: usize) -> Vec<Summary> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = index.page(filter, cursor.as_deref(), limit).unwrap();
        assert!(page.entries.len() <= limit);
        found.extend(page.entries);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

#[test]
fn pages_of_any_size_show_every_entry_once_newest_first_and_as_it_was() {
    let index = filled(50);
    for limit in [1, 7, 49, 50, 51] {
        let found = all(&index, &Filter::default(), limit);
        assert_eq!(found.len(), 50);
        assert!(found.windows(2).all(|pair| pair[0].at >= pair[1].at), "newest first");
        let mut places: Vec<_> = found.iter().map(|e| e.place.offset).collect();
        places.sort_unstable();
        assert_eq!(places, (0..50).collect::<Vec<_>>());
        assert!(found.iter().all(|found| *found == entry(found.place.offset)));
    }
}

#[test]
fn an_entry_that_is_read_again_is_there_once() {
    let mut index = filled(10);
    assert!(!index.insert(&entry(3)));
    assert_eq!(index.len(), 10);
}

#[test]
fn filters_restrict_together_and_counts_are_of_all_that_they_admit() {
    let index = filled(60);
    let text = |text: &str| Some(text.to_owned());
    let table = [
        (Filter { tenant: text("tenant-2"), ..Filter::default() }, 12),
        (Filter { tenant: text("tenant-9"), ..Filter::default() }, 0),
        (Filter { application: text("app-1"), ..Filter::default() }, 20),
        (Filter { application: text("app-9"), ..Filter::default() }, 0),
        (Filter { topic: text("lerian.streaming.app-2.dlq"), ..Filter::default() }, 20),
        (Filter { source_topic: text("lerian.streaming.app-2"), ..Filter::default() }, 20),
        (Filter { source: text("app-0"), ..Filter::default() }, 20),
        (Filter { cause: text("codec"), ..Filter::default() }, 30),
        (Filter { cause: text("codec"), writer: Some(Writer::Producer), ..Filter::default() }, 0),
        (Filter { content: Some(Content::Command), ..Filter::default() }, 0),
        (Filter { since: Some(UnixMillis(1_010)), ..Filter::default() }, 40),
        (Filter { until: Some(UnixMillis(1_010)), ..Filter::default() }, 20),
        (Filter { cause: text("codec"), application: text("app-1"), ..Filter::default() }, 10),
    ];
    for (filter, wanted) in table {
        let page = index.page(&filter, None, 5).unwrap();
        assert_eq!(page.total, wanted, "{filter:?}");
        assert_eq!(page.by_cause.values().sum::<u64>(), wanted, "{filter:?}");
        assert_eq!(page.by_topic.values().sum::<u64>(), wanted, "{filter:?}");
        assert_eq!(all(&index, &filter, 5).len() as u64, wanted, "{filter:?}");
    }
    assert_eq!(index.page(&Filter::default(), Some("nonsense"), 5), None);
}

#[test]
fn what_is_too_old_or_too_many_goes_oldest_first() {
    let mut index = filled(20);
    index.expire(UnixMillis(1_005));
    assert_eq!(index.len(), 10);
    let mut small = Index::new(4);
    for number in 0..9 {
        small.insert(&entry(number));
    }
    let left: Vec<_> = all(&small, &Filter::default(), 10).iter().map(|e| e.place.offset).collect();
    assert_eq!(left.len(), 4);
    assert!(left.iter().all(|offset| *offset >= 4), "{left:?}");
}

#[test]
fn a_million_entries_stay_within_their_memory() {
    // What a B-tree of these costs when its nodes are half full, which is the worst.
    let item = size_of::<Key>() + size_of::<Item>();
    let nodes = 1_000_000 * item * 2;
    let texts = 4 * TEXT_BYTES_MAX / 2;
    assert!(nodes + texts <= 150 * 1024 * 1024, "{item} bytes an entry");
}
