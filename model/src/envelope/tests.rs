//! Verdicts: the fixtures first, then each rule of the contract as a table, then arbitrary bytes.

use super::*;
use crate::follow::FollowPolicy;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use serde_json::Value;

/// Headers and value of a test record, owned.
#[derive(Debug, Clone)]
struct Record {
    topic: String,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    value: Option<Vec<u8>>,
}

impl Record {
    /// A well-formed record of `ledger`.
    fn good() -> Self {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-id", "01a0c450-6d12-7c2b-8128-9b05b624f924"),
            ("ce-source", "ledger"),
            ("ce-type", "studio.lerian.ledger.account.created"),
            ("ce-time", "2026-09-21T14:13:02.000015838Z"),
            ("ce-schemaversion", "2.1.0"),
            ("ce-resourcetype", "account"),
            ("ce-eventtype", "created"),
            ("ce-tenantid", "acme"),
        ];
        let headers = headers.iter().map(|(n, v)| ((*n).into(), Some((*v).into()))).collect();
        Self { topic: "lerian.streaming.ledger".into(), headers, value: Some(b"{}".to_vec()) }
    }

    /// A well-formed record of the older layout.
    fn good_v1() -> Self {
        Self::good()
            .on("lerian.streaming.account.created")
            .with("ce-source", "//lerian.midaz/transaction-service")
            .with("ce-type", "studio.lerian.account.created")
    }

    fn on(mut self, topic: &str) -> Self {
        topic.clone_into(&mut self.topic);
        self
    }

    fn with(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let mut record = self.without(name);
        record.headers.push((name.into(), Some(value.as_ref().into())));
        record
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| n != name.as_bytes());
        self
    }

    fn carrying(mut self, value: Option<Vec<u8>>) -> Self {
        self.value = value;
        self
    }

    /// Runs `check` on the verdict, which borrows from here.
    fn judged<T>(&self, policy: &IngestPolicy, check: impl FnOnce(Verdict<'_>) -> T) -> T {
        let headers: Vec<HeaderRef> =
            self.headers.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect();
        let value = self.value.as_deref();
        check(classify(&RawRecord { topic: &self.topic, headers: &headers, value }, policy))
    }

    /// `accept`, `drop`, `not_followed`, or the reason code of a quarantine.
    fn verdict(&self, policy: &IngestPolicy) -> String {
        self.judged(policy, |verdict| match verdict {
            Verdict::Accept(_) => "accept".to_owned(),
            Verdict::Drop => "drop".to_owned(),
            Verdict::NotFollowed => "not_followed".to_owned(),
            Verdict::Quarantine(quarantine) => {
                assert!(!quarantine.detail.is_empty());
                assert!(quarantine.detail.len() <= DETAIL_BYTES_MAX);
                quarantine.reason.as_str().to_owned()
            }
        })
    }
}

fn fixtures(name: &str) -> Vec<Value> {
    let path = format!("{}/../fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let lines = std::fs::read_to_string(path).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn expected(line: &Value) -> String {
    let reason = line.get("reason").unwrap_or(&line["verdict"]);
    reason.as_str().unwrap().to_owned()
}

fn real_record(line: &Value) -> Record {
    let bytes = |v: &Value| v.as_str().map(|text| BASE64.decode(text).unwrap());
    let header = |h: &Value| (h[0].as_str().unwrap().into(), bytes(&h[1]));
    Record {
        topic: line["topic"].as_str().unwrap().to_owned(),
        headers: line["headers"].as_array().unwrap().iter().map(header).collect(),
        value: bytes(&line["value_b64"]),
    }
}

fn made_record(line: &Value) -> Record {
    let headers = line["headers"].as_object().unwrap().iter();
    Record {
        topic: line["topic"].as_str().unwrap().to_owned(),
        headers: headers
            .map(|(name, v)| (name.as_bytes().into(), v.as_str().map(|v| v.as_bytes().into())))
            .collect(),
        value: Some(line["payload"].to_string().into_bytes()),
    }
}

fn v1_policy() -> IngestPolicy {
    let follow = FollowPolicy { follow_v1: true, follow_extra: vec!["midaz.*".to_owned()] };
    IngestPolicy { follow: FollowSet::new(&follow).unwrap(), ..IngestPolicy::default() }
}

fn single_tenant_policy() -> IngestPolicy {
    let default_tenant = Some(TenantId::parse("the-one").unwrap());
    IngestPolicy { default_tenant, ..IngestPolicy::default() }
}

#[test]
fn every_verdict_fixture_gets_the_verdict_written_there() {
    let policy = IngestPolicy::default();
    let lines = fixtures("verdicts.jsonl");
    assert!(lines.len() > 30);
    for line in lines {
        assert_eq!(made_record(&line).verdict(&policy), expected(&line), "{}", line["name"]);
    }
}

#[test]
fn every_real_record_gets_the_verdict_written_there() {
    let policy = IngestPolicy::default();
    let lines = fixtures("real-records.jsonl");
    assert_eq!(lines.len(), 77);
    for line in lines {
        let place = format!("{} {}", line["topic"], line["offset"]);
        assert_eq!(real_record(&line).verdict(&policy), expected(&line), "{place}");
    }
}

#[test]
fn every_demo_event_is_accepted() {
    for line in fixtures("events.jsonl") {
        assert_eq!(made_record(&line).verdict(&IngestPolicy::default()), "accept");
    }
}

#[test]
fn following_v1_adds_the_one_v1_record_and_changes_no_other_verdict() {
    let policy = v1_policy();
    for line in fixtures("real-records.jsonl") {
        let billing = line["topic"] == "lerian.streaming.billing.recorded";
        let wanted = if billing { "accept".to_owned() } else { expected(&line) };
        assert_eq!(real_record(&line).verdict(&policy), wanted, "{}", line["topic"]);
    }
}

#[test]
fn an_accepted_record_is_read_in_full() {
    let record = Record::good()
        .with("ce-id", "01A0C450-6D12-7C2B-8128-9B05B624F924")
        .with("ce-subject", "conta/é")
        .with("ce-dataschema", "https://schemas.example.com/a");
    record.judged(&IngestPolicy::default(), |verdict| {
        let Verdict::Accept(envelope) = verdict else { unreachable!("{verdict:?}") };
        assert_eq!(envelope.id.to_string(), "01a0c450-6d12-7c2b-8128-9b05b624f924");
        assert_eq!((envelope.tenant, envelope.source), ("acme", "ledger"));
        assert_eq!((envelope.resource, envelope.event), ("account", "created"));
        assert_eq!(envelope.event_type, "studio.lerian.ledger.account.created");
        assert_eq!(envelope.time, "2026-09-21T14:13:02.000015838Z");
        assert_eq!(envelope.time_ms, 1_789_999_982_000);
        assert_eq!((envelope.schema_version, envelope.major), ("2.1.0", 2));
        assert_eq!(envelope.subject, Some("conta/é"));
        assert_eq!(envelope.content_type, DEFAULT_CONTENT_TYPE);
        assert_eq!(envelope.dataschema, Some("https://schemas.example.com/a"));
    });
}

#[test]
fn each_fault_has_its_reason() {
    let (good, policy) = (Record::good, IngestPolicy::default());
    let long = |len: usize| "s".repeat(len);
    let table = [
        (good().with("ce-specversion", "1.0 "), "bad_specversion"),
        (good().with("ce-specversion", b"\xff"), "bad_specversion"),
        (good().with("ce-id", b"\xff"), "bad_id"),
        (good().with("ce-id", ""), "missing_header"),
        (good().with("ce-source", "Ledger"), "bad_source"),
        (good().with("ce-source", long(224)), "bad_source"),
        (good().with("ce-source", "lender"), "source_mismatch"),
        (good().with("ce-resourcetype", "a.b"), "bad_segment"),
        (good().with("ce-resourcetype", " a"), "bad_segment"),
        (good().with("ce-eventtype", "a\u{85}b"), "bad_segment"),
        (good().with("ce-eventtype", long(129)), "bad_segment"),
        (good().with("ce-eventtype", b"\xc3"), "bad_segment"),
        (good().with("ce-type", "studio.lerian.ledger.account.created.x"), "bad_type"),
        (good().with("ce-type", "studio.lerian.ledger..created"), "bad_type"),
        (good().with("ce-type", "studio.lerian.account.created"), "bad_type"),
        (good().with("ce-type", "Studio.lerian.ledger.account.created"), "bad_type"),
        (good().with("ce-type", "studio.lerian."), "bad_type"),
        (good().with("ce-type", b"studio.lerian.ledger.account.\xff"), "bad_type"),
        (good().with("ce-type", "studio.lerian.ledger.account.Created"), "type_mismatch"),
        (good().with("ce-time", "2026-02-30T00:00:00Z"), "bad_time"),
        (good().with("ce-time", b"\xff"), "bad_time"),
        (good().with("ce-schemaversion", "02.1.0"), "bad_schemaversion"),
        (good().with("ce-schemaversion", "65536"), "bad_schemaversion"),
        (good().with("ce-subject", long(1025)), "bad_header"),
        (good().with("ce-subject", b"\xff"), "bad_header"),
        (good().with("ce-datacontenttype", long(257)), "bad_header"),
        (good().with("ce-dataschema", long(2049)), "bad_header"),
        (good().with("ce-tenantid", long(257)), "bad_tenant"),
        (good().with("ce-tenantid", "a "), "bad_tenant"),
        (good().with("ce-tenantid", b"a\xff"), "bad_tenant"),
        (good().without("ce-tenantid"), "missing_tenant"),
    ];
    for (record, reason) in table {
        assert_eq!(record.verdict(&policy), reason, "{record:?}");
    }
}

#[test]
fn limits_are_inclusive_and_odd_optional_values_are_carried() {
    let long = |len: usize| "s".repeat(len);
    let name = long(223);
    let longest_source = Record::good()
        .on(&format!("lerian.streaming.{name}"))
        .with("ce-source", &name)
        .with("ce-type", format!("studio.lerian.{name}.account.created"));
    for record in [
        longest_source,
        Record::good().with("ce-subject", long(1024)),
        Record::good().with("ce-datacontenttype", long(256)),
        Record::good().with("ce-datacontenttype", "no media type at all"),
        Record::good().with("ce-dataschema", long(2048)),
        Record::good().with("ce-subject", ""),
        Record::good().with("traceparent", b"\xff"),
        Record::good().with("ce-sig", b"\xff\xfe"),
    ] {
        assert_eq!(record.verdict(&IngestPolicy::default()), "accept", "{record:?}");
    }
}

#[test]
fn an_event_without_data_is_legal_and_the_payload_limit_is_inclusive() {
    let policy = IngestPolicy::default();
    let carrying = |value| Record::good().carrying(value).verdict(&policy);
    assert_eq!(carrying(None), "accept");
    assert_eq!(carrying(Some(vec![])), "accept");
    assert_eq!(carrying(Some(vec![0xff; PAYLOAD_BYTES_MAX])), "accept");
    assert_eq!(carrying(Some(vec![0; PAYLOAD_BYTES_MAX + 1])), "payload_too_large");
}

#[test]
fn a_system_event_is_dropped_however_malformed_it_is() {
    let policy = IngestPolicy::default();
    let only_flag = Record { headers: vec![], ..Record::good() }.with("ce-systemevent", "true");
    assert_eq!(only_flag.verdict(&policy), "drop");
    assert_eq!(Record::good().with("ce-systemevent", "true").verdict(&policy), "drop");
    for flag in ["TRUE", "true ", "1", "false", ""] {
        assert_eq!(Record::good().with("ce-systemevent", flag).verdict(&policy), "accept");
    }
    let mut repealed = Record::good().with("ce-systemevent", "true");
    repealed.headers.push((b"ce-systemevent".to_vec(), None));
    assert_eq!(repealed.verdict(&policy), "accept");
}

#[test]
fn the_default_tenant_stands_in_for_a_missing_one_only() {
    let policy = single_tenant_policy();
    for record in [Record::good().without("ce-tenantid"), Record::good().with("ce-tenantid", "")] {
        let is_default =
            |verdict: Verdict<'_>| matches!(verdict, Verdict::Accept(e) if e.tenant == "the-one");
        assert!(record.judged(&policy, is_default));
    }
    assert_eq!(Record::good().with("ce-tenantid", " a").verdict(&policy), "bad_tenant");
    let own = |verdict: Verdict<'_>| matches!(verdict, Verdict::Accept(e) if e.tenant == "acme");
    assert!(Record::good().judged(&policy, own));
}

#[test]
fn a_missing_tenant_is_reported_only_when_nothing_else_is_wrong() {
    let policy = IngestPolicy::default();
    let record = Record::good().without("ce-tenantid").with("ce-time", "now");
    assert_eq!(record.verdict(&policy), "bad_time");
    let large = Record::good().without("ce-tenantid").carrying(Some(vec![0; 2 << 20]));
    assert_eq!(large.verdict(&policy), "payload_too_large");
}

#[test]
fn the_older_layout_is_read_by_its_own_rules() {
    let (good, policy) = (Record::good_v1, v1_policy());
    let five = "studio.lerian.billing-api.account.created";
    let table = [
        (good(), "accept"),
        (good().on("midaz.account.created"), "accept"),
        (good().on("midaz.ledger.account.created"), "accept"),
        (good().with("ce-source", "svc://ledger"), "accept"),
        (good().with("ce-source", "lerian.midaz.ledger"), "accept"),
        (good().with("ce-source", "billing-api").with("ce-type", five), "accept"),
        (good().on("lerian.streaming.account.created.v2"), "accept"),
        (good().with("ce-systemevent", "true"), "drop"),
        (good().with("ce-source", ""), "missing_header"),
        (good().with("ce-source", b"\xff"), "bad_source"),
        (good().with("ce-type", five), "type_mismatch"),
        (good().with("ce-type", "studio.lerian.account.deleted"), "type_mismatch"),
        (good().with("ce-type", "studio.lerian.account"), "bad_type"),
        (good().with("ce-type", "studio.lerian.account."), "bad_type"),
        (good().on("lerian.streaming.account.deleted"), "topic_mismatch"),
        (good().on("lerian.streaming.account.created.v3"), "topic_mismatch"),
        (good().without("ce-tenantid"), "missing_tenant"),
        (good().on("lerian.streaming.account.commands"), "not_followed"),
        (good().on("lerian.streaming.ledger"), "bad_source"),
    ];
    for (record, verdict) in table {
        assert_eq!(record.verdict(&policy), verdict, "{record:?}");
    }
    assert_eq!(good().verdict(&IngestPolicy::default()), "not_followed");
}

#[test]
fn a_detail_names_the_header_and_stays_printable() {
    let detail = |record: Record| {
        record.judged(&IngestPolicy::default(), |verdict| match verdict {
            Verdict::Quarantine(quarantine) => quarantine.detail,
            Verdict::Accept(_) | Verdict::Drop | Verdict::NotFollowed => String::new(),
        })
    };
    assert_eq!(detail(Record::good().without("ce-id")), "ce-id is missing or empty");
    assert_eq!(
        detail(Record::good().with("ce-source", b"a\n\xff\xc3")),
        "ce-source is no UTF-8: \"a\\n\\xff\\xc3\""
    );
    let long = detail(Record::good().with("ce-time", "\u{1f}".repeat(5000)));
    assert!(long.contains("(5000 bytes)"), "{long}");
    assert!(!long.chars().any(char::is_control));
    let subject = detail(Record::good().with("ce-subject", "joão".repeat(500)));
    assert_eq!(subject, "ce-subject has 2500 bytes, the limit is 1024");
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let known = "ce-(specversion|id|source|type|time|schemaversion|resourcetype|eventtype|tenantid\
                 |subject|datacontenttype|dataschema|systemevent)";
    prop_oneof![known.prop_map(String::into_bytes), any::<Vec<u8>>()]
}

proptest! {
    #[test]
    fn every_record_of_a_followed_topic_gets_a_verdict(
        headers in prop::collection::vec((any_name(), prop::option::of(any::<Vec<u8>>())), 0..20),
        value: Option<Vec<u8>>,
        topic in "(lerian\\.streaming\\.[a-z]{1,3}|midaz\\.a\\.b|lerian\\.streaming\\.a\\.b)",
        on_top_of_a_good_one: bool,
    ) {
        let mut record = if on_top_of_a_good_one { Record::good() } else { Record::good_v1() };
        record.headers.extend(headers);
        let record = record.on(&topic).carrying(value);
        prop_assert_ne!(record.verdict(&v1_policy()), "not_followed");
    }

    #[test]
    fn headers_that_are_not_in_the_table_never_change_a_verdict(
        extra in prop::collection::vec(
            ("(ce-[x-z][a-z]{0,5}|CE-ID|ce-|x-[a-z]{1,4}|)", any::<Option<Vec<u8>>>(), 0usize..9),
            0..6,
        ),
        line in prop::sample::select(fixtures("verdicts.jsonl")),
    ) {
        let policy = IngestPolicy::default();
        let mut record = made_record(&line);
        for (name, value, at) in extra {
            let at = at.min(record.headers.len());
            record.headers.insert(at, (name.into_bytes(), value));
        }
        prop_assert_eq!(record.verdict(&policy), expected(&line));
    }

    #[test]
    fn a_repeated_header_counts_as_its_last_occurrence(
        line in prop::sample::select(fixtures("verdicts.jsonl")), noise: Option<Vec<u8>>,
    ) {
        let record = made_record(&line);
        let mut repeated = record.clone();
        let earlier = record.headers.iter().map(|(name, _)| (name.clone(), noise.clone()));
        repeated.headers.splice(0..0, earlier);
        prop_assert_eq!(repeated.verdict(&IngestPolicy::default()), expected(&line));
    }
}
