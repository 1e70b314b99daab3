//! A real RabbitMQ and a client of it that is none of the hub's.

use anyhow::{Context as _, Result};
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::server::Server;

/// A broker.
pub struct RabbitMq {
    server: Server,
    runtime: Runtime,
}

impl RabbitMq {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        Ok(Self { server: Server::start("rabbitmq")?, runtime })
    }

    /// Kills it, as a crash does, and starts it again with what was on its disk.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn crash(&self) -> Result<()> {
        self.server.run(&["stop", "--kill"])?;
        self.server.start_again()
    }

    /// A destination as the API takes it.
    #[must_use]
    pub fn sink(&self, exchange: &str, routing_key: &str) -> Value {
        json!({
            "type": "rabbitmq", "host": "127.0.0.1", "port": self.server.port, "tls": false,
            "exchange": exchange, "routing_key": routing_key,
            "username": "guest", "password": "guest",
        })
    }

    /// Makes a topic exchange and a queue, both durable, where there is none, and binds them.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn bind(&self, exchange: &str, key: &str, queue: &str) -> Result<()> {
        self.with_channel(async |channel| {
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), durable, FieldTable::default()).await?;
            let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
            let (topic, none) = (ExchangeKind::Topic, FieldTable::default());
            channel.exchange_declare(exchange.into(), topic, durable, none).await?;
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            channel.queue_bind(queue.into(), exchange.into(), key.into(), options, none).await?;
            Ok(())
        })
    }

    /// How many messages wait in a queue.
    ///
    /// # Errors
    /// When the broker does not answer, or has no such queue.
    pub fn waiting(&self, queue: &str) -> Result<usize> {
        self.with_channel(async |channel| {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await?;
            Ok(usize::try_from(found.message_count())?)
        })
    }

    /// Takes all messages of a queue: the events' ids and the payloads.
    ///
    /// # Errors
    /// When the broker does not answer, or a message has no id.
    pub fn take(&self, queue: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.with_channel(async |channel| {
            let (mut received, options) = (Vec::new(), BasicGetOptions { no_ack: true });
            while let Some(message) = channel.basic_get(queue.into(), options).await? {
                let id = message.properties.message_id().as_ref().context("no message id")?;
                received.push((id.to_string(), message.delivery.data.clone()));
            }
            Ok(received)
        })
    }

    /// Runs a client's exchange with the broker.
    ///
    /// # Errors
    /// When there is no connection, or the exchange's own.
    pub fn with_channel<T>(&self, run: impl AsyncFnOnce(Channel) -> Result<T>) -> Result<T> {
        self.runtime.block_on(async {
            let (_connection, channel) = self.channel().await?;
            run(channel).await
        })
    }

    async fn channel(&self) -> Result<(Connection, Channel)> {
        let uri = format!("amqp://127.0.0.1:{}", self.server.port);
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }
}
