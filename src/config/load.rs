//! Merges the layers into a [`Config`] and collects everything that is wrong with it.
//!
//! A value that does not fit its setting is reported, taken out, and the merge is repeated with the
//! default in its place: so one run shows all problems, those of the validation included.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use figment::error::Kind as Mismatch;
use figment::value::{Dict, Value};
use figment::{Figment, Provider as _};

use super::Config;
use super::keys::{Keys, Kind, is_secret};
use super::layers::{Layer, Reader, dict_of};
use super::memory;
use super::problem::{Problem, Problems};
use super::validate::validate;
use super::values::MASK;

/// Origin of what the embedded default file says.
pub(super) const DEFAULT_ORIGIN: &str = "default";

/// What lies above the defaults, lowest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The file of `--config`; without it, the one that `STREAMING_HUB_CONFIG` names.
    pub(crate) file: Option<PathBuf>,
    /// Environment variables; those of others are ignored.
    pub(crate) environment: Vec<(String, OsString)>,
    /// `key=value` of `--set`.
    pub(crate) set: Vec<String>,
    /// The names of `--roles`.
    pub(crate) roles: Option<Vec<String>>,
}

/// A configuration, and what is known about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The effective values; where one was refused, the default.
    pub(crate) config: Config,
    /// Where each value came from, by dotted key.
    pub(super) origins: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Loaded {
    /// The configuration, if it may be used.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn checked(self) -> Result<Config, Problems> {
        if self.problems.is_empty() { Ok(self.config) } else { Err(Problems(self.problems)) }
    }
}

impl Sources {
    /// Reads and merges all layers.
    ///
    /// # Errors
    /// The embedded defaults do not fit the program; a test holds that they do.
    pub(crate) fn load(&self) -> Result<Loaded, Problems> {
        let broken = |wrong: String| {
            Problems(vec![Problem::new("config/default.toml", wrong, "Report this as a defect")])
        };
        let keys = Keys::embedded().map_err(|error| broken(error.to_string()))?;
        let mut reader = Reader::new(&keys);
        if let Some(file) = self.config_file() {
            reader.file(&file);
        }
        reader.environment(&self.environment);
        reader.assignments(&self.set);
        if let Some(roles) = &self.roles {
            reader.roles(roles);
        }
        let mut problems = reader.problems;
        let mut layers = vec![Layer::new(DEFAULT_ORIGIN, dict_of(keys.defaults.clone()))];
        layers.extend(reader.layers);

        let (config, origins) = extracted(&keys, &mut layers, &mut problems).map_err(broken)?;
        problems.extend(invalid(&config, &origins, &problems).map_err(|e| broken(e.to_string()))?);
        Ok(Loaded { config, origins, problems })
    }

    fn config_file(&self) -> Option<PathBuf> {
        let named = || self.environment.iter().find(|(name, _)| name == "STREAMING_HUB_CONFIG");
        let variable = || named().map(|(_, value)| value).filter(|value| !value.is_empty());
        self.file.clone().or_else(|| variable().map(PathBuf::from))
    }
}

type Extracted = (Config, BTreeMap<String, String>);

fn extracted(
    keys: &Keys,
    layers: &mut [Layer],
    problems: &mut Vec<Problem>,
) -> Result<Extracted, String> {
    loop {
        let figment = merged(layers);
        let error = match figment.extract::<Config>() {
            Ok(config) => return Ok((config, origins(&figment))),
            Err(error) => error,
        };
        let Some(path) = keys.enclosing(&error.path) else { return Err(error.to_string()) };
        let removed =
            layers.iter_mut().skip(1).filter_map(|layer| layer.remove(path).then_some(()));
        if removed.count() == 0 {
            return Err(error.to_string());
        }
        problems.push(mismatch(keys, path, &error, &figment));
    }
}

fn merged(layers: &[Layer]) -> Figment {
    let figment = layers.iter().fold(Figment::new(), Figment::merge);
    let shares = memory::shares(&figment);
    let figment = figment.merge(shares);
    let text = |key: &str| figment.find_value(key).ok().and_then(Value::into_string);
    if text("api.advertised_url").is_some_and(|url| !url.is_empty()) {
        return figment;
    }
    // An address that does not parse is a problem of its own, not of this setting, too.
    let listen = text("api.listen").and_then(|listen| listen.parse::<SocketAddr>().ok());
    let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)));
    let path = ["api".to_owned(), "advertised_url".to_owned()];
    figment.merge(Layer::single("api.listen", &path, format!("http://{listen}").into()))
}

fn origins(figment: &Figment) -> BTreeMap<String, String> {
    fn walk(figment: &Figment, prefix: &str, values: &Dict, found: &mut BTreeMap<String, String>) {
        for (name, value) in values {
            let key = format!("{prefix}{name}");
            match value {
                Value::Dict(_, inner) => walk(figment, &format!("{key}."), inner, found),
                leaf => {
                    let metadata = figment.get_metadata(leaf.tag());
                    let origin = metadata.map_or(DEFAULT_ORIGIN.into(), |m| m.name.to_string());
                    found.insert(key, origin);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(figment, "", &values_of(figment), &mut found);
    found
}

/// The merged values; the layers hold no errors of their own.
fn values_of(figment: &Figment) -> Dict {
    let profiles = figment.data().unwrap_or_default();
    profiles.into_values().next().unwrap_or_default()
}

fn mismatch(keys: &Keys, path: &[String], error: &figment::Error, figment: &Figment) -> Problem {
    let setting = path.join(".");
    let inner = &error.path[path.len()..];
    let key = inner.iter().fold(setting.clone(), |key, part| match part.parse::<usize>() {
        Ok(index) => format!("{key}[{index}]"),
        Err(_) => format!("{key}.{part}"),
    });
    let kind = keys.find(&setting).map_or(Kind::Text, |(_, kind)| kind);
    let wrong = match &error.kind {
        Mismatch::Message(text) => text.clone(),
        Mismatch::InvalidType(_, expected) if kind == Kind::Tables => format!("must be {expected}"),
        Mismatch::InvalidType(..) => format!("must be {}", kind.name()),
        Mismatch::InvalidValue(..) => "is out of range".to_owned(),
        Mismatch::UnknownVariant(_, known) => format!("is not one of {}", known.join(", ")),
        Mismatch::UnknownField(_, known) => {
            format!("is not part of a token, which has {}", known.join(", "))
        }
        Mismatch::MissingField(name) => format!("has no `{name}`"),
        other => other.to_string(),
    };
    let default = keys.get(&setting).map(|setting| setting.default.as_str());
    let remedy = match default.filter(|_| !is_secret(&setting) && kind != Kind::Tables) {
        Some(default) => format!("Mend it or leave it out: the default is {default}"),
        None => "See `streaming-hub config reference`".to_owned(),
    };
    let mut problem = Problem::new(key, wrong, remedy);
    let value = found(figment, path);
    problem.origin = value.as_ref().and_then(|value| {
        figment.get_metadata(value.tag()).map(|metadata| metadata.name.to_string())
    });
    problem.value =
        value.filter(|_| kind != Kind::Tables).and_then(|value| shown(&setting, &value));
    problem
}

fn found(figment: &Figment, path: &[String]) -> Option<Value> {
    path.iter()
        .try_fold(Value::from(values_of(figment)), |value, key| value.into_dict()?.remove(key))
}

fn shown(setting: &str, value: &Value) -> Option<String> {
    if is_secret(setting) {
        return Some(MASK.to_owned());
    }
    toml::Value::try_from(value).ok().map(|value| value.to_string())
}

/// What the validation says, except about settings that are reported already.
fn invalid(
    config: &Config,
    origins: &BTreeMap<String, String>,
    reported: &[Problem],
) -> Result<Vec<Problem>, toml::ser::Error> {
    let values = toml::Table::try_from(config)?;
    let mut problems = validate(config, &values);
    problems.retain(|problem| reported.iter().all(|other| other.key != problem.key));
    for problem in &mut problems {
        // `api.tokens[1]` came from where the whole list came from.
        let setting = problem.key.split('[').next().unwrap_or_default();
        problem.origin = origins.get(setting).cloned();
        problem.value = super::keys::leaves(&values)
            .into_iter()
            .find(|(path, value)| path.join(".") == problem.key && !value.is_array())
            .map(|(_, value)| value.to_string());
    }
    Ok(problems)
}
