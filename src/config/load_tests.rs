//! Layering, unknown names, masks, and that the default file and the structs name the same keys.

use std::collections::BTreeSet;

use secrecy::ExposeSecret as _;

use super::keys::{Keys, leaves};
use super::load::{Loaded, Sources};
use super::problem::Problem;
use super::values::{LogFormat, Role, Start};

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn environment(variables: &[(&str, &str)]) -> Sources {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), value.into());
    Sources { environment: variables.iter().map(owned).collect(), ..Sources::default() }
}

fn set(assignments: &[&str]) -> Sources {
    Sources { set: assignments.iter().map(ToString::to_string).collect(), ..Sources::default() }
}

/// What is wrong, the missing encryption key of the defaults apart.
fn problems(loaded: Loaded) -> Vec<Problem> {
    let mut problems = loaded.checked().err().map_or(Vec::new(), |problems| problems.0);
    problems.retain(|problem| problem.key != "encryption.key");
    problems
}

#[test]
fn the_default_file_and_the_structs_name_the_same_keys() {
    let loaded = Sources::default().load().unwrap();
    let written = toml::Table::try_from(&loaded.config).unwrap();
    let keys = |table| leaves(table).into_iter().map(|(path, _)| path.join(".")).collect();
    let (in_struct, in_file): (BTreeSet<String>, BTreeSet<String>) =
        (keys(&written), keys(&Keys::embedded().unwrap().defaults));
    assert_eq!(in_struct, in_file);
}

#[test]
fn the_defaults_lack_nothing_but_the_encryption_key() {
    let loaded = Sources::default().load().unwrap();
    assert_eq!(loaded.config.topics.partitions, 8);
    assert_eq!(loaded.config.ingest.start, Start::Earliest);
    assert_eq!(loaded.config.ingest.default_tenant, None);
    assert_eq!(loaded.config.instance_id, None);
    let problems = loaded.checked().unwrap_err();
    assert_eq!(problems.0.len(), 1, "{problems}");
    assert!(problems.to_string().contains("openssl rand -base64 32"));
}

#[test]
fn a_later_layer_wins_value_by_value() {
    let file = file(
        "application_id = \"file\"\n[topics]\npartitions = 1\nreplication_factor = 1\n\
         auto_create = false\n[dedup]\nhorizon_hours = 1\n",
    );
    let mut sources = environment(&[
        ("STREAMING_HUB_TOPICS__PARTITIONS", "2"),
        ("STREAMING_HUB_TOPICS__REPLICATION_FACTOR", "2"),
        ("STREAMING_HUB_ROLES", "ingest"),
        ("PATH", "/bin"),
    ]);
    sources.file = Some(file.path().into());
    sources.set = vec!["topics.partitions=3".into(), "topics.partitions=4".into()];
    sources.roles = Some(vec!["match".into()]);
    let loaded = sources.load().unwrap();
    let config = &loaded.config;
    assert_eq!((config.topics.partitions, config.topics.replication_factor), (4, 2));
    assert!(!config.topics.auto_create);
    assert_eq!((config.application_id.as_str(), config.dedup.horizon_hours), ("file", 1));
    assert!(config.roles.has(Role::Match) && !config.roles.has(Role::Ingest));
    assert_eq!(config.runtime.commit_interval_ms, 100);

    let shown = loaded.to_toml_with_origins().unwrap();
    let lines = [
        "topics.partitions = 4  # --set".to_owned(),
        "topics.replication_factor = 2  # environment STREAMING_HUB_TOPICS__REPLICATION_FACTOR"
            .to_owned(),
        format!("dedup.horizon_hours = 1  # file {}", file.path().display()),
        "roles = [\"match\"]  # --roles".to_owned(),
        "runtime.commit_interval_ms = 100  # default".to_owned(),
        "api.advertised_url = \"http://127.0.0.1:8080\"  # api.listen".to_owned(),
    ];
    for line in lines {
        assert!(shown.lines().any(|shown| shown == line), "{line}\nnot in\n{shown}");
    }
}

#[test]
fn a_file_may_be_named_by_the_environment_and_the_flag_wins() {
    let (by_variable, by_flag) = (file("application_id = \"v\""), file("application_id = \"f\""));
    let name = by_variable.path().to_str().unwrap();
    let mut sources = environment(&[("STREAMING_HUB_CONFIG", name)]);
    assert_eq!(sources.load().unwrap().config.application_id, "v");
    sources.file = Some(by_flag.path().into());
    assert_eq!(sources.load().unwrap().config.application_id, "f");
    let empty = environment(&[("STREAMING_HUB_CONFIG", "")]);
    assert_eq!(empty.load().unwrap().config.application_id, "streaming-hub");
}

#[test]
fn text_of_the_environment_becomes_the_kind_of_its_setting() {
    let sources = environment(&[
        ("STREAMING_HUB_INSTANCE_ID", "1"),
        ("STREAMING_HUB_ALLOW_PRIVATE_SINKS", "true"),
        ("STREAMING_HUB_ENCRYPTION_KEY", "c3RyZWFtaW5nLWh1Yi1kZXZlbG9wbWVudC1rZXktMzI="),
        ("STREAMING_HUB_DELIVERY__RETRY_SCHEDULE_MS", "0,1_000,2000"),
        ("STREAMING_HUB_SINKS__ALLOW_CIDRS", "10.0.0.0/8, ::1"),
        ("STREAMING_HUB_INGEST__FOLLOW_EXTRA", "[\"crm.*\", 'billing.*']"),
        ("STREAMING_HUB_INGEST__DEFAULT_TENANT", "acme"),
        ("STREAMING_HUB_INGEST__START", "2026-01-31T01:00:00+01:00"),
        ("STREAMING_HUB_LOG__FORMAT", "json"),
        ("STREAMING_HUB_API__LISTEN", "[::]:9000"),
        ("STREAMING_HUB_KAFKA__PROPERTIES__SASL_USERNAME", "7"),
    ]);
    let config = sources.load().unwrap().checked().unwrap();
    assert_eq!(config.instance_id.as_deref(), Some("1"));
    assert!(config.sinks.allow_private);
    assert_eq!(config.encryption.key.unwrap().expose_secret().len(), 44);
    assert_eq!(Vec::<u64>::from(config.delivery.retry_schedule_ms), [0, 1_000, 2_000]);
    assert_eq!(config.sinks.allow_cidrs[1].to_string(), "::1/128");
    assert_eq!(config.ingest.follow_extra, ["crm.*", "billing.*"]);
    assert_eq!(config.ingest.default_tenant.unwrap().as_str(), "acme");
    assert_eq!(String::from(config.ingest.start), "2026-01-31T00:00:00Z");
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.api.advertised_url.as_str(), "http://[::]:9000/");
    let properties: Vec<_> = config.kafka.properties.iter().collect();
    assert_eq!(properties, [("sasl.username", "7")]);
}

#[test]
fn kafka_properties_merge_over_layers_quoted_or_not() {
    let file = file(
        "[kafka.properties]\n\"sasl.username\" = \"file\"\nsasl.password = \"file\"\n\
         \"socket.keepalive.enable\" = true\n\"socket.timeout.ms\" = 5000\n",
    );
    let mut sources = set(&["kafka.properties.sasl.password=a=b"]);
    sources.file = Some(file.path().into());
    let config = sources.load().unwrap().config;
    let properties: Vec<_> = config.kafka.properties.iter().collect();
    let expected = [
        ("sasl.password", "a=b"),
        ("sasl.username", "file"),
        ("socket.keepalive.enable", "true"),
        ("socket.timeout.ms", "5000"),
    ];
    assert_eq!(properties, expected);
}

#[test]
fn an_unknown_name_is_an_error_in_every_layer_and_names_the_nearest() {
    let file = file("partitions = 3\n[kafak]\nx = 1\n[topics]\npartition = 3\n");
    let mut sources = environment(&[("STREAMING_HUB_KAFKA_BOOTSTRAP_SERVERS", "a:1")]);
    sources.file = Some(file.path().into());
    sources.set = vec!["api.lisen=x".into(), "zzz.qqqqqqqqqqqq=1".into()];
    let found: Vec<_> = problems(sources.load().unwrap());
    let find = |key: &str| found.iter().find(|problem| problem.key == key).unwrap();
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(find("partitions").remedy.contains("`topics.partitions`"));
    assert!(find("kafak").remedy.contains("`kafka`"));
    assert!(find("topics.partition").remedy.contains("`topics.partitions`"));
    assert!(find("api.lisen").remedy.contains("`api.listen`"));
    assert!(find("zzz.qqqqqqqqqqqq").remedy.contains("config reference"));
    let variable = find("STREAMING_HUB_KAFKA_BOOTSTRAP_SERVERS");
    assert!(variable.remedy.contains("`STREAMING_HUB_KAFKA__BOOTSTRAP_SERVERS`"));
}

#[test]
fn variables_that_kubernetes_makes_for_a_service_are_passed_over() {
    let sources = environment(&[
        ("STREAMING_HUB_SERVICE_HOST", "10.0.0.1"),
        ("STREAMING_HUB_SERVICE_PORT", "80"),
        ("STREAMING_HUB_SERVICE_PORT_HTTP", "80"),
        ("STREAMING_HUB_PORT", "tcp://10.0.0.1:80"),
        ("STREAMING_HUB_API_PORT_8080_TCP", "tcp://10.0.0.1:80"),
        ("STREAMING_HUB_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ]);
    assert_eq!(problems(sources.load().unwrap()), []);
}

#[test]
fn a_value_of_the_wrong_form_is_reported_and_hides_no_other_problem() {
    let file = file("roles = 3\nkafka = 3\n[topics]\npartitions = \"many\"\n[dedup]\n");
    let mut sources = environment(&[
        ("STREAMING_HUB_TOPICS__AUTO_CREATE", "perhaps"),
        ("STREAMING_HUB_API__SUBSCRIPTIONS_PER_TENANT", "-1"),
        ("STREAMING_HUB_API__LISTEN", "here"),
        ("STREAMING_HUB_LOG__FORMAT", "xml"),
    ]);
    sources.file = Some(file.path().into());
    sources.set = vec!["ingest.start=never".into(), "dedup.horizon_hours=0".into(), "x".into()];
    let found = problems(sources.load().unwrap());
    let expected = [
        ("kafka", "is a section, not a value"),
        ("roles", "must be a list of text"),
        ("topics.partitions", "must be a whole number"),
        ("topics.auto_create", "must be true or false"),
        ("api.subscriptions_per_tenant", "is out of range"),
        ("api.listen", "invalid socket address syntax"),
        ("log.format", "is not one of human, json"),
        ("ingest.start", "neither `earliest` nor"),
        ("dedup.horizon_hours", "is outside 1 to"),
        ("--set, number 3", "has no `=`"),
    ];
    for (key, wrong) in expected {
        let problem = found.iter().find(|problem| problem.key == key);
        assert!(problem.is_some_and(|problem| problem.wrong.contains(wrong)), "{key}: {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    let shown = found.iter().find(|problem| problem.key == "topics.partitions").unwrap();
    assert_eq!(shown.value.as_deref(), Some("\"many\""));
    assert_eq!(shown.origin.as_deref(), Some(&*format!("file {}", file.path().display())));
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_a_problem_that_shows_no_line_of_it() {
    let missing = Sources { file: Some("/nowhere/hub.toml".into()), ..Sources::default() };
    assert!(problems(missing.load().unwrap())[0].wrong.contains("cannot be read"));
    let file = file("[encryption]\n\nkey = \"hunter2\n");
    let broken = Sources { file: Some(file.path().into()), ..Sources::default() };
    let problem = problems(broken.load().unwrap()).remove(0).to_string();
    assert!(problem.contains("line 3") && !problem.contains("hunter2"), "{problem}");
}

#[test]
fn one_setting_under_two_names_of_the_environment_is_a_problem() {
    let sources = environment(&[
        ("STREAMING_HUB_ALLOW_PRIVATE_SINKS", "true"),
        ("STREAMING_HUB_SINKS__ALLOW_PRIVATE", "false"),
    ]);
    let problem = problems(sources.load().unwrap()).remove(0);
    assert!(problem.wrong.contains("STREAMING_HUB_SINKS__ALLOW_PRIVATE, too"), "{problem}");
}

#[test]
fn secrets_are_masked_wherever_a_configuration_is_shown() {
    let digest = "f727ccd2e248abc4d738e0ff5139c564bc6ecfd8635d570f55f1c82b00453710";
    let token = format!("api.tokens=[{{name=\"t\",role=\"operator\",sha256=\"{digest}\"}}]");
    let loaded = set(&[
        "encryption.key=hunter2",
        "kafka.properties.sasl.password=hunter2",
        "kafka.properties.ssl.key.pem=hunter2",
        &token,
    ])
    .load()
    .unwrap();
    let shown = [
        loaded.to_toml().unwrap(),
        loaded.to_toml_with_origins().unwrap(),
        format!("{:?}", loaded.config),
        loaded.checked().unwrap_err().to_string(),
    ];
    for text in shown {
        assert!(!text.contains("hunter2") && !text.contains(&digest[8..]), "{text}");
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[test]
fn the_effective_values_are_a_file_that_gives_the_same_values() {
    let first = set(&["roles=ingest", "kafka.properties.sasl.username=x", "log.format=json"]);
    let first = first.load().unwrap().to_toml().unwrap();
    let file = file(&first);
    let again = Sources { file: Some(file.path().into()), ..Sources::default() };
    assert_eq!(again.load().unwrap().to_toml().unwrap(), first);
}

#[test]
fn the_file_for_development_is_sound() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/dev.toml");
    let sources = Sources { file: Some(path.into()), ..Sources::default() };
    let config = sources.load().unwrap().checked().unwrap();
    let tenants: Vec<_> = config.api.tokens.iter().map(|token| token.tenant().unwrap()).collect();
    assert_eq!(tenants[0].as_ref().map(|tenant| tenant.as_str()), Some("acme"));
    assert_eq!(tenants[1], None);
}
