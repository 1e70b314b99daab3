//! Bare clients: the same messages, in the same batches and as many at once as the hub may have,
//! and nothing else to do. No SDK and no hub's code: what they reach is the server's.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use serde_json::{Value, json};

use crate::bench::deliveries::as_f64;
use crate::sinks::{ACCOUNT, Aws, REGION, RabbitMq};
use crate::wait;

/// Messages that are not confirmed yet: the hub's slots for attempts.
const UNCONFIRMED: usize = 256;
/// Requests at once to the emulator.
const REQUESTS: usize = 8;
/// Messages of a request.
const BATCH: usize = 10;
const PERSISTENT: u8 = 2;

/// Messages a second of one publisher with confirms.
pub(super) fn rabbitmq(broker: &RabbitMq, count: usize, payload_bytes: usize) -> Result<f64> {
    const NAME: &str = "bare";
    broker.bind(NAME, "#", NAME)?;
    let payload = vec![b'x'; payload_bytes];
    broker.with_channel(async |channel| {
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let (began, mut unconfirmed) = (wait::instant(), VecDeque::new());
        for _ in 0..count {
            let sent = channel.basic_publish(
                NAME.into(),
                "key".into(),
                options,
                &payload,
                properties.clone(),
            );
            unconfirmed.push_back(sent.await?);
            if unconfirmed.len() == UNCONFIRMED
                && let Some(oldest) = unconfirmed.pop_front()
            {
                ensure!(oldest.await?.is_ack(), "not confirmed");
            }
        }
        for confirm in unconfirmed {
            ensure!(confirm.await?.is_ack(), "not confirmed");
        }
        Ok(as_f64(count) / began.elapsed().as_secs_f64())
    })
}

/// A full request to a queue, with attributes as the hub's.
pub(super) fn messages(queue: &str, payload_bytes: usize) -> Value {
    let text = |value: &str| json!({"DataType": "String", "StringValue": value});
    let attributes = json!({
        "ce-id": text("0198f3a2-11aa-7c3e-9d21-5b8f0c4de0aa"),
        "ce-source": text("bench"),
        "ce-type": text("studio.lerian.bench.account.created"),
        "ce-time": text("2026-09-21T14:13:01Z"),
        "ce-schemaversion": text("1.0.0"),
        "tenant-id": text("tenant-001"),
        "delivery-id": text("0198f3a2-11aa-7c3e-9d21-5b8f0c4de0aa"),
        "event-type": text("account.created"),
    });
    let body = "x".repeat(payload_bytes);
    let entry =
        |n| json!({"Id": format!("{n}"), "MessageBody": body, "MessageAttributes": attributes});
    json!({"QueueUrl": queue, "Entries": (0..BATCH).map(entry).collect::<Vec<_>>()})
}

/// A full request to a bus.
pub(super) fn entries(bus: &str, payload_bytes: usize) -> Value {
    let detail = json!({"id": "0198f3a2", "data": "x".repeat(payload_bytes)}).to_string();
    let entry = json!({
        "Source": "bench", "DetailType": "studio.lerian.bench.account.created", "Detail": detail,
        "EventBusName": format!("arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{bus}"),
    });
    json!({"Entries": vec![entry; BATCH]})
}

/// Messages a second through this request, made over and over.
pub(super) fn aws(aws: &Aws, target: &str, count: usize, body: &Value) -> Result<f64> {
    let (port, body) = (aws.port(), body.to_string());
    let service = if target.starts_with("AmazonSQS") { "sqs" } else { "events" };
    let request = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: {target}\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=AKIA/20260101/{REGION}/{service}/aws4_request, Signature=x\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (requests, made, began) = (count.div_ceil(BATCH), AtomicUsize::new(0), wait::instant());
    let client = || {
        while made.fetch_add(1, Ordering::Relaxed) < requests {
            exchange(port, &request)?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..REQUESTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a client panicked"),
        })
    })?;
    Ok(as_f64(requests * BATCH) / began.elapsed().as_secs_f64())
}

/// One request. The emulator closes a connection behind each answer.
fn exchange(port: u16, request: &str) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).context("no answer")?;
    ensure!(status == "200" && !text.contains("ErrorCode"), "{text}");
    Ok(())
}
