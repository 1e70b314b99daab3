//! Records to produce, each with the verdict that it must get, and the fixtures read as such.
//! What a header means is read here by the contract's section 1, not by the hub's code.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Name and value of a header, as bytes; a value may be null.
pub type Header = (Vec<u8>, Option<Vec<u8>>);

/// What the hub must make of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// An event of its tenant.
    Accept,
    /// A system event.
    Drop,
    /// Malformed: with this reason.
    Quarantine(String),
    /// Its topic holds no facts.
    NotFollowed,
}

/// A record to produce.
#[derive(Debug, Clone)]
pub struct Fact {
    /// What it shows, for failures.
    pub name: String,
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// What must become of it.
    pub verdict: Verdict,
}

impl Fact {
    /// A well-formed event `<resource>.<event>` of `source`, schema 1.0.0.
    #[must_use]
    pub fn new(source: &str, tenant: &str, id: &str, (resource, event): (&str, &str)) -> Self {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", source),
            ("ce-type", &format!("studio.lerian.{source}.{resource}.{event}")),
            ("ce-time", "2026-09-21T14:13:02.000015838Z"),
            ("ce-schemaversion", "1.0.0"),
            ("ce-resourcetype", resource),
            ("ce-eventtype", event),
            ("ce-datacontenttype", "application/json"),
            ("ce-tenantid", tenant),
        ];
        Self {
            name: format!("{resource}.{event} {id}"),
            topic: format!("lerian.streaming.{source}"),
            partition: 0,
            key: Some(tenant.as_bytes().to_vec()),
            headers: headers.map(|(name, value)| header(name, value)).to_vec(),
            value: Some(format!("{{\"id\":\"{id}\"}}").into_bytes()),
            verdict: Verdict::Accept,
        }
    }

    /// By this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// With this header in place of all of its name, at the end.
    #[must_use]
    pub fn with(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).and(name, Some(value.as_ref()))
    }

    /// With one header more, at the end.
    #[must_use]
    pub fn and(mut self, name: impl AsRef<[u8]>, value: Option<&[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.map(<[u8]>::to_vec)));
        self
    }

    /// Without the headers of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(own, _)| own != name.as_bytes());
        self
    }

    /// With this value.
    #[must_use]
    pub fn carrying(mut self, value: Option<Vec<u8>>) -> Self {
        self.value = value;
        self
    }

    /// With this key.
    #[must_use]
    pub fn keyed(mut self, key: Option<&[u8]>) -> Self {
        self.key = key.map(<[u8]>::to_vec);
        self
    }

    /// That must be quarantined for this reason.
    #[must_use]
    pub fn quarantined(mut self, reason: &str) -> Self {
        self.verdict = Verdict::Quarantine(reason.to_owned());
        self
    }

    /// The last value of a header; null and empty count as missing.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.headers.iter().rev().find(|(own, _)| own == name.as_bytes())?;
        value.as_deref().filter(|value| !value.is_empty())
    }

    /// [`Self::bytes`] as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    /// The normalised event id.
    #[must_use]
    pub fn id(&self) -> String {
        self.text("ce-id").unwrap_or_default().to_ascii_lowercase()
    }

    /// Schema major: the digits at the version's start, behind an optional `v`.
    #[must_use]
    pub fn major(&self) -> u16 {
        let version = self.text("ce-schemaversion").unwrap_or_default();
        let version = version.strip_prefix('v').unwrap_or(version);
        let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
        version[..end].parse().unwrap_or(0)
    }

    /// The headers that go along inside the hub: `ce-*` and the trace context, as they came.
    #[must_use]
    pub fn travelling(&self) -> Vec<Header> {
        let travels = |name: &[u8]| {
            let trace: [&[u8]; 3] = [b"traceparent", b"tracestate", b"baggage"];
            std::str::from_utf8(name).is_ok() && (name.starts_with(b"ce-") || trace.contains(&name))
        };
        self.headers.iter().filter(|(name, _)| travels(name)).cloned().collect()
    }
}

/// A header of text.
#[must_use]
pub fn header(name: &str, value: &str) -> Header {
    (name.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
}

/// Why each quarantined record of `real-records.jsonl` is one, in the file's order. The file says
/// that they are; the reasons follow from the contract's section 1.
const REAL_REASONS: [&str; 14] = [
    "missing_tenant",
    "missing_tenant",
    "source_mismatch",
    "missing_tenant",
    "bad_specversion",
    "missing_header",
    "missing_header",
    "bad_source",
    "type_mismatch",
    "missing_header",
    "bad_id",
    "bad_tenant",
    "bad_tenant",
    "bad_time",
];

/// What the platform's own producers wrote, byte for byte.
///
/// # Errors
/// When the file is not as expected.
pub fn real_records() -> Result<Vec<Fact>> {
    let mut reasons = REAL_REASONS.into_iter();
    let mut facts = Vec::new();
    for (number, line) in lines("real-records.jsonl")?.iter().enumerate() {
        let headers = line["headers"].as_array().context("headers")?;
        let headers = headers.iter().map(|pair| {
            let name = pair[0].as_str().context("a header's name")?;
            Ok((name.as_bytes().to_vec(), decoded(&pair[1])?))
        });
        let verdict = match line["verdict"].as_str().unwrap_or_default() {
            "quarantine" => Verdict::Quarantine(reasons.next().context("a reason")?.to_owned()),
            other => verdict(other, line)?,
        };
        let topic = line["topic"].as_str().context("topic")?;
        facts.push(Fact {
            name: format!("real record {} of {topic}", number + 1),
            topic: topic.to_owned(),
            partition: i32::try_from(line["partition"].as_i64().context("partition")?)?,
            key: decoded(&line["key_b64"])?,
            headers: headers.collect::<Result<_>>()?,
            value: decoded(&line["value_b64"])?,
            verdict,
        });
    }
    anyhow::ensure!(reasons.next().is_none(), "real-records.jsonl has fewer quarantines");
    Ok(facts)
}

/// The fifteen made-up facts.
///
/// # Errors
/// When the file is not as expected.
pub fn events() -> Result<Vec<Fact>> {
    lines("events.jsonl")?.iter().enumerate().map(|(n, line)| made(n, line)).collect()
}

/// One record for each verdict. The ids are made different from each other, so that none of the
/// accepted ones is a duplicate of another; their case and their faults stay.
///
/// # Errors
/// When the file is not as expected.
pub fn verdicts() -> Result<Vec<Fact>> {
    const ID: &str = "01a0c450-6d12-7c2b-8128-9b05b624f924";
    let mut facts = Vec::new();
    for (number, line) in lines("verdicts.jsonl")?.iter().enumerate() {
        let mut fact = made(number, line)?;
        let upper = fact.text("ce-id").is_some_and(|id| id == ID.to_ascii_uppercase());
        for (name, value) in &mut fact.headers {
            let own = value.as_deref().unwrap_or_default();
            if name == b"ce-id" && own.eq_ignore_ascii_case(ID.as_bytes()) {
                let id = format!("{}f{number:03x}", &ID[..32]);
                let id = if upper { id.to_ascii_uppercase() } else { id };
                *value = Some(id.into_bytes());
            }
        }
        facts.push(fact);
    }
    Ok(facts)
}

fn made(number: usize, line: &Value) -> Result<Fact> {
    let headers = line["headers"].as_object().context("headers")?.iter();
    let name = line["name"].as_str().map_or_else(|| format!("event {}", number + 1), str::to_owned);
    Ok(Fact {
        name,
        topic: line["topic"].as_str().context("topic")?.to_owned(),
        partition: 0,
        key: line["key"].as_str().map(|key| key.as_bytes().to_vec()),
        headers: headers
            .map(|(name, value)| {
                (name.as_bytes().to_vec(), value.as_str().map(|value| value.as_bytes().to_vec()))
            })
            .collect(),
        value: Some(line["payload"].to_string().into_bytes()),
        verdict: verdict(line["verdict"].as_str().unwrap_or("accept"), line)?,
    })
}

fn verdict(text: &str, line: &Value) -> Result<Verdict> {
    Ok(match text {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "not_followed" => Verdict::NotFollowed,
        "quarantine" => Verdict::Quarantine(line["reason"].as_str().context("reason")?.to_owned()),
        other => anyhow::bail!("verdict {other:?}"),
    })
}

fn decoded(value: &Value) -> Result<Option<Vec<u8>>> {
    Ok(value.as_str().map(|text| STANDARD.decode(text)).transpose()?)
}

fn lines(file: &str) -> Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| serde_json::from_str(line).context(file.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_fixtures_are_read_in_full() {
        let (real, events, verdicts) =
            (real_records().unwrap(), events().unwrap(), verdicts().unwrap());
        assert_eq!((real.len(), events.len()), (77, 15));
        assert!(verdicts.len() > 30);
        assert!(real.iter().any(|fact| fact.value.is_none()));
        assert!(real.iter().any(|fact| fact.headers.iter().any(|(_, value)| value.is_none())));
    }

    #[test]
    fn accepted_verdict_fixtures_have_ids_of_their_own() {
        let all = verdicts().unwrap();
        let accepted = all.iter().filter(|fact| fact.verdict == Verdict::Accept);
        let ids = accepted.clone().map(Fact::id).collect::<BTreeSet<_>>();
        assert_eq!(ids.len(), accepted.count());
        assert!(all.iter().any(|f| f.text("ce-id").is_some_and(|id| id.starts_with("01A0"))));
    }

    #[test]
    fn the_last_value_counts_and_an_empty_one_is_none() {
        let fact = Fact::new("ledger", "t", "x", ("a", "b")).and("ce-id", Some(b"y"));
        assert_eq!(fact.id(), "y");
        assert_eq!(fact.and("ce-id", None).bytes("ce-id"), None);
        let version =
            |text: &str| Fact::new("l", "t", "x", ("a", "b")).with("ce-schemaversion", text);
        assert_eq!((version("v12.1").major(), version("2").major()), (12, 2));
    }
}
