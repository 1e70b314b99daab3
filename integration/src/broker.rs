//! A Kafka of one's own: fact topics are found by a pattern, so tests never share a broker. Started
//! by `scripts/kafka` on free ports and a temporary directory, gone with its value.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::TopicResult;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaErrorCode;

use crate::keeper::Keeper;
use crate::ports;

/// How often another port is tried.
const TRIES: u32 = 3;

/// A running cluster.
pub struct Broker {
    bootstrap: String,
    nodes: u16,
    port: u16,
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

    /// Starts one node with an authorizer: behind [`Self::restricted`] the user `hub` may do what
    /// it is granted, and nothing else.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with_authorizer() -> Result<Self> {
        Self::begin(1, true)
    }

    /// Starts a cluster of one or three nodes.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_nodes(nodes: u16) -> Result<Self> {
        Self::begin(nodes, false)
    }

    fn begin(nodes: u16, authorizer: bool) -> Result<Self> {
        let made = tempfile::Builder::new().prefix("streaming-hub-kafka-").tempdir()?;
        // The script's purge removes it, also when this process cannot any more.
        let directory = made.keep();
        let dir = directory.as_os_str();
        let stop = ["stop", "--purge", "--dir"].map(OsStr::new);
        let script = script();
        let keeper = Keeper::new(&[&[script.as_os_str()], &stop[..], &[dir]].concat())?;
        let mut tries = 0;
        let (bootstrap, port) = loop {
            tries += 1;
            match Self::run(&directory, nodes, authorizer) {
                Ok(found) => break found,
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => {}
            }
        };
        Ok(Self { bootstrap, nodes, port, directory, _keeper: keeper })
    }

    fn run(directory: &Path, nodes: u16, authorizer: bool) -> Result<(String, u16)> {
        let own = ports::free(nodes * 2 + u16::from(authorizer))?;
        let port = own.to_string();
        let mut command = Command::new(script());
        if authorizer {
            command.env("STREAMING_HUB_KAFKA_AUTHORIZER", "1");
            command.env("STREAMING_HUB_KAFKA", "maven");
        }
        command.arg("start").arg("--dir").arg(directory);
        command.args(["--port", &port, "--nodes", &nodes.to_string()]);
        let output = command.output().context("scripts/kafka")?;
        let (said, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let found = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        match found {
            Some(bootstrap) if output.status.success() => Ok((bootstrap.to_owned(), own)),
            _ => bail!("scripts/kafka start: {}\n{said}{told}", output.status),
        }
    }

    /// `bootstrap.servers` of it.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// `bootstrap.servers` of the listener of the user `hub`, whose password is `hub-secret`.
    #[must_use]
    pub fn restricted(&self) -> String {
        format!("127.0.0.1:{}", self.port + 2)
    }

    /// Runs one of Kafka's own tools with full rights.
    ///
    /// # Errors
    /// What the tool said.
    pub fn tool(&self, name: &str, arguments: &[String]) -> Result<()> {
        let mut command = Command::new(script());
        command.arg("tool").arg("--dir").arg(&self.directory).arg(name).args(arguments);
        let output = command.output().context("scripts/kafka tool")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name} {arguments:?}: {}\n{told}", output.status);
        Ok(())
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

    /// Begins to start a node again, which may take a while; the process ends when it answers.
    ///
    /// # Errors
    /// When the script cannot be run.
    pub fn begin_start_node(&self, node: u16) -> Result<Child> {
        let mut command = Command::new(script());
        command.args(["start", "--node", &node.to_string(), "--dir"]).arg(&self.directory);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().context("scripts/kafka")
    }

    /// The file that a node's output goes to.
    #[must_use]
    pub fn log(&self, node: u16) -> PathBuf {
        self.directory.join(format!("node-{node}.log"))
    }

    /// Sends a node a signal: `STOP`, `CONT`. One that is stopped keeps its connections and answers
    /// nobody, as behind a network that stalls.
    ///
    /// # Errors
    /// When it does not run as a process of this machine.
    pub fn signal_node(&self, node: u16, name: &str) -> Result<()> {
        let pid = std::fs::read_to_string(self.directory.join(format!("node-{node}.pid")))?;
        let status =
            Command::new("bash").args(["-c", "kill -\"$0\" \"$1\"", name, pid.trim()]).status()?;
        ensure!(status.success(), "kill -{name} of node {node}: {status}");
        Ok(())
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
        match self.ask(async |admin, wait| admin.create_topics([&new], wait).await)? {
            Ok(()) | Err(RDKafkaErrorCode::TopicAlreadyExists) => Ok(()),
            Err(code) => bail!("topic {name} was not made: {code}"),
        }
    }

    /// Raises a topic's number of partitions to this one.
    ///
    /// # Errors
    /// The broker's.
    pub fn grow_topic(&self, name: &str, partitions: usize) -> Result<()> {
        let new = NewPartitions::new(name, partitions);
        self.ask(async |admin, wait| admin.create_partitions([&new], wait).await)?
            .map_err(|code| anyhow!("topic {name} did not grow: {code}"))
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// The broker's.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        self.ask(async |admin, wait| admin.delete_topics(&[name], wait).await)?
            .map_err(|code| anyhow!("topic {name} was not deleted: {code}"))
    }

    /// One request about one topic, and how it went.
    fn ask(
        &self,
        request: impl AsyncFnOnce(
            &AdminClient<DefaultClientContext>,
            &AdminOptions,
        ) -> KafkaResult<Vec<TopicResult>>,
    ) -> Result<Result<(), RDKafkaErrorCode>> {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create()?;
        let wait = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcomes = runtime.block_on(request(&admin, &wait))?;
        let failed = outcomes.into_iter().find_map(Result::err);
        Ok(failed.map_or(Ok(()), |(_, code)| Err(code)))
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/kafka")
}
