//! A hub's HTTP API as one tenant sees it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::config::token_of;
use crate::http::{self, Answer, Ask};

/// A subscription that is wanted. Fill in what matters; the rest is the API's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its owner.
    pub tenant: String,
    /// Its name, which is also the last part of its receiver's path.
    pub name: String,
    /// Event key patterns.
    pub event_types: Vec<String>,
    /// The only producing application, if any.
    pub origin: Option<String>,
    /// Schema major.
    pub schema_major: u16,
    /// Its own back-off curve, milliseconds.
    pub retry_schedule: Option<Vec<u64>>,
    /// Attempts at once.
    pub max_in_flight: Option<u16>,
}

impl Wanted {
    /// All events of a tenant with schema major 1.
    #[must_use]
    pub fn all(tenant: &str, name: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            event_types: vec!["*".to_owned()],
            origin: None,
            schema_major: 1,
            retry_schedule: None,
            max_in_flight: None,
        }
    }

    /// Only these event keys.
    #[must_use]
    pub fn keys(mut self, keys: &[&str]) -> Self {
        self.event_types = keys.iter().map(|key| (*key).to_owned()).collect();
        self
    }

    /// Only this producing application.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Self {
        self.origin = Some(origin.to_owned());
        self
    }

    /// This schema major.
    #[must_use]
    pub fn major(mut self, major: u16) -> Self {
        self.schema_major = major;
        self
    }

    /// Its own back-off curve, milliseconds.
    #[must_use]
    pub fn retry(mut self, steps_ms: &[u64]) -> Self {
        self.retry_schedule = Some(steps_ms.to_vec());
        self
    }

    /// So many attempts at once.
    #[must_use]
    pub fn in_flight(mut self, attempts: u16) -> Self {
        self.max_in_flight = Some(attempts);
        self
    }

    /// Whether an event of this source, key and schema major is meant. Contract section 3, read
    /// anew here.
    #[must_use]
    pub fn wants(&self, source: &str, (resource, event): (&str, &str), major: u16) -> bool {
        let key = format!("{resource}.{event}");
        let whole = format!("{resource}.*");
        self.schema_major == major
            && self.origin.as_deref().is_none_or(|origin| origin == source)
            && self.event_types.iter().any(|own| *own == "*" || *own == key || *own == whole)
    }

    fn body(&self, url: &str) -> Value {
        let mut body = json!({
            "name": self.name,
            "event_types": self.event_types,
            "schema_major": self.schema_major,
            "sink": { "type": "webhook", "url": url },
        });
        let optional = [
            ("origin", self.origin.as_ref().map(|origin| json!(origin))),
            ("retry_schedule", self.retry_schedule.as_ref().map(|steps| json!(steps))),
            ("max_in_flight", self.max_in_flight.map(|n| json!(n))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        body
    }
}

/// A subscription that exists.
#[derive(Debug, Clone)]
pub struct Subscriber {
    /// Its id.
    pub id: String,
    /// The signing secret that the hub made.
    pub secret: String,
    /// The path of its receiver.
    pub path: String,
    /// What was asked for.
    pub wanted: Wanted,
    /// Whether its receiver takes what it gets; its jobs end as dead letters otherwise.
    pub takes: bool,
}

/// A tenant's way to the API.
#[derive(Debug, Clone)]
pub struct Api {
    address: SocketAddr,
    token: String,
}

impl Api {
    /// The API at this address, as this tenant.
    #[must_use]
    pub fn new(address: SocketAddr, tenant: &str) -> Self {
        Self { address, token: token_of(Some(tenant)) }
    }

    /// One request, whatever the answer.
    ///
    /// # Errors
    /// No answer.
    pub fn call(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Answer> {
        self.call_with(method, target, &[], body)
    }

    /// One request with further headers, whatever the answer.
    ///
    /// # Errors
    /// No answer.
    pub fn call_with(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer> {
        let ask = Ask { method, target, token: Some(&self.token), body };
        http::ask_with(self.address, &ask, headers)
    }

    fn expect(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.call(method, target, body)?;
        let (status, text) = (answer.status, &answer.body);
        ensure!((200..300).contains(&status), "{method} {target}: {status} {text}");
        Ok(answer.json())
    }

    /// Creates a webhook subscription: its id and signing secret.
    ///
    /// # Errors
    /// Refused, with the answer.
    pub fn create(&self, wanted: &Wanted, url: &str) -> Result<(String, String)> {
        let made = self.expect("POST", "/v1/subscriptions", Some(&wanted.body(url)))?;
        let text = |name: &str| made[name].as_str().map(str::to_owned);
        let id = text("id").context("a creation without an id")?;
        Ok((id, text("signing_secret").context("a creation without a secret")?))
    }

    /// Has its destination probed: the subscription as it is then.
    ///
    /// # Errors
    /// No probe; one that failed is an answer.
    pub fn verify(&self, id: &str) -> Result<Value> {
        self.expect("POST", &format!("/v1/subscriptions/{id}/verify"), None)
    }

    /// A subscription, none when there is no such one.
    ///
    /// # Errors
    /// Another answer.
    pub fn get(&self, id: &str) -> Result<Option<Value>> {
        let target = format!("/v1/subscriptions/{id}");
        if self.call("GET", &target, None)?.status == 404 {
            return Ok(None);
        }
        self.expect("GET", &target, None).map(Some)
    }

    /// All subscriptions of the tenant.
    ///
    /// # Errors
    /// Another answer.
    pub fn list(&self) -> Result<Vec<Value>> {
        let (mut all, mut target) = (Vec::new(), "/v1/subscriptions?limit=100".to_owned());
        loop {
            let page = self.expect("GET", &target, None)?;
            all.extend(page["subscriptions"].as_array().cloned().unwrap_or_default());
            let Some(cursor) = page["next_cursor"].as_str() else { return Ok(all) };
            target = format!("/v1/subscriptions?limit=100&cursor={cursor}");
        }
    }

    /// Deletes a subscription.
    ///
    /// # Errors
    /// Another answer.
    pub fn delete(&self, id: &str) -> Result<()> {
        self.expect("DELETE", &format!("/v1/subscriptions/{id}"), None).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_wants_its_keys_of_its_origin_and_major() {
        let wanted = Wanted::all("t", "s").keys(&["a.b", "c.*"]).origin("o").major(2);
        assert!(wanted.wants("o", ("a", "b"), 2) && wanted.wants("o", ("c", "x"), 2));
        assert!(!wanted.wants("o", ("a", "x"), 2));
        assert!(!wanted.wants("p", ("a", "b"), 2));
        assert!(!wanted.wants("o", ("a", "b"), 1));
        assert!(Wanted::all("t", "s").wants("any", ("x", "y"), 1));
    }
}
