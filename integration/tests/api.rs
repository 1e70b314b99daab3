//! The API as its documents say: the walk-through of `docs/api.md` word for word, the receivers of
//! `docs/receivers/` over real deliveries, and the OpenAPI document against the running hub.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::config::token_of;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::receiver::Request;
use streaming_hub_integration::world::{self, World};
use streaming_hub_integration::{say, wait};

#[path = "../../docs/receivers/verify.rs"]
#[expect(clippy::disallowed_methods, unreachable_pub, reason = "it is a receiver's, not ours")]
mod verify;

const TENANT: &str = "acme";
const SETTLED: Duration = Duration::from_secs(60);

#[test]
fn what_the_documents_of_the_api_say_is_so() -> Result<()> {
    let mut generator = Generator::new(61);
    let shape = Shape { tenants: vec![TENANT.to_owned()], ..Shape::default() };
    let facts: Vec<_> = (0..3).map(|_| generator.facts(4, &shape)).collect();
    world::run(
        &facts.concat(),
        |config| config.tenants(&[TENANT]),
        |world| {
            walk_through(world)?;
            let mut secrets = Vec::new();
            rotation(world, &facts, &mut secrets)?;
            nothing_in_clear(world, &secrets)?;
            conformance(world)
        },
    )
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn hub_url(world: &World) -> String {
    format!("http://{}", world.hub.address())
}

/// Runs the commands of `docs/api.md`, all of them in one shell, each line as it stands there.
fn walk_through(world: &World) -> Result<()> {
    let text = std::fs::read_to_string(root().join("docs/api.md"))?;
    let blocks: Vec<_> =
        text.split("```sh\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    ensure!(blocks.len() >= 10, "the walk-through has {} blocks", blocks.len());
    let script = format!("set -euo pipefail\n{}", blocks.concat());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("HUB", hub_url(world))
        .env("TOKEN", token_of(Some(TENANT)))
        .env("HOOK", world.receiver.url("/walk"))
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docs/api.md: {}\n{said}{wrong}", output.status);
    ensure!(said.lines().any(|line| line == "accounts"), "docs/api.md said {said}");
    Ok(())
}

/// Deliveries before, during and after a rotation, each judged by every receiver.
fn rotation(
    world: &mut World,
    facts: &[Vec<streaming_hub_integration::facts::Fact>],
    secrets: &mut Vec<String>,
) -> Result<()> {
    let subscriber = world.subscribe(Wanted::all(TENANT, "rotated"))?;
    secrets.push(subscriber.secret.clone());
    let path = format!("/v1/subscriptions/{}/rotate-secret", subscriber.id);
    let rotate = |world: &World, overlap: u64| -> Result<String> {
        let body = json!({"overlap_seconds": overlap});
        let answer = world.hub.api(TENANT).call("POST", &path, Some(&body))?;
        ensure!(answer.status == 200, "rotation: {} {}", answer.status, answer.body);
        let text = answer.json()["signing_secret"].as_str().map(str::to_owned);
        text.context("a rotation without a secret")
    };
    let mut before = delivered(world, &subscriber.path, &facts[0])?;
    judge(&before, &[&secrets[0]], 1)?;
    secrets.push(rotate(world, 600)?);
    let during = delivered(world, &subscriber.path, &facts[1])?;
    judge(&during, &[&secrets[0]], 2)?;
    judge(&during, &[&secrets[1]], 2)?;
    secrets.push(rotate(world, 0)?);
    let after = delivered(world, &subscriber.path, &facts[2])?;
    judge(&after, &[&secrets[2]], 1)?;
    before.extend(during);
    ensure!(!before.is_empty(), "nothing was delivered");
    Ok(())
}

/// Produces facts and waits for their deliveries.
fn delivered(
    world: &mut World,
    path: &str,
    facts: &[streaming_hub_integration::facts::Fact],
) -> Result<Vec<Value>> {
    let had = world.receiver.deliveries(path).len();
    world.produce(facts)?;
    wait::until("the deliveries", SETTLED, || {
        let now = world.receiver.deliveries(path).len();
        Ok(if now > had { Ok(()) } else { Err(format!("{now} of more than {had}")) })
    })?;
    world.settle(SETTLED)?;
    let all = world.receiver.deliveries(path);
    Ok(all[had..].iter().map(|request| as_json(request)).collect())
}

fn as_json(request: &Request) -> Value {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let lines = |name| request.lines(name).into_iter().map(text).collect::<Vec<_>>();
    json!({
        "timestamp": lines("X-Webhook-Timestamp").concat(),
        "signatures": lines("X-Webhook-Signature"),
        "body_base64": BASE64.encode(&request.body),
    })
}

/// Every receiver accepts every delivery with these secrets, and none with others or altered.
fn judge(deliveries: &[Value], secrets: &[&str], signatures: usize) -> Result<()> {
    let mut cases = Vec::new();
    for delivery in deliveries {
        let count = delivery["signatures"].as_array().map_or(0, Vec::len);
        ensure!(count == signatures, "{count} signatures instead of {signatures}");
        let case = |change: &dyn Fn(&mut Value)| {
            let mut case = delivery.clone();
            case["secrets"] = json!(secrets);
            change(&mut case);
            case
        };
        cases.push((case(&|_| {}), "ok"));
        cases.push((case(&|case| case["secrets"] = json!(["another", secrets[0]])), "ok"));
        cases.push((case(&|case| case["secrets"] = json!(["another"])), "bad"));
        cases.push((case(&|case| case["body_base64"] = json!(BASE64.encode("{}!"))), "bad"));
        cases.push((case(&|case| case["timestamp"] = json!("1700000000")), "bad"));
        cases.push((case(&|case| case["signatures"] = json!([])), "bad"));
    }
    let expected: Vec<_> = cases.iter().map(|(_, verdict)| *verdict).collect();
    for (case, verdict) in &cases {
        ensure!(in_rust(case)? == (*verdict == "ok"), "verify.rs: not {verdict}: {case}");
    }
    let receivers = root().join("docs/receivers");
    for (program, arguments) in [
        ("python3", vec!["verify.py"]),
        ("node", vec!["verify.mjs", "--test"]),
        ("go", vec!["run", "verify.go"]),
    ] {
        let found = verdicts(program, &arguments, &receivers, &cases)?;
        ensure!(found == expected, "{program}: {found:?} instead of {expected:?}");
    }
    Ok(())
}

fn in_rust(case: &Value) -> Result<bool> {
    let list = |name: &str| {
        let texts = case[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let (secrets, signatures) = (list("secrets"), list("signatures"));
    let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
    let signatures: Vec<_> = signatures.iter().map(String::as_str).collect();
    let body = BASE64.decode(case["body_base64"].as_str().unwrap_or_default())?;
    Ok(verify::verify(&secrets, case["timestamp"].as_str().unwrap_or_default(), &signatures, &body))
}

/// What a receiver's program says of each case.
fn verdicts(
    program: &str,
    arguments: &[&str],
    directory: &Path,
    cases: &[(Value, &str)],
) -> Result<Vec<String>> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("PATH", format!("{}:/usr/local/go/bin", std::env::var("PATH")?));
    let mut child = command.spawn().with_context(|| format!("{program}: scripts/setup has it"))?;
    let input: String = cases.iter().map(|(case, _)| format!("{case}\n")).collect();
    child.stdin.take().context("no stdin")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{program}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// What a tenant brings along: a signing secret under an idempotency key, and a password.
fn brought(world: &World) -> Result<[String; 2]> {
    let brought = ["a-signing-secret-of-the-tenants-own", "a-password-for-a-broker-of-its-own"];
    let webhook = json!({
        "type": "webhook", "url": world.receiver.url("/brought"), "secret": brought[0],
    });
    let rabbit = json!({
        "type": "rabbitmq", "host": "127.0.0.1", "port": 5672, "vhost": "/", "exchange": "x",
        "routing_key": "k", "username": "hub", "password": brought[1], "tls": false,
    });
    for (key, sink) in [("webhook", webhook), ("rabbit", rabbit)] {
        let body = json!({"name": key, "event_types": ["a.b"], "sink": sink});
        let headers = [("Idempotency-Key", key)];
        for _ in 0..2 {
            let api = world.hub.api(TENANT);
            let answer = api.call_with("POST", "/v1/subscriptions", &headers, Some(&body))?;
            ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
            ensure!(!brought.iter().any(|secret| answer.body.contains(secret)), "it is echoed");
        }
    }
    Ok(brought.map(str::to_owned))
}

/// Every topic of the hub, as its documents list them.
fn topics() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join("docs/topics.md"))?;
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `<app>-")?.split('`').next());
    let mut topics: Vec<_> = rows.map(str::to_owned).collect();
    topics.extend((2..=11).map(|tier| format!("retry-{tier:02}")));
    ensure!(topics.len() >= 25, "docs/topics.md lists {topics:?}");
    Ok(topics)
}

/// No secret stands in clear in anything that the hub has written: topics, log, local stores.
fn nothing_in_clear(world: &World, secrets: &[String]) -> Result<()> {
    let brought = brought(world)?;
    // Its own begin with this.
    let mut needles = vec!["whsec_"];
    needles.extend(secrets.iter().chain(&brought).map(String::as_str));
    let in_clear = |text: &str| needles.iter().any(|secret| text.contains(secret));
    let mut records = 0;
    for topic in topics()? {
        for record in world.internal.read(&topic)? {
            records += 1;
            let headers = record.headers.iter().map(|header| format!("{header:?}"));
            let bytes = [record.key, record.value].into_iter().flatten();
            let mut text: String =
                bytes.map(|b| String::from_utf8_lossy(&b).into_owned()).collect();
            text.extend(headers);
            ensure!(!in_clear(&text), "{topic}: a secret in {text}");
        }
    }
    // Queues are trimmed and claims compacted, so not all of what was written is left.
    ensure!(records > 20, "only {records} records were looked at");
    let config = world.hub.config();
    let (mut directories, mut files) = (vec![config.directory().join("state")], 0);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                // A file may go while it is looked for.
                files += 1;
                ensure!(!in_clear(&String::from_utf8_lossy(&bytes)), "a secret in {path:?}");
            }
        }
    }
    ensure!(files > 20, "only {files} files were looked at");
    ensure!(!in_clear(&std::fs::read_to_string(config.log())?), "a secret in the log");
    Ok(())
}

/// Schemathesis drives the hub from its own document.
fn conformance(world: &World) -> Result<()> {
    let output = Command::new(root().join("scripts/conformance"))
        .arg(hub_url(world))
        .env("TENANT_TOKEN", token_of(Some(TENANT)))
        .env("OPERATOR_TOKEN", token_of(None))
        .output()
        .context("scripts/conformance")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{said}\n{wrong}", output.status);
    say!("{}", said.lines().last().unwrap_or_default());
    Ok(())
}
