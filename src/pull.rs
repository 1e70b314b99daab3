//! `streaming-hub pull`: a small consumer of a pull subscription over HTTP. It prints each entry as
//! one line of JSON, passes `after=` of what it has printed, remembers that in a file if it is
//! given one, and goes on through everything that a later read can mend.
//!
//! The order of a page: print, flush, remember, read on. So after a crash a page may be printed
//! again, and none is left out.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{SignalKind, signal};

/// How long one read may wait for entries, seconds.
const WAIT_S: u64 = 20;
/// How long an answer may take beyond that.
const ANSWER: Duration = Duration::from_secs(40);
/// Between two tries when the hub does not say.
const AGAIN: Duration = Duration::from_secs(1);
/// Never longer than this, whatever the hub says.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Read a pull subscription: one line of JSON for each event.
#[derive(Debug, Args)]
pub(crate) struct PullCommand {
    /// The subscription's id.
    #[arg(long, value_name = "ID")]
    subscription: String,
    /// Where a hub answers.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A file that holds the tenant's bearer token [default: the variable `STREAMING_HUB_TOKEN`].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Begin behind this `seq`. Without it, and without a state file, behind the cursor.
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Keeps the last printed `seq` in this file, and begins behind it.
    #[arg(long, value_name = "FILE", conflicts_with = "after")]
    state: Option<PathBuf>,
    /// The most entries of one read, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// End once there is nothing more to read.
    #[arg(long)]
    once: bool,
}

/// One page as it came: entries stay the text that they are.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next_cursor: Option<u64>,
}

#[derive(Deserialize)]
struct Seq {
    seq: u64,
}

/// What one read came to.
enum Read {
    Page(String),
    /// Try again after this long, and why.
    Again(Duration, String),
}

/// Follows the subscription until it is stopped, or until its end with `--once`.
///
/// # Errors
/// What a later read does not mend: a refused token, a subscription that is none, a full disk.
pub(crate) fn run(command: &PullCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(command))
}

async fn follow(command: &PullCommand) -> anyhow::Result<()> {
    let token = token(command.token_file.as_deref())?;
    let client = crate::operator::http_client(ANSWER)?;
    let mut after = match &command.state {
        Some(file) => remembered(file)?,
        None => command.after,
    };
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    loop {
        let read = tokio::select! {
            read = read(&client, command, &token, after) => read?,
            // A read that is given up moves nothing unless it was committed, and `after` says
            // where to go on in either case.
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        };
        let pause = match read {
            Read::Again(pause, why) => {
                eprintln!("streaming-hub: {why}; again in {} s", pause.as_secs_f32());
                pause
            }
            Read::Page(body) => {
                let page: Page<'_> = serde_json::from_str(&body).context("the hub's answer")?;
                if let Some(last) = print(&page)? {
                    after = Some(last);
                    command.state.as_deref().map_or(Ok(()), |file| remember(file, last))?;
                }
                if command.once && page.next_cursor.is_none() {
                    return Ok(());
                }
                continue;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        }
    }
}

async fn read(
    client: &reqwest::Client,
    command: &PullCommand,
    token: &str,
    after: Option<u64>,
) -> anyhow::Result<Read> {
    let base = command.url.trim_end_matches('/');
    let wait = if command.once { 0 } else { WAIT_S };
    let (id, limit) = (&command.subscription, command.limit);
    let mut url = format!("{base}/v1/events?subscription_id={id}&limit={limit}&wait={wait}");
    if let Some(after) = after {
        url.push_str(&format!("&after={after}"));
    }
    let answer = match client.get(url).bearer_auth(token).send().await {
        Ok(answer) => answer,
        Err(error) => return Ok(Read::Again(AGAIN, error.without_url().to_string())),
    };
    let status = answer.status();
    let said = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let pause = said.and_then(|text| text.parse().ok()).map_or(AGAIN, Duration::from_secs);
    let body = match answer.text().await {
        Ok(body) => body,
        Err(error) => return Ok(Read::Again(AGAIN, error.without_url().to_string())),
    };
    if status == StatusCode::OK {
        return Ok(Read::Page(body));
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Ok(Read::Again(pause.min(AGAIN_MAX), format!("{status} {}", body.trim())));
    }
    bail!("{status} {}", body.trim())
}

/// Prints a page's entries; the last one's `seq`.
fn print(page: &Page<'_>) -> anyhow::Result<Option<u64>> {
    let mut out = io::stdout().lock();
    let mut last = None;
    for event in &page.events {
        out.write_all(&line(event.get()))?;
        last = Some(serde_json::from_str::<Seq>(event.get()).context("an entry without seq")?.seq);
    }
    out.flush()?;
    Ok(last)
}

/// An entry on one line: a line break in JSON is white space, never part of a text.
fn line(event: &str) -> Vec<u8> {
    let breaks = |byte: u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
    event.bytes().map(breaks).chain([b'\n']).collect()
}

fn token(file: Option<&Path>) -> anyhow::Result<String> {
    let text = match file {
        Some(file) => fs::read_to_string(file).with_context(|| file.display().to_string())?,
        None => std::env::var("STREAMING_HUB_TOKEN")
            .context("give --token-file or set STREAMING_HUB_TOKEN")?,
    };
    Ok(text.trim().to_owned())
}

fn remembered(file: &Path) -> anyhow::Result<Option<u64>> {
    match fs::read_to_string(file) {
        Ok(text) => {
            let seq = text.trim().parse().with_context(|| format!("{}: no seq", file.display()))?;
            Ok(Some(seq))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

/// Replaces the file as a whole, so that a crash leaves the old number or the new one.
fn remember(file: &Path, seq: u64) -> anyhow::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    fs::write(&new, format!("{seq}\n")).with_context(|| new.display().to_string())?;
    fs::rename(&new, file).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_line_and_its_text_is_kept() {
        let page: Page<'_> = serde_json::from_str(
            "{\"events\":[{\"seq\":3,\"payload\":{\"a\":1.10,\n\"b\":\"x\\ny\"}}],\
             \"next_cursor\":null,\"cursor\":3}",
        )
        .unwrap();
        let text = String::from_utf8(line(page.events[0].get())).unwrap();
        assert_eq!(text, "{\"seq\":3,\"payload\":{\"a\":1.10, \"b\":\"x\\ny\"}}\n");
    }

    #[test]
    fn what_was_printed_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seq");
        assert_eq!(remembered(&file).unwrap(), None);
        remember(&file, 17).unwrap();
        remember(&file, 18).unwrap();
        assert_eq!(remembered(&file).unwrap(), Some(18));
        std::fs::write(&file, "x").unwrap();
        assert!(remembered(&file).is_err());
    }
}
