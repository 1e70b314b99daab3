//! RabbitMQ and the emulator of SQS and EventBridge with what the demonstration has there, and
//! their consumers.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::emulator::Aws;
use super::rabbitmq::RabbitMq;
use super::{Payload, Received};

/// Queue, bus and exchange of the demonstration.
const NAME: &str = "events";
/// The queue that a rule of the bus fills.
const FROM_BUS: &str = "from-bus";

/// The servers, each with a queue to read from.
pub struct Servers {
    aws: Aws,
    rabbitmq: RabbitMq,
    queue: String,
    from_bus: String,
}

impl Servers {
    /// Starts both and makes queues, bus, rule and exchange.
    ///
    /// # Errors
    /// When one does not start, or refuses something.
    pub fn start() -> Result<Self> {
        let (aws, rabbitmq) = (Aws::start()?, RabbitMq::start()?);
        let (queue, from_bus) = (aws.make_queue(NAME)?, aws.make_queue(FROM_BUS)?);
        aws.make_bus(NAME, "ledger", FROM_BUS)?;
        rabbitmq.bind(NAME, "ledger.#", NAME)?;
        Ok(Self { aws, rabbitmq, queue, from_bus })
    }

    /// The push destinations as the API takes them, by kind.
    #[must_use]
    pub fn sinks(&self) -> [(&'static str, Value); 3] {
        let rabbitmq = self.rabbitmq.sink(NAME, "{source}.{type}");
        let (sqs, bus) = (self.aws.queue_sink(&self.queue), self.aws.bus_sink(NAME));
        [("sqs", sqs), ("eventbridge", bus), ("rabbitmq", rabbitmq)]
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
        self.aws.take(&self.queue)?.iter().map(decoded).collect()
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
        self.aws.take(&self.from_bus)?.iter().map(decoded).collect()
    }

    /// What the exchange has brought into its queue.
    pub(super) fn take_exchange(&self) -> Result<Vec<Received>> {
        let taken = self.rabbitmq.take(NAME)?.into_iter();
        Ok(taken.map(|(id, payload)| (id, Payload::Bytes(payload))).collect())
    }
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("no text: {value}"))
}
