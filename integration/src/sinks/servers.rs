//! RabbitMQ and the emulator of SQS and EventBridge, started by the project's scripts on free
//! ports and gone with their value; and their consumers.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Payload, Received};
use crate::keeper::Keeper;
use crate::ports;

/// The emulator's only account.
const ACCOUNT: &str = "123456789012";
const REGION: &str = "eu-west-1";
/// Queue, bus and exchange of the demonstration.
const NAME: &str = "events";
/// The queue that a rule of the bus fills.
const FROM_BUS: &str = "from-bus";

/// A running server; it ends with its value.
struct Server {
    port: u16,
    _keeper: Keeper,
}

impl Server {
    /// Starts it by the project's script of this name.
    fn start(name: &str) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name);
        // The script's purge removes it, also when this process cannot any more.
        let directory = tempfile::Builder::new().prefix("streaming-hub-sink-").tempdir()?.keep();
        let stop = ["stop", "--purge", "--dir"].map(OsStr::new);
        let keeper =
            Keeper::new(&[&[script.as_os_str()], &stop[..], &[directory.as_os_str()]].concat())?;
        let port = ports::free(4)?;
        let mut command = Command::new(&script);
        command.arg("start").arg("--dir").arg(&directory).args(["--port", &port.to_string()]);
        // A file, not a pipe: the server that stays behind must not keep the reader waiting.
        let told = tempfile::NamedTempFile::new()?;
        command.stdout(std::process::Stdio::null()).stderr(told.reopen()?);
        let status = command.status().with_context(|| format!("scripts/{name}"))?;
        let said = || std::fs::read_to_string(told.path()).unwrap_or_default();
        ensure!(status.success(), "scripts/{name} start: {status}\n{}", said());
        Ok(Self { port, _keeper: keeper })
    }
}

/// The servers, each with a queue to read from.
pub struct Servers {
    aws: Server,
    rabbitmq: Server,
    runtime: Runtime,
    queue: String,
    from_bus: String,
}

impl Servers {
    /// Starts both and makes queues, bus, rule and exchange.
    ///
    /// # Errors
    /// When one does not start, or refuses something.
    pub fn start() -> Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        let (aws, rabbitmq) = (Server::start("aws-emulator")?, Server::start("rabbitmq")?);
        let (queue, from_bus) = (String::new(), String::new());
        let mut servers = Self { aws, rabbitmq, runtime, queue, from_bus };
        servers.queue = servers.make_queue(NAME)?;
        servers.from_bus = servers.make_queue(FROM_BUS)?;
        servers.make_bus()?;
        servers.runtime.block_on(servers.make_exchange())?;
        Ok(servers)
    }

    /// The push destinations as the API takes them, by kind.
    #[must_use]
    pub fn sinks(&self) -> [(&'static str, Value); 3] {
        let keys = json!({"mode": "keys", "access_key_id": "AKIA", "secret_access_key": "secret"});
        let sqs = json!({
            "type": "sqs", "queue_url": self.queue, "region": REGION,
            "endpoint": self.endpoint(), "credentials": keys,
        });
        let eventbridge = json!({
            "type": "eventbridge", "endpoint": self.endpoint(),
            "event_bus": format!("arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{NAME}"),
            "credentials": keys,
        });
        let rabbitmq = json!({
            "type": "rabbitmq", "host": "127.0.0.1", "port": self.rabbitmq.port, "tls": false,
            "exchange": NAME, "routing_key": "{source}.{type}",
            "username": "guest", "password": "guest",
        });
        [("sqs", sqs), ("eventbridge", eventbridge), ("rabbitmq", rabbitmq)]
    }

    /// What SQS has.
    pub(super) fn take_queue(&self) -> Result<Vec<Received>> {
        let decoded = |message: &Value| {
            let (body, attributes) = (text(&message["Body"])?, &message["MessageAttributes"]);
            let bytes = match attributes["payload-encoding"]["StringValue"].as_str() {
                None => body.as_bytes().to_vec(),
                Some("empty") => Vec::new(),
                Some("base64") => BASE64.decode(body)?,
                Some(other) => bail!("payload-encoding {other}"),
            };
            let id = text(&attributes["ce-id"]["StringValue"])?;
            Ok((id.to_owned(), Payload::Bytes(bytes)))
        };
        self.take(&self.queue)?.iter().map(decoded).collect()
    }

    /// What the rule of the bus has brought into its queue.
    pub(super) fn take_bus(&self) -> Result<Vec<Received>> {
        let decoded = |message: &Value| {
            let event: Value = serde_json::from_str(text(&message["Body"])?)?;
            let detail = &event["detail"];
            let payload = match detail["data_base64"].as_str() {
                Some(encoded) => Payload::Bytes(BASE64.decode(encoded)?),
                None => Payload::Value(detail["data"].clone()),
            };
            Ok((text(&detail["id"])?.to_owned(), payload))
        };
        self.take(&self.from_bus)?.iter().map(decoded).collect()
    }

    /// What the exchange has brought into its queue.
    pub(super) fn take_exchange(&self) -> Result<Vec<Received>> {
        self.runtime.block_on(async {
            let (_connection, channel) = self.channel().await?;
            let (mut received, options) = (Vec::new(), BasicGetOptions { no_ack: true });
            while let Some(message) = channel.basic_get(NAME.into(), options).await? {
                let id = message.properties.message_id().as_ref().context("no message id")?;
                let bytes = Payload::Bytes(message.delivery.data.clone());
                received.push((id.to_string(), bytes));
            }
            Ok(received)
        })
    }

    async fn channel(&self) -> Result<(Connection, Channel)> {
        let uri = format!("amqp://127.0.0.1:{}", self.rabbitmq.port);
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }

    async fn make_exchange(&self) -> Result<()> {
        let (_connection, channel) = self.channel().await?;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(NAME.into(), durable, FieldTable::default()).await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let (topic, none) = (ExchangeKind::Topic, FieldTable::default());
        channel.exchange_declare(NAME.into(), topic, durable, none).await?;
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        channel.queue_bind(NAME.into(), NAME.into(), "ledger.#".into(), options, none).await?;
        Ok(())
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.aws.port)
    }

    /// One call of the emulator: the services' JSON over curl.
    fn call(&self, target: &str, body: &Value) -> Result<Value> {
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

    fn make_queue(&self, name: &str) -> Result<String> {
        let made = self.call("AmazonSQS.CreateQueue", &json!({"QueueName": name}))?;
        Ok(text(&made["QueueUrl"])?.to_owned())
    }

    fn make_bus(&self) -> Result<()> {
        let pattern = json!({"source": ["ledger"]}).to_string();
        let rule = json!({"Name": "all", "EventBusName": NAME, "EventPattern": pattern});
        let arn = format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{FROM_BUS}");
        let targets =
            json!({"Rule": "all", "EventBusName": NAME, "Targets": [{"Id": "q", "Arn": arn}]});
        self.call("AWSEvents.CreateEventBus", &json!({"Name": NAME}))?;
        self.call("AWSEvents.PutRule", &rule)?;
        self.call("AWSEvents.PutTargets", &targets).map(drop)
    }

    /// Takes all messages of a queue.
    fn take(&self, queue: &str) -> Result<Vec<Value>> {
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

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("no text: {value}"))
}
