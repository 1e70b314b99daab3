//! One connection to a broker and its channel for messages, dialled when it is needed and again
//! after it was lost, with a pause that grows while dialling fails. Attempts that come while one of
//! them dials wait for it and share its end, so a broker that is down is dialled once at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection};
use secrecy::SecretString;
use streaming_hub_model::attempt::Outcome;
use streaming_hub_model::sink_config::RabbitMqConfig;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::classify;
use super::dial::Dialer;

/// The pause before the second dialling after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause: well within an attempt's time, so that every attempt dials or shares a dial.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How often a blocked connection is looked at.
const BLOCKED_LOOK: Duration = Duration::from_millis(50);

/// Who connects, and where.
pub(super) struct Login {
    pub(super) config: RabbitMqConfig,
    pub(super) password: SecretString,
}

/// A connection that comes back.
pub(crate) struct Link {
    dialer: Arc<Dialer>,
    login: Login,
    state: Mutex<State>,
    /// How often it was dialled in vain; tells an attempt that another one's dial failed for it.
    failed_dials: AtomicU64,
    blocked: AtomicBool,
}

struct State {
    open: Option<Open>,
    pause: Duration,
    /// When it may be dialled again, after a failure, and that failure.
    failure: Option<(Instant, Outcome)>,
}

struct Open {
    connection: Connection,
    channel: Channel,
}

impl Link {
    pub(super) fn new(dialer: Arc<Dialer>, login: Login) -> Self {
        let state = State { open: None, pause: PAUSE_MIN, failure: None };
        Self {
            dialer,
            login,
            state: Mutex::new(state),
            failed_dials: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
        }
    }

    /// Whether the broker said that it takes no messages for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The channel for messages, in confirm mode. While the broker blocks the connection, this
    /// waits: what would be written then is only kept in memory.
    ///
    /// # Errors
    /// The outcome of the attempt.
    pub(super) async fn channel(&self) -> Result<Channel, Outcome> {
        loop {
            let (channel, is_blocked) = self.ready().await?;
            self.blocked.store(is_blocked, Ordering::Relaxed);
            if !is_blocked {
                return Ok(channel);
            }
            tokio::time::sleep(BLOCKED_LOOK).await;
        }
    }

    /// One more channel of the connection that [`Link::channel`] opened.
    pub(super) async fn another_channel(&self) -> lapin::Result<Channel> {
        let state = self.state.lock().await;
        match &state.open {
            Some(open) => open.connection.create_channel().await,
            None => Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into()),
        }
    }

    async fn ready(&self) -> Result<(Channel, bool), Outcome> {
        let failed_before = self.failed_dials.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(open) = &mut state.open {
            let status = open.connection.status();
            if status.connected() {
                let is_blocked = status.blocked();
                if !open.channel.status().connected() {
                    // An error of the channel, such as a missing exchange, closes it alone.
                    open.channel = channel_of(&open.connection).await?;
                }
                return Ok((open.channel.clone(), is_blocked));
            }
            state.open = None;
        }
        if let Some((again_at, outcome)) = &state.failure {
            if self.failed_dials.load(Ordering::Acquire) != failed_before {
                return Err(outcome.clone());
            }
            tokio::time::sleep_until(*again_at).await;
        }
        match self.open().await {
            Ok(open) => {
                let channel = open.channel.clone();
                *state = State { open: Some(open), pause: PAUSE_MIN, failure: None };
                Ok((channel, false))
            }
            Err(outcome) => {
                state.failure = Some((Instant::now() + state.pause, outcome.clone()));
                state.pause = (state.pause * 2).min(PAUSE_MAX);
                self.failed_dials.fetch_add(1, Ordering::AcqRel);
                Err(outcome)
            }
        }
    }

    async fn open(&self) -> Result<Open, Outcome> {
        let connection = self.dialer.dial(&self.login).await?;
        let channel = channel_of(&connection).await?;
        Ok(Open { connection, channel })
    }
}

async fn channel_of(connection: &Connection) -> Result<Channel, Outcome> {
    let made = async {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok::<_, lapin::Error>(channel)
    };
    made.await.map_err(|error| classify::outcome(&error))
}
