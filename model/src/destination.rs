//! What a destination *is* (contract section 4, "Circuit breaker"): the canonical target of a
//! sink's configuration, and the host in it. A target may itself be a secret (a webhook's URL often
//! is), so it is hashed or kept in memory, never written to a log or a metric. The host may be
//! shown.

use crate::subscription::SinkConfig;

impl SinkConfig {
    /// The canonical target: two configurations with the same one are one destination, whatever
    /// their credentials. It begins with the sink's type, so targets of two types never meet.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Webhook(webhook) => format!("{} {}", self.kind(), webhook.url),
            Self::Pull => self.kind().to_owned(),
        }
    }

    /// The host that is called, which may be shown where the target may not.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Webhook(webhook) => host_of(&webhook.url),
            Self::Pull => String::new(),
        }
    }
}

/// The host in a URL that was canonical when it was written.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sink(value: serde_json::Value) -> SinkConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_webhooks_host_is_shown_without_user_port_and_path() {
        for (url, host) in [
            ("https://example.com/hook?token=1", "example.com"),
            ("https://example.com:8443", "example.com"),
            ("https://[2001:db8::1]:443/x", "2001:db8::1"),
            ("https://example.com?x=//y", "example.com"),
        ] {
            let webhook = sink(json!({"type": "webhook", "url": url, "secrets": []}));
            assert_eq!(webhook.host(), host, "{url}");
            assert_eq!(webhook.target(), format!("webhook {url}"));
        }
    }
}
