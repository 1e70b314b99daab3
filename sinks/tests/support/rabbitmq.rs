//! A real broker for the tests of the RabbitMQ sink.

use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::{Value, json};

use super::{Server, TENANT, sealed};

/// A broker, and a client of it that is none of ours.
pub struct Broker {
    pub server: Server,
}

impl Broker {
    pub fn start(options: &[&str]) -> Self {
        Self { server: Server::start("rabbitmq", options) }
    }

    pub fn sink(&self, exchange: &str, routing_key: &str) -> Value {
        json!({
            "type": "rabbitmq", "host": "127.0.0.1", "port": self.server.port, "tls": false,
            "vhost": "/", "exchange": exchange, "routing_key": routing_key,
            "username": "guest", "password": sealed(TENANT, "guest"),
        })
    }

    pub async fn channel(&self) -> Channel {
        let uri = format!("amqp://127.0.0.1:{}", self.server.port);
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await.unwrap();
        connection.create_channel().await.unwrap()
    }

    /// A durable queue on an exchange of its own.
    pub async fn queue(&self, channel: &Channel, exchange: &str, arguments: FieldTable) {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(exchange.into(), durable, arguments).await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let table = FieldTable::default;
        channel
            .exchange_declare(exchange.into(), ExchangeKind::Topic, durable, table())
            .await
            .unwrap();
        let options = QueueBindOptions::default();
        channel
            .queue_bind(exchange.into(), exchange.into(), "key.#".into(), options, table())
            .await
            .unwrap();
    }

    pub fn connections(&self) -> usize {
        let list = self.server.run(&["ctl", "--", "list_connections", "name"]);
        list.lines().filter(|line| line.contains("->")).count()
    }
}

pub async fn get(channel: &Channel, queue: &str) -> Option<lapin::message::Delivery> {
    let options = BasicGetOptions { no_ack: true };
    let found = channel.basic_get(queue.into(), options).await.unwrap();
    found.map(|found| found.delivery)
}
