//! The emulator of SQS, EventBridge and STS, and a client of it that is none of the hub's: the
//! services' JSON over curl.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::server::Server;

/// The emulator's only account.
pub const ACCOUNT: &str = "123456789012";
/// The only region that is used.
pub const REGION: &str = "eu-west-1";

/// An emulator.
pub struct Aws {
    server: Server,
}

impl Aws {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self> {
        Ok(Self { server: Server::start("aws-emulator")? })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Where it is called.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    /// A queue as the API takes it, by the URL that its creation answered.
    #[must_use]
    pub fn queue_sink(&self, queue: &str) -> Value {
        json!({
            "type": "sqs", "queue_url": queue, "region": REGION,
            "endpoint": self.endpoint(), "credentials": keys(),
        })
    }

    /// A bus as the API takes it.
    #[must_use]
    pub fn bus_sink(&self, name: &str) -> Value {
        json!({
            "type": "eventbridge", "endpoint": self.endpoint(),
            "event_bus": format!("arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{name}"),
            "credentials": keys(),
        })
    }

    /// One call of the emulator.
    ///
    /// # Errors
    /// No answer, or one that is no success.
    pub fn call(&self, target: &str, body: &Value) -> Result<Value> {
        let service = if target.starts_with("AmazonSQS") { "sqs" } else { "events" };
        let scope = format!("Credential=AKIA/20260101/{REGION}/{service}/aws4_request");
        let output = Command::new("curl")
            .args(["-sS", "--fail-with-body", "-X", "POST"])
            .args(["-H", "Content-Type: application/x-amz-json-1.0"])
            .args(["-H", &format!("X-Amz-Target: {target}")])
            .args(["-H", &format!("Authorization: AWS4-HMAC-SHA256 {scope}, Signature=x")])
            .args(["-d", &body.to_string(), &self.endpoint()])
            .output()
            .context("curl")?;
        ensure!(output.status.success(), "{target}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }

    /// Makes a queue: its URL.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn make_queue(&self, name: &str) -> Result<String> {
        let made = self.call("AmazonSQS.CreateQueue", &json!({"QueueName": name}))?;
        Ok(made["QueueUrl"].as_str().context("no queue URL")?.to_owned())
    }

    /// Makes a bus and a rule that brings events of this source into a queue that exists.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn make_bus(&self, name: &str, source: &str, queue: &str) -> Result<()> {
        self.call("AWSEvents.CreateEventBus", &json!({"Name": name}))?;
        let pattern = json!({"source": [source]}).to_string();
        let rule = json!({"Name": "all", "EventBusName": name, "EventPattern": pattern});
        self.call("AWSEvents.PutRule", &rule)?;
        let arn = format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}");
        let targets =
            json!({"Rule": "all", "EventBusName": name, "Targets": [{"Id": "q", "Arn": arn}]});
        self.call("AWSEvents.PutTargets", &targets).map(drop)
    }

    /// How many messages wait in a queue.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn waiting(&self, queue: &str) -> Result<usize> {
        const NAME: &str = "ApproximateNumberOfMessages";
        let asked = json!({"QueueUrl": queue, "AttributeNames": [NAME]});
        let answer = self.call("AmazonSQS.GetQueueAttributes", &asked)?;
        Ok(answer["Attributes"][NAME].as_str().context("no count")?.parse()?)
    }

    /// Takes all messages of a queue.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn take(&self, queue: &str) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let receive = json!({
            "QueueUrl": queue, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"],
        });
        loop {
            let taken = self.call("AmazonSQS.ReceiveMessage", &receive)?;
            let messages = taken["Messages"].as_array().cloned().unwrap_or_default();
            if messages.is_empty() {
                return Ok(all);
            }
            for message in &messages {
                let body = json!({"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]});
                self.call("AmazonSQS.DeleteMessage", &body)?;
            }
            all.extend(messages);
        }
    }
}

fn keys() -> Value {
    json!({"mode": "keys", "access_key_id": "AKIA", "secret_access_key": "secret"})
}
