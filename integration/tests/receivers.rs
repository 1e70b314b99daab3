//! Receivers as they are in the world: they fail, hang, hang up, send elsewhere, talk without end
//! or are slow. A delivery is retried by its curve and ends as a dead letter; others are not held
//! up by it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use streaming_hub_integration::api::{Subscriber, Wanted};
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::internal::{self, Internal};
use streaming_hub_integration::reader::Record;
use streaming_hub_integration::receiver::Behaviour;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, World};

const SETTLED: Duration = Duration::from_secs(90);
const TENANT: &str = "acme";
const FACTS: usize = 3;
/// Attempts of the test curve.
const ATTEMPTS: usize = 3;
const HOUR_MS: u64 = 3_600_000;

/// A receiver that never takes anything, and how that is called.
struct Case {
    name: &'static str,
    behaviour: Behaviour,
    class: &'static str,
    status: Option<&'static str>,
}

fn failing(elsewhere: String) -> Vec<Case> {
    use Behaviour::{Answer, Close, Endless, Hang, Redirect};
    let case = |name, behaviour, class, status| Case { name, behaviour, class, status };
    vec![
        case("error", Answer(500), "http_5xx", Some("500")),
        case("refusal", Answer(404), "http_4xx", Some("404")),
        case("hang", Hang, "timeout", None),
        case("close", Close, "protocol", None),
        case("redirect", Redirect(elsewhere), "redirect", Some("302")),
        case("endless-error", Endless(503), "http_5xx", Some("503")),
    ]
}

fn produce(world: &mut World, seed: u64) -> Result<Vec<Fact>> {
    let mut ids = Generator::new(seed);
    let fact = |_| Fact::new("ledger", TENANT, &ids.id(), ("account", "created"));
    let facts: Vec<Fact> = (0..FACTS).map(fact).collect();
    world.produce(&facts)?;
    Ok(facts)
}

#[test]
fn failures_follow_the_curve_and_end_as_dead_letters_without_harm_to_others() -> Result<()> {
    let configure = |config: HubConfig| {
        config
            .tenants(&[TENANT])
            .retry(&[0, 200, 200])
            .set("webhook.timeout_ms", 1_000)
            .set("webhook.connect_timeout_ms", 500)
    };
    world::run(&[], configure, |world| {
        let well = world.subscribe(Wanted::all(TENANT, "well"))?;
        let cases = failing(world.receiver.url("/elsewhere"));
        let mut failing = Vec::new();
        for case in cases {
            let subscriber = world.subscribe(Wanted::all(TENANT, case.name))?;
            world.receiver.script(&subscriber.path, std::slice::from_ref(&case.behaviour));
            world.refuses(&subscriber);
            failing.push((case, subscriber));
        }
        let slow = slow_but_well(world)?;
        let late = world.subscribe(Wanted::all(TENANT, "late").retry(&[0, 10 * HOUR_MS]))?;
        world.receiver.script(&late.path, &[Behaviour::Answer(500)]);
        world.refuses(&late);

        let facts = produce(world, 5)?;
        others_are_not_held_up(world, &well, &failing)?;
        for (case, subscriber) in &failing {
            dead_lettered(world, case, subscriber, &facts)?;
        }
        ensure!(world.receiver.deliveries("/elsewhere").is_empty(), "a redirect was followed");
        for (subscriber, attempts) in &slow {
            retried_until_taken(world, subscriber, *attempts)?;
        }
        waits_in_its_tier(world, &late)?;
        ends_by_tombstones(world, &late)?;
        world.check(Delivered::AtLeastOnce)?;
        Ok(())
    })
}

/// Receivers that take their deliveries in the end, and how many attempts each takes.
fn slow_but_well(world: &mut World) -> Result<Vec<(Subscriber, usize)>> {
    let answer = |status| Behaviour::Answer(status);
    let slow = Behaviour::After(Duration::from_millis(300), Box::new(answer(200)));
    let fails_twice = [[answer(500), answer(500)], [answer(500), answer(500)]].concat();
    let table = [
        ("slow", vec![slow], FACTS),
        // The status says that it was taken, whatever comes behind.
        ("endless", vec![Behaviour::Endless(200)], FACTS),
        ("flaky", [fails_twice, vec![answer(204)]].concat(), FACTS + 4),
    ];
    let mut subscribers = Vec::new();
    for (name, behaviours, attempts) in table {
        let subscriber = world.subscribe(Wanted::all(TENANT, name))?;
        world.receiver.script(&subscriber.path, &behaviours);
        subscribers.push((subscriber, attempts));
    }
    Ok(subscribers)
}

/// The one that is well has everything while the one that hangs is at its first attempts: each of
/// those takes a second.
fn others_are_not_held_up(
    world: &World,
    well: &Subscriber,
    failing: &[(Case, Subscriber)],
) -> Result<()> {
    wait::until("deliveries to the one that is well", SETTLED, || {
        let count = world.receiver.deliveries(&well.path).len();
        Ok(if count == FACTS { Ok(()) } else { Err(format!("{count} of {FACTS}")) })
    })?;
    let hang = failing.iter().find(|(case, _)| case.name == "hang").context("hang")?;
    let attempts = world.receiver.deliveries(&hang.1.path).len();
    ensure!(attempts <= FACTS, "the one that hangs was attempted {attempts} times before");
    Ok(())
}

fn of<'a>(records: &'a [Record], subscriber: &Subscriber) -> Vec<&'a Record> {
    let own = |record: &&Record| record.text("hub-subscription") == Some(&subscriber.id);
    records.iter().filter(own).collect()
}

/// Every fact is attempted as often as the curve says, and is a dead letter then.
fn dead_lettered(
    world: &World,
    case: &Case,
    subscriber: &Subscriber,
    facts: &[Fact],
) -> Result<()> {
    let internal = &world.internal;
    let letters = wait::until(&format!("dead letters of {}", case.name), SETTLED, || {
        let all = internal.dead_letters()?;
        let own: Vec<Record> = of(&all, subscriber).into_iter().cloned().collect();
        Ok(if own.len() >= FACTS { Ok(own) } else { Err(format!("{} of {FACTS}", own.len())) })
    })?;
    let name = case.name;
    ensure!(letters.len() == FACTS, "{name}: {} dead letters", letters.len());
    for letter in &letters {
        let text = |header| letter.text(header);
        let found = (text("hub-reason"), text("hub-class"), text("hub-status"));
        let wanted = (Some("exhausted"), Some(case.class), case.status);
        let detail = text("hub-detail").unwrap_or_default();
        ensure!(found == wanted, "{name}: {found:?} ({detail}), not {wanted:?}");
        ensure!(text("hub-attempts") == Some(&ATTEMPTS.to_string()), "{name}: attempts");
        let fact = facts.iter().find(|fact| Some(fact.id().as_str()) == text("hub-id"));
        let fact = fact.with_context(|| format!("{name}: a dead letter of another event"))?;
        ensure!(letter.value == fact.value, "{name}: the dead letter's value is another");
    }
    for fact in facts {
        let deliveries = world.receiver.deliveries(&subscriber.path);
        let id = fact.id();
        let own = deliveries.iter().filter(|r| r.text("X-Lerian-Event-Id") == Some(&id));
        let attempts = own.count();
        ensure!(attempts == ATTEMPTS, "{name}: {id} was attempted {attempts} times");
    }
    let log = internal.attempts()?;
    let own = log.iter().filter(|line| line["subscription"] == subscriber.id.as_str());
    let classes: Vec<_> = own.map(|line| line["error_class"].clone()).collect();
    ensure!(classes.len() == FACTS * ATTEMPTS, "{name}: {} log lines", classes.len());
    ensure!(classes.iter().all(|class| class == case.class), "{name}: {classes:?}");
    Ok(())
}

/// A receiver that takes a delivery in the end gets it so often, and no dead letter follows.
fn retried_until_taken(world: &World, subscriber: &Subscriber, attempts: usize) -> Result<()> {
    let name = &subscriber.wanted.name;
    let internal = &world.internal;
    wait::until(&format!("the end of the jobs of {name}"), SETTLED, || {
        let open = open_of(internal, subscriber)?;
        Ok(if open.is_empty() { Ok(()) } else { Err(format!("{open:?}")) })
    })?;
    let found = world.receiver.deliveries(&subscriber.path).len();
    ensure!(found == attempts, "{name}: {found} requests, not {attempts}");
    ensure!(of(&internal.dead_letters()?, subscriber).is_empty(), "{name}: dead letters");
    Ok(())
}

/// The jobs of a subscription that have not ended, as `topic key`.
fn open_of(internal: &Internal, subscriber: &Subscriber) -> Result<Vec<String>> {
    let mut open = Vec::new();
    for topic in ["deliveries", "retry-01", "retry-02"] {
        let records = internal.read(topic)?;
        let own = internal::open_in(&records).into_iter();
        let own = own.filter(|(_, job)| job.text("hub-subscription") == Some(&subscriber.id));
        open.extend(own.map(|(key, _)| format!("{topic} {key}")));
    }
    Ok(open)
}

/// A job whose next attempt is hours away lies in the tier of its step, with what is known of it.
fn waits_in_its_tier(world: &World, late: &Subscriber) -> Result<()> {
    let internal = &world.internal;
    let tier = wait::until("jobs in their tier", SETTLED, || {
        let records = internal.retries(1)?;
        let open = internal::open_in(&records);
        let own = open.into_values().filter(|job| job.text("hub-subscription") == Some(&late.id));
        let own: Vec<Record> = own.cloned().collect();
        Ok(if own.len() == FACTS { Ok(own) } else { Err(format!("{} of {FACTS}", own.len())) })
    })?;
    let now_ms = wait::unix_ms();
    for job in tier {
        ensure!(job.text("hub-attempts") == Some("1"), "{}: hub-attempts", job.place());
        let due: i64 = job.text("hub-due").context("hub-due")?.parse()?;
        let latest = now_ms + i64::try_from(10 * HOUR_MS)?;
        // Full jitter: anywhere within the step.
        ensure!((now_ms - 60_000..=latest).contains(&due), "{}: due {due}", job.place());
    }
    Ok(())
}

/// What has left a topic is ended there by a tombstone, and only what waits is open.
fn ends_by_tombstones(world: &World, late: &Subscriber) -> Result<()> {
    let internal = &world.internal;
    let open = wait::until("the end of all other jobs", SETTLED, || {
        let open = internal.open_jobs()?;
        Ok(if open.len() == FACTS { Ok(open) } else { Err(format!("{} open", open.len())) })
    })?;
    let all_late = open.values().all(|topic| topic == "retry-01");
    ensure!(all_late, "other jobs than those of {} are open: {open:?}", late.wanted.name);
    for tier in 1..=2 {
        let records = internal.retries(tier)?;
        let (jobs, ends) = records.iter().partition::<Vec<_>, _>(|r| r.value.is_some());
        ensure!(!jobs.is_empty() && !ends.is_empty(), "tier {tier} saw no job come and go");
    }
    Ok(())
}
