//! A Kafka of one's own: fact topics are found by a pattern, so tests never share a broker. Started
//! by `scripts/kafka` on free ports and a temporary directory, gone with its value.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;

use crate::keeper::Keeper;
use crate::ports;

/// How often another port is tried.
const TRIES: u32 = 3;

/// A running cluster.
pub struct Broker {
    bootstrap: String,
    nodes: u16,
    directory: PathBuf,
    _keeper: Keeper,
}

impl Broker {
    /// Starts one node and waits until it answers.
    ///
    /// # Errors
    /// When it does not start; with what the script said.
    pub fn start() -> Result<Self> {
        Self::start_nodes(1)
    }

    /// Starts a cluster of one or three nodes.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_nodes(nodes: u16) -> Result<Self> {
        let made = tempfile::Builder::new().prefix("streaming-hub-kafka-").tempdir()?;
        // The script's purge removes it, also when this process cannot any more.
        let directory = made.keep();
        let dir = directory.as_os_str();
        let stop = ["stop", "--purge", "--dir"].map(OsStr::new);
        let script = script();
        let keeper = Keeper::new(&[&[script.as_os_str()], &stop[..], &[dir]].concat())?;
        let mut tries = 0;
        let bootstrap = loop {
            tries += 1;
            match Self::run(&directory, nodes) {
                Ok(bootstrap) => break bootstrap,
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => {}
            }
        };
        Ok(Self { bootstrap, nodes, directory, _keeper: keeper })
    }

    fn run(directory: &Path, nodes: u16) -> Result<String> {
        let port = ports::free(nodes * 2)?.to_string();
        let mut command = Command::new(script());
        command.arg("start").arg("--dir").arg(directory);
        command.args(["--port", &port, "--nodes", &nodes.to_string()]);
        let output = command.output().context("scripts/kafka")?;
        let (said, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let found = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        match found {
            Some(bootstrap) if output.status.success() => Ok(bootstrap.to_owned()),
            _ => bail!("scripts/kafka start: {}\n{said}{told}", output.status),
        }
    }

    /// `bootstrap.servers` of it.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Ends a node at once, as a crash would.
    ///
    /// # Errors
    /// What the script said.
    pub fn kill_node(&self, node: u16) -> Result<()> {
        self.script(&["stop", "--kill", "--node", &node.to_string()])
    }

    /// Starts a node again.
    ///
    /// # Errors
    /// What the script said.
    pub fn start_node(&self, node: u16) -> Result<()> {
        self.script(&["start", "--node", &node.to_string()])
    }

    fn script(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(script());
        command.args(arguments).arg("--dir").arg(&self.directory);
        let output = command.output().context("scripts/kafka")?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("scripts/kafka {arguments:?}: {}\n{told}", output.status);
        }
        Ok(())
    }

    /// Makes a topic with these settings; one that is there already stays as it is.
    ///
    /// # Errors
    /// The broker's.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let replicas = TopicReplication::Fixed(i32::from(self.nodes));
        let new = NewTopic::new(name, partitions, replicas);
        let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create()?;
        let wait = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for outcome in runtime.block_on(admin.create_topics([&new], &wait))? {
            match outcome {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => bail!("topic {name} was not made: {code}"),
            }
        }
        Ok(())
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/kafka")
}
