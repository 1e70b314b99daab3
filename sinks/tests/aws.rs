//! The sinks of AWS against an emulator of SQS and EventBridge.
#![allow(missing_docs, clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::Sink;
use streaming_hub_sinks::Sinks;
use support::aws::{ACCOUNT, Aws, payload_of};
use support::{Job, MIB, TENANT, assert_delivered, assert_failed, fixtures, sinks};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sinks_and_the_services() {
    let aws = Aws::start();
    let sinks = sinks(|_| ());
    every_payload_arrives_in_a_queue_byte_for_byte(&aws, &sinks).await;
    a_fifo_queue_keeps_order_and_takes_a_job_once(&aws, &sinks).await;
    what_is_not_there_is_not_found(&aws, &sinks).await;
    every_payload_arrives_on_a_bus_byte_for_byte(&aws, &sinks).await;
    the_largest_message_of_a_queue_arrives_and_one_byte_more_is_terminal(&aws, &sinks).await;
    the_largest_entry_of_a_bus_arrives_and_one_byte_more_is_terminal(&aws, &sinks).await;
}

/// The bytes of a message's attributes as SQS counts them: name, type and value of each.
fn attribute_bytes(job: &Job, encoding: Option<&str>) -> usize {
    let attempt = job.attempt();
    let header = |name: &str| {
        let found = job.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut attributes = vec![
        ("ce-id", job.event_id().to_string()),
        ("tenant-id", job.tenant.clone()),
        ("delivery-id", attempt.delivery_id.to_string()),
        ("event-type", attempt.event.key()),
    ];
    let copied = ["ce-source", "ce-type", "ce-time", "ce-schemaversion"];
    attributes.extend(copied.map(|name| (name, header(name))));
    attributes.extend(encoding.map(|encoding| ("payload-encoding", encoding.to_owned())));
    attributes.iter().map(|(name, value)| name.len() + "String".len() + value.len()).sum()
}

async fn the_largest_message_of_a_queue_arrives_and_one_byte_more_is_terminal(
    aws: &Aws,
    sinks: &Sinks,
) {
    let queue = aws.queue("sizes", &json!({}));
    let sink = aws.sqs(&queue);
    let text = MIB - attribute_bytes(&Job::new(&sink, "x"), None);
    let encoded = MIB - attribute_bytes(&Job::new(&sink, "x"), Some("base64"));
    // Base64 makes four bytes of three; the last four may be of one.
    let binary = encoded / 4 * 3;
    for (byte, largest) in [(b'x', text), (0xff, binary)] {
        let job = Job::new(&sink, vec![byte; largest]);
        assert_delivered(&sinks.attempt(job.attempt()).await);
        let [message] = &aws.take(&queue)[..] else { panic!("one message") };
        assert_eq!(payload_of(message), job.payload.to_vec());
        let more = Job::new(&sink, vec![byte; largest + 1]);
        assert_failed(&sinks.attempt(more.attempt()).await, ErrorClass::TooLarge);
    }
}

async fn the_largest_entry_of_a_bus_arrives_and_one_byte_more_is_terminal(
    aws: &Aws,
    sinks: &Sinks,
) {
    const ENTRY: usize = 256 * 1024;
    let (queue, sink) = aws.bus("large");
    let job = |payload: Vec<u8>| Job::new(&sink, payload);
    // Source, detail type, and the detail: `{"name":"value",…"data":…}`.
    let sample = job(Vec::new());
    let id = sample.event_id().to_string();
    let members = sample.headers.iter().map(|(name, value)| (&name[3..], value.len()));
    let members = members.chain([("id", id.len())]).map(|(name, value)| name.len() + value + 6);
    let routed = "ledger".len() + "studio.lerian.ledger.account.created".len();
    let json = ENTRY - routed - members.sum::<usize>() - r#"{"data":}"#.len();
    let binary = (json - r#""_base64"""#.len() + 1) / 4 * 3;
    let quoted = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2)).into_bytes();
    for (largest, more) in
        [(quoted(json), quoted(json + 1)), (vec![0xff; binary], vec![0xff; binary + 1])]
    {
        let largest = job(largest);
        assert_delivered(&sinks.attempt(largest.attempt()).await);
        let [message] = &aws.take(&queue)[..] else { panic!("one message") };
        let event: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
        let detail = &event["detail"];
        let arrived = match detail["data_base64"].as_str() {
            Some(text) => BASE64.decode(text).unwrap(),
            None => detail["data"].to_string().into_bytes(),
        };
        assert_eq!(arrived, largest.payload.to_vec());
        assert_failed(&sinks.attempt(job(more).attempt()).await, ErrorClass::TooLarge);
    }
}

async fn every_payload_arrives_in_a_queue_byte_for_byte(aws: &Aws, sinks: &Sinks) {
    let queue = aws.queue("orders", &json!({}));
    let sink = aws.sqs(&queue);
    for job in fixtures(&sink) {
        assert_delivered(&sinks.attempt(job.attempt()).await);
        let [message] = &aws.take(&queue)[..] else { panic!("one message") };
        assert_eq!(payload_of(message), job.payload.to_vec());
        let attribute = |name: &str| &message["MessageAttributes"][name]["StringValue"];
        assert_eq!(attribute("ce-id"), &json!(job.event_id().to_string()));
        assert_eq!(attribute("tenant-id"), TENANT);
    }
    assert_delivered(&sinks.verify(Job::new(&sink, "x").attempt()).await);
    assert!(aws.take(&queue).is_empty(), "a look-up sends nothing");
    let more = Job::new(&sink, vec![b'x'; MIB]);
    assert_failed(&sinks.attempt(more.attempt()).await, ErrorClass::TooLarge);
}

async fn a_fifo_queue_keeps_order_and_takes_a_job_once(aws: &Aws, sinks: &Sinks) {
    let queue = aws.queue("orders.fifo", &json!({"FifoQueue": "true"}));
    let sink = aws.sqs(&queue);
    for number in 1..=5 {
        let job = Job::new(&sink, number.to_string()).number(number);
        assert_delivered(&sinks.attempt(job.attempt()).await);
        assert_delivered(&sinks.attempt(job.attempt()).await);
    }
    let mut bodies = Vec::new();
    loop {
        let taken = aws.take(&queue);
        if taken.is_empty() {
            break;
        }
        bodies.extend(taken.iter().map(payload_of));
    }
    assert_eq!(bodies, [b"1", b"2", b"3", b"4", b"5"].map(|body| body.to_vec()));
}

async fn what_is_not_there_is_not_found(aws: &Aws, sinks: &Sinks) {
    let sink = aws.sqs(&format!("{}/{ACCOUNT}/absent", aws.endpoint()));
    let job = Job::new(&sink, "x");
    assert_failed(&sinks.attempt(job.attempt()).await, ErrorClass::NotFound);
    assert_failed(&sinks.verify(job.attempt()).await, ErrorClass::NotFound);
}

async fn every_payload_arrives_on_a_bus_byte_for_byte(aws: &Aws, sinks: &Sinks) {
    let (queue, sink) = aws.bus("bus");
    for job in fixtures(&sink) {
        assert_delivered(&sinks.attempt(job.attempt()).await);
        let [message] = &aws.take(&queue)[..] else { panic!("one message") };
        let event: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
        let detail = &event["detail"];
        assert_eq!(detail["id"], job.event_id().to_string());
        match (detail.get("data"), detail["data_base64"].as_str()) {
            (None, None) => assert!(job.payload.is_empty()),
            (None, Some(text)) => assert_eq!(BASE64.decode(text).unwrap(), job.payload.to_vec()),
            // The emulator writes JSON anew; the request's own tests look at the bytes.
            (Some(data), _) => {
                assert_eq!(data, &serde_json::from_slice::<Value>(&job.payload).unwrap());
            }
        }
    }
    assert_delivered(&sinks.verify(Job::new(&sink, "x").attempt()).await);
    let absent = Job::new(&aws.eventbridge("absent"), "x");
    assert_failed(&sinks.verify(absent.attempt()).await, ErrorClass::NotFound);
    let more = Job::new(&sink, vec![0xff; 200 * 1024]);
    assert_failed(&sinks.attempt(more.attempt()).await, ErrorClass::TooLarge);
}
