//! `doctor`: looks around a hub for what is wrong and says what to do. It changes nothing but
//! writing one record to `<app>-doctor`, needs no running hub, and ends within 5 s: every look is
//! bounded, and what needs Kafka is left out when Kafka does not answer.

mod cluster;
mod machine;
mod peers;

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::{Report, block_on};
use crate::config::Config;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// The hub runs, at a risk.
    Warning,
    /// The hub cannot run, or loses something.
    Problem,
}

/// What a look found.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    what: String,
    /// What to do; empty when there is nothing to do.
    remedy: String,
}

/// The findings so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, what: impl Into<String>) {
        self.push(check, Level::Ok, what.into(), String::new());
    }

    fn warning(&mut self, check: &'static str, what: impl Into<String>, remedy: &str) {
        self.push(check, Level::Warning, what.into(), remedy.to_owned());
    }

    fn problem(&mut self, check: &'static str, what: impl Into<String>, remedy: &str) {
        self.push(check, Level::Problem, what.into(), remedy.to_owned());
    }

    fn push(&mut self, check: &'static str, level: Level, what: String, remedy: String) {
        self.0.push(Finding { check, level, what, remedy });
    }
}

/// Looks at everything.
pub(super) fn doctor(config: &Config) -> anyhow::Result<Report> {
    let mut findings = Findings::default();
    machine::look(config, &mut findings);
    let is_up = cluster::look(config, &mut findings)?;
    if is_up {
        block_on(peers::look(config, &mut findings))?;
    }
    Ok(report(&findings.0))
}

fn report(findings: &[Finding]) -> Report {
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok     ",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        };
        let _ = writeln!(text, "{level} {:<12} {}", finding.check, finding.what);
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "{:20} → {}", "", finding.remedy);
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let _ = writeln!(text, "{problems} problems, {warnings} warnings");
    let wrong = (problems > 0).then(|| format!("{problems} problems were found"));
    let json = json!({ "problems": problems, "warnings": warnings, "findings": findings });
    Report { text, json, wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_problems_end_with_a_status_and_each_says_what_to_do() {
        let mut findings = Findings::default();
        findings.ok("disk", "80 % free");
        findings.warning("files", "1024 files", "raise it");
        assert_eq!(report(&findings.0).wrong, None);
        findings.problem("kafka", "no answer", "start it");
        let report = report(&findings.0);
        assert_eq!(report.wrong.as_deref(), Some("1 problems were found"));
        assert!(report.text.contains("→ start it"), "{}", report.text);
        assert_eq!(report.json["findings"][2]["level"], "problem");
    }
}
