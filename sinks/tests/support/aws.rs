//! An emulator of SQS, EventBridge, STS and IAM for the tests of the sinks of AWS.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Server, TENANT, sealed};

pub const ACCOUNT: &str = "123456789012";

/// An emulator, and a client of it that is none of ours: the services' JSON over curl.
pub struct Aws {
    pub server: Server,
}

impl Aws {
    pub fn start() -> Self {
        Self { server: Server::start("aws-emulator", &[]) }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    pub fn call(&self, target: &str, body: &Value) -> Value {
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

    pub fn queue(&self, name: &str, attributes: &Value) -> String {
        let made = self
            .call("AmazonSQS.CreateQueue", &json!({"QueueName": name, "Attributes": attributes}));
        made["QueueUrl"].as_str().unwrap().to_owned()
    }

    /// Takes messages from a queue: bodies and their attributes.
    pub fn take(&self, queue: &str) -> Vec<Value> {
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

    pub fn keys() -> Value {
        json!({
            "mode": "keys", "access_key_id": "AKIA", "secret_access_key": sealed(TENANT, "secret"),
        })
    }

    pub fn sqs(&self, queue: &str) -> Value {
        json!({
            "type": "sqs", "queue_url": queue, "region": "eu-west-1",
            "endpoint": self.endpoint(), "credentials": Self::keys(),
        })
    }

    pub fn eventbridge(&self, name: &str) -> Value {
        json!({
            "type": "eventbridge", "region": "eu-west-1", "endpoint": self.endpoint(),
            "event_bus": format!("arn:aws:events:eu-west-1:{ACCOUNT}:event-bus/{name}"),
            "credentials": Self::keys(),
        })
    }

    /// A bus and a queue that gets everything that it gets: the queue's URL and the bus's sink.
    pub fn bus(&self, name: &str) -> (String, Value) {
        let from = format!("from-{name}");
        let queue = self.queue(&from, &json!({}));
        self.call("AWSEvents.CreateEventBus", &json!({"Name": name}));
        let rule = json!({"Name": "all", "EventBusName": name,
            "EventPattern": "{\"account\": [\"123456789012\"]}"});
        self.call("AWSEvents.PutRule", &rule);
        let arn = format!("arn:aws:sqs:eu-west-1:{ACCOUNT}:{from}");
        let targets =
            json!({"Rule": "all", "EventBusName": name, "Targets": [{"Id": "q", "Arn": arn}]});
        self.call("AWSEvents.PutTargets", &targets);
        (queue, self.eventbridge(name))
    }

    /// A call of IAM, whose protocol is another one: the answer's XML.
    pub fn iam(&self, action: &str, parameters: &[(&str, &str)]) -> String {
        let scope = "Credential=AKIA/20260101/us-east-1/iam/aws4_request";
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "-X", "POST", &self.endpoint()]);
        curl.args(["-H", &format!("Authorization: AWS4-HMAC-SHA256 {scope}, Signature=x")]);
        curl.args(["-d", &format!("Action={action}&Version=2010-05-08")]);
        for (name, value) in parameters {
            curl.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        let output = curl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{action}: {said}");
        said
    }

    /// A user with this policy: the id and the secret of its access key.
    pub fn user(&self, name: &str, policy: &str) -> (String, String) {
        self.iam("CreateUser", &[("UserName", name)]);
        let inline = [("UserName", name), ("PolicyName", "own"), ("PolicyDocument", policy)];
        self.iam("PutUserPolicy", &inline);
        let made = self.iam("CreateAccessKey", &[("UserName", name)]);
        let of = |tag: &str| {
            let from = made.split(&format!("<{tag}>")).nth(1).unwrap();
            from.split('<').next().unwrap().to_owned()
        };
        (of("AccessKeyId"), of("SecretAccessKey"))
    }

    /// From now on keys, signatures and policies are checked.
    pub fn check_identities(&self) {
        let url = format!("{}/moto-api/reset-auth", self.endpoint());
        let status = Command::new("curl")
            .args(["-sSf", "-o", "/dev/null", "-H", "Content-Type: text/plain", "-d", "0", &url])
            .status();
        assert!(status.unwrap().success());
    }
}

/// The payload by the documented encoding.
pub fn payload_of(message: &Value) -> Vec<u8> {
    let body = message["Body"].as_str().unwrap();
    match message["MessageAttributes"]["payload-encoding"]["StringValue"].as_str() {
        None => body.as_bytes().to_vec(),
        Some("empty") => Vec::new(),
        Some("base64") => BASE64.decode(body).unwrap(),
        other => panic!("{other:?}"),
    }
}
