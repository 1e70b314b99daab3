//! A hub under test: the real program as a child process, with a configuration of its own, killed,
//! stopped and started again at will, gone with its value.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::api::Api;
use crate::config::{HubConfig, token_of};
use crate::http::{self, Ask};
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::wait::{self, Seen};

/// How much of the log a failure shows.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many lines of it.
const TAIL_LINES: usize = 60;
/// Ticks of `/proc/<pid>/stat` in a second: `USER_HZ`, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A hub.
pub struct Hub {
    config: HubConfig,
    running: Option<Running>,
}

struct Running {
    child: Child,
    keeper: Keeper,
}

impl Hub {
    /// Starts a hub; it is not ready yet.
    ///
    /// # Errors
    /// When there is no program beside this one, or it does not start.
    pub fn start(config: HubConfig) -> Result<Self> {
        let mut hub = Self { config, running: None };
        hub.restart()?;
        Ok(hub)
    }

    /// Starts the program again, with the same configuration, state and address.
    ///
    /// # Errors
    /// When it runs, or does not start.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the hub runs already");
        let file = self.config.write()?;
        let log = OpenOptions::new().create(true).append(true).open(self.config.log())?;
        let mut command = program_command()?;
        command.arg("run").arg("--config").arg(file);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("the hub's program")?;
        let pid = child.id().to_string();
        let kill = ["bash", "-c", "kill -KILL \"$0\"", &pid].map(OsStr::new);
        self.running = Some(Running { child, keeper: Keeper::new(&kill)? });
        Ok(())
    }

    /// Runs one of the program's commands with the same configuration: what it printed.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn command(&self, arguments: &[&str]) -> Result<String> {
        let mut command = program_command()?;
        let output = command.args(arguments).arg("--config").arg(self.config.write()?).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{arguments:?}: {}\n{told}{printed}", output.status);
        Ok(printed.into_owned())
    }

    /// Runs the program's consumer of a pull subscription as this tenant: what it printed.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn pull(&self, tenant: &str, arguments: &[&str]) -> Result<String> {
        let mut command = program_command()?;
        command.args(["pull", "--url", &format!("http://{}", self.address())]).args(arguments);
        let output = command.env("STREAMING_HUB_TOKEN", token_of(Some(tenant))).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pull {arguments:?}: {}\n{told}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &HubConfig {
        &self.config
    }

    /// Where its API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.config.listen()
    }

    /// The API as this tenant, which must be one of the configuration's.
    #[must_use]
    pub fn api(&self, tenant: &str) -> Api {
        Api::new(self.address(), tenant)
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// How it ended, if it ended by itself.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.running.as_mut().map(|running| running.child.try_wait()).transpose()?.flatten())
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it is not in time, or ends; with the end of its log.
    pub fn wait_ready(&mut self, within: Duration) -> Result<()> {
        let ready = wait::until("a ready hub", within, || {
            if let Some(status) = self.ended()? {
                bail!("the hub ended: {status}");
            }
            let target = "/readyz";
            let answer =
                http::ask(self.address(), &Ask { method: "GET", target, ..Ask::default() });
            Ok(match answer {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(format!("{} {}", answer.status, answer.body)),
                Err(error) => Err(format!("{error:#}")),
            })
        });
        ready.with_context(|| self.log_tail())
    }

    /// Ends it at once, as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9(&mut self) -> Result<()> {
        let Running { mut child, keeper } = self.running.take().context("the hub does not run")?;
        child.kill()?;
        child.wait()?;
        keeper.disarm();
        Ok(())
    }

    /// Asks it to end, and waits until it has, with status 0.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub fn terminate(&mut self, within: Duration) -> Result<()> {
        let pid = self.pid().context("the hub does not run")?;
        self.signal("TERM")?;
        let status = wait::until("the hub's end", within, || {
            Ok(self.ended()?.ok_or_else(|| format!("process {pid} runs")))
        })
        .with_context(|| self.log_tail())?;
        if let Some(running) = self.running.take() {
            running.keeper.disarm();
        }
        ensure!(status.success(), "the hub ended with {status}\n{}", self.log_tail());
        Ok(())
    }

    /// Sends it a signal: `TERM`, `STOP`, `CONT`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("the hub does not run")?.to_string();
        let status =
            Command::new("bash").args(["-c", "kill -\"$0\" \"$1\"", name, &pid]).status()?;
        ensure!(status.success(), "kill -{name} {pid}: {status}");
        Ok(())
    }

    /// Its counters.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self) -> Result<Metrics> {
        let ask = Ask { method: "GET", target: "/metrics", ..Ask::default() };
        Ok(Metrics::parse(&http::ask(self.address(), &ask)?.body))
    }

    /// Waits until its counters are as the probe wants them. They follow a commit: what a topic
    /// shows may be counted a moment later.
    ///
    /// # Errors
    /// When they are not in time, with what the probe saw at last.
    pub fn wait_metrics(
        &self,
        within: Duration,
        mut probe: impl FnMut(&Metrics) -> Seen<()>,
    ) -> Result<()> {
        wait::until("the hub's counters", within, || Ok(probe(&self.metrics()?)))
    }

    /// Its resident memory now and at its highest, bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn rss_bytes(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(self.proc("status")?)?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().ok())
        };
        let (now, peak) = (kib("VmRSS"), kib("VmHWM"));
        let read = now.zip(peak).context("no VmRSS and VmHWM")?;
        Ok((read.0 * 1024, read.1 * 1024))
    }

    /// The processor time that it has used, seconds.
    ///
    /// # Errors
    /// When it does not run.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(self.proc("stat")?)?;
        // Behind the name in parentheses, user and system time are the 12th and 13th field.
        let fields = stat.rsplit_once(") ").context("/proc/…/stat")?.1;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
    }

    fn proc(&self, file: &str) -> Result<PathBuf> {
        let pid = self.pid().context("the hub does not run")?;
        Ok(PathBuf::from(format!("/proc/{pid}/{file}")))
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let read = || -> Result<String> {
            let mut file = File::open(self.config.log())?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let text = String::from_utf8_lossy(&bytes);
            let lines = text.lines().collect::<Vec<_>>();
            Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
        };
        format!("the end of the hub's log:\n{}", read().unwrap_or_else(|error| error.to_string()))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.running.is_some() {
            let _ = self.kill9();
        }
    }
}

/// The program, with nothing in its environment that configures it.
fn program_command() -> Result<Command> {
    let mut command = Command::new(program()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STREAMING_HUB_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// The program beside this one: a test lies in `deps/`, a binary in its parent.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("streaming-hub"));
    let found = places.into_iter().find(|path| path.is_file());
    found.with_context(|| {
        format!("no streaming-hub near {}: cargo build --bin streaming-hub", own.display())
    })
}
