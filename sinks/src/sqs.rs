//! The SQS sink (contract section 5). `request` says what a message is and how large the service
//! counts it; this file sends those that are due together in one request and asks for the queue
//! when it is verified.
//!
//! A standard queue's messages travel in up to [`REQUESTS_PER_CLIENT_MAX`] requests at once; those
//! of a FIFO queue one request after another, so that they arrive in the order of their attempts.

mod request;

use std::sync::Arc;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Region, StalledStreamProtectionConfig};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use aws_smithy_types::retry::RetryConfig;
use streaming_hub_model::attempt::{Attempt, ErrorClass, Outcome};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::sink::{NotAdmitted, Sink, SinkFuture};
use streaming_hub_model::sink_config::{SqsConfig, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;
use tokio::time::Instant;

use crate::aws::failure::{self, Failure};
use crate::aws::{Aws, Called, Identity, REQUESTS_PER_CLIENT_MAX, Service};
use crate::batch::{BatchLimits, Batcher};
use crate::leased::{self, Leased};
use crate::outcome::{delivered, duration_ms, unanswered};
use crate::pool::{Key, Lease, Pools};

/// Entries of one request, the service's limit.
const ENTRIES_MAX: usize = 10;
/// What a look-up needs.
const PERMISSION: &str = "sqs:GetQueueAttributes (and sqs:SendMessage to deliver)";

/// Delivers to queues of Amazon SQS.
pub struct Sqs {
    aws: Arc<Aws>,
    pools: Pools<Arc<Batcher<Queue>>>,
}

impl Sqs {
    pub(crate) fn new(aws: Arc<Aws>, clock: Arc<dyn Clock>) -> Self {
        let pools = Pools::new(aws.settings.limits(), clock);
        Self { aws, pools }
    }

    fn client(
        &self,
        config: &SqsConfig,
        identity: Identity,
    ) -> Result<Arc<Batcher<Queue>>, reqwest::Error> {
        let settings = &self.aws.settings;
        let sdk = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(config.region.clone()))
            .credentials_provider(identity.provider)
            .http_client(self.aws.http_client()?)
            .retry_config(RetryConfig::disabled())
            .timeout_config(settings.timeouts())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let sdk = match &config.endpoint {
            Some(endpoint) => sdk.endpoint_url(endpoint),
            None => sdk,
        };
        let queue = Queue { client: Client::from_conf(sdk.build()), url: config.queue_url.clone() };
        let limits = BatchLimits {
            entries: ENTRIES_MAX,
            bytes: settings.sqs_message_bytes_max,
            linger: settings.linger(),
            requests: if config.is_fifo() { 1 } else { REQUESTS_PER_CLIENT_MAX },
        };
        Ok(Arc::new(Batcher::new(queue, limits)))
    }
}

impl Leased for Sqs {
    type Config = SqsConfig;
    type Client = Arc<Batcher<Queue>>;

    fn config(sink: &SinkConfig) -> Option<&SqsConfig> {
        if let SinkConfig::Sqs(config) = sink { Some(config) } else { None }
    }

    fn verify_with(config: &SqsConfig) -> VerifyWith {
        config.verify_with
    }

    async fn lease(
        &self,
        attempt: &Attempt,
        config: &SqsConfig,
    ) -> Result<Lease<Arc<Batcher<Queue>>>, Outcome> {
        let arn = config.arn();
        let identity = self.aws.identity(&attempt.subscription, &called(config, arn.as_deref()))?;
        let sink = &attempt.subscription.sink;
        let key = Key::of(&attempt.subscription, identity.generation);
        let make = || self.client(config, identity);
        let lease = self.pools.lease(&key, (sink.host(), 0), make).await;
        lease.map_err(|error| Outcome::not_attempted(error.to_string()))
    }

    async fn deliver(&self, attempt: &Attempt, config: &SqsConfig) -> Outcome {
        let message = request::message(attempt, config.is_fifo());
        let limit = self.aws.settings.sqs_message_bytes_max;
        if message.bytes > limit {
            let detail = format!(
                "the message has {} bytes with its attributes, more than {limit}",
                message.bytes
            );
            return Outcome::failed(ErrorClass::TooLarge, detail);
        }
        let lease = match self.lease(attempt, config).await {
            Ok(lease) => lease,
            Err(outcome) => return outcome,
        };
        self.aws.in_time(lease.client.deliver(message)).await
    }

    async fn look_up(&self, queue: &Arc<Batcher<Queue>>, _: &SqsConfig) -> Outcome {
        let queue = queue.carrier();
        let asked = queue
            .client
            .get_queue_attributes()
            .queue_url(&queue.url)
            .attribute_names(QueueAttributeName::QueueArn)
            .send();
        match asked.await {
            Ok(_) => delivered(),
            Err(error) => failure::of(&error).outcome_of_asking(PERMISSION),
        }
    }
}

impl Sink for Sqs {
    fn attempt(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::attempt(self, attempt)
    }

    fn verify(&self, attempt: Attempt) -> SinkFuture<'_, Outcome> {
        leased::verify(self, attempt)
    }

    fn admit<'a>(
        &'a self,
        tenant: &'a TenantId,
        sink: &'a SinkConfig,
    ) -> SinkFuture<'a, Result<(), NotAdmitted>> {
        Box::pin(async move {
            let config = leased::admitted::<Self>(sink)?;
            self.aws.admit(tenant, &called(config, config.arn().as_deref())).await
        })
    }
}

fn called<'a>(config: &'a SqsConfig, arn: Option<&'a str>) -> Called<'a> {
    Called {
        credentials: &config.credentials,
        arn,
        region: &config.region,
        endpoint: config.endpoint.as_deref(),
    }
}

/// One queue under one identity.
pub(crate) struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    /// One request; each entry has an outcome of its own.
    async fn put(&self, entries: &[request::Message]) -> Result<Vec<Outcome>, Failure> {
        let began = Instant::now();
        let numbered = entries.iter().enumerate();
        let parts = numbered.map(|(at, message)| message.entry(at)).collect::<Result<Vec<_>, _>>();
        let parts: Vec<SendMessageBatchRequestEntry> =
            parts.map_err(|error| Failure::new(Some(ErrorClass::Protocol), error.to_string()))?;
        let request =
            self.client.send_message_batch().queue_url(&self.url).set_entries(Some(parts));
        let answer = request.send().await.map_err(|error| failure::of(&error))?;
        let mut outcomes: Vec<Outcome> = entries.iter().map(|_| unanswered()).collect();
        let mut set = |id: &str, outcome: Outcome| {
            if let Some(place) = id.parse().ok().and_then(|at: usize| outcomes.get_mut(at)) {
                *place = outcome;
            }
        };
        for done in answer.successful() {
            set(done.id(), delivered());
        }
        for failed in answer.failed() {
            let failure =
                Failure::entry(Some(failed.code()), failed.message(), failed.sender_fault());
            set(failed.id(), failure.outcome());
        }
        let duration_ms = duration_ms(began.elapsed());
        outcomes.iter_mut().for_each(|outcome| outcome.duration_ms = duration_ms);
        Ok(outcomes)
    }
}

impl Service for Queue {
    type Entry = request::Message;

    fn bytes(&self, entry: &Self::Entry) -> usize {
        entry.bytes
    }

    fn request<'a>(
        &'a self,
        entries: &'a [Self::Entry],
    ) -> SinkFuture<'a, Result<Vec<Outcome>, Failure>> {
        Box::pin(self.put(entries))
    }
}
