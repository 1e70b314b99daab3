//! The grammar of topic names, as tables over every layout in use.

use super::*;
use proptest::prelude::*;

fn set(follow_v1: bool, extra: &[&str]) -> FollowSet {
    let follow_extra = extra.iter().map(|pattern| (*pattern).to_owned()).collect();
    FollowSet::new(&FollowPolicy { follow_v1, follow_extra }).unwrap()
}

fn v1<'t>(resource: &'t str, event: &'t str, major: Option<u16>) -> Followed<'t> {
    Followed::FactV1 { resource, event, major }
}

const SKIP: Followed<'static> = Followed::NotFollowed;

#[test]
fn a_fact_topic_is_the_prefix_and_one_source() {
    let set = FollowSet::default();
    for source in ["ledger", "reporter_v2", "billing-api", "0", "dlq", "commands", "v2"] {
        let topic = format!("{PREFIX}{source}");
        assert_eq!(set.classify(&topic), Followed::Fact { source });
    }
    for topic in [
        "lerian.streaming.",
        "lerian.streaming",
        "lerian.streaming.Ledger",
        "lerian.streaming._ledger",
        "lerian.streaming.-ledger",
        "lerian.streaming.ledger.",
        "lerian.streaming..ledger",
        "lerian.streaming.ledger.commands",
        "lerian.streaming.ledger.dlq",
        "lerian.streaming.dlq.dlq",
        "lerian.streaming.billing.recorded",
        "xlerian.streaming.ledger",
        "streaming-hub-inbox",
        "",
    ] {
        assert_eq!(set.classify(topic), SKIP, "{topic}");
    }
}

#[test]
fn v1_adds_a_topic_per_resource_and_event_with_majors_from_two() {
    let set = set(true, &[]);
    let table = [
        ("lerian.streaming.billing.recorded", v1("billing", "recorded", None)),
        ("lerian.streaming.Account.Created", v1("Account", "Created", None)),
        ("lerian.streaming.account.created.v2", v1("account", "created", Some(2))),
        ("lerian.streaming.account.created.v65535", v1("account", "created", Some(65535))),
        ("lerian.streaming.account.v2", v1("account", "v2", None)),
        ("lerian.streaming.dlq.created", v1("dlq", "created", None)),
        ("lerian.streaming.commands.sent", v1("commands", "sent", None)),
        ("lerian.streaming.ledger", Followed::Fact { source: "ledger" }),
        ("lerian.streaming.dlq", Followed::Fact { source: "dlq" }),
        ("lerian.streaming.account.created.v1", SKIP),
        ("lerian.streaming.account.created.v02", SKIP),
        ("lerian.streaming.account.created.v+2", SKIP),
        ("lerian.streaming.account.created.v65536", SKIP),
        ("lerian.streaming.account.created.v", SKIP),
        ("lerian.streaming.account.created.v2.v2", SKIP),
        ("lerian.streaming.account.created.dlq", SKIP),
        ("lerian.streaming.account..created", SKIP),
        ("lerian.streaming..created", SKIP),
        ("lerian.streaming.account.", SKIP),
        ("ledger.account.created", SKIP),
    ];
    for (topic, followed) in table {
        assert_eq!(set.classify(topic), followed, "{topic}");
    }
}

#[test]
fn commands_and_dead_letters_are_never_followed() {
    let set = set(true, &["lerian*", "ledger.*"]);
    for topic in [
        "lerian.streaming.ledger.commands",
        "lerian.streaming.ledger.dlq",
        "lerian.streaming.ledger.commands.v2",
        "lerian.streaming.account.created.dlq",
        "lerian.streaming.account.created.v2.dlq",
        "lerian.streaming.dlq.dlq",
        "lerian.streaming.ledger.commands.dlq",
        "ledger.account.dlq",
        "ledger.account.created.dlq",
        "ledger.account.commands",
    ] {
        assert_eq!(set.classify(topic), SKIP, "{topic}");
    }
}

#[test]
fn extra_topics_are_read_by_the_v1_rules() {
    let set = set(false, &["ledger.account.created", "lerian.midaz.*", "crm*"]);
    let table = [
        ("ledger.account.created", v1("account", "created", None)),
        ("ledger.account.created.v2", SKIP),
        ("lerian.midaz.ledger.account.created.v3", v1("account", "created", Some(3))),
        ("lerian.midaz.ledger.account.created", v1("account", "created", None)),
        ("crm.holder.updated", v1("holder", "updated", None)),
        ("crm2.holder.updated", v1("holder", "updated", None)),
        ("crm.holder", SKIP),
        ("crm", SKIP),
        ("crm..updated", SKIP),
        ("lerian.streaming.account.created", SKIP),
    ];
    for (topic, followed) in table {
        assert_eq!(set.classify(topic), followed, "{topic}");
    }
}

#[test]
fn an_extra_pattern_never_changes_how_the_platforms_own_topics_are_read() {
    let set = set(false, &["lerian.*"]);
    let table = [
        ("lerian.streaming.ledger", Followed::Fact { source: "ledger" }),
        ("lerian.streaming.billing.recorded", v1("billing", "recorded", None)),
        ("lerian.streaming.Ledger", SKIP),
    ];
    for (topic, followed) in table {
        assert_eq!(set.classify(topic), followed, "{topic}");
    }
}

#[test]
fn a_pattern_that_cannot_be_read_is_refused() {
    let refuse = |pattern: &str| {
        let follow_extra = vec![pattern.to_owned()];
        FollowSet::new(&FollowPolicy { follow_v1: false, follow_extra }).unwrap_err()
    };
    for pattern in ["", "*", &"a".repeat(250)] {
        assert_eq!(refuse(pattern), Error::Length(pattern.to_owned()));
    }
    for pattern in ["^a\\.b\\.c$", "a.*.c", "a.**", "a b.c.d", "ação.b.c", "a.b.(c|d)"] {
        assert_eq!(refuse(pattern), Error::Character(pattern.to_owned()));
    }
    for pattern in ["a", "a.b", "a..b", "a.b.dlq", "a.b.commands", "lerian.streaming.ledger"] {
        assert_eq!(refuse(pattern), Error::NotReadable(pattern.to_owned()));
    }
}

#[test]
fn the_patterns_to_subscribe_to_follow_the_policy() {
    let fact = r"^lerian\.streaming\.[a-z0-9][a-z0-9_-]*$";
    assert_eq!(FollowSet::default().subscription_patterns(), [fact]);
    assert_eq!(
        set(true, &["ledger.account.created", "crm.*"]).subscription_patterns(),
        [
            fact,
            r"^lerian\.streaming\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
            r"^lerian\.streaming\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.v[0-9]+$",
            r"^ledger\.account\.created$",
            r"^crm\.",
        ]
    );
}

#[test]
fn a_producers_dead_letter_topic_is_a_fact_topic_and_dlq() {
    let (v3, v1) = (FollowSet::default(), set(true, &["ledger.*"]));
    let table = [
        ("lerian.streaming.ledger.dlq", true, true),
        ("lerian.streaming.dlq.dlq", true, true),
        ("lerian.streaming.account.created.dlq", false, true),
        ("lerian.streaming.account.created.v2.dlq", false, true),
        ("lerian.streaming.Ledger.dlq", false, true),
        ("lerian.streaming.dlq", false, false),
        ("lerian.streaming..dlq", false, false),
        ("lerian.streaming.ledger", false, false),
        ("ledger.account.created.dlq", false, false),
    ];
    for (topic, with_v3, with_v1) in table {
        assert_eq!(v3.producer_dlq(topic), with_v3, "{topic}");
        assert_eq!(v1.producer_dlq(topic), with_v1, "{topic}");
    }
    assert_ne!(v3.dlq_pattern(), v1.dlq_pattern());
}

proptest! {
    #[test]
    fn no_topic_is_both_a_fact_and_a_dead_letter(
        topic in "(lerian\\.streaming\\.)?[a-z0-9.]{0,9}(\\.dlq|\\.commands|\\.v2)?", on: bool,
    ) {
        let set = set(on, &["a*", "lerian.*"]);
        if set.producer_dlq(&topic) {
            prop_assert_eq!(set.classify(&topic), SKIP);
        }
    }

    #[test]
    fn classifying_any_text_never_panics(topic in "\\PC{0,30}", on: bool) {
        let set = set(on, &["a*"]);
        let _ = (set.classify(&topic), set.producer_dlq(&topic));
    }
}
