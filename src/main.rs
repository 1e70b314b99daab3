//! The program `streaming-hub`: reads the configuration, starts what the command asks for, turns
//! the outcome into an exit status: 0 done, 1 failed, 2 the configuration or the usage is wrong.

mod cli;
mod commands;
mod config;
mod hub;
mod instance;
mod logging;
mod observer;
mod operator;
mod pull;
mod settings;
mod threads;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{ApiCommand, Cli, Command, ConfigCommand};
use crate::config::{Config, Problems, Sources};

/// Also for librdkafka and RocksDB: records are allocated on one thread and freed on another, where
/// the system's allocator takes a fifth of all processor time (docs/adr/0009).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let (command, sources) = Cli::parse().into_parts();
    let Err(error) = dispatch(&command, &sources) else { return ExitCode::SUCCESS };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("streaming-hub: {error:#}");
    ExitCode::from(if error.is::<Problems>() { 2 } else { 1 })
}

fn dispatch(command: &Command, sources: &Sources) -> anyhow::Result<()> {
    match command {
        Command::Config(command) => show_config(command, sources),
        Command::Api(ApiCommand::Openapi) => print(&streaming_hub_api::openapi::text()),
        Command::Api(ApiCommand::Problems) => print(&streaming_hub_api::problems_markdown()),
        Command::Pull(command) => pull::run(command),
        Command::Run(_) => hub::run(&logged(sources)?),
        Command::Topology { mermaid, common } => {
            commands::topology(&logged(sources)?, *mermaid)?.print(common.json)
        }
        Command::Operator(command) => operator::run(&logged(sources)?, command),
        Command::Topics(command) => {
            commands::topics(&logged(sources)?, command)?.print(command.common().json)
        }
        Command::Salt(salt) => commands::salt(&logged(sources)?, salt)?.print(salt.common.json),
    }
}

/// The checked configuration, with logging as it says.
fn logged(sources: &Sources) -> anyhow::Result<Config> {
    let config = sources.load()?.checked()?;
    logging::init(&config.log)?;
    Ok(config)
}

fn show_config(command: &ConfigCommand, sources: &Sources) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Reference => print(&config::reference_markdown()?),
        ConfigCommand::Check(_) => {
            sources.load()?.checked()?;
            print("configuration ok\n")
        }
        ConfigCommand::Print { sources: with_origins, .. } => {
            let loaded = sources.load()?;
            let text = if *with_origins { loaded.to_toml_with_origins() } else { loaded.to_toml() };
            print(&text?)?;
            Ok(loaded.checked().map(drop)?)
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
