//! Which settings exist, of which kind, with which defaults: read from the embedded default file,
//! so that there is one list. Also what a setting is called in the environment, and which known
//! one a misspelt name was meant to be.

use std::collections::BTreeMap;

use super::kafka;

/// The default file, comments and all.
pub(super) const DEFAULT_FILE: &str = include_str!("../../config/default.toml");

/// The only table whose keys are free: librdkafka properties.
pub(super) const PROPERTIES: &str = "kafka.properties";

/// Prefix of every environment variable of the hub.
pub(super) const ENV_PREFIX: &str = "STREAMING_HUB_";

/// Second names of settings in the environment: without prefix, lower case.
pub(super) const ENV_ALIASES: &[(&str, &str)] =
    &[("allow_private_sinks", "sinks.allow_private"), ("encryption_key", "encryption.key")];

/// What a value is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list of text.
    Texts,
    /// A list of whole numbers.
    Integers,
    /// A list of tables.
    Tables,
}

impl Kind {
    fn of(key: &str, default: &toml::Value) -> Self {
        match default {
            toml::Value::Integer(_) => Self::Integer,
            toml::Value::Boolean(_) => Self::Boolean,
            toml::Value::Array(_) if matches!(key, "api.tokens" | "aws.ambient") => Self::Tables,
            toml::Value::Array(list) if list.iter().any(toml::Value::is_integer) => Self::Integers,
            toml::Value::Array(_) => Self::Texts,
            _ => Self::Text,
        }
    }

    /// With an article: "must be …".
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "a whole number",
            Self::Boolean => "true or false",
            Self::Texts => "a list of text",
            Self::Integers => "a list of whole numbers",
            Self::Tables => "a list of tables",
        }
    }
}

/// One setting.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// What its value is made of.
    pub(super) kind: Kind,
    /// The default, as TOML.
    pub(super) default: String,
}

/// All settings by their dotted key.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// The default file, parsed.
    pub(super) defaults: toml::Table,
    settings: BTreeMap<String, Setting>,
}

impl Keys {
    /// The settings of the embedded default file.
    ///
    /// # Errors
    /// The file is not TOML; a test holds that it is.
    pub(super) fn embedded() -> Result<Self, toml::de::Error> {
        let defaults: toml::Table = DEFAULT_FILE.parse()?;
        let settings = leaves(&defaults)
            .into_iter()
            .map(|(path, value)| {
                let key = path.join(".");
                let kind = Kind::of(&key, &value);
                (key, Setting { kind, default: value.to_string() })
            })
            .collect();
        Ok(Self { defaults, settings })
    }

    /// Path and kind of a dotted key; properties of librdkafka are one path element each.
    pub(super) fn find(&self, key: &str) -> Option<(Vec<String>, Kind)> {
        if let Some(property) = property_of(key) {
            return Some((vec!["kafka".into(), "properties".into(), property.into()], Kind::Text));
        }
        let setting = self.settings.get(key)?;
        Some((key.split('.').map(str::to_owned).collect(), setting.kind))
    }

    /// The setting with exactly this key.
    pub(super) fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.get(key)
    }

    /// Whether the key names a table of settings.
    pub(super) fn is_section(&self, key: &str) -> bool {
        key == PROPERTIES || self.defaults.get(key).is_some_and(toml::Value::is_table)
    }

    /// The setting that a path from a deserialiser lies in: the path cut to its length.
    pub(super) fn enclosing<'p>(&self, path: &'p [String]) -> Option<&'p [String]> {
        if path.len() > 2 && path[..2].join(".") == PROPERTIES {
            return Some(&path[..3]);
        }
        (1..=path.len()).map(|length| &path[..length]).find(|head| {
            let key = head.join(".");
            self.settings.contains_key(&key)
        })
    }

    /// All dotted keys, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// The known setting or section that `key` was probably meant to be. `_`, `.` and `__` count
    /// as the same, so that it serves names from files and from the environment.
    pub(super) fn nearest(&self, key: &str) -> Option<&str> {
        let wanted = folded(key);
        let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
        let known = || {
            let sections = self.defaults.keys().filter(|key| self.is_section(key));
            self.names().chain(sections.map(String::as_str)).chain([PROPERTIES])
        };
        if let Some(moved) = known().find(|name| last(name) == last(key)) {
            return Some(moved);
        }
        known()
            .map(|name| (strsim::damerau_levenshtein(&folded(name), &wanted), name))
            .min()
            .filter(|(distance, name)| *distance <= (name.len() / 3).max(2))
            .map(|(_, name)| name)
    }
}

fn folded(key: &str) -> String {
    let words = key.split(['.', '_']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

/// The librdkafka property that a dotted key names.
pub(super) fn property_of(key: &str) -> Option<&str> {
    key.strip_prefix(PROPERTIES)?.strip_prefix('.').filter(|property| !property.is_empty())
}

/// Whether the value of this key is never shown.
pub(super) fn is_secret(key: &str) -> bool {
    key == "encryption.key" || property_of(key).is_some_and(kafka::is_secret)
}

/// The environment variable of a setting.
pub(super) fn environment_name(key: &str) -> String {
    let name = match property_of(key) {
        Some(property) => format!("kafka__properties__{}", property.replace('.', "_")),
        None => key.replace('.', "__"),
    };
    format!("{ENV_PREFIX}{}", name.to_uppercase())
}

/// Every value that is no table, with its path, in the order of the table.
pub(super) fn leaves(table: &toml::Table) -> Vec<(Vec<String>, toml::Value)> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                for (mut path, leaf) in leaves(inner) {
                    path.insert(0, key.clone());
                    found.push((path, leaf));
                }
            }
            leaf => found.push((vec![key.clone()], leaf.clone())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_or_misplaced_key_has_a_nearest_known_one() {
        let keys = Keys::embedded().unwrap();
        let cases = [
            ("topics.partition", Some("topics.partitions")),
            ("partitions", Some("topics.partitions")),
            ("kafka_bootstrap_servers", Some("kafka.bootstrap_servers")),
            ("kafak", Some("kafka")),
            ("api.lisen", Some("api.listen")),
            ("kafka.propertys", Some("kafka.properties")),
            ("entirely.something_else_altogether", None),
        ];
        for (key, nearest) in cases {
            assert_eq!(keys.nearest(key), nearest, "{key}");
        }
    }

    #[test]
    fn a_setting_has_one_name_in_the_environment() {
        assert_eq!(environment_name("state_dir"), "STREAMING_HUB_STATE_DIR");
        assert_eq!(environment_name("api.listen"), "STREAMING_HUB_API__LISTEN");
        let property = environment_name("kafka.properties.sasl.password");
        assert_eq!(property, "STREAMING_HUB_KAFKA__PROPERTIES__SASL_PASSWORD");
    }

    #[test]
    fn aliases_name_settings() {
        let keys = Keys::embedded().unwrap();
        assert!(ENV_ALIASES.iter().all(|(_, key)| keys.get(key).is_some()));
    }
}
