//! Keeps everything running until an interrupt: says how to look around, and shows each request
//! that the receiver gets meanwhile.

use std::time::Duration;

use anyhow::Result;
use streaming_hub_integration::config::token_of;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::World;

/// How often the receiver is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The tenant of the examples.
const TENANT: &str = "acme-payments";

/// Returns at an interrupt.
pub(crate) fn hold(world: &World) -> Result<()> {
    explain(world);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
        let mut seen = world.receiver.requests().len();
        while tokio::time::timeout(LOOK, &mut interrupt).await.is_err() {
            seen = show(world, seen);
        }
    });
    println!();
    Ok(())
}

fn explain(world: &World) {
    let (hub, kafka) = (format!("http://{}", world.hub.address()), world.broker.bootstrap());
    let bearer = format!("-H 'Authorization: Bearer {}'", token_of(Some(TENANT)));
    // An id that no other run has had, so that the line works as often as the demo is held.
    let fact = Fact::new("ledger", TENANT, &id(), ("account", "created"));
    println!("Everything keeps running until Ctrl-C. To look around:\n");
    println!("  curl -s {bearer} {hub}/v1/subscriptions");
    println!("  curl -s {hub}/readyz");
    println!("  curl -s {hub}/metrics | grep streaming_hub_");
    println!("  tail {}", world.hub.config().log().display());
    println!("  kcat -b {kafka} -L");
    for topic in ["inbox", "quarantine", "attempts"] {
        let topic = world.internal.name(topic);
        println!("  kcat -b {kafka} -C -e -q -t {topic} -f '%p/%o %k  %h\\n  %s\\n'");
    }
    println!("\nProduce a fact of {TENANT} (again: a duplicate, nothing arrives):\n");
    print!("  echo '{{\"hello\":\"world\"}}' | kcat -b {kafka} -P -t {} -k {TENANT}", fact.topic);
    for (name, value) in &fact.headers {
        let value = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
        print!(" \\\n    -H {}={value}", String::from_utf8_lossy(name));
    }
    println!("\n\nWhat the receiver gets from here on:");
}

fn id() -> String {
    Generator::new(wait::unix_ms().unsigned_abs()).id()
}

/// Prints what came behind the first `seen` requests; how many there are now.
fn show(world: &World, seen: usize) -> usize {
    let requests = world.receiver.requests();
    for request in requests.iter().skip(seen) {
        let own = world.subscribers.iter().find(|own| own.path == request.target);
        let verified = own.map(|own| request.verify(&[&own.secret]));
        let signature = match verified {
            Some(Ok(())) => "signature valid".to_owned(),
            Some(Err(fault)) => format!("signature INVALID: {fault}"),
            None => "of no subscription of the demo's".to_owned(),
        };
        let text = |name| request.text(name).unwrap_or("-");
        println!(
            "  {} {}  {} {}  {} bytes, {signature}",
            request.method,
            request.target,
            text("X-Lerian-Event-Type"),
            text("X-Lerian-Event-Id"),
            request.body.len(),
        );
    }
    requests.len()
}
