//! Whatever a followed topic holds, it never wedges the hub: each record is a verdict, the
//! malformed ones are kept byte for byte, and the rest flows.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::facts::{self, Fact, Verdict};
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::kcat;
use streaming_hub_integration::world::{self, World};

const SETTLED: Duration = Duration::from_secs(90);
const COUNTED: Duration = Duration::from_secs(10);
const TENANT: &str = "acme";
const MIB: usize = 1024 * 1024;

/// Well-formed facts of one application, each with an id of its own.
struct Maker {
    ids: Generator,
}

impl Maker {
    fn good(&mut self, name: &str) -> Fact {
        Fact::new("ledger", TENANT, &self.ids.id(), ("account", "created")).named(name)
    }

    fn bad(&mut self, (header, value): (&str, &[u8]), reason: &str) -> Fact {
        let name =
            format!("{header} = {:?}", String::from_utf8_lossy(&value[..value.len().min(40)]));
        self.good(&name).with(header, value).quarantined(reason)
    }
}

/// Each header of contract section 1, malformed in each of its ways.
fn malformed_headers(make: &mut Maker) -> Vec<Fact> {
    let long = |bytes: usize| "s".repeat(bytes).into_bytes();
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("ce-specversion", b"1.1".to_vec(), "bad_specversion"),
        ("ce-specversion", b"\xff".to_vec(), "bad_specversion"),
        ("ce-id", b"01a0c4506d127c2b81289b05b624f924".to_vec(), "bad_id"),
        ("ce-id", b"3f2504e0-4f89-41d3-9a0c-0305e82c3301".to_vec(), "bad_id"),
        ("ce-id", b"00000000-0000-0000-0000-000000000000".to_vec(), "bad_id"),
        ("ce-id", b"\xff\xfe".to_vec(), "bad_id"),
        ("ce-source", b"Ledger".to_vec(), "bad_source"),
        ("ce-source", long(224), "bad_source"),
        ("ce-source", b"lender".to_vec(), "source_mismatch"),
        ("ce-type", b"studio.lerian.account.created".to_vec(), "bad_type"),
        ("ce-type", b"studio.lerian.ledger.account.created.x".to_vec(), "bad_type"),
        ("ce-type", b"studio.lerian.ledger.account.deleted".to_vec(), "type_mismatch"),
        ("ce-time", b"yesterday".to_vec(), "bad_time"),
        ("ce-time", b"2026-02-30T00:00:00Z".to_vec(), "bad_time"),
        ("ce-time", b"2026-09-21T14:13:02".to_vec(), "bad_time"),
        ("ce-schemaversion", b"latest".to_vec(), "bad_schemaversion"),
        ("ce-schemaversion", b"2.1.0.0".to_vec(), "bad_schemaversion"),
        ("ce-schemaversion", b"02.1.0".to_vec(), "bad_schemaversion"),
        ("ce-schemaversion", b"65536".to_vec(), "bad_schemaversion"),
        ("ce-resourcetype", b"acc.ount".to_vec(), "bad_segment"),
        ("ce-resourcetype", b" account".to_vec(), "bad_segment"),
        ("ce-resourcetype", long(129), "bad_segment"),
        ("ce-eventtype", b"crea\x07ted".to_vec(), "bad_segment"),
        ("ce-eventtype", "crea\u{85}ted".as_bytes().to_vec(), "bad_segment"),
        ("ce-eventtype", b"\xc3\x28".to_vec(), "bad_segment"),
        ("ce-subject", long(1025), "bad_header"),
        ("ce-datacontenttype", long(257), "bad_header"),
        ("ce-dataschema", long(2049), "bad_header"),
        ("ce-subject", b"\xff".to_vec(), "bad_header"),
        ("ce-tenantid", b"".to_vec(), "missing_tenant"),
        ("ce-tenantid", b" acme".to_vec(), "bad_tenant"),
        ("ce-tenantid", b"ac\x7fme".to_vec(), "bad_tenant"),
        ("ce-tenantid", long(257), "bad_tenant"),
        ("ce-tenantid", b"t-\xff".to_vec(), "bad_tenant"),
        ("ce-id", b"".to_vec(), "missing_header"),
    ];
    let mut facts: Vec<Fact> =
        table.iter().map(|(name, value, reason)| make.bad((name, value), reason)).collect();
    for name in ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"] {
        let null = make.good(&format!("{name} is null")).without(name).and(name, None);
        facts.push(null.quarantined("missing_header"));
    }
    facts
}

/// Odd, but legal; or odd, and malformed for one reason only.
fn odd_records(make: &mut Maker) -> Vec<Fact> {
    let good_id = make.ids.id();
    let mut facts = vec![
        make.good("no value").carrying(None),
        make.good("an empty value").carrying(Some(Vec::new())),
        make.good("a value that is no text").carrying(Some(vec![0xff, 0, 0xfe])),
        make.good("no key").keyed(None),
        make.good("an empty key").keyed(Some(b"")),
        make.good("a key that is no text").keyed(Some(b"\xff\x00")),
        make.good("an empty header name").and("", Some(b"x")),
        make.good("an unknown header that is no text").and("x-a", Some(b"\xff\xfe")),
        make.good("an unknown ce header").and("ce-sig", Some(b"\xff")),
        make.good("a forged header of the hub's").and("hub-tenant", Some(b"another")),
        make.good("a repeated header, the last is right")
            .with("ce-id", b"wrong")
            .and("ce-id", Some(good_id.as_bytes())),
        make.good("a repeated header, the last is wrong")
            .and("ce-id", Some(b"wrong"))
            .quarantined("bad_id"),
        make.good("a system event").with("ce-systemevent", b"true"),
        make.good("a content type that is none").with("ce-datacontenttype", b"none at all"),
        make.good("every byte").carrying(Some((0..=255).collect())),
    ];
    for fact in facts.iter_mut().filter(|fact| fact.name == "a system event") {
        fact.verdict = Verdict::Drop;
    }
    for number in 0_u8..5 {
        // Protobuf behind a schema registry's frame, and not one header.
        let mut bare = make.good(&format!("protobuf {number}"));
        bare.headers.clear();
        bare.topic = "lerian.streaming.protobuf".to_owned();
        bare.value = Some(vec![0, 0, 0, 0, 7, 0, 10, number, 0xff]);
        facts.push(bare.quarantined("missing_header"));
    }
    facts
}

fn large_records(make: &mut Maker) -> Vec<Fact> {
    let filled = |bytes: usize| Some(vec![b'x'; bytes]);
    vec![
        make.good("1 MiB").carrying(filled(MIB)),
        make.good("1 MiB and a byte").carrying(filled(MIB + 1)).quarantined("payload_too_large"),
        make.good("2 MiB").carrying(filled(2 * MIB)).quarantined("payload_too_large"),
        make.good("6 MiB, more than an internal record holds")
            .carrying(filled(6 * MIB))
            .quarantined("payload_too_large"),
    ]
}

#[test]
fn each_bad_record_is_a_verdict_and_the_rest_flows() -> Result<()> {
    let mut make = Maker { ids: Generator::new(3) };
    let mut facts = facts::verdicts()?;
    facts.retain(|fact| matches!(fact.verdict, Verdict::Quarantine(_)));
    facts.extend(malformed_headers(&mut make));
    facts.extend(odd_records(&mut make));
    facts.extend(large_records(&mut make));
    facts.push(make.good("one that comes behind all of them"));
    world::run(
        &facts,
        |config| config.tenants(&[TENANT]),
        |world| {
            world.subscribe(Wanted::all(TENANT, "all"))?;
            world.produce(&facts)?;
            world.settle(SETTLED)?;
            world.check(Delivered::Once)?;
            names_that_are_no_text(world, &mut make)?;
            ten_thousand_in_a_row(world, &mut make)
        },
    )
}

/// A stranger's header name need not be UTF-8. It never changes a verdict, and the quarantine keeps
/// its bytes.
fn names_that_are_no_text(world: &mut World, make: &mut Maker) -> Result<()> {
    let name = b"x-\xff\xfe";
    let facts = [
        make.good("an unknown name that is no text").and(name, Some(b"v")),
        make.good("a ce name that is no text").and(b"ce-\xff", Some(b"v")),
        make.good("a malformed one with a name that is no text")
            .with("ce-time", "never")
            .and(name, Some(b"\xf0\x9f"))
            .quarantined("bad_time"),
    ];
    let sources = world.produce(&facts)?.to_vec();
    world.settle(SETTLED)?;
    world.check(Delivered::Once)?;
    let place = sources[2].place();
    let kept = world.internal.quarantine()?;
    let kept = kept.iter().find(|record| record.text("hub-from") == Some(&place));
    let kept = kept.with_context(|| format!("{place} is not in the quarantine"))?;
    let bootstrap = world.broker.bootstrap();
    let shown = kcat::headers(bootstrap, &kept.topic, kept.partition, kept.offset)?;
    let wanted = kcat::shown(&facts[2].headers);
    ensure!(
        shown.starts_with(&wanted),
        "the quarantine shows {:?}, not {:?}",
        String::from_utf8_lossy(&shown),
        String::from_utf8_lossy(&wanted)
    );
    Ok(())
}

/// A producer gone wrong: ten thousand bad records, then a good one.
fn ten_thousand_in_a_row(world: &mut World, make: &mut Maker) -> Result<()> {
    let mut facts: Vec<Fact> = (0..10_000)
        .map(|number| {
            let bad = make.good(&format!("bad record {number}")).with("ce-id", number.to_string());
            bad.quarantined("bad_id")
        })
        .collect();
    facts.push(make.good("a good one behind ten thousand bad ones"));
    world.produce(&facts)?;
    world.settle(SETTLED)?;
    let counts = world.check(Delivered::Once)?.counts();
    ensure!(counts.quarantined["bad_id"] >= 10_000, "{counts:?}");
    let quarantined: usize = counts.quarantined.values().sum();
    world.hub.wait_metrics(COUNTED, |metrics| {
        let found = metrics.count("streaming_hub_quarantined_total");
        let state = || format!("the hub counts {found} of {quarantined} quarantined");
        if found == quarantined as u64 { Ok(()) } else { Err(state()) }
    })
}
