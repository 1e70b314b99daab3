//! The configuration of a hub under test: a file with what differs from the defaults, in a
//! temporary directory that also holds state and log and outlives restarts.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use crate::keeper::Keeper;
use crate::ports;
use crate::signature::hex;

/// Public test key: base64 of 32 bytes.
const KEY: &str = "c3RyZWFtaW5nLWh1Yi1kZXZlbG9wbWVudC1rZXktMzI=";

/// Public test key of the cluster.
const CLUSTER_KEY: &str = "streaming-hub-test-cluster-key-of-no-secrecy";

/// What a hub is started with.
#[derive(Debug)]
pub struct HubConfig {
    directory: PathBuf,
    _keeper: Keeper,
    listen: SocketAddr,
    values: Table,
}

impl HubConfig {
    /// A hub of all roles on this broker: 4 partitions, unreplicated, private destinations allowed,
    /// a free port, new topics found within a second.
    ///
    /// # Errors
    /// When there is no port or no temporary directory.
    pub fn new(bootstrap: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("streaming-hub-").tempdir()?.keep();
        let remove = [OsStr::new("rm"), OsStr::new("-rf"), directory.as_os_str()];
        let keeper = Keeper::new(&remove)?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free(1)?));
        let state = directory.join("state").to_string_lossy().into_owned();
        let config = Self { directory, _keeper: keeper, listen, values: Table::new() }
            .set("instance_id", "a")
            .set("state_dir", state)
            .set("kafka.bootstrap_servers", bootstrap)
            .set("topics.partitions", 4)
            .set("topics.replication_factor", 1)
            .set("ingest.metadata_refresh_ms", 1_000)
            .set("sinks.allow_private", true)
            .set("encryption.key", KEY)
            .set("api.listen", listen.to_string())
            // Breakers that do not open: tests of failures want every attempt at once.
            .set("breaker.failures_max", 1_000)
            .set("breaker.attempts_min", 100_000)
            .set("cluster.key", CLUSTER_KEY)
            .set("cluster.hosts", vec!["127.0.0.1"]);
        Ok(config.token("operator", "operator", None))
    }

    /// Sets one value by its dotted path.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let mut keys = path.split('.').collect::<Vec<_>>();
        let last = keys.pop().unwrap_or_default();
        let table = keys.into_iter().fold(&mut self.values, |table, key| {
            let entry = table.entry(key).or_insert_with(|| Table::new().into());
            if !entry.is_table() {
                *entry = Table::new().into();
            }
            entry.as_table_mut().unwrap_or_else(|| unreachable!("made a table"))
        });
        table.insert(last.to_owned(), value.into());
        self
    }

    /// The default back-off curve, milliseconds.
    #[must_use]
    pub fn retry(self, steps_ms: &[i64]) -> Self {
        self.set("delivery.retry_schedule_ms", steps_ms.to_vec())
    }

    /// Lets these tenants use the API.
    #[must_use]
    pub fn tenants(self, tenants: &[&str]) -> Self {
        tenants.iter().fold(self, |config, tenant| config.token(tenant, "tenant", Some(tenant)))
    }

    fn token(mut self, name: &str, role: &str, tenant: Option<&str>) -> Self {
        let digest = hex(&Sha256::digest(token_of(tenant)));
        let mut token = Table::new();
        for (key, value) in [("name", name), ("role", role), ("sha256", &digest)] {
            token.insert(key.to_owned(), value.into());
        }
        if let Some(tenant) = tenant {
            token.insert("tenant".to_owned(), tenant.into());
        }
        let known = self.values.get("api").and_then(|api| api.get("tokens")).cloned();
        let mut tokens = known.and_then(|known| known.as_array().cloned()).unwrap_or_default();
        tokens.push(token.into());
        self = self.set("api.tokens", tokens);
        self
    }

    /// Where its API listens.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Its application id: the prefix of internal topics and groups.
    #[must_use]
    pub fn application(&self) -> String {
        let id = self.values.get("application_id").and_then(Value::as_str);
        id.unwrap_or("streaming-hub").to_owned()
    }

    /// The directory of its file, state and log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file that its output goes to.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory().join("hub.log")
    }

    /// Writes the file and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        let path = self.directory().join("hub.toml");
        std::fs::write(&path, toml::to_string(&self.values)?).context("hub.toml")?;
        Ok(path)
    }
}

/// The bearer token of a tenant, or of the operator. Made from the name: a test's token is no
/// secret.
#[must_use]
pub fn token_of(tenant: Option<&str>) -> String {
    let digest = Sha256::digest(tenant.unwrap_or("\0operator"));
    format!("test-{}", &hex(&digest)[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_nested_by_their_paths_and_tenants_get_tokens() {
        let config = HubConfig::new("127.0.0.1:1").unwrap();
        let config = config.set("log.filter", "debug").tenants(&["acme"]).retry(&[0, 200]);
        let text = std::fs::read_to_string(config.write().unwrap()).unwrap();
        let table: Table = toml::from_str(&text).unwrap();
        assert_eq!(table["log"]["filter"].as_str(), Some("debug"));
        assert_eq!(table["delivery"]["retry_schedule_ms"].as_array().unwrap().len(), 2);
        let tokens = table["api"]["tokens"].as_array().unwrap();
        assert_eq!(tokens[1]["tenant"].as_str(), Some("acme"));
        assert_eq!(config.application(), "streaming-hub");
    }
}
