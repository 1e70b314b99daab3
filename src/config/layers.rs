//! Reads the layers above the defaults: a file, environment variables, flags. Each variable and
//! flag is a layer of its own, so that every value knows where it came from. What names no setting
//! or has the wrong form is a problem and is left out: all problems are found in one pass.

use std::ffi::OsString;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::keys::{ENV_ALIASES, ENV_PREFIX, Keys, Kind, PROPERTIES, environment_name, is_secret};
use super::problem::Problem;

/// Values from one place.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    origin: String,
    values: Dict,
}

impl Layer {
    /// A layer with these values.
    pub(super) fn new(origin: impl Into<String>, values: Dict) -> Self {
        Self { origin: origin.into(), values }
    }

    /// A layer with one value.
    pub(super) fn single(origin: impl Into<String>, path: &[String], value: Value) -> Self {
        Self::new(origin, nested(path, value))
    }

    /// Takes a value out; whether there was one.
    pub(super) fn remove(&mut self, path: &[String]) -> bool {
        fn remove(values: &mut Dict, path: &[String]) -> bool {
            match path {
                [] => false,
                [key] => values.remove(key).is_some(),
                [key, rest @ ..] => match values.get_mut(key) {
                    Some(Value::Dict(_, inner)) => remove(inner, rest),
                    _ => false,
                },
            }
        }
        remove(&mut self.values, path)
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// A table as a layer's values.
pub(super) fn dict_of(table: toml::Table) -> Dict {
    table.into_iter().map(|(key, value)| (key, value_of(value))).collect()
}

fn value_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        // A time without quotes means the same as one with.
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(value_of).collect::<Vec<_>>().into(),
        toml::Value::Table(table) => dict_of(table).into(),
    }
}

fn nested(path: &[String], value: Value) -> Dict {
    match path {
        [] => Dict::new(),
        [key] => Dict::from([(key.clone(), value)]),
        [key, rest @ ..] => Dict::from([(key.clone(), nested(rest, value).into())]),
    }
}

/// Collects layers, lowest first, and what is wrong with them.
pub(super) struct Reader<'a> {
    keys: &'a Keys,
    /// What was read.
    pub(super) layers: Vec<Layer>,
    /// What is wrong with it.
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// A reader that has read nothing.
    pub(super) fn new(keys: &'a Keys) -> Self {
        Self { keys, layers: Vec::new(), problems: Vec::new() }
    }

    fn unknown(&mut self, key: &str, origin: &str, suggestion: Option<String>) {
        let remedy = match suggestion {
            Some(known) => format!("Write `{known}` if that is meant, or remove it"),
            None => "Remove it; `streaming-hub config reference` lists the settings".to_owned(),
        };
        self.problems.push(Problem::new(key, "is no setting", remedy).in_layer(origin));
    }

    /// Reads a TOML file.
    pub(super) fn file(&mut self, path: &Path) {
        let origin = format!("file {}", path.display());
        let unreadable = |wrong: String, remedy: &str| {
            Problem::new("--config", wrong, remedy).in_layer(origin.clone())
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let wrong = format!("cannot be read: {error}");
                let remedy = "Name a file that the hub may read, or leave the flag out";
                return self.problems.push(unreadable(wrong, remedy));
            }
        };
        match text.parse::<toml::Table>() {
            Ok(table) => {
                let values = self.known_part(table, &origin);
                self.layers.push(Layer::new(origin, values));
            }
            Err(error) => {
                // The error's own text quotes the line, which may hold a secret.
                let before = error.span().map_or(0, |span| span.start.min(text.len()));
                let line = text.as_bytes()[..before].iter().filter(|b| **b == b'\n').count() + 1;
                let wrong = format!("is not TOML: line {line}: {}", error.message());
                self.problems.push(unreadable(wrong, "Mend that line"));
            }
        }
    }

    fn known_part(&mut self, table: toml::Table, origin: &str) -> Dict {
        let mut values = Dict::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(inner) if self.keys.is_section(&name) => {
                    let part = self.known_section(&name, inner, origin);
                    values.insert(name, part.into());
                }
                _ if self.keys.is_section(&name) => self.not_a_section(&name, origin),
                value if self.keys.get(&name).is_some() => {
                    values.insert(name, value_of(value));
                }
                _ => {
                    let nearest = self.keys.nearest(&name).map(str::to_owned);
                    self.unknown(&name, origin, nearest);
                }
            }
        }
        values
    }

    fn known_section(&mut self, section: &str, table: toml::Table, origin: &str) -> Dict {
        let mut values = Dict::new();
        for (name, value) in table {
            let key = format!("{section}.{name}");
            match value {
                toml::Value::Table(inner) if key == PROPERTIES => {
                    let mut flat = Dict::new();
                    flatten("", inner, &mut flat);
                    values.insert(name, flat.into());
                }
                _ if key == PROPERTIES => self.not_a_section(&key, origin),
                value if self.keys.get(&key).is_some() => {
                    values.insert(name, value_of(value));
                }
                _ => {
                    let nearest = self.keys.nearest(&key).map(str::to_owned);
                    self.unknown(&key, origin, nearest);
                }
            }
        }
        values
    }

    fn not_a_section(&mut self, key: &str, origin: &str) {
        let remedy = format!("Write it as a table: [{key}]");
        let problem = Problem::new(key, "is a section, not a value", remedy);
        self.problems.push(problem.in_layer(origin));
    }

    /// Reads the variables of the hub among these.
    pub(super) fn environment(&mut self, variables: &[(String, OsString)]) {
        let mut seen = std::collections::BTreeMap::new();
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
            if rest == "CONFIG" || is_service_link(rest) {
                continue;
            }
            let origin = format!("environment {name}");
            let key = key_of_variable(&rest.to_lowercase());
            let Some((path, kind)) = self.keys.find(&key) else {
                let nearest = self.keys.nearest(&key).map(environment_name);
                self.unknown(name, &origin, nearest);
                continue;
            };
            if let Some(other) = seen.insert(key.clone(), name) {
                let wrong = format!("is set by {name}, too");
                let problem = Problem::new(other, wrong, "Set one of them: they are one setting");
                self.problems.push(problem);
                continue;
            }
            match value.to_str() {
                Some(text) => self.text(&key, (&path, kind), text, &origin),
                None => {
                    let problem = Problem::new(key, "is not UTF-8", "Set it to UTF-8 text");
                    self.problems.push(problem.in_layer(origin));
                }
            }
        }
    }

    /// Reads `key=value` flags; of a repeated key the last one wins.
    pub(super) fn assignments(&mut self, assignments: &[String]) {
        for (index, assignment) in assignments.iter().enumerate() {
            let Some((key, text)) = assignment.split_once('=') else {
                // Its text may be half a secret.
                let flag = format!("--set, number {}", index + 1);
                self.problems.push(Problem::new(flag, "has no `=`", "Write key=value"));
                continue;
            };
            match self.keys.find(key) {
                Some((path, kind)) => self.text(key, (&path, kind), text, "--set"),
                None => {
                    let nearest = self.keys.nearest(key).map(str::to_owned);
                    self.unknown(key, "--set", nearest);
                }
            }
        }
    }

    /// Reads the roles of their own flag.
    pub(super) fn roles(&mut self, roles: &[String]) {
        let path = ["roles".to_owned()];
        self.layers.push(Layer::single("--roles", &path, roles.to_vec().into()));
    }

    fn text(&mut self, key: &str, (path, kind): (&[String], Kind), text: &str, origin: &str) {
        match parsed(kind, text) {
            Some(value) => self.layers.push(Layer::single(origin, path, value)),
            None => {
                let wrong = format!("must be {}", kind.name());
                let mut problem = Problem::new(key, wrong, form_of(kind)).in_layer(origin);
                problem.value = (!is_secret(key)).then(|| toml::Value::from(text).to_string());
                self.problems.push(problem);
            }
        }
    }
}

fn flatten(prefix: &str, table: toml::Table, flat: &mut Dict) {
    for (name, value) in table {
        match value {
            // `sasl.password = …` without quotes is a table in TOML, and meant as a name.
            toml::Value::Table(inner) => flatten(&format!("{prefix}{name}."), inner, flat),
            leaf => {
                flat.insert(format!("{prefix}{name}"), value_of(leaf));
            }
        }
    }
}

fn key_of_variable(name: &str) -> String {
    if let Some((_, key)) = ENV_ALIASES.iter().find(|(alias, _)| *alias == name) {
        return (*key).to_owned();
    }
    match name.strip_prefix("kafka__properties__") {
        Some(property) => format!("{PROPERTIES}.{}", property.replace('_', ".")),
        None => name.replace("__", "."),
    }
}

/// Variables that Kubernetes makes for services (`…_SERVICE_HOST`, `…_PORT_8080_TCP_ADDR`). With a
/// service whose name begins like the hub's they carry the hub's prefix, and are not meant for it.
fn is_service_link(rest: &str) -> bool {
    let words: Vec<_> = rest.split('_').collect();
    let number = |word: &str| word.parse::<u16>().is_ok();
    !rest.contains("__")
        && (matches!(words[..], [.., "SERVICE", "HOST" | "PORT"] | [.., "PORT"])
            || words.windows(2).any(|two| two == ["SERVICE", "PORT"])
            || words.windows(3).any(|three| {
                three[0] == "PORT" && number(three[1]) && matches!(three[2], "TCP" | "UDP" | "SCTP")
            }))
}

fn parsed(kind: Kind, text: &str) -> Option<Value> {
    let list = |text: &str| -> Option<Value> {
        let table: toml::Table = format!("list = {text}").parse().ok()?;
        table.get("list").filter(|list| list.is_array()).cloned().map(value_of)
    };
    match kind {
        Kind::Text => Some(text.into()),
        Kind::Integer => text.trim().replace('_', "").parse::<i64>().ok().map(Value::from),
        Kind::Boolean => match text.trim() {
            "true" | "1" => Some(true.into()),
            "false" | "0" => Some(false.into()),
            _ => None,
        },
        _ if text.trim().is_empty() => Some(Vec::<Value>::new().into()),
        _ if text.trim_start().starts_with('[') => list(text.trim()),
        Kind::Tables => None,
        Kind::Integers => list(&format!("[{text}]")),
        Kind::Texts => {
            Some(text.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>().into())
        }
    }
}

fn form_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "Give text",
        Kind::Integer => "Give digits, such as 1000 or 1_000",
        Kind::Boolean => "Give `true` or `false`",
        Kind::Texts => "Give `a,b` or a TOML list: `[\"a\", \"b\"]`",
        Kind::Integers => "Give `1,2` or a TOML list: `[1, 2]`",
        Kind::Tables => "Give a TOML list of tables: `[{name = \"…\", …}]`",
    }
}
