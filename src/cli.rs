//! The command line: what can be asked of the program, and the flags that lie above the other
//! layers of the configuration.

mod operator;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Sources;
use crate::pull::PullCommand;

pub(crate) use operator::{
    Common, DedupCommand, GrepCommand, InboxCommand, OperatorCommand, QuarantineCommand,
    QuarantineFilter, ResetCommand, Scope, StatusCommand,
};

/// An event hub on Kafka: facts in, signed webhooks and other deliveries out.
#[derive(Debug, Parser)]
#[command(name = "streaming-hub", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    layers: Layers,

    /// What to do; without it, `run`.
    #[command(subcommand)]
    command: Option<Command>,
}

/// Flags of the configuration. They stand before the command or after it. They are not clap's
/// global arguments: of those, clap drops the ones before when there are some after.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Layers {
    /// Configuration file [env: STREAMING_HUB_CONFIG].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Sets one value above all others: `section.key=value`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// What this instance does: ingest, match, delivery, pull, registry, dlq, api.
    #[arg(long, value_name = "ROLE,…", value_delimiter = ',')]
    roles: Option<Vec<String>>,
}

/// What can be asked of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the hub until it is stopped.
    Run(Layers),
    /// Print the topology: sub-topologies, their sources, stores and topics.
    Topology {
        /// As a Mermaid flow chart.
        #[arg(long, conflicts_with = "json")]
        mermaid: bool,
        #[command(flatten)]
        common: Common,
    },
    #[command(flatten)]
    Operator(OperatorCommand),
    /// Plan, make or verify the internal topics.
    #[command(subcommand)]
    Topics(TopicsCommand),
    /// Spread a tenant's events over all partitions, from a moment in the future on.
    Salt(SaltCommand),
    /// Check, show or explain the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Read a pull subscription: one line of JSON for each event.
    Pull(PullCommand),
    /// Print what describes the HTTP interface.
    #[command(subcommand)]
    Api(ApiCommand),
}

/// What can be asked about the HTTP interface.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiCommand {
    /// Print the OpenAPI document of all routes.
    Openapi,
    /// Print the page of all problems.
    Problems,
}

/// What is said about a tenant that is to be salted. It cannot be taken back: copies of one event
/// must meet in one task for all time.
#[derive(Debug, Args)]
pub(crate) struct SaltCommand {
    /// The tenant.
    #[arg(long)]
    pub(crate) tenant: String,
    /// In how many seconds it begins, at least 60: every instance has to know before.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) after: u32,
    /// Say what would be recorded; record nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What can be asked about internal topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicsCommand {
    /// Print what is missing and what differs; change nothing.
    Plan(Common),
    /// Make what is missing.
    Create(Common),
    /// Compare with the plan; status 1 when anything is missing or differs.
    Verify(Common),
}

impl TopicsCommand {
    /// What each of them takes.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Plan(common) | Self::Create(common) | Self::Verify(common) => common,
        }
    }
}

/// What can be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Name everything that is wrong; status 2 if anything is.
    Check(Layers),
    /// Print the effective values, secrets masked.
    Print {
        /// Say where each value came from.
        #[arg(long)]
        sources: bool,
        /// Flags after the command.
        #[command(flatten)]
        layers: Layers,
    },
    /// Print the reference page of all settings.
    Reference,
}

impl Command {
    /// The flags that stand after the command.
    fn layers(&self) -> Layers {
        match self {
            Self::Run(layers)
            | Self::Config(ConfigCommand::Check(layers) | ConfigCommand::Print { layers, .. }) => {
                layers.clone()
            }
            Self::Topology { common, .. } => common.layers.clone(),
            Self::Topics(command) => command.common().layers.clone(),
            Self::Operator(command) => command.layers(),
            Self::Salt(command) => command.common.layers.clone(),
            Self::Config(ConfigCommand::Reference) | Self::Api(_) | Self::Pull(_) => {
                Layers::default()
            }
        }
    }
}

impl Cli {
    /// The command, and the layers of the configuration: flags above this process's environment.
    pub(crate) fn into_parts(self) -> (Command, Sources) {
        let command = self.command.unwrap_or_else(|| Command::Run(Layers::default()));
        let (before, after) = (self.layers, command.layers());
        let name = |name: std::ffi::OsString| name.into_string().ok();
        let variables = std::env::vars_os().filter_map(|(key, value)| Some((name(key)?, value)));
        let sources = Sources {
            file: after.config.or(before.config),
            environment: variables.collect(),
            set: [before.set, after.set].concat(),
            roles: after.roles.or(before.roles),
        };
        (command, sources)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(line: &str) -> (Command, Sources) {
        Cli::try_parse_from(line.split(' ')).unwrap().into_parts()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_command_the_hub_runs() {
        assert!(matches!(parsed("streaming-hub").0, Command::Run(_)));
        let (command, sources) = parsed("streaming-hub --config hub.toml --roles ingest,match");
        assert!(matches!(command, Command::Run(_)));
        assert_eq!(sources.roles.unwrap(), ["ingest", "match"]);
        assert_eq!(sources.file.unwrap(), PathBuf::from("hub.toml"));
    }

    #[test]
    fn an_operators_commands_take_the_same_flags() {
        let (command, sources) = parsed("streaming-hub --set a=1 doctor --json --config y");
        assert!(matches!(
            command,
            Command::Operator(OperatorCommand::Doctor(Common { json: true, .. }))
        ));
        assert_eq!(sources.file.unwrap(), PathBuf::from("y"));
        let without_time = "streaming-hub reset --scope application";
        assert!(Cli::try_parse_from(without_time.split(' ')).is_err());
        parsed("streaming-hub reset --scope local --execute");
        parsed("streaming-hub quarantine retry --reason missing_tenant --dry-run");
    }

    #[test]
    fn flags_stand_before_the_command_after_it_or_both() {
        let (command, sources) = parsed("streaming-hub --set a=1 --set b=2 topics plan");
        assert!(matches!(command, Command::Topics(TopicsCommand::Plan(_))));
        assert_eq!(sources.set, ["a=1", "b=2"]);
        let (command, sources) = parsed("streaming-hub config print --sources --set a=1");
        assert!(matches!(command, Command::Config(ConfigCommand::Print { sources: true, .. })));
        assert_eq!(sources.set, ["a=1"]);
        let (_, sources) = parsed("streaming-hub --set a=1 --config x run --set b=2 --config y");
        assert_eq!(sources.set, ["a=1", "b=2"]);
        assert_eq!(sources.file.unwrap(), PathBuf::from("y"));
    }
}
