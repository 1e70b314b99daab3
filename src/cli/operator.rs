//! What an operator can ask beside running a hub: looking, repairing, exporting.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Layers;

/// What an operator can ask.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Print the exact rights that a hub needs, as `kafka-acls` commands.
    Acls(AclsCommand),
    /// Look for what is wrong around a hub, and say what to do about it; status 1 if anything is.
    Doctor(Common),
    /// Ask running instances how they are, and the groups where they stand.
    Status(StatusCommand),
    /// Move the hub back to a time or to the beginning; without `--execute` it only says what.
    Reset(ResetCommand),
    /// Quarantined records: write them out, or send them through classification again.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Accepted events.
    #[command(subcommand)]
    Inbox(InboxCommand),
    /// The log of known event ids.
    #[command(subcommand)]
    Dedup(DedupCommand),
}

/// What all of them take.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) layers: Layers,
}

/// Whose rights.
#[derive(Debug, Args)]
pub(crate) struct AclsCommand {
    /// The principal that the hub connects as, such as `User:streaming-hub`.
    #[arg(long)]
    pub(crate) principal: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Whom to ask.
#[derive(Debug, Args)]
pub(crate) struct StatusCommand {
    /// The instance to ask; without it, `api.advertised_url`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// An operator's bearer token.
    #[arg(long, env = "STREAMING_HUB_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// How far back.
#[derive(Debug, Args)]
pub(crate) struct ResetCommand {
    /// What is reset.
    #[arg(long, value_enum)]
    pub(crate) scope: Scope,
    /// `beginning`, or an RFC 3339 time. Not with `--scope local`.
    #[arg(long, value_name = "TIME")]
    #[arg(required_if_eq_any([("scope", "ingest"), ("scope", "application")]))]
    pub(crate) to: Option<String>,
    /// Do it. Without this nothing is changed.
    #[arg(long)]
    pub(crate) execute: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What can be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Only where ingest reads: known events stay known, so only what was missed comes again.
    Ingest,
    /// Everything but subscriptions and the quarantine: events are new and are delivered again.
    Application,
    /// Only the stores on this machine: they are rebuilt from Kafka.
    Local,
}

/// Which quarantined records.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct QuarantineFilter {
    /// Only of this reason, such as `missing_tenant`.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only from this topic.
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// Quarantined at or after this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Quarantined before this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// What can be done with quarantined records.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// Write them as JSON lines, byte for byte, to standard output or a file.
    Export {
        #[command(flatten)]
        filter: QuarantineFilter,
        /// The file; it must not exist.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        layers: Layers,
    },
    /// Classify them by today's configuration and pass on what is accepted now.
    Retry {
        #[command(flatten)]
        filter: QuarantineFilter,
        /// Say what would be accepted; write nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// What can be asked of the inbox.
#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Find events. JSON lines with `--json`.
    Grep(GrepCommand),
}

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct GrepCommand {
    /// Of this tenant.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// With this event id.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Of this type, `<resource>.<event>`; `<resource>.*` is any of a resource.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Taken in at or after this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Taken in before this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Stop after so many.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) limit: u64,
    /// Show the payload, too (base64 in JSON).
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What can be asked of the dedup log.
#[derive(Debug, Subcommand)]
pub(crate) enum DedupCommand {
    /// Print the ids that its packed records hold. JSON lines with `--json`.
    Print {
        /// Of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// This event id.
        #[arg(long)]
        id: Option<String>,
        /// Only this partition.
        #[arg(long)]
        partition: Option<i32>,
        #[command(flatten)]
        common: Common,
    },
}

impl OperatorCommand {
    /// The flags that stand after the command.
    pub(crate) fn layers(&self) -> Layers {
        match self {
            Self::Acls(command) => command.common.layers.clone(),
            Self::Doctor(common) => common.layers.clone(),
            Self::Status(command) => command.common.layers.clone(),
            Self::Reset(command) => command.common.layers.clone(),
            Self::Quarantine(QuarantineCommand::Export { layers, .. }) => layers.clone(),
            Self::Quarantine(QuarantineCommand::Retry { common, .. }) => common.layers.clone(),
            Self::Inbox(InboxCommand::Grep(command)) => command.common.layers.clone(),
            Self::Dedup(DedupCommand::Print { common, .. }) => common.layers.clone(),
        }
    }
}
