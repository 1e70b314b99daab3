//! The sinks of AWS against a server that answers as the services do where no emulator does:
//! credentials that have expired, throttling with a hint, an entry that fails inside of an answer
//! that succeeds, a role's session.

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use secrecy::SecretString;
use serde_json::{Value, json};
use streaming_hub_model::attempt::{Attempt, AttemptResult};
use streaming_hub_model::ports::Clock;
use streaming_hub_model::secret::{KEY_BYTES, Owner};
use streaming_hub_model::sink::Sink;
use streaming_hub_model::sink_config::AwsCredentials;
use streaming_hub_model::time::UnixMillis;

use super::*;
use crate::eventbridge::EventBridge;
use crate::sqs::Sqs;
use crate::testing::attempt_at;
use crate::testing::server::{Received, Reply, Server};

/// The access key of the hub's own identity, and of a role's session.
const OWN: &str = "AKIAOWN";
const SESSION: &str = "ASIASESSION";
const EXTERNAL_ID: &str = "external-id-of-acme";
const ROLE: &str = "arn:aws:iam::123456789012:role/hub";
const DENIED: ErrorClass = ErrorClass::AccessDenied;

struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_790_000_000_123)
    }
}

fn keyring() -> Arc<Keyring> {
    let zeroes = format!("{}=", "A".repeat(KEY_BYTES * 4 / 3 + 1));
    Arc::new(Keyring::new("k1", &SecretString::from(zeroes)).unwrap())
}

/// The services, and both sinks.
struct Ground {
    server: Server,
    sqs: Sqs,
    eventbridge: EventBridge,
}

impl Ground {
    async fn new(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let server = Server::start(script).await;
        let settings = AwsSettings {
            // Long enough for what is due together on a busy machine.
            linger_ms: 50,
            sts_endpoint: Some(format!("http://{}", server.address)),
            ..AwsSettings::default()
        };
        let policy = AddressPolicy { allow_private: true, allow: Vec::new() };
        let mut aws = Aws::new(settings, Resolver::new(policy), keyring()).unwrap();
        let own = Credentials::new(OWN, "secret", None, None, "test");
        aws.own = SharedCredentialsProvider::new(own);
        let aws = Arc::new(aws);
        let sqs = Sqs::new(Arc::clone(&aws), Arc::new(Still));
        Self { server, sqs, eventbridge: EventBridge::new(aws, Arc::new(Still)) }
    }

    fn queue(&self, credentials: &Value) -> Attempt {
        let endpoint = format!("http://{}", self.server.address);
        attempt_at(
            json!({
                "type": "sqs", "queue_url": format!("{endpoint}/123456789012/q"),
                "region": "eu-west-1", "endpoint": endpoint, "credentials": credentials,
            }),
            &[],
            b"x",
        )
    }

    fn bus(&self, credentials: &Value) -> Attempt {
        attempt_at(
            json!({
                "type": "eventbridge", "region": "eu-west-1",
                "event_bus": "arn:aws:events:eu-west-1:123456789012:event-bus/b",
                "endpoint": format!("http://{}", self.server.address),
                "credentials": credentials,
            }),
            &[("ce-source", "ledger"), ("ce-type", "t")],
            b"1",
        )
    }
}

fn keys() -> Value {
    let attempt = attempt_at(json!({"type": "pull"}), &[], b"");
    let owner =
        Owner { tenant: &attempt.subscription.tenant, subscription: attempt.subscription.id };
    let secret = keyring().seal(owner, &"secret".into(), [1; 12]).unwrap();
    json!({"mode": "keys", "access_key_id": "AKIATENANT", "secret_access_key": secret})
}

fn role() -> Value {
    json!({"mode": "role", "role_arn": ROLE, "external_id": EXTERNAL_ID})
}

fn answer(status: u16, lines: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Whatever\r\n{lines}Content-Length: {length}\r\n\r\n");
    Reply::Keep([head.as_bytes(), body.as_bytes()].concat())
}

fn target(request: &Received) -> String {
    request.values("X-Amz-Target").concat()
}

fn body(request: &Received) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

/// Every message of a request to SQS is taken.
fn all_taken(request: &Received) -> Reply {
    let entries = body(request)["Entries"].as_array().cloned().unwrap_or_default();
    let taken =
        |entry: &Value| json!({"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": ""});
    let taken: Vec<Value> = entries.iter().map(taken).collect();
    answer(200, "", &json!({"Successful": taken, "Failed": []}).to_string())
}

/// What a service says to a request that it refuses.
struct Refusal {
    status: u16,
    /// SQS names its older code in a header.
    lines: &'static str,
    kind: &'static str,
    class: ErrorClass,
    retry_after_ms: Option<u64>,
}

const fn refusal(status: u16, kind: &'static str, class: ErrorClass) -> Refusal {
    Refusal { status, lines: "", kind, class, retry_after_ms: None }
}

async fn assert_refused(refusal: &Refusal) {
    let Refusal { status, lines, kind, class, retry_after_ms } = *refusal;
    let said = json!({"__type": kind, "message": "in words"}).to_string();
    let ground = Ground::new(move |_| answer(status, lines, &said)).await;
    let asked = [
        ground.sqs.attempt(ground.queue(&keys())).await,
        ground.sqs.verify(ground.queue(&keys())).await,
        ground.eventbridge.attempt(ground.bus(&keys())).await,
        ground.eventbridge.verify(ground.bus(&keys())).await,
    ];
    for (number, outcome) in asked.into_iter().enumerate() {
        let AttemptResult::Failed { class: own, detail } = &outcome.result else {
            panic!("{kind}: {outcome:?}");
        };
        assert_eq!((*own, outcome.status), (class, Some(status)), "{kind}: {detail}");
        assert_eq!(outcome.retry_after_ms, retry_after_ms, "{kind}");
        assert!(detail.contains("in words"), "{kind}: {detail}");
        let code = kind.rsplit('#').next().unwrap_or_default();
        assert!(detail.contains(code) || !lines.is_empty(), "{kind}: {detail}");
        let names_permission = detail.contains("needs the permission");
        let is_forbidden = code == "AccessDeniedException" && number % 2 == 1;
        assert_eq!(names_permission, is_forbidden, "{kind}: {detail}");
    }
    assert_eq!(ground.server.requests().len(), 4, "{kind}: the SDK tries nothing again");
}

#[tokio::test]
async fn what_a_service_refuses_has_its_class_its_words_and_its_hint() {
    let throttled = ErrorClass::Throttled;
    let hinted = |line, ms, refusal| Refusal { lines: line, retry_after_ms: Some(ms), ..refusal };
    for refusal in [
        refusal(400, "ExpiredTokenException", DENIED),
        refusal(403, "com.amazonaws.sqs#ExpiredToken", DENIED),
        refusal(403, "com.amazonaws.sqs#InvalidClientTokenId", DENIED),
        refusal(400, "UnrecognizedClientException", DENIED),
        refusal(403, "com.amazon.coral.service#SignatureDoesNotMatch", DENIED),
        refusal(400, "com.amazon.coral.service#AccessDeniedException", DENIED),
        refusal(400, "ThrottlingException", throttled),
        hinted("Retry-After: 7\r\n", 7_000, refusal(429, "ThrottlingException", throttled)),
        hinted("x-amz-retry-after: 250\r\n", 250, refusal(400, "RequestThrottled", throttled)),
        refusal(400, "ResourceNotFoundException", ErrorClass::NotFound),
        Refusal {
            lines: "x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender\r\n",
            ..refusal(400, "com.amazonaws.sqs#QueueDoesNotExist", ErrorClass::NotFound)
        },
        refusal(413, "RequestEntityTooLargeException", ErrorClass::TooLarge),
        refusal(500, "InternalException", ErrorClass::Http5xx),
        refusal(418, "Unheard", ErrorClass::Http4xx),
    ] {
        assert_refused(&refusal).await;
    }
}

fn is_delivered(outcome: &Outcome) -> bool {
    outcome.result == AttemptResult::Delivered
}

/// Three attempts that are due together.
async fn three(sink: &impl Sink, attempt: &Attempt) -> [Outcome; 3] {
    tokio::join!(
        sink.attempt(attempt.clone()),
        sink.attempt(attempt.clone()),
        sink.attempt(attempt.clone()),
    )
    .into()
}

#[tokio::test]
async fn a_failed_entry_inside_of_a_success_fails_its_own_job_only_and_goes_again_alone() {
    let ground = Ground::new(|request| {
        if body(request)["Entries"].as_array().map_or(0, Vec::len) == 1 {
            return match target(request).as_str() {
                "AWSEvents.PutEvents" => answer(200, "", r#"{"Entries":[{"EventId":"e"}]}"#),
                _ => all_taken(request),
            };
        }
        let said = match target(request).as_str() {
            "AWSEvents.PutEvents" => json!({"FailedEntryCount": 1, "Entries": [
                {"EventId": "e"},
                {"ErrorCode": "ThrottlingException", "ErrorMessage": "too fast"},
                {"EventId": "e"},
            ]}),
            _ => json!({
                "Successful": [
                    {"Id": "2", "MessageId": "m", "MD5OfMessageBody": ""},
                    {"Id": "0", "MessageId": "m", "MD5OfMessageBody": ""},
                ],
                "Failed": [{
                    "Id": "1", "Code": "InternalError", "Message": "bad day", "SenderFault": false,
                }],
            }),
        };
        answer(200, "", &said.to_string())
    })
    .await;
    let (queue, bus) = (ground.queue(&keys()), ground.bus(&keys()));
    let [first, second, third] = three(&ground.sqs, &queue).await;
    assert!(is_delivered(&first) && is_delivered(&third));
    let detail = "the service answered InternalError: bad day";
    assert_eq!(second.result, Outcome::failed(ErrorClass::Http5xx, detail).result);
    let [first, second, third] = three(&ground.eventbridge, &bus).await;
    assert!(is_delivered(&first) && is_delivered(&third));
    let detail = "the service answered ThrottlingException: too fast";
    assert_eq!(second.result, Outcome::failed(ErrorClass::Throttled, detail).result);
    // The engine's next attempt of that one.
    assert!(is_delivered(&ground.sqs.attempt(queue).await));
    assert!(is_delivered(&ground.eventbridge.attempt(bus).await));
    assert_eq!(ground.server.requests().len(), 4, "three together, one alone, twice");
}

#[tokio::test]
async fn an_entry_that_the_answer_does_not_mention_is_no_delivery() {
    let ground = Ground::new(|_| answer(200, "", "{}")).await;
    for outcome in [
        ground.sqs.attempt(ground.queue(&keys())).await,
        ground.eventbridge.attempt(ground.bus(&keys())).await,
    ] {
        assert!(
            matches!(outcome.result, AttemptResult::Failed { class: ErrorClass::Protocol, .. }),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_batch_that_is_refused_for_one_entry_is_sent_entry_by_entry() {
    let ground = Ground::new(|request| {
        let count = body(request)["Entries"].as_array().map_or(0, Vec::len);
        let said = json!({"__type": "InvalidMessageContents", "message": "one of them"});
        if count > 1 { answer(400, "", &said.to_string()) } else { all_taken(request) }
    })
    .await;
    let outcomes = three(&ground.sqs, &ground.queue(&keys())).await;
    assert!(outcomes.iter().all(is_delivered), "{outcomes:?}");
    assert_eq!(ground.server.requests().len(), 4);
}

/// STS's answer: a session that ends then.
fn session(until: &str) -> Reply {
    let credentials = format!(
        "<Credentials><AccessKeyId>{SESSION}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
         <SessionToken>token</SessionToken><Expiration>{until}</Expiration></Credentials>"
    );
    let said = format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <AssumeRoleResult>{credentials}</AssumeRoleResult></AssumeRoleResponse>"
    );
    answer(200, "Content-Type: text/xml\r\n", &said)
}

fn sts_refusal(status: u16, code: &str) -> Reply {
    let said = format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
         <Type>Sender</Type><Code>{code}</Code><Message>in words</Message></Error></ErrorResponse>"
    );
    answer(status, "Content-Type: text/xml\r\n", &said)
}

/// Whether it is a call of STS.
fn assumes(request: &Received) -> bool {
    request.body().starts_with(b"Action=AssumeRole")
}

fn signed_by(request: &Received, key: &str) -> bool {
    request.values("Authorization").concat().contains(&format!("Credential={key}/"))
}

#[tokio::test]
async fn a_role_is_assumed_by_the_hubs_own_identity_with_the_external_id_and_kept() {
    for (until, assumed) in [("2099-01-01T00:00:00Z", 1), ("2001-01-01T00:00:00Z", 2)] {
        let ground =
            Ground::new(
                move |request| {
                    if assumes(request) { session(until) } else { all_taken(request) }
                },
            )
            .await;
        for _ in 0..2 {
            let outcome = ground.sqs.attempt(ground.queue(&role())).await;
            assert!(is_delivered(&outcome), "{outcome:?}");
        }
        let requests = ground.server.requests();
        let (sts, sqs): (Vec<_>, Vec<_>) = requests.iter().partition(|request| assumes(request));
        assert_eq!((sts.len(), sqs.len()), (assumed, 2), "a session that is over is renewed");
        for request in sts {
            assert!(signed_by(request, OWN));
            let form = String::from_utf8_lossy(request.body()).into_owned();
            assert!(form.contains(&format!("ExternalId={EXTERNAL_ID}")), "{form}");
            assert!(form.contains(&ROLE.replace(':', "%3A").replace('/', "%2F")), "{form}");
        }
        for request in sqs {
            assert!(signed_by(request, SESSION));
            assert_eq!(request.values("X-Amz-Security-Token"), ["token"]);
        }
    }
}

#[tokio::test]
async fn a_role_that_cannot_be_assumed_is_a_failure_that_says_so() {
    for (status, code, class) in [
        (403, "AccessDenied", DENIED),
        (403, "ExpiredToken", DENIED),
        (400, "Throttling", ErrorClass::Throttled),
        (503, "ServiceUnavailable", ErrorClass::Http5xx),
    ] {
        let ground = Ground::new(move |_| sts_refusal(status, code)).await;
        let outcome = ground.eventbridge.attempt(ground.bus(&role())).await;
        let expected = format!("the role cannot be assumed: the service answered {code}: in words");
        assert_eq!(outcome.result, Outcome::failed(class, expected).result);
    }
}

#[tokio::test]
async fn the_hubs_own_identity_is_used_for_what_is_listed_and_never_at_a_named_endpoint() {
    let ground = Ground::new(all_taken).await;
    let ambient = json!({"mode": "ambient"});
    for outcome in [
        ground.sqs.attempt(ground.queue(&ambient)).await,
        ground.sqs.verify(ground.queue(&ambient)).await,
        ground.eventbridge.attempt(ground.bus(&ambient)).await,
    ] {
        let detail = "the hub's own identity is not used with an endpoint of one's own";
        assert_eq!(outcome.result, Outcome::failed(DENIED, detail).result);
    }
    assert!(ground.server.requests().is_empty(), "nothing was called");

    let listed = "arn:aws:sqs:eu-west-1:123456789012:listed";
    let ambient = vec![AmbientGrant { tenant: "acme".into(), arn: listed.into() }];
    let settings = AwsSettings { ambient, ..AwsSettings::default() };
    let policy = AddressPolicy { allow_private: false, allow: Vec::new() };
    let mut aws = Aws::new(settings, Resolver::new(policy), keyring()).unwrap();
    let own = Credentials::new(OWN, "secret", None, None, "test");
    aws.own = SharedCredentialsProvider::new(own);
    let attempt = attempt_at(json!({"type": "pull"}), &[], b"");
    let credentials = AwsCredentials::Ambient;
    for (arn, is_listed) in [(listed, true), ("arn:aws:sqs:eu-west-1:123456789012:q", false)] {
        let called = Called {
            credentials: &credentials,
            arn: Some(arn),
            region: "eu-west-1",
            endpoint: None,
        };
        let opened = aws.identity(&attempt.subscription, &called);
        assert_eq!(opened.is_ok(), is_listed, "{arn}");
        if let Ok(identity) = opened {
            let used = identity.provider.provide_credentials().await.unwrap();
            assert_eq!(used.access_key_id(), OWN);
        }
    }
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text, fits) in [
        ("arn:aws:sqs:*:123456789012:acme-*", "arn:aws:sqs:eu-west-1:123456789012:acme-q", true),
        ("arn:aws:sqs:*:123456789012:acme-*", "arn:aws:sqs:eu-west-1:123456789012:other", false),
        ("a*", "a", true),
        ("*b", "ab", true),
        ("*b", "ba", false),
        ("a", "ab", false),
        ("*", "é", true),
    ] {
        assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
    }
}
