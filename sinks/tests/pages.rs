//! What the sinks' pages tell a consumer to do, done: their programs read what the sinks sent, and
//! their permissions suffice. (The policies of AWS are tried in `identity.rs`.)
#![allow(missing_docs, clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lapin::types::FieldTable;
use serde_json::{Value, json};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::Sink;
use support::aws::Aws;
use support::rabbitmq::Broker;
use support::{
    Job, TENANT, assert_delivered, assert_failed, blocks, deliver, root, sealed, sinks, until,
};

const LIMIT: Duration = Duration::from_secs(60);

/// A page's consumer at work; it ends with its value.
struct Consumer {
    child: Child,
    told: tempfile::NamedTempFile,
}

impl Consumer {
    fn start(program: &str, environment: &[(&str, &str)], input: &str) -> Self {
        let told = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(root().join("scripts/aws-emulator"));
        command.args(["python", "--", "-u", "-c", program]).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(told.reopen().unwrap());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Self { child, told }
    }

    async fn until_it_told(&self, lines: &[String]) {
        until("the consumer's lines", LIMIT, async || {
            let told = std::fs::read_to_string(self.told.path()).unwrap();
            lines.iter().all(|line| told.lines().any(|own| own == line))
        })
        .await;
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of a page.
fn program(page: &str) -> String {
    let [program] = &blocks(page, "python")[..] else { panic!("{page} has one program") };
    program.clone()
}

/// Payloads, and how Python shows their bytes.
const PAYLOADS: [(&[u8], &str); 3] =
    [(b"{\"a\": 1}", "b'{\"a\": 1}'"), (b"\0\xff", "b'\\x00\\xff'"), (b"", "b''")];

fn jobs(sink: &Value) -> Vec<(Job, &'static str)> {
    let numbered = (1..).zip(PAYLOADS);
    numbered.map(|(n, (bytes, shown))| (Job::new(sink, bytes).number(n), shown)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumers_of_sqs_and_eventbridge_read_what_was_sent() {
    let (aws, sinks) = (Aws::start(), sinks(|_| ()));
    let queue = aws.queue("orders", &json!({}));
    let mut lines = Vec::new();
    for (job, shown) in jobs(&aws.sqs(&queue)) {
        assert_delivered(&sinks.attempt(job.attempt()).await);
        lines.push(format!("{} account.created {shown}", job.event_id()));
    }
    let endpoint = aws.endpoint();
    let environment = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    Consumer::start(&program("sqs.md"), &environment, "").until_it_told(&lines).await;

    let (queue, sink) = aws.bus("orders");
    for (job, shown) in jobs(&sink) {
        assert_delivered(&sinks.attempt(job.attempt()).await);
        let [message] = &aws.take(&queue)[..] else { panic!("one message") };
        let call = format!(
            "{}\nimport sys\nhandler(json.load(sys.stdin), None)",
            program("eventbridge.md")
        );
        // JSON is shown as JSON, bytes as Python shows them, no data as null.
        let shown = match &*job.payload {
            b"" => "null".to_owned(),
            [b'{', ..] => String::from_utf8(job.payload.to_vec()).unwrap(),
            _ => json!(shown).to_string(),
        };
        let line = format!("{} studio.lerian.ledger.account.created {shown}", job.event_id());
        let event = message["Body"].as_str().unwrap();
        Consumer::start(&call, &[], event).until_it_told(&[line]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumer_of_rabbitmq_reads_what_a_user_with_the_pages_permissions_sent() {
    let (broker, sinks) = (Broker::start(&[]), sinks(|_| ()));
    let channel = broker.channel().await;
    for exchange in ["events", "other"] {
        broker.queue(&channel, exchange, FieldTable::default()).await;
    }
    let page = std::fs::read_to_string(root().join("docs/sinks/rabbitmq.md")).unwrap();
    let permissions = page.split("`rabbitmqctl ").nth(1).unwrap().split('`').next().unwrap();
    let permissions = permissions.split(' ').map(|one| one.trim_matches('\''));
    broker.server.run(&["ctl", "--", "add_user", "hub", "secret"]);
    broker.server.run(&[&["ctl", "--"], &permissions.collect::<Vec<_>>()[..]].concat());

    let own = format!("amqp://guest:guest@127.0.0.1:{}/%2F", broker.server.port);
    let program = program("rabbitmq.md");
    let program = program.replace("amqps://user:password@mq.example.com/%2F", &own);
    assert!(program.contains(&own), "the page's URL");
    let consumer = Consumer::start(&program, &[], "");
    let sink = |exchange: &str| {
        let mut sink = broker.sink(exchange, "{source}.{type}");
        sink["username"] = json!("hub");
        sink["password"] = sealed(TENANT, "secret");
        sink
    };
    assert_delivered(&sinks.verify(Job::new(&sink("events"), "x").attempt()).await);
    let mut lines = Vec::new();
    for (job, shown) in jobs(&sink("events")) {
        // It comes back until the consumer has bound its queue.
        deliver(&sinks, &job).await;
        lines.push(format!("{} account.created {shown}", job.event_id()));
    }
    consumer.until_it_told(&lines).await;
    let other = Job::new(&sink("other"), "x");
    assert_failed(&sinks.attempt(other.attempt()).await, ErrorClass::AccessDenied);
    let mut tried = sink("other");
    tried["verify_with"] = json!("event");
    let outcome = sinks.verify(Job::new(&tried, "x").attempt()).await;
    assert_failed(&outcome, ErrorClass::AccessDenied);
}
