//! `acls`: the exact rights that a hub of this configuration needs. Derived from the topology and
//! the configuration, and held against a broker with an authorizer by a test: with these the hub
//! runs, and `kafka-acls --list` shows nothing else.

use serde_json::json;
use streaming_hub_model::follow::PREFIX;
use streaming_hub_topology::tools::probe;
use streaming_hub_topology::topics::{Kind, Topic};

use super::Report;
use crate::config::{Config, Role};

/// One right: these operations on these resources.
struct Grant {
    why: &'static str,
    resource: &'static str,
    pattern: &'static str,
    names: Vec<String>,
    operations: Vec<&'static str>,
}

/// All of them.
fn grants(config: &Config) -> Vec<Grant> {
    let application = &config.application_id;
    let literal = |why, names, operations| Grant {
        why,
        resource: "topic",
        pattern: "literal",
        names,
        operations,
    };
    let prefixed = |why, resource, name: &str, operations| Grant {
        why,
        resource,
        pattern: "prefixed",
        names: vec![name.to_owned()],
        operations,
    };
    let names = |wanted: &dyn Fn(&Topic) -> bool| {
        Topic::all().filter(wanted).map(|topic| topic.name(application)).collect::<Vec<_>>()
    };
    let mut internal = vec!["Read", "Write", "DescribeConfigs"];
    if config.topics.auto_create {
        internal.push("Create");
    }
    let mut grants = vec![
        prefixed(
            "followed topics and producers' dead letters",
            "topic",
            if config.roles.has(Role::Ingest) || config.roles.has(Role::Dlq) { PREFIX } else { "" },
            vec!["Read"],
        ),
        literal("internal topics", names(&|_| true), internal),
        literal(
            "queues are trimmed below what was read",
            names(&|topic| topic.kind() == Kind::Queue),
            vec!["Delete"],
        ),
        literal(
            "`doctor` probes the cluster on a topic of its own",
            vec![probe::topic(application)],
            vec!["Write", "Create"],
        ),
        prefixed("positions and membership", "group", &format!("{application}-"), vec!["Read"]),
        prefixed(
            "transactions",
            "transactional-id",
            &format!("{application}-"),
            vec!["Write", "Describe"],
        ),
    ];
    for pattern in &config.ingest.follow_extra {
        let (name, pattern) = match pattern.strip_suffix('*') {
            Some(start) => (start, "prefixed"),
            None => (pattern.as_str(), "literal"),
        };
        let (why, names) = ("ingest.follow_extra", vec![name.to_owned()]);
        grants.push(Grant { why, resource: "topic", pattern, names, operations: vec!["Read"] });
    }
    grants.retain(|grant| grant.names.iter().all(|name| !name.is_empty()));
    grants
}

/// The rights as commands.
pub(super) fn acls(config: &Config, principal: &str) -> anyhow::Result<Report> {
    let principal =
        if principal.contains(':') { principal.to_owned() } else { format!("User:{principal}") };
    let grants = grants(config);
    let mut text = String::from(
        "# Run as somebody who may alter ACLs; add --command-config FILE where that needs it.\n",
    );
    for grant in &grants {
        text += &format!("\n# {}\n{}\n", grant.why, command(config, &principal, grant).join(" "));
    }
    let json: Vec<_> = grants
        .iter()
        .map(|grant| {
            json!({
                "why": grant.why,
                "resource": grant.resource,
                "pattern": grant.pattern,
                "names": grant.names,
                "operations": grant.operations,
                "command": command(config, &principal, grant),
            })
        })
        .collect();
    Ok(Report::good(text, json!({ "principal": principal, "grants": json })))
}

fn command(config: &Config, principal: &str, grant: &Grant) -> Vec<String> {
    let mut words = vec![
        "kafka-acls".to_owned(),
        "--bootstrap-server".to_owned(),
        config.kafka.bootstrap_servers.clone(),
        "--add".to_owned(),
        "--allow-principal".to_owned(),
        quoted(principal),
    ];
    for operation in &grant.operations {
        words.extend(["--operation".to_owned(), (*operation).to_owned()]);
    }
    if grant.pattern != "literal" {
        words.extend(["--resource-pattern-type".to_owned(), grant.pattern.to_owned()]);
    }
    for name in &grant.names {
        words.extend([format!("--{}", grant.resource), name.clone()]);
    }
    words
}

/// A word as a shell takes it: a certificate's name may hold spaces and commas.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.-@/".contains(&byte);
    if word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(set: &[&str]) -> Config {
        let set = set.iter().map(ToString::to_string).collect();
        Sources { set, ..Sources::default() }.load().unwrap().config
    }

    #[test]
    fn only_queues_may_be_deleted_from_and_nothing_is_granted_on_everything() {
        let text = acls(&config(&[]), "hub").unwrap().text;
        let deletes: Vec<_> = text.lines().filter(|line| line.contains("Delete")).collect();
        assert_eq!(deletes.len(), 1, "{text}");
        assert!(deletes[0].ends_with(
            "--topic streaming-hub-ingest-repartition --topic streaming-hub-subscription-changes"
        ));
        assert!(!text.contains(" All") && !text.contains("--topic *"), "{text}");
        assert!(text.contains("--allow-principal User:hub "), "{text}");
    }

    #[test]
    fn rights_follow_the_configuration() {
        let create = |text: &str| text.lines().filter(|l| l.contains("Create")).count();
        assert_eq!(create(&acls(&config(&[]), "hub").unwrap().text), 2);
        let bare = acls(&config(&["topics.auto_create=false"]), "hub").unwrap();
        assert_eq!(create(&bare.text), 1, "the probe's");
        let extra = acls(&config(&["ingest.follow_extra=crm.*"]), "CN=hub, O=x").unwrap().text;
        assert!(extra.contains("--resource-pattern-type prefixed --topic crm."), "{extra}");
        assert!(extra.contains("'User:CN=hub, O=x'"), "{extra}");
    }
}
