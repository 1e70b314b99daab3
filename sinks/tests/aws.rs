//! The sinks of AWS against an emulator of SQS and EventBridge.
#![allow(missing_docs, clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::Sink;
use streaming_hub_sinks::Sinks;
use support::{Job, MIB, Server, TENANT, assert_delivered, assert_failed, fixtures, sealed, sinks};

const ACCOUNT: &str = "123456789012";

/// An emulator, and a client of it that is none of ours: the services' JSON over curl.
struct Aws {
    server: Server,
}

impl Aws {
    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    fn call(&self, target: &str, body: &Value) -> Value {
        let service = if target.starts_with("AmazonSQS") { "sqs" } else { "events" };
        let scope = format!("Credential=AKIA/20260101/eu-west-1/{service}/aws4_request");
        let output = Command::new("curl")
            .args(["-s", "-X", "POST", "-H", "Content-Type: application/x-amz-json-1.0"])
            .args(["-H", &format!("X-Amz-Target: {target}")])
            .args(["-H", &format!("Authorization: AWS4-HMAC-SHA256 {scope}, Signature=x")])
            .args(["-d", &body.to_string(), &self.endpoint()])
            .output()
            .unwrap();
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn queue(&self, name: &str, attributes: &Value) -> String {
        let made = self
            .call("AmazonSQS.CreateQueue", &json!({"QueueName": name, "Attributes": attributes}));
        made["QueueUrl"].as_str().unwrap().to_owned()
    }

    /// Takes messages from a queue: bodies and their attributes.
    fn take(&self, queue: &str) -> Vec<Value> {
        let taken = self.call(
            "AmazonSQS.ReceiveMessage",
            &json!({
                "QueueUrl": queue, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"],
            }),
        );
        let messages = taken["Messages"].as_array().cloned().unwrap_or_default();
        for message in &messages {
            let handle = &message["ReceiptHandle"];
            let body = json!({"QueueUrl": queue, "ReceiptHandle": handle});
            self.call("AmazonSQS.DeleteMessage", &body);
        }
        messages
    }

    fn keys() -> Value {
        json!({
            "mode": "keys", "access_key_id": "AKIA", "secret_access_key": sealed(TENANT, "secret"),
        })
    }

    fn sqs(&self, queue: &str) -> Value {
        json!({
            "type": "sqs", "queue_url": queue, "region": "eu-west-1",
            "endpoint": self.endpoint(), "credentials": Self::keys(),
        })
    }
}

/// The payload by the documented encoding.
fn payload_of(message: &Value) -> Vec<u8> {
    let body = message["Body"].as_str().unwrap();
    match message["MessageAttributes"]["payload-encoding"]["StringValue"].as_str() {
        None => body.as_bytes().to_vec(),
        Some("empty") => Vec::new(),
        Some("base64") => BASE64.decode(body).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sinks_and_the_services() {
    let aws = Aws { server: Server::start("aws-emulator", &[]) };
    let sinks = sinks(|_| ());
    every_payload_arrives_in_a_queue_byte_for_byte(&aws, &sinks).await;
    a_fifo_queue_keeps_order_and_takes_a_job_once(&aws, &sinks).await;
    what_is_not_there_is_not_found(&aws, &sinks).await;
    every_payload_arrives_on_a_bus_byte_for_byte(&aws, &sinks).await;
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
    let queue = aws.queue("from-bus", &json!({}));
    aws.call("AWSEvents.CreateEventBus", &json!({"Name": "bus"}));
    let rule = json!({"Name": "all", "EventBusName": "bus",
        "EventPattern": "{\"account\": [\"123456789012\"]}"});
    aws.call("AWSEvents.PutRule", &rule);
    let target = format!("arn:aws:sqs:eu-west-1:{ACCOUNT}:from-bus");
    aws.call(
        "AWSEvents.PutTargets",
        &json!({"Rule": "all", "EventBusName": "bus", "Targets": [{"Id": "q", "Arn": target}]}),
    );
    let bus = |name: &str| {
        json!({
            "type": "eventbridge", "region": "eu-west-1", "endpoint": aws.endpoint(),
            "event_bus": format!("arn:aws:events:eu-west-1:{ACCOUNT}:event-bus/{name}"),
            "credentials": Aws::keys(),
        })
    };
    let sink = bus("bus");
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
    let absent = Job::new(&bus("absent"), "x");
    assert_failed(&sinks.verify(absent.attempt()).await, ErrorClass::NotFound);
    let more = Job::new(&sink, vec![0xff; 200 * 1024]);
    assert_failed(&sinks.attempt(more.attempt()).await, ErrorClass::TooLarge);
}
