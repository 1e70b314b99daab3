//! Name resolution under the address guard. Clients connect to exactly what this yields, so an
//! address is pinned between its check and its use: a name that answers differently the next time
//! (DNS rebinding) is judged anew with that answer. Addresses written into a URL never come here;
//! [`crate::guard::target`] judges those.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::sink::SinkFuture;
use tokio::time::Instant;

use crate::guard::{AddressPolicy, Refused, Target};

/// Why a name gives no address to connect to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It resolves to an address that the hub may not call. The address is not named.
    #[error("the host name resolves to an address that is not permitted: {0}")]
    Refused(Refused),
    /// It does not resolve.
    #[error("the host name does not resolve: {0}")]
    Failed(io::Error),
    /// The machine's resolver does not work: the hub's own fault, not the destination's.
    #[error("the machine's resolver does not answer: {0}")]
    Unavailable(io::Error),
    /// It resolves to nothing.
    #[error("the host name has no address")]
    Empty,
}

impl Error {
    /// The class of a failure for this reason; none where it is the hub's own fault.
    #[must_use]
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Refused(_) => Some(ErrorClass::RefusedAddress),
            Self::Failed(_) | Self::Empty => Some(ErrorClass::Dns),
            Self::Unavailable(_) => None,
        }
    }
}

/// Where addresses come from.
pub trait Lookup: Send + Sync {
    /// All addresses of a host name, in the order in which they should be tried.
    fn lookup<'a>(&'a self, host: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// For how long an answer about any name shows that the machine's resolver works.
const WORKS: Duration = Duration::from_secs(30);

/// The machine's resolver (`getaddrinfo`), without a cache of its own: it does not tell for how
/// long an answer holds.
#[derive(Debug, Default)]
pub struct System {
    /// When it last answered about any name, be it that there is none.
    answered: Mutex<Option<Instant>>,
}

impl Lookup for System {
    fn lookup<'a>(&'a self, host: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await;
            let found = found.map(|found| found.map(|address| address.ip()).collect());
            let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            match found {
                Err(error) if is_no_answer(&error) => {
                    // "Try again" is also what a name's broken servers come to. While others are
                    // answered, it is the name's own fault.
                    let works = answered.is_some_and(|at| at.elapsed() < WORKS);
                    Err(if works { error } else { io::Error::other(Down(error)) })
                }
                answer => {
                    *answered = Some(Instant::now());
                    answer
                }
            }
        })
    }
}

/// Marks an error as the machine's own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Down(pub(crate) io::Error);

/// Whether there was no answer at all: `EAI_AGAIN`, by its text (glibc, musl), since the standard
/// library keeps no number; or `EAI_SYSTEM`, which it turns into an error of the system.
fn is_no_answer(error: &io::Error) -> bool {
    let text = error.to_string();
    let again = ["Temporary failure in name resolution", "Try again"];
    error.raw_os_error().is_some() || again.iter().any(|again| text.ends_with(again))
}

/// Resolves names to permitted addresses only. Cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    policy: Arc<AddressPolicy>,
    lookup: Arc<dyn Lookup>,
}

impl Resolver {
    /// The machine's resolver under this policy.
    #[must_use]
    pub fn new(policy: AddressPolicy) -> Self {
        Self::with_lookup(policy, Arc::new(System::default()))
    }

    /// Another source of addresses under this policy.
    #[must_use]
    pub fn with_lookup(policy: AddressPolicy, lookup: Arc<dyn Lookup>) -> Self {
        Self { policy: Arc::new(policy), lookup }
    }

    /// The policy that addresses are judged by.
    #[must_use]
    pub fn policy(&self) -> &AddressPolicy {
        &self.policy
    }

    /// The same, to be kept by a client.
    #[must_use]
    pub(crate) fn shared_policy(&self) -> Arc<AddressPolicy> {
        Arc::clone(&self.policy)
    }

    /// Whether a target that [`crate::guard::target`] admitted can be called: its name resolves to
    /// permitted addresses, within `limit`.
    ///
    /// # Errors
    /// What is wrong with it, for the tenant.
    pub async fn admit(&self, target: &Target, limit: Duration) -> Result<(), String> {
        if target.literal().is_some() {
            return Ok(());
        }
        self.admit_host(target.host(), limit).await
    }

    /// The same for a bare host: a name, or an address as text.
    ///
    /// # Errors
    /// What is wrong with it, for the tenant.
    pub async fn admit_host(&self, host: &str, limit: Duration) -> Result<(), String> {
        match tokio::time::timeout(limit, self.addresses(host)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the host name did not resolve in time".to_owned()),
        }
    }

    /// The permitted addresses of a bare host: a name, or an address as text, which no resolver is
    /// asked for.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        match host.parse::<IpAddr>() {
            Ok(ip) => self.policy.judge(ip).map(|()| vec![ip]).map_err(Error::Refused),
            Err(_) => self.permitted(host).await,
        }
    }

    /// The addresses of a host name, at least one, in the resolver's order. One that is not
    /// permitted refuses the name as a whole (contract section 5): a mixed answer is an attempt at
    /// rebinding, or a mistake that should be heard.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn permitted(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        let found = self.lookup.lookup(host).await.map_err(failed)?;
        for ip in &found {
            self.policy.judge(*ip).map_err(Error::Refused)?;
        }
        if found.is_empty() { Err(Error::Empty) } else { Ok(found) }
    }
}

fn failed(error: io::Error) -> Error {
    match error.get_ref().is_some_and(|inner| inner.is::<Down>()) {
        true => Error::Unavailable(error),
        false => Error::Failed(error),
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let own = self.clone();
        Box::pin(async move {
            let permitted = own.permitted(name.as_str()).await?;
            // Port 0 stands for the port of the URL.
            let addresses = permitted.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
