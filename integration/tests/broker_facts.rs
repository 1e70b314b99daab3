//! What the runtime relies on in librdkafka and Kafka although no document promises it: each
//! measured behaviour is a test on a real broker, with bare clients and none of the hub's code, so
//! that a newer client or broker that behaves otherwise is noticed here first.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_integration::broker::Broker;
use streaming_hub_integration::wait;

const ANSWER: Duration = Duration::from_secs(10);
const SLICE: Duration = Duration::from_millis(20);
/// Joining a group, with all the rebalances that it takes.
const JOIN: Duration = Duration::from_secs(30);
/// Far above what "at once" takes, far below the session time-out of [`member`].
const AT_ONCE: Duration = Duration::from_secs(8);
/// The longest that one of these tests may take: some calls of the client know no end.
const TEST: Duration = Duration::from_secs(75);
/// Longer than anything here takes that is to be at once.
const SESSION_MS: &str = "20000";

/// One broker for all of them; it ends with the process.
fn broker() -> Result<&'static Broker> {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    if BROKER.get().is_none() {
        let _ = BROKER.set(Broker::start()?);
    }
    BROKER.get().context("a broker")
}

/// One of these tests, as a failure if it hangs.
fn finite(test: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    wait::ends("this test", TEST, test)
}

fn topic(name: &str, partitions: i32) -> Result<()> {
    broker()?.create_topic(name, partitions, &[])
}

fn base() -> Result<ClientConfig> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker()?.bootstrap());
    config.set("topic.metadata.refresh.interval.ms", "1000");
    Ok(config)
}

/// As the hub's consumers: explicit offsets, nothing by itself.
fn consumer(group: &str) -> Result<ClientConfig> {
    let mut config = base()?;
    for (name, value) in [
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("isolation.level", "read_committed"),
        ("fetch.wait.max.ms", "100"),
    ] {
        config.set(name, value);
    }
    Ok(config)
}

/// A static member of a group, as the hub's are.
fn member(group: &str, instance: &str) -> Result<ClientConfig> {
    let mut config = consumer(group)?;
    for (name, value) in [
        ("group.instance.id", instance),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("session.timeout.ms", SESSION_MS),
        ("heartbeat.interval.ms", "500"),
    ] {
        config.set(name, value);
    }
    Ok(config)
}

fn transactional(id: &str) -> Result<BaseProducer> {
    let mut config = base()?;
    for (name, value) in [
        ("transactional.id", id),
        // Longer than any of these tests waits: nothing ends by time.
        ("transaction.timeout.ms", "60000"),
        ("retry.backoff.ms", "1"),
        ("retry.backoff.max.ms", "5"),
    ] {
        config.set(name, value);
    }
    let producer: BaseProducer = config.create()?;
    producer.init_transactions(ANSWER)?;
    Ok(producer)
}

fn list(topic: &str, partition: i32, offset: Offset) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, offset)?;
    Ok(list)
}

/// Writes so many records, and waits until they are acknowledged.
fn write(producer: &BaseProducer, topic: &str, count: usize) -> Result<()> {
    for number in 0..count {
        let value = number.to_string();
        let record = BaseRecord::<[u8], str>::to(topic).partition(0).payload(&value);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(ANSWER)?)
}

/// Commits this position of the group in a transaction of its own.
fn commit_position(producer: &BaseProducer, group: &str, topic: &str, offset: i64) -> Result<()> {
    begin_position(producer, group, topic, offset)?;
    Ok(producer.commit_transaction(ANSWER)?)
}

/// The same, and leaves the transaction open.
fn begin_position(producer: &BaseProducer, group: &str, topic: &str, offset: i64) -> Result<()> {
    let stranger: BaseConsumer = consumer(group)?.create()?;
    coordinated(&stranger, topic)?;
    let metadata = stranger.group_metadata().context("metadata")?;
    producer.begin_transaction()?;
    let positions = list(topic, 0, Offset::Offset(offset))?;
    Ok(producer.send_offsets_to_transaction(&positions, &metadata, ANSWER)?)
}

/// The group's stable position of partition 0, as the hub asks for it.
fn position(reader: &BaseConsumer, topic: &str) -> Result<Offset, KafkaError> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition(topic, 0);
    let answer = reader.committed_offsets(asked, Duration::from_secs(1))?;
    let element = answer.find_partition(topic, 0).ok_or(KafkaError::Canceled)?;
    element.error()?;
    Ok(element.offset())
}

/// Waits for the group's coordinator, which a new broker has to make first: positions that are sent
/// before are sent for ever, whatever the limit of the call. (The hub's threads have joined their
/// group by then; the watchdog ends what still hangs.)
fn coordinated(stranger: &BaseConsumer, topic: &str) -> Result<()> {
    wait::until("the group's coordinator", ANSWER, || {
        Ok(match position(stranger, topic) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        })
    })
}

/// Where partition 0 ends for this client.
fn end(client: &BaseConsumer, topic: &str) -> Result<i64> {
    let answer = client.offsets_for_times(list(topic, 0, Offset::End)?, ANSWER)?;
    let element = answer.find_partition(topic, 0).context("an answer")?;
    element.offset().to_raw().context("an offset")
}

/// The next record's offset.
fn next<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> Result<i64> {
    wait::until("a record", ANSWER, || match consumer.poll(SLICE) {
        Some(message) => Ok(Ok(message?.offset())),
        None => Ok(Err("none".to_owned())),
    })
}

/// Polls these members until they have so many partitions each.
fn settle(members: &[(&BaseConsumer, usize)], within: Duration) -> Result<()> {
    wait::until("the assignment", within, || {
        let mut counts = Vec::new();
        for (member, _) in members {
            // What is assigned here has no position and must not fetch: errors are of no interest.
            let _ = member.poll(SLICE);
            counts.push(member.assignment()?.count());
        }
        let done = counts.iter().zip(members).all(|(count, (_, wanted))| count == wanted);
        Ok(if done { Ok(()) } else { Err(format!("{counts:?}")) })
    })
}

/// Members leave: dropping one that has not takes as long as its session.
fn leave(members: &[&BaseConsumer]) -> Result<()> {
    members.iter().for_each(|member| member.unsubscribe());
    settle(&members.iter().map(|member| (*member, 0)).collect::<Vec<_>>(), JOIN)
}

#[test]
fn a_position_is_a_time_out_while_a_transaction_pends_until_init_under_its_id() -> Result<()> {
    finite(|| {
        let (name, group) = ("facts-stable", "facts-stable");
        topic(name, 1)?;
        // A fenced producer may hang in any call, its own end included (librdkafka #4420).
        let owner = std::mem::ManuallyDrop::new(transactional("facts-stable")?);
        commit_position(&owner, group, name, 5)?;
        let reader: BaseConsumer = consumer(group)?.create()?;
        ensure!(position(&reader, name)? == Offset::Offset(5));
        begin_position(&owner, group, name, 9)?;
        for _ in 0..2 {
            let pending = position(&reader, name);
            ensure!(pending.is_err(), "a pending position was answered: {pending:?}");
        }
        // What a new owner does for a predecessor that is gone.
        let _successor = transactional("facts-stable")?;
        wait::until("the position of before", AT_ONCE, || {
            Ok(match position(&reader, name) {
                Ok(Offset::Offset(5)) => Ok(()),
                Ok(other) => bail!("{other:?}"),
                Err(error) => Err(error.to_string()),
            })
        })?;
        ensure!(position(&reader, name)? == Offset::Offset(5));
        Ok(())
    })
}

#[test]
fn a_transaction_without_a_valid_offset_moves_no_position() -> Result<()> {
    finite(|| {
        let (name, group) = ("facts-none", "facts-none");
        topic(name, 1)?;
        let producer = transactional("facts-none")?;
        let stranger: BaseConsumer = consumer(group)?.create()?;
        coordinated(&stranger, name)?;
        let metadata = stranger.group_metadata().context("metadata")?;
        producer.begin_transaction()?;
        let invalid = list(name, 0, Offset::Invalid)?;
        producer.send_offsets_to_transaction(&invalid, &metadata, ANSWER)?;
        producer.commit_transaction(ANSWER)?;
        ensure!(position(&stranger, name)? == Offset::Invalid);
        Ok(())
    })
}

#[test]
fn who_is_in_no_group_commits_its_position_unfenced() -> Result<()> {
    finite(|| {
        let (name, group) = ("facts-unfenced", "facts-unfenced");
        topic(name, 1)?;
        let owner: BaseConsumer = member(group, "owner")?.create()?;
        owner.subscribe(&[name])?;
        settle(&[(&owner, 1)], JOIN)?;
        // The metadata of a consumer that never joined: no member id, generation −1.
        commit_position(&transactional("facts-unfenced")?, group, name, 7)?;
        let reader: BaseConsumer = consumer(group)?.create()?;
        ensure!(position(&reader, name)? == Offset::Offset(7), "the hub's own check is the fence");
        leave(&[&owner])
    })
}

#[test]
fn metadata_of_a_generation_before_the_last_rebalance_is_refused() -> Result<()> {
    finite(|| {
        let (name, group) = ("facts-generation", "facts-generation");
        topic(name, 2)?;
        let first: BaseConsumer = member(group, "first")?.create()?;
        first.subscribe(&[name])?;
        settle(&[(&first, 2)], JOIN)?;
        let old = first.group_metadata().context("metadata")?;
        let second: BaseConsumer = member(group, "second")?.create()?;
        second.subscribe(&[name])?;
        settle(&[(&first, 1), (&second, 1)], JOIN)?;
        let producer = transactional("facts-generation")?;
        producer.begin_transaction()?;
        let positions = list(name, 0, Offset::Offset(1))?;
        let refused = producer.send_offsets_to_transaction(&positions, &old, ANSWER);
        ensure!(refused.is_err(), "offsets of an old generation were taken");
        producer.abort_transaction(ANSWER)?;
        leave(&[&first, &second])
    })
}

#[test]
fn a_static_member_that_comes_back_has_its_partitions_at_once_and_no_other_is_disturbed()
-> Result<()> {
    finite(|| {
        let (name, group) = ("facts-static", "facts-static");
        topic(name, 4)?;
        let first: BaseConsumer = member(group, "first")?.create()?;
        let second: BaseConsumer = member(group, "second")?.create()?;
        first.subscribe(&[name])?;
        second.subscribe(&[name])?;
        settle(&[(&first, 2), (&second, 2)], JOIN)?;
        let (had, others) = (first.assignment()?, second.assignment()?);
        // As if it was killed: the group hears nothing of it. (Dropping it takes a session.)
        std::mem::forget(first);
        let again: BaseConsumer = member(group, "first")?.create()?;
        again.subscribe(&[name])?;
        settle(&[(&again, 2), (&second, 2)], AT_ONCE)?;
        let partitions = |list: &TopicPartitionList| {
            let mut found: Vec<i32> = list.elements().iter().map(|e| e.partition()).collect();
            found.sort_unstable();
            found
        };
        ensure!(partitions(&again.assignment()?) == partitions(&had), "it has others");
        ensure!(
            partitions(&second.assignment()?) == partitions(&others),
            "the other was disturbed"
        );
        leave(&[&again, &second])
    })
}

#[test]
fn a_static_member_that_unsubscribes_and_polls_leaves_at_once() -> Result<()> {
    finite(|| {
        let (name, group) = ("facts-leave", "facts-leave");
        topic(name, 2)?;
        let first: BaseConsumer = member(group, "first")?.create()?;
        let second: BaseConsumer = member(group, "second")?.create()?;
        first.subscribe(&[name])?;
        second.subscribe(&[name])?;
        settle(&[(&first, 1), (&second, 1)], JOIN)?;
        first.unsubscribe();
        settle(&[(&first, 0), (&second, 2)], AT_ONCE)?;
        leave(&[&second])
    })
}

#[test]
fn ends_are_the_lso_for_a_committed_reader_and_the_high_watermark_for_an_uncommitted_one()
-> Result<()> {
    finite(|| {
        let name = "facts-ends";
        topic(name, 1)?;
        let producer = transactional("facts-ends")?;
        producer.begin_transaction()?;
        write(&producer, name, 3)?;
        let committed: BaseConsumer = consumer("facts-ends")?.create()?;
        let mut config = base()?;
        config.set("isolation.level", "read_uncommitted");
        let uncommitted: BaseConsumer = config.create()?;
        ensure!((end(&committed, name)?, end(&uncommitted, name)?) == (0, 3));
        let (_, high) = committed.fetch_watermarks(name, 0, ANSWER)?;
        ensure!(high == 0, "the watermark of a read-committed client is {high}");
        producer.abort_transaction(ANSWER)?;
        wait::until("the LSO behind the marker", AT_ONCE, || {
            let ends = (end(&committed, name)?, end(&uncommitted, name)?);
            Ok(if ends == (4, 4) { Ok(()) } else { Err(format!("{ends:?}")) })
        })
    })
}

#[test]
fn a_position_passes_aborted_records_and_markers_up_to_the_high_watermark() -> Result<()> {
    finite(|| {
        let name = "facts-passes";
        topic(name, 1)?;
        let producer = transactional("facts-passes")?;
        producer.begin_transaction()?;
        write(&producer, name, 2)?;
        producer.commit_transaction(ANSWER)?;
        producer.begin_transaction()?;
        write(&producer, name, 3)?;
        producer.abort_transaction(ANSWER)?;
        let reader: BaseConsumer = consumer("facts-passes")?.create()?;
        reader.assign(&list(name, 0, Offset::Offset(0))?)?;
        let mut seen = Vec::new();
        wait::until("the position at the end", AT_ONCE, || {
            if let Some(message) = reader.poll(SLICE) {
                seen.push(message?.offset());
            }
            let known = reader.position()?;
            let at = known.find_partition(name, 0).map(|element| element.offset());
            Ok(if at == Some(Offset::Offset(7)) { Ok(()) } else { Err(format!("{at:?}")) })
        })?;
        ensure!(seen == [0, 1], "a read-committed reader saw {seen:?}");
        Ok(())
    })
}

#[test]
fn an_offset_out_of_range_is_an_error_and_resumes_by_a_new_assignment() -> Result<()> {
    finite(|| {
        let name = "facts-range";
        topic(name, 1)?;
        let producer: BaseProducer = base()?.create()?;
        write(&producer, name, 5)?;
        let reader: BaseConsumer = consumer("facts-range")?.create()?;
        reader.assign(&list(name, 0, Offset::Offset(99))?)?;
        let code = wait::until("an error", ANSWER, || match reader.poll(SLICE) {
            None => Ok(Err("nothing".to_owned())),
            Some(Ok(message)) => bail!("record {} came", message.offset()),
            Some(Err(error)) => Ok(Ok(error.rdkafka_error_code())),
        })?;
        ensure!(code == Some(RDKafkaErrorCode::AutoOffsetReset), "{code:?}");
        reader.unassign()?;
        reader.assign(&list(name, 0, Offset::Offset(2))?)?;
        ensure!(next(&reader)? == 2);
        Ok(())
    })
}

/// Answers every rebalance with nothing, as the hub does.
struct Later;

impl ClientContext for Later {}

impl ConsumerContext for Later {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        _: &mut TopicPartitionList,
    ) {
        let _ = match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                consumer.incremental_assign(&TopicPartitionList::new())
            }
            _ => {
                let assigned = consumer.assignment().unwrap_or_default();
                consumer.incremental_unassign(&assigned)
            }
        };
    }
}

#[test]
fn partitions_are_assigned_later_by_explicit_offset_and_a_rewind_skips_and_doubles_nothing()
-> Result<()> {
    finite(|| {
        let (name, group) = ("facts-later", "facts-later");
        topic(name, 1)?;
        let producer: BaseProducer = base()?.create()?;
        write(&producer, name, 900)?;
        // A position that must not count: explicit offsets win.
        commit_position(&transactional("facts-later")?, group, name, 3)?;
        let reader: BaseConsumer<Later> = member(group, "one")?.create_with_context(Later)?;
        reader.subscribe(&[name])?;
        wait::until("a generation", JOIN, || {
            let nothing = reader.poll(SLICE).is_none();
            ensure!(nothing, "something came of an assignment of nothing");
            let listed = reader.client().fetch_group_list(Some(group), ANSWER)?;
            let stable = listed.groups().iter().any(|group| group.state() == "Stable");
            Ok(if stable { Ok(()) } else { Err("not stable".to_owned()) })
        })?;
        reader.incremental_assign(&list(name, 0, Offset::Offset(600))?)?;
        for offset in 600..700 {
            ensure!(next(&reader)? == offset, "after the assignment");
        }
        for from in [650, 10, 899] {
            reader.incremental_unassign(&list(name, 0, Offset::Invalid)?)?;
            reader.incremental_assign(&list(name, 0, Offset::Offset(from))?)?;
            for offset in from..(from + 40).min(900) {
                let found = next(&reader)?;
                ensure!(found == offset, "rewound to {from}: {found} instead of {offset}");
            }
        }
        reader.unsubscribe();
        wait::until("the end of the membership", JOIN, || {
            let _ = reader.poll(SLICE);
            let count = reader.assignment()?.count();
            Ok(if count == 0 { Ok(()) } else { Err(format!("{count} partitions")) })
        })
    })
}

#[test]
fn an_abort_after_purging_and_draining_is_quick_and_nothing_of_it_is_read() -> Result<()> {
    finite(|| {
        let name = "facts-abort";
        topic(name, 1)?;
        let producer = transactional("facts-abort")?;
        producer.begin_transaction()?;
        for _ in 0..2_000 {
            let record = BaseRecord::<[u8], str>::to(name).partition(0).payload("no");
            producer.send(record).map_err(|(error, _)| error)?;
        }
        let began = wait::instant();
        producer.purge(PurgeConfig::default().queue());
        producer.flush(ANSWER)?;
        producer.abort_transaction(ANSWER)?;
        ensure!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        producer.begin_transaction()?;
        write(&producer, name, 1)?;
        producer.commit_transaction(ANSWER)?;
        let reader: BaseConsumer = consumer("facts-abort")?.create()?;
        reader.assign(&list(name, 0, Offset::Offset(0))?)?;
        let value = wait::until("a record", ANSWER, || match reader.poll(SLICE) {
            Some(message) => Ok(Ok(message?.payload().map(<[u8]>::to_vec))),
            None => Ok(Err("none".to_owned())),
        })?;
        ensure!(value.as_deref() == Some(&b"0"[..]), "an aborted record was read");
        Ok(())
    })
}
