//! Pages that are made from the code, and what is deployed beside it: the reference of metrics, the
//! table of topics, dashboards, alerts. A page that lags behind fails here and is written anew by
//! `UPDATE_DOCS=1 cargo test --test reference`; a dashboard or an alert over a metric that does not
//! exist fails, and so does one whose runbook is not there.
#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use streaming_hub_topology::topics::{Topic, TopicSettings};

const PREFIX: &str = "streaming_hub_";
/// Where metrics are declared.
const CRATES: [&str; 5] = ["src", "api/src", "sinks/src", "state/src", "topology/src"];
const BEGIN: &str = "<!-- made from topology/src/topics.rs: UPDATE_DOCS=1 cargo test -->";
const END: &str = "<!-- end -->";

/// A metric as its declaration says it.
#[derive(Debug, PartialEq, Eq)]
struct Metric {
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Compares a page with what it must be, or writes it.
fn hold(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(path), wanted).expect(path);
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    let again = "UPDATE_DOCS=1 cargo test --test reference writes it anew";
    assert!(found == wanted, "{path} is not what the code says; {again}");
}

// ---- metrics ----------------------------------------------------------------------------------

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a crate").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "testing" {
            sources(&path, into);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            into.push(path);
        }
    }
}

/// The text literals of a call's arguments, and whether each stands in a list.
fn literals(arguments: &str) -> Vec<String> {
    let (mut found, mut depth, mut chars) = (Vec::new(), 1, arguments.chars());
    while let Some(char) = chars.next() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => {
                let mut text = String::new();
                while let Some(char) = chars.next() {
                    match char {
                        '"' => break,
                        '\\' => match chars.next() {
                            // A literal that goes on in the next line.
                            Some('\n') => {
                                let rest = chars.as_str();
                                chars = rest.trim_start().chars();
                            }
                            Some(escaped) => text.push(escaped),
                            None => {}
                        },
                        other => text.push(other),
                    }
                }
                found.push(text);
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Declarations by `Maker` (`m.counters(name, help, label)`) and by `Opts` with the whole name.
fn declared(text: &str, into: &mut BTreeMap<String, Metric>) {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    for (at, _) in code.match_indices("m.") {
        let Some((method, arguments)) = code[at + 2..].split_once('(') else { continue };
        let kind = match method {
            "counter" | "counters" => "counter",
            "gauge" | "gauges" => "gauge",
            "latency" | "histogram" | "histograms" => "histogram",
            _ => continue,
        };
        let mut all = literals(arguments).into_iter();
        if let (Some(name), Some(help)) = (all.next(), all.next()) {
            into.insert(format!("{PREFIX}{name}"), Metric { kind, labels: all.collect(), help });
        }
    }
    for (at, _) in code.match_indices(&format!("\"{PREFIX}")) {
        let before = code[..at].trim_end();
        let kinds = [
            ("HistogramOpts::new(", "histogram"),
            ("IntGauge::new(", "gauge"),
            ("Gauge::new(", "gauge"),
            ("IntCounter::new(", "counter"),
            ("Counter::new(", "counter"),
            ("Opts::new(", "counter"),
        ];
        let Some((_, kind)) = kinds.iter().find(|(call, _)| before.ends_with(call)) else {
            continue;
        };
        let mut all = literals(&code[at..]).into_iter();
        let (Some(name), Some(help)) = (all.next(), all.next()) else { continue };
        let rest = &code[at..];
        let end = rest.find(")?").unwrap_or(rest.len());
        let list = rest[..end].split_once("&[").map(|(_, list)| literals(list));
        // A list with a name of its own, in the same file.
        let named = || {
            let (_, rest) = code.split_once("const LABELS: [")?.1.split_once("= [")?;
            Some(literals(rest.split(']').next()?))
        };
        let labels = if rest[..end].contains("&LABELS") { named() } else { list };
        let maker = before.trim_end_matches("Opts::new(").trim_end();
        let is_gauge = *kind == "gauge" || maker.ends_with("GaugeVec::new(");
        let kind = if is_gauge { "gauge" } else { kind };
        let labels = labels.unwrap_or_default().into_iter();
        let labels = labels.filter(|label| !label.starts_with(PREFIX)).collect();
        into.insert(name, Metric { kind, labels, help });
    }
}

fn metrics() -> BTreeMap<String, Metric> {
    let (mut files, mut found) = (Vec::new(), BTreeMap::new());
    for dir in CRATES {
        sources(&root().join(dir), &mut files);
    }
    files.sort();
    for file in files {
        declared(&fs::read_to_string(&file).expect("a source"), &mut found);
    }
    found
}

#[test]
fn the_reference_of_metrics_is_what_the_code_declares() {
    let metrics = metrics();
    assert!(metrics.len() > 30, "{metrics:#?}");
    let mut page = String::from(
        "# Metrics\n\nMade from their declarations by `UPDATE_DOCS=1 cargo test --test reference`. \
         `GET /metrics` shows\nthem on every instance; a series with labels appears with its first \
         value, and counters begin at 0\nwith the process. What to do about them is in \
         [operations.md](operations.md), dashboards and alerts\nare in `deploy/`.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for (name, metric) in &metrics {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, help) = (metric.kind, &metric.help);
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    hold("docs/metrics.md", &page);
}

#[test]
fn declarations_are_read_in_each_of_their_forms() {
    let text = "x: m.counters(\n \"a_total\",\n \"Some \\\n   help\",\n \"label\",\n)?,\n\
                y: m.gauge(\"b\", \"B\")?, IntGauge::new(\n \"streaming_hub_c\",\n \"C\",\n)?;\n\
                IntCounterVec::new(Opts::new(\"streaming_hub_d_total\", \"D\"), &[\"l\", \"k\"],)?";
    let mut found = BTreeMap::new();
    declared(text, &mut found);
    let shown: Vec<_> =
        found.iter().map(|(name, m)| (name.as_str(), m.kind, m.labels.join(","))).collect();
    assert_eq!(
        shown,
        [
            ("streaming_hub_a_total", "counter", "label".to_owned()),
            ("streaming_hub_b", "gauge", String::new()),
            ("streaming_hub_c", "gauge", String::new()),
            ("streaming_hub_d_total", "counter", "l,k".to_owned()),
        ]
    );
    assert_eq!(found["streaming_hub_a_total"].help, "Some help");
}

// ---- dashboards and alerts --------------------------------------------------------------------

/// Names of our metrics in a text, without what Prometheus adds to those of histograms.
fn used(text: &str) -> BTreeSet<String> {
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let names = text.match_indices(PREFIX).map(|(at, _)| {
        let name = text[at..].split(|char| !is_name(char)).next().unwrap_or_default();
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        // `…_count` is also how our gauges of things end.
        (name.to_owned(), bare.map(str::to_owned))
    });
    let known = metrics();
    names
        .map(|(name, bare)| match bare {
            Some(bare) if !known.contains_key(&name) => bare,
            _ => name,
        })
        .collect()
}

fn deployed() -> Vec<(String, String)> {
    ["deploy/prometheus/alerts.yml"]
        .into_iter()
        .chain(["overview", "troubles"].map(|name| match name {
            "overview" => "deploy/grafana/dashboards/overview.json",
            _ => "deploy/grafana/dashboards/troubles.json",
        }))
        .map(|path| (path.to_owned(), read(path)))
        .collect()
}

#[test]
fn dashboards_and_alerts_are_over_metrics_that_exist() {
    let known = metrics();
    for (path, text) in deployed() {
        let names = used(&text);
        assert!(names.len() > 5, "{path}");
        for name in names {
            assert!(known.contains_key(&name), "{path}: there is no {name}");
        }
    }
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase();
    let kept = heading.chars().filter_map(|char| match char {
        ' ' => Some('-'),
        char if char.is_alphanumeric() || char == '-' || char == '_' => Some(char),
        _ => None,
    });
    kept.collect()
}

#[test]
fn every_runbook_that_is_named_is_there() {
    let page = read("docs/operations.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("##"));
    let anchors: BTreeSet<_> =
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    let mut count = 0;
    for (path, text) in deployed() {
        for (at, name) in text.match_indices("operations.md#") {
            let rest = &text[at + name.len()..];
            let is_end = |char: char| !(char.is_ascii_alphanumeric() || char == '-');
            let wanted = rest.split(is_end).next().unwrap_or_default();
            assert!(anchors.contains(wanted), "{path}: there is no section {wanted}");
            count += 1;
        }
    }
    assert!(count > 15);
    let alerts = read("deploy/prometheus/alerts.yml");
    let (alerts, runbooks) = (alerts.matches("- alert:"), alerts.matches("runbook:"));
    assert_eq!(alerts.count(), runbooks.count(), "each alert has its runbook");
}

#[test]
fn dashboards_are_whole_and_their_panels_have_numbers_of_their_own() {
    for (path, text) in deployed().into_iter().filter(|(path, _)| path.ends_with(".json")) {
        let board: Value = serde_json::from_str(&text).expect(&path);
        let panels = board["panels"].as_array().expect("panels");
        let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(numbers.len(), panels.len(), "{path}");
        assert!(board["uid"].as_str().is_some_and(|uid| uid.starts_with("streaming-hub-")));
    }
}

// ---- topics -----------------------------------------------------------------------------------

#[test]
fn the_table_of_topics_is_what_is_made() {
    let settings = TopicSettings {
        application: "<app>".into(),
        partitions: 8,
        replication: 3,
        inbox_hours: 168,
        quarantine_hours: 336,
        attempts_hours: 168,
        dead_letter_hours: 720,
        dedup_horizon_hours: 168,
        payload_bytes_max: 1024 * 1024,
    };
    let mut table =
        String::from("\n| topic | partitions | cleanup | kept, hours |\n|---|---|---|---|\n");
    for topic in Topic::all().filter(|topic| !matches!(topic, Topic::Retry(2..))) {
        let config: BTreeMap<_, _> = topic.config(&settings).into_iter().collect();
        let kept = match config["retention.ms"].parse::<i64>() {
            Ok(ms) if ms >= 0 => (ms / 3_600_000).to_string(),
            _ => "always".to_owned(),
        };
        let partitions = match topic.partitions(&settings) {
            1 => "1",
            _ => "`topics.partitions`",
        };
        let name = match topic {
            Topic::Retry(_) => "`<app>-retry-01` … `-11`".to_owned(),
            other => format!("`{}`", other.name("<app>")),
        };
        let cleanup = &config["cleanup.policy"];
        let _ = writeln!(table, "| {name} | {partitions} | {cleanup} | {kept} |");
    }
    table.push('\n');
    let page = read("docs/topics.md");
    let (before, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (_, after) = rest.split_once(END).expect("the table's end");
    hold("docs/topics.md", &format!("{before}{BEGIN}{table}{END}{after}"));
}
