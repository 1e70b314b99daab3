//! With which identity the sinks of AWS call: against an emulator that checks keys, signatures and
//! policies. The policies are those of the sinks' pages, so that they are known to suffice.
#![allow(missing_docs, clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::Sink;
use support::aws::{ACCOUNT, Aws};
use support::{Job, TENANT, assert_delivered, assert_failed, blocks, detail, sealed, sinks};

/// The external id that the role's trust policy demands.
const EXTERNAL_ID: &str = "made-by-the-hub";
/// Tells the test's own child where the emulator is.
const ENDPOINT: &str = "TEST_ENDPOINT";
const DENIED: ErrorClass = ErrorClass::AccessDenied;

/// The policies of a page, in its order.
fn policies(page: &str) -> Vec<String> {
    let policies = blocks(page, "json").into_iter().filter(|block| block.contains("Statement"));
    // IAM has no action for a batch of its own, the emulator asks for one; and its EventBridge
    // tells it no resource.
    let fitted = policies.map(|policy| policy.replace("sqs:SendMessage\"", "sqs:SendMessage*\""));
    let bus = format!("arn:aws:events:eu-west-1:{ACCOUNT}:event-bus/orders");
    fitted.map(|policy| policy.replace(&bus, "*")).collect()
}

fn keys((id, secret): &(String, String)) -> Value {
    let secret = sealed(TENANT, secret);
    json!({"mode": "keys", "access_key_id": id, "secret_access_key": secret})
}

fn with(mut sink: Value, credentials: Value) -> Job {
    sink["credentials"] = credentials;
    Job::new(&sink, "x")
}

fn queue(endpoint: &str) -> Value {
    json!({
        "type": "sqs", "queue_url": format!("{endpoint}/{ACCOUNT}/orders"),
        "region": "eu-west-1", "endpoint": endpoint,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_roles_are_what_a_service_makes_of_them() {
    let aws = Aws::start();
    aws.queue("orders", &json!({}));
    let (_, bus) = aws.bus("orders");
    let [for_queue, trust] = &policies("sqs.md")[..] else { panic!("the page's policies") };
    let [for_bus] = &policies("eventbridge.md")[..] else { panic!("the page's policy") };
    let (on_queue, on_bus) = (aws.user("queue", for_queue), aws.user("bus", for_bus));
    let sends = for_queue.replace("\"sqs:GetQueueAttributes\"", "\"sqs:Other\"");
    let sender = aws.user("sender", &sends);
    let assumes = json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    ]});
    let own = aws.user("own", &assumes.to_string());
    let trust = trust.replace("<external_id>", EXTERNAL_ID).replace(
        "arn:aws:iam::<the hub's account>:role/<the hub's role>",
        &format!("arn:aws:iam::{ACCOUNT}:user/own"),
    );
    aws.iam("CreateRole", &[("RoleName", "hub"), ("AssumeRolePolicyDocument", &trust)]);
    let inline = [("RoleName", "hub"), ("PolicyName", "own"), ("PolicyDocument", for_queue)];
    aws.iam("PutRolePolicy", &inline);
    aws.check_identities();

    let sinks = sinks(|_| ());
    let sqs = queue(&aws.endpoint());
    for right in [with(sqs.clone(), keys(&on_queue)), with(bus.clone(), keys(&on_bus))] {
        assert_delivered(&sinks.verify(right.attempt()).await);
        assert_delivered(&sinks.attempt(right.attempt()).await);
    }
    let unknown = ("AKIAUNKNOWN".to_owned(), "secret".to_owned());
    let wrong_secret = (on_queue.0.clone(), "wrong".to_owned());
    for pair in [unknown, wrong_secret, on_bus.clone()] {
        let outcome = sinks.attempt(with(sqs.clone(), keys(&pair)).attempt()).await;
        assert_failed(&outcome, DENIED);
    }
    // What may send, and may not look: the reason names what is missing.
    let sender = with(sqs.clone(), keys(&sender));
    assert_delivered(&sinks.attempt(sender.attempt()).await);
    let outcome = sinks.verify(sender.attempt()).await;
    assert_failed(&outcome, DENIED);
    assert!(detail(&outcome).contains("permission sqs:GetQueueAttributes"), "{outcome:?}");
    let outcome = sinks.verify(with(bus, keys(&on_queue)).attempt()).await;
    assert!(detail(&outcome).contains("permission events:DescribeEventBus"), "{outcome:?}");

    // The hub's own identity comes from its environment, which only a new process can be given.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_role_is_assumed_with_the_external_id_and_only_with_it"])
        .env(ENDPOINT, aws.endpoint())
        .env("AWS_ACCESS_KEY_ID", &own.0)
        .env("AWS_SECRET_ACCESS_KEY", &own.1)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}");
}

/// Runs in the child of the test above; by itself it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_assumed_with_the_external_id_and_only_with_it() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let sinks = sinks(|settings| settings.aws.sts_endpoint = Some(endpoint.clone()));
    let role = |external_id: &str| {
        let role_arn = format!("arn:aws:iam::{ACCOUNT}:role/hub");
        let role = json!({"mode": "role", "role_arn": role_arn, "external_id": external_id});
        with(queue(&endpoint), role)
    };
    assert_delivered(&sinks.verify(role(EXTERNAL_ID).attempt()).await);
    assert_delivered(&sinks.attempt(role(EXTERNAL_ID).attempt()).await);
    let outcome = sinks.attempt(role("another-tenants").attempt()).await;
    assert_failed(&outcome, DENIED);
    let reason = detail(&outcome);
    assert!(reason.starts_with("the role cannot be assumed: "), "{reason}");
    let ambient = with(queue(&endpoint), json!({"mode": "ambient"}));
    assert_failed(&sinks.attempt(ambient.attempt()).await, DENIED);
}
