//! Every rule of the validation: a configuration that breaks it and what is said then.

use super::load::Sources;
use super::problem::Problem;

const KEY: &str = "encryption.key=c3RyZWFtaW5nLWh1Yi1kZXZlbG9wbWVudC1rZXktMzI=";

fn problems(assignments: &[&str]) -> Vec<Problem> {
    let set = [KEY].iter().chain(assignments).map(ToString::to_string).collect();
    let loaded = Sources { set, ..Sources::default() }.load().unwrap();
    loaded.checked().err().map_or(Vec::new(), |problems| problems.0)
}

/// One problem, with this key, that says this.
fn assert_refused(assignments: &[&str], key: &str, wrong: &str) {
    let found = problems(assignments);
    assert_eq!(found.len(), 1, "{assignments:?}: {found:#?}");
    let problem = &found[0];
    assert_eq!(problem.key, key, "{assignments:?}");
    assert!(problem.wrong.contains(wrong), "{assignments:?}: {problem}");
    assert!(!problem.remedy.is_empty(), "{assignments:?}");
}

#[test]
fn with_a_key_the_defaults_are_sound() {
    assert_eq!(problems(&[]), []);
}

#[test]
fn names_have_a_narrow_alphabet() {
    assert_refused(&["application_id=a b"], "application_id", "is no name");
    assert_refused(&["application_id="], "application_id", "is no name");
    let long = format!("instance_id={}", "x".repeat(101));
    assert_refused(&[&long], "instance_id", "is no name");
    assert_refused(&["encryption.key_id=k/1"], "encryption.key_id", "is no name");
    assert_refused(&["state_dir="], "state_dir", "is empty");
    assert_eq!(problems(&["application_id=Hub_1.eu-west", "instance_id=pod-0"]), []);
}

#[test]
fn every_number_has_its_range() {
    for (key, least, most) in super::validate::BOUNDS {
        for value in [least - 1, most + 1] {
            let found = problems(&[&format!("{key}={value}")]);
            let about = found.iter().filter(|problem| problem.key == *key);
            let texts: Vec<_> = about.map(|problem| problem.wrong.as_str()).collect();
            let said = |part: &str| texts.iter().any(|text| text.contains(part));
            assert!(said("is outside") || said("is out of range"), "{key}={value}: {found:#?}");
            assert_eq!(texts.len(), 1, "{key}={value}: {found:#?}");
        }
    }
}

#[test]
fn roles_are_known_and_at_least_one() {
    assert_refused(&["roles="], "roles", "names no role");
    assert_refused(&["roles=ingest,mach,deliver"], "roles", "[\"mach\", \"deliver\"]");
}

#[test]
fn brokers_are_hosts_with_ports() {
    let key = "kafka.bootstrap_servers";
    for bad in ["", "kafka", "kafka:", ":9092", "a:1,,b:2", "a:99999", "a b:1", "a:0"] {
        assert_refused(&[&format!("{key}={bad}")], key, "no `host:port`");
    }
    assert_eq!(problems(&["kafka.bootstrap_servers=a:1, b.example:9092,[::1]:9092"]), []);
}

#[test]
fn properties_that_the_hub_sets_are_refused_with_what_to_do() {
    for (property, instead) in super::kafka::OWNED {
        let key = format!("kafka.properties.{property}");
        assert_refused(&[&format!("{key}=1000")], &key, "is set by the hub itself");
        let remedy = &problems(&[&format!("{key}=1000")])[0].remedy;
        assert!(remedy.contains(instead));
    }
}

#[test]
fn properties_that_librdkafka_does_not_know_or_accept_are_refused() {
    let refused = "is refused by librdkafka";
    let unknown = "kafka.properties.sasl.usrname";
    assert_refused(&[&format!("{unknown}=x")], unknown, refused);
    let protocol = "kafka.properties.security.protocol";
    assert_refused(&[&format!("{protocol}=tls")], protocol, refused);
    assert_eq!(problems(&["kafka.properties.security.protocol=sasl_ssl"]), []);
}

#[test]
fn a_socket_outlasts_no_transaction() {
    let key = "kafka.properties.socket.timeout.ms";
    assert_refused(&[&format!("{key}=10001")], key, "runtime.transaction_timeout_ms");
    assert_eq!(problems(&[&format!("{key}=10000")]), []);
}

#[test]
fn further_topics_obey_the_rule_of_the_model() {
    for bad in ["a b", "*", "lerian.*.x", "^crm", "crm.account.commands"] {
        let set = format!("ingest.follow_extra={bad}");
        assert_refused(&[&set], "ingest.follow_extra", "is refused");
    }
    assert_eq!(problems(&["ingest.follow_extra=billing.account.created,crm.*"]), []);
}

#[test]
fn a_tenant_obeys_the_rule_of_the_envelope() {
    assert_refused(&["ingest.default_tenant= x"], "ingest.default_tenant", "no space");
}

#[test]
fn time_outs_stand_in_their_order() {
    let cases: [(&[&str], &str, &str); 9] = [
        (
            &["runtime.heartbeat_interval_ms=3334"],
            "runtime.heartbeat_interval_ms",
            "less than a third of runtime.session_timeout_ms",
        ),
        (
            &["runtime.session_timeout_ms=60001"],
            "runtime.session_timeout_ms",
            "runtime.max_poll_interval_ms",
        ),
        (
            &["runtime.transaction_timeout_ms=60001", "runtime.watchdog_ms=200000"],
            "runtime.transaction_timeout_ms",
            "runtime.max_poll_interval_ms",
        ),
        (
            &["runtime.transaction_timeout_ms=30001"],
            "runtime.transaction_timeout_ms",
            "half of runtime.watchdog_ms",
        ),
        (
            &["runtime.commit_interval_ms=2501"],
            "runtime.commit_interval_ms",
            "a quarter of runtime.transaction_timeout_ms",
        ),
        (&["webhook.connect_timeout_ms=10001"], "webhook.connect_timeout_ms", "webhook.timeout_ms"),
        (
            &["webhook.timeout_ms=30000", "delivery.lease_ms=34000"],
            "webhook.timeout_ms",
            "less than api.request_timeout_ms",
        ),
        (&["webhook.timeout_ms=11001"], "webhook.timeout_ms", "delivery.lease_ms less 4 s"),
        (&["breaker.open_ms=600001"], "breaker.open_ms", "breaker.open_ms_max"),
    ];
    for (assignments, key, other) in cases {
        assert_refused(assignments, key, other);
    }
    let alone = ["webhook.timeout_ms=30000", "delivery.lease_ms=34000", "roles=delivery"];
    assert_eq!(problems(&alone), []);
    let equal = ["runtime.heartbeat_interval_ms=3333", "runtime.transaction_timeout_ms=30000"];
    assert_eq!(problems(&equal), []);
}

#[test]
fn sizes_fit_into_each_other() {
    let cases = [
        ("runtime.uncommitted_bytes_max=8388607", "runtime.commit_bytes", "uncommitted_bytes_max"),
        ("delivery.attempt_bytes_in_flight=1048575", "ingest.payload_bytes_max", "in_flight"),
        ("runtime.producer_queue_kbytes=2047", "ingest.payload_bytes_max", "producer_queue"),
    ];
    for (assignment, key, other) in cases {
        assert_refused(&[assignment], key, other);
    }
}

#[test]
fn a_number_outside_its_range_says_nothing_about_others() {
    assert_refused(&["runtime.session_timeout_ms=0"], "runtime.session_timeout_ms", "is outside");
}

#[test]
fn a_retry_schedule_obeys_the_rule_of_the_model() {
    let key = "delivery.retry_schedule_ms";
    assert_refused(&[&format!("{key}=")], key, "1 to 12 steps");
    assert_refused(&[&format!("{key}=0,36000001")], key, "10 h");
}

#[test]
fn the_encryption_key_is_32_bytes_given_once() {
    let key = "encryption.key";
    assert_refused(&["encryption.key=aGVsbG8="], key, "is no key");
    assert!(problems(&["encryption.key=x"])[0].remedy.contains("openssl rand -base64 32"));
    assert_refused(&["encryption.key="], key, "is empty");
    assert_refused(&["encryption.key_file=/nowhere"], key, "is set, and so is");
    let file = "encryption.key_file";
    assert_refused(&["encryption.key=", "encryption.key_file=/nowhere"], file, "cannot be read");
    let held = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(held.path(), KEY.split_once('=').unwrap().1.to_owned() + "\n").unwrap();
    let held = format!("{file}={}", held.path().display());
    assert_eq!(problems(&["encryption.key=", &held]), []);
}

#[test]
fn roles_without_secrets_need_no_key() {
    assert_eq!(problems(&["encryption.key=", "roles=ingest,match,registry"]), []);
    assert_refused(&["encryption.key=", "roles=api"], "encryption.key", "is empty");
    assert_refused(&["encryption.key=", "roles=delivery"], "encryption.key", "is empty");
}

#[test]
fn addresses_and_networks_are_well_formed() {
    assert_refused(&["api.listen=localhost"], "api.listen", "invalid socket address");
    for bad in ["here", "ftp://hub", "http://u:p@hub", "http://hub?x=1"] {
        let set = format!("api.advertised_url={bad}");
        assert_refused(&[&set], "api.advertised_url", "is no");
    }
    let networks = "sinks.allow_cidrs=10.0.0.0/33,x,::1";
    assert_refused(&[networks], "sinks.allow_cidrs", "[\"10.0.0.0/33\", \"x\"]");
    assert_eq!(problems(&["api.advertised_url=https://hub-0.hub:8443"]), []);
}

#[test]
fn certificate_authorities_are_a_readable_pem_file() {
    assert_refused(&["webhook.ca_file=/nowhere"], "webhook.ca_file", "cannot be read");
    let file = tempfile::NamedTempFile::new().unwrap();
    let set = format!("webhook.ca_file={}", file.path().display());
    assert_refused(&[&set], "webhook.ca_file", "holds no certificate");
    std::fs::write(file.path(), "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert_eq!(problems(&[&set]), []);
}

#[test]
fn tokens_are_checked_part_by_part() {
    let digest = "0f".repeat(32);
    let good = format!("name=\"a\",role=\"tenant\",tenant=\"acme\",sha256=\"{digest}\"");
    let other = format!("name=\"b\",role=\"operator\",sha256=\"{}\"", "1F".repeat(32));
    let tokens = |items: &[&str]| {
        let items: Vec<_> = items.iter().map(|item| format!("{{{item}}}")).collect();
        format!("api.tokens=[{}]", items.join(","))
    };
    assert_eq!(problems(&[&tokens(&[&good, &other])]), []);
    let without_tenant = good.replace(",tenant=\"acme\"", "");
    let cases = [
        (without_tenant.as_str(), "has the role `tenant` and no `tenant`"),
        (&good.replace("\"acme\"", "\" acme\""), "has a bad tenant: a tenant id has no space"),
        (&good.replace("\"tenant\"", "\"operator\""), "has the role `operator` and a `tenant`"),
        (&good.replace("0f", "0g"), "not 64 hex digits"),
        (&good.replace(&digest, "0f"), "not 64 hex digits but 2 bytes"),
        (&good.replace("\"a\"", "\" \""), "has no name"),
    ];
    for (token, wrong) in cases {
        assert_refused(&[&tokens(&[token])], "api.tokens[0]", wrong);
    }
    let twin = good.replace("\"a\"", "\"c\"");
    assert_refused(&[&tokens(&[&good, &twin])], "api.tokens[1]", "is the same token as \"a\"");
    let namesake = other.replace("\"b\"", "\"a\"");
    assert_refused(&[&tokens(&[&good, &namesake])], "api.tokens[1]", "the name of another token");
    let both = tokens(&[&good.replace("0f", "0g").replace("\"acme\"", "\"\"")]);
    assert_eq!(problems(&[&both]).len(), 2);

    let role = good.replace("\"tenant\"", "\"admin\"");
    assert_refused(&[&tokens(&[&role])], "api.tokens[0].role", "is not one of tenant, operator");
    let extra = format!("{good},scope=\"x\"");
    assert_refused(&[&tokens(&[&extra])], "api.tokens[0].scope", "is not part of a token");
    let bare = "name=\"a\",role=\"operator\"";
    assert_refused(&[&tokens(&[&other, bare])], "api.tokens[1]", "has no `sha256`");
    assert_refused(&["api.tokens=a,b"], "api.tokens", "must be a list of tables");
}

#[test]
fn a_log_filter_parses() {
    assert_refused(&["log.filter=a=b=c"], "log.filter", "is no filter");
    assert_eq!(problems(&["log.filter=info,streaming_hub_sinks=debug"]), []);
}

#[test]
fn a_cluster_has_a_long_key_and_names_its_hosts() {
    let key = format!("cluster.key={}", "k".repeat(32));
    assert_eq!(problems(&[&key, "cluster.hosts=hub-a,*.hub.svc,10.0.0.0/8,::1"]), []);
    assert_refused(&[&key], "cluster.hosts", "is empty");
    assert_refused(&["cluster.hosts=hub-a"], "cluster.hosts", "without a key");
    assert_refused(&[&key, "cluster.hosts=http://hub-a"], "cluster.hosts", "http://hub-a");
    assert_refused(&["cluster.key=short", "cluster.hosts=a"], "cluster.key", "too short");
    assert_refused(&[&key, "cluster.key_file=/none"], "cluster.key", "cluster.key_file");
    assert_refused(&["cluster.key_file=/none"], "cluster.key_file", "cannot be read");
}

/// What of the configuration goes into its budget of memory, bytes, with five stream threads.
fn parts_of(assignments: &[&str]) -> (u64, [u64; 5]) {
    let sources = Sources {
        set: assignments.iter().map(ToString::to_string).collect(),
        ..Sources::default()
    };
    let runtime = sources.load().unwrap().config.runtime;
    let parts = [
        runtime.block_cache_bytes as u64,
        runtime.memtable_bytes as u64,
        5 * 1_024 * u64::from(runtime.fetch_queue_kbytes),
        5 * 1_024 * u64::from(runtime.producer_queue_kbytes),
        5 * runtime.uncommitted_bytes_max as u64,
    ];
    (runtime.memory_bytes, parts)
}

#[test]
fn the_default_file_names_the_shares_of_the_default_budget() {
    let defaults: toml::Table = super::keys::DEFAULT_FILE.parse().unwrap();
    let written = |key: &str| defaults["runtime"][key].as_integer().unwrap().unsigned_abs();
    let (budget, parts) = parts_of(&[]);
    assert_eq!(budget, parts.iter().sum::<u64>());
    assert_eq!((parts[0], parts[1]), (written("block_cache_bytes"), written("memtable_bytes")));
    assert_eq!(parts[2], 5 * 1_024 * written("fetch_queue_kbytes"));
    assert_eq!(parts[3], 5 * 1_024 * written("producer_queue_kbytes"));
    assert_eq!(parts[4], 5 * written("uncommitted_bytes_max"));
}

#[test]
fn a_budget_is_shared_out_among_what_is_not_set_by_itself() {
    let (_, default) = parts_of(&[]);
    let (_, twice) = parts_of(&["runtime.memory_bytes=838860800"]);
    assert_eq!(twice, default.map(|part| 2 * part));
    let (budget, parts) = parts_of(&["runtime.block_cache_bytes=8388608"]);
    assert_eq!(parts[0], 8_388_608);
    assert!(parts[1] > default[1] && parts.iter().sum::<u64>() <= budget, "{parts:?}");
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_what_is_needed() {
    let key = "runtime.memory_bytes";
    assert_refused(&["runtime.memory_bytes=33554432"], key, "5 stream threads take at least");
    let found = problems(&["runtime.block_cache_bytes=419430400"]);
    let small = |problem: &Problem| problem.key == key && problem.wrong.contains("is too small");
    assert!(found.iter().any(small), "{found:#?}");
    assert_refused(&["topics.partitions=1000"], key, "4000 stores of 1000 partitions");
    assert_eq!(problems(&["topics.partitions=200"]), []);
    let few = ["roles=ingest", "topics.partitions=1000", "runtime.memory_bytes=104857600"];
    assert_eq!(problems(&few), []);
}
