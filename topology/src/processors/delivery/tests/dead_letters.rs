//! Dead letters: listed, shown, redelivered, bounded, and what a restart makes of them.

use streaming_hub_model::delivery_calls::{
    Answer, Chosen, Cursor, DeadLetter, DeadLetterSummary, Filter, JobPlace, Question, Redelivered,
    Refused,
};
use streaming_hub_model::tenant::TenantId;

use super::*;
use crate::calls::Reply;
use crate::processors::delivery::questions::Call;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::DAY;

impl World {
    /// Asks a question; answers where its answer arrives.
    pub(super) fn put(&mut self, question: Question) -> tokio::sync::oneshot::Receiver<Answer> {
        let (reply, answer) = Reply::new();
        self.bench.message(Message::Call(Call { question, reply }));
        answer
    }

    /// Asks a question that is answered at once.
    pub(super) fn ask(&mut self, question: Question) -> Answer {
        self.put(question).try_recv().expect("what only reads is answered at once")
    }

    fn listed(&mut self, filter: Filter, after: Option<Cursor>, limit: u16) -> Page {
        match self.ask(Question::DeadLetters { filter, after, limit }) {
            Answer::DeadLetters(page) => (page.letters, page.next),
            other => panic!("{other:?}"),
        }
    }

    fn all_letters(&mut self, filter: Filter) -> Vec<JobId> {
        let (letters, next) = self.listed(filter, None, 200);
        assert_eq!(next, None);
        letters.into_iter().map(|letter| letter.job).collect()
    }

    fn in_full(&mut self, job: JobId) -> Option<Box<DeadLetter>> {
        match self.ask(Question::DeadLetter { job }) {
            Answer::DeadLetter { letter } => letter,
            other => panic!("{other:?}"),
        }
    }

    fn redeliver(&mut self, what: Chosen, key: Option<&str>) -> Redelivered {
        let mut answer = self.put(Question::Redeliver { what, key: key.map(str::to_owned) });
        assert!(answer.try_recv().is_err(), "what writes is answered after the commit");
        self.commit();
        match answer.try_recv().unwrap() {
            Answer::Redelivered(done) => done,
            other => panic!("{other:?}"),
        }
    }

    /// A job of subscription `n` whose attempts all fail.
    pub(super) fn exhausted(&mut self, n: u8) -> JobId {
        let [job] = self.jobs(n);
        for _ in STEPS_MS {
            self.bench.turn_clock(60_000);
            assert_eq!(self.turn(), [job]);
            self.answer(job, failed());
            self.commit();
        }
        assert_eq!(self.place(job).as_deref(), Some("dead-letters"));
        job
    }
}

type Page = (Vec<DeadLetterSummary>, Option<Cursor>);

fn of(n: u8) -> Filter {
    Filter { subscription: Some(id(n)), ..Filter::default() }
}

#[test]
fn a_dead_letter_says_how_it_ended_and_holds_its_event_byte_for_byte() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = world.exhausted(1);
    let letter = world.in_full(job).unwrap();
    let DeadLetterSummary { reason, attempts, status, .. } = letter.summary;
    assert_eq!((reason, attempts, status), (EndReason::Exhausted, 3, Some(503)));
    assert_eq!(letter.summary.error_class.as_deref(), Some("http_5xx"));
    assert_eq!(letter.summary.detail.as_deref(), Some("the destination answered 503"));
    assert_eq!(letter.response_excerpt.as_deref(), Some("try later \u{fffd}"));
    assert_eq!(letter.summary.event_type, "studio.lerian.ledger.account.created");
    let payload = format!("data of {}", event_id(1));
    assert_eq!(letter.payload_base64, base64(payload.as_bytes()));
    assert_eq!(letter.summary.payload_bytes, payload.len() as u64);
    let own = |name: &str| letter.headers.iter().any(|(own, _)| own == name);
    assert!(own("ce-id") && !own(internal::TENANT));
    let record = world.record_of(job);
    let excerpt = record.headers.iter().find(|(name, _)| name == internal::EXCERPT.as_bytes());
    assert_eq!(excerpt.unwrap().1.as_deref(), Some(&b"try later \xff"[..]), "as it came");
    let other = world.jobs::<1>(1)[0];
    assert_eq!(world.in_full(other), None);
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn dead_letters_are_listed_by_every_part_of_a_filter_and_in_pages() {
    let mut world = World::new();
    let (gone, off) = (world.jobs::<3>(1), world.jobs::<2>(2));
    world.subscribe(2, |row| row["enabled"] = json!(false));
    let first = world.bench.now;
    for _ in 0..3 {
        world.turn();
        world.bench.turn_clock(1_000);
    }
    let everything = world.all_letters(Filter::default());
    assert_eq!(everything.len(), 5);
    let mut of_one = world.all_letters(of(1));
    of_one.sort_unstable();
    let mut expected = gone.to_vec();
    expected.sort_unstable();
    assert_eq!(of_one, expected);
    let reason = Some(EndReason::SubscriptionDisabled);
    let disabled = world.all_letters(Filter { reason, ..Filter::default() });
    assert!(disabled.len() == 2 && off.iter().all(|job| disabled.contains(job)));
    let tenant = |name: &str| Some(TenantId::parse(name).unwrap());
    let ours = Filter { tenant: tenant(TENANT), ..Filter::default() };
    assert_eq!(world.all_letters(ours).len(), 5);
    let theirs = Filter { tenant: tenant("other"), ..Filter::default() };
    assert_eq!(world.all_letters(theirs), []);
    let later = Filter { from: Some(first.plus(1)), ..Filter::default() };
    assert_eq!(world.all_letters(later).len(), 0, "all ended in the first turn");
    let earlier = Filter { to: Some(first), ..Filter::default() };
    assert_eq!(world.all_letters(earlier), []);
    let (mut after, mut paged) = (None, Vec::new());
    loop {
        let (letters, next) = world.listed(Filter::default(), after, 2);
        paged.extend(letters.into_iter().map(|letter| letter.job));
        let Some(next) = next else { break };
        after = Some(next);
    }
    assert_eq!(paged, everything);
}

#[test]
fn a_redelivered_letter_is_gone_and_its_job_begins_anew_under_another_id() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = world.exhausted(1);
    let done = world.redeliver(Chosen::One { job }, None);
    let [new] = done.redelivered[..] else { panic!("{done:?}") };
    assert_eq!(new.dead_letter, job);
    assert_ne!(new.job, job);
    assert_eq!((world.place(job), world.all_letters(of(1))), (None, vec![]));
    assert_eq!(world.record_of(new.job).number(internal::ATTEMPTS), 0);
    assert_eq!(world.record_of(new.job).value, Some(format!("data of {}", event_id(1)).into()));
    assert_eq!(world.turn(), [new.job]);
    world.answer(new.job, delivered());
    world.commit();
    assert_eq!(world.turn(), []);
    let again = world.redeliver(Chosen::One { job }, None);
    assert_eq!(again.refused[0].because, Refused::NotFound);
    assert_eq!(world.counters.count("dead_letters_removed_total", "redelivered"), 1);
}

#[test]
fn after_an_abort_a_redelivery_comes_again_and_makes_one_job() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = world.exhausted(1);
    let key = Some("once".to_owned());
    let mut answer = world.put(Question::Redeliver { what: Chosen::One { job }, key: key.clone() });
    world.bench.abort();
    assert!(answer.try_recv().is_err());
    world.commit();
    let Answer::Redelivered(done) = answer.try_recv().unwrap() else { panic!("another answer") };
    let new = done.redelivered[0].job;
    assert_eq!(world.turn(), [new]);
    let nonce = [b"redeliver/once/", &job.as_bytes()[..]].concat();
    assert_eq!(new, JobId::derive(TENANT, event_id(1), id(1), &nonce), "it follows from the key");
}

#[test]
fn nothing_is_redelivered_to_a_subscription_that_takes_no_jobs_or_for_a_caller_who_is_gone() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = world.exhausted(1);
    let (reply, answer) = Reply::new();
    drop(answer);
    let question = Question::Redeliver { what: Chosen::One { job }, key: None };
    world.bench.message(Message::Call(Call { question, reply }));
    world.commit();
    assert_eq!(world.all_letters(of(1)), [job], "its caller went before");
    world.subscribe(1, |row| row["enabled"] = json!(false));
    let done = world.redeliver(Chosen::One { job }, None);
    assert_eq!(done.refused[0].because, Refused::SubscriptionDisabled);
    world.unsubscribe(1);
    let done = world.redeliver(Chosen::One { job }, None);
    assert_eq!(done.refused[0].because, Refused::SubscriptionDeleted);
    assert_eq!(world.all_letters(of(1)), [job]);
    world.subscribe(1, |_| ());
    assert_eq!(world.redeliver(Chosen::One { job }, None).redelivered.len(), 1);
}

#[test]
fn a_filter_is_redelivered_in_batches_that_meet_each_letter_once() {
    let mut world = World::new();
    world.subscribe(1, |row| row["enabled"] = json!(false));
    let jobs = world.jobs::<7>(1);
    for _ in 0..2 {
        world.turn();
    }
    world.subscribe(1, strict(9));
    let (mut after, mut made) = (None, Vec::new());
    loop {
        let what = Chosen::Filtered { filter: of(1), after, limit: 3 };
        let done = world.redeliver(what, Some("all"));
        assert!(done.redelivered.len() <= 3 && done.refused.is_empty());
        made.extend(done.redelivered);
        let Some(next) = done.next else { break };
        after = Some(next);
    }
    let mut old: Vec<_> = made.iter().map(|one| one.dead_letter).collect();
    old.sort_unstable();
    let mut jobs = jobs.to_vec();
    jobs.sort_unstable();
    assert_eq!(old, jobs);
    let new: Vec<_> = made.iter().map(|one| one.job).collect();
    assert_eq!(world.turn(), new, "in the order in which they were redelivered");
}

#[test]
fn the_oldest_letters_of_a_subscription_go_beyond_its_bound_and_are_counted() {
    let retention = Retention { dead_letters_per_subscription: 3, ..Retention::default() };
    let mut world = World::made_of(256, retention);
    world.subscribe(1, |_| ());
    let letters: Vec<_> = (0..5).map(|_| world.exhausted(1)).collect();
    assert_eq!(world.all_letters(of(1)), letters[2..]);
    assert_eq!(world.counters.count("dead_letters_removed_total", "overflow"), 2);
    let other = world.jobs::<1>(2);
    for _ in 0..2 {
        world.turn();
    }
    assert_eq!(world.all_letters(of(2)), other, "the bound is each subscription's own");
    assert_eq!(world.all_letters(of(1)).len(), 3);
}

#[test]
fn letters_that_are_too_old_go_within_minutes() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let old = world.exhausted(1);
    world.bench.turn_clock(2 * DAY);
    let young = world.exhausted(1);
    world.turn();
    world.bench.turn_clock(28 * DAY + 3_600_000);
    for _ in 0..2 {
        world.turn();
    }
    assert_eq!(world.all_letters(of(1)), [young]);
    assert_eq!(
        (world.place(old), world.counters.count("dead_letters_removed_total", "age")),
        (None, 1)
    );
}

#[test]
fn a_tenants_letters_are_forgotten_and_no_others() {
    let mut world = World::new();
    let _ = world.jobs::<3>(1);
    for _ in 0..2 {
        world.turn();
    }
    for (tenant, letters) in [("other", 0), (TENANT, 3), (TENANT, 0)] {
        let tenant = TenantId::parse(tenant).unwrap();
        let mut answer = world.put(Question::Forget { tenant, after: None });
        world.commit();
        let forgotten = Answer::Forgotten { letters, next: None, ending: 0 };
        assert_eq!(answer.try_recv().unwrap(), forgotten);
    }
    assert_eq!(world.all_letters(Filter::default()), []);
}

#[test]
fn who_forgets_is_told_of_deleted_subscriptions_whose_jobs_did_not_end_yet() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let _ = world.jobs::<3>(1);
    world.unsubscribe(1);
    let tenant = TenantId::parse(TENANT).unwrap();
    let mut forgotten = || {
        let question = Question::Forget { tenant: tenant.clone(), after: None };
        let mut answer = world.put(question);
        world.commit();
        let told = answer.try_recv().unwrap();
        for _ in 0..2 {
            world.turn();
        }
        told
    };
    assert_eq!(forgotten(), Answer::Forgotten { letters: 0, next: None, ending: 1 });
    assert_eq!(forgotten(), Answer::Forgotten { letters: 3, next: None, ending: 0 });
}

#[test]
fn a_restart_brings_back_the_letters_that_there_are() {
    for how in Restart::all() {
        let mut world = World::new();
        world.subscribe(1, |_| ());
        let first = world.exhausted(1);
        world.bench.flush();
        let second = world.exhausted(1);
        let new = world.redeliver(Chosen::One { job: first }, None).redelivered[0].job;
        world.restart(how);
        checker::check(&world);
        assert_eq!(world.all_letters(of(1)), [second], "{how:?}");
        assert!(world.in_full(second).is_some());
        assert_eq!(world.place(new).as_deref(), Some("deliveries"));
    }
}

#[test]
fn a_strangers_dead_letter_is_passed_over() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = world.exhausted(1);
    let good = world.record_of(job);
    let stranger = JobId::derive("x", event_id(9), id(9), b"");
    for headers in [vec![], good.headers[..3].to_vec()] {
        let key = Some(stranger.to_string().into_bytes());
        let entry =
            Entry { partition: PARTITION, key, headers, value: good.value.clone(), ..good.clone() };
        world.bench.logs.commit(vec![("hub-dead-letters".to_owned(), entry)], 0);
    }
    let keyless = Entry { partition: PARTITION, key: Some(b"\xff".to_vec()), ..good };
    world.bench.logs.commit(vec![("hub-dead-letters".to_owned(), keyless)], 0);
    world.restart(Restart::COLD);
    assert_eq!(world.all_letters(Filter::default()), [job]);
}

#[test]
fn a_trace_finds_an_events_job_wherever_it_stands() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let at = |world: &mut World, event| {
        let question = Question::Jobs {
            tenant: TenantId::parse(TENANT).unwrap(),
            event: event_id(event),
            subscriptions: vec![id(1), id(2)],
        };
        match world.ask(question) {
            Answer::Jobs { jobs } => jobs.into_iter().map(|job| job.at).next(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(at(&mut world, 1), None);
    let [job] = world.jobs(1);
    assert_eq!(at(&mut world, 1), Some(JobPlace::Ready { due: world.bench.now }));
    world.turn();
    let started_at = world.bench.now;
    world.answer(job, failed());
    world.commit();
    let retry = at(&mut world, 1);
    assert!(matches!(retry, Some(JobPlace::Retry { tier: 1, attempts: 1, .. })), "{retry:?}");
    world.turn();
    world.answer(job, delivered());
    world.commit();
    assert_eq!(at(&mut world, 1), Some(JobPlace::Delivered { started_at }));
    world.exhausted(1);
    let reason = EndReason::Exhausted;
    assert_eq!(at(&mut world, 2), Some(JobPlace::DeadLetter { reason, ended_at: world.bench.now }));
}
