//! The way to the delivery tasks, as the API knows it: a question becomes a message to the task
//! that runs here, or an answer that says where it runs.

use std::time::Duration;

use streaming_hub_model::delivery_calls::{Answer, Question};
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::Deliveries;
use streaming_hub_model::sink::SinkFuture;

use crate::calls::Calls;
use crate::processors::delivery::Message;
use crate::processors::delivery::questions::Call;

/// How long a question waits for its answer. A task answers within one commit.
const ANSWERED: Duration = Duration::from_secs(10);

/// Asks the delivery tasks.
pub struct DeliveryTasks {
    calls: Calls<Message>,
    partitions: u32,
}

impl DeliveryTasks {
    /// The tasks of so many partitions.
    #[must_use]
    pub fn new(calls: Calls<Message>, partitions: u32) -> Self {
        Self { calls, partitions }
    }
}

impl Deliveries for DeliveryTasks {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn ask(&self, partition: i32, question: Question) -> SinkFuture<'_, Result<Answer, CallError>> {
        Box::pin(async move {
            let message = |reply| Message::Call(Call { question, reply });
            self.calls.ask(partition, ANSWERED, message).await
        })
    }
}
