//! The operator's commands: look, repair, export. Each prints text for a person or one JSON
//! document (or JSON lines) for a program, and ends with status 1 when it found something wrong.

mod acls;
mod dedup;
mod doctor;
mod inbox;
mod local;
mod quarantine;
mod reset;
mod status;

pub(crate) use self::status::client as http_client;

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};
use serde_json::Value;
use streaming_hub_model::rfc3339;
use streaming_hub_model::time::UnixMillis;

use crate::cli::OperatorCommand;
use crate::config::Config;

/// What a command has to say.
pub(crate) struct Report {
    /// For a person.
    pub(crate) text: String,
    /// For a program.
    pub(crate) json: Value,
    /// What is wrong, if anything is: the status is 1 then.
    pub(crate) wrong: Option<String>,
}

impl Report {
    /// A report of something that is as it should be.
    pub(crate) fn good(text: String, json: Value) -> Self {
        Self { text, json, wrong: None }
    }

    /// Prints it, and fails if something is wrong.
    pub(crate) fn print(self, as_json: bool) -> anyhow::Result<()> {
        let mut text = if as_json { serde_json::to_string_pretty(&self.json)? } else { self.text };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        io::stdout().lock().write_all(text.as_bytes())?;
        match self.wrong {
            None => Ok(()),
            Some(wrong) => bail!(wrong),
        }
    }
}

/// Runs one of them.
pub(crate) fn run(config: &Config, command: &OperatorCommand) -> anyhow::Result<()> {
    match command {
        OperatorCommand::Acls(command) => {
            acls::acls(config, &command.principal)?.print(command.common.json)
        }
        OperatorCommand::Doctor(common) => doctor::doctor(config)?.print(common.json),
        OperatorCommand::Status(command) => {
            status::status(config, command)?.print(command.common.json)
        }
        OperatorCommand::Reset(command) => {
            reset::reset(config, command)?.print(command.common.json)
        }
        OperatorCommand::Quarantine(command) => quarantine::run(config, command),
        OperatorCommand::Inbox(command) => inbox::run(config, command),
        OperatorCommand::Dedup(command) => dedup::run(config, command),
    }
}

/// A time that a flag names.
fn time(flag: &str, text: Option<&str>) -> anyhow::Result<Option<UnixMillis>> {
    let parse = |text: &str| {
        rfc3339::parse_millis(text).map(UnixMillis).with_context(|| {
            format!("{flag}: {text:?} is no RFC 3339 time such as 2026-01-31T00:00:00Z")
        })
    };
    text.map(parse).transpose()
}

/// Runs what waits for Kafka or HTTP.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
