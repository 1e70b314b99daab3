//! To which hosts a request of ours may go. The topic in which instances announce themselves can be
//! written by anybody who reaches Kafka: without this list, a stranger's record would have the hub
//! call any address with a signed token in hand.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

/// One entry of `cluster.hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// This name, and nothing below it.
    Name(String),
    /// Any name with this ending, its dot included.
    Below(String),
    /// Literal addresses in this network. A name never matches it, whatever it resolves to.
    Network(IpNet),
}

/// The hosts of the instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<Pattern>);

impl Hosts {
    /// Reads the entries: a host name, `*.` and a domain, an address, or a network.
    ///
    /// # Errors
    /// The first entry that is none of these.
    pub(crate) fn parse(entries: &[String]) -> Result<Self, String> {
        entries
            .iter()
            .map(|entry| pattern(entry).ok_or_else(|| entry.clone()))
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// Where a request for an instance that announces this URL goes; `None` when it may not go
    /// there: another scheme, a user, a path, or a host that no entry names.
    pub(crate) fn base(&self, announced: &str) -> Option<Url> {
        let url = Url::parse(announced).ok()?;
        let plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.path() == "/";
        if !matches!(url.scheme(), "http" | "https") || !plain {
            return None;
        }
        let host = url.host()?.to_owned();
        self.0.iter().any(|pattern| pattern.permits(&host)).then_some(url)
    }
}

impl Pattern {
    fn permits(&self, host: &Host<String>) -> bool {
        match (self, host) {
            (Self::Name(name), Host::Domain(host)) => name == host,
            (Self::Below(ending), Host::Domain(host)) => {
                host.len() > ending.len() && host.ends_with(ending.as_str())
            }
            (Self::Network(network), Host::Ipv4(address)) => {
                network.contains(&IpAddr::V4(*address))
            }
            (Self::Network(network), Host::Ipv6(address)) => {
                network.contains(&IpAddr::V6(*address))
            }
            _ => false,
        }
    }
}

fn pattern(entry: &str) -> Option<Pattern> {
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    if let Ok(network) = bare.parse::<IpNet>() {
        return Some(Pattern::Network(network));
    }
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(Pattern::Network(address.into()));
    }
    // The URL parser's own idea of a name, so that what it answers later compares equal.
    let name = |text: &str| match Host::parse(text) {
        Ok(Host::Domain(name)) if name == text.to_ascii_lowercase() && is_plain(&name) => {
            Some(name)
        }
        _ => None,
    };
    match entry.strip_prefix("*.") {
        Some(domain) => name(domain).map(|domain| Pattern::Below(format!(".{domain}"))),
        None => name(entry).map(Pattern::Name),
    }
}

/// Labels of letters, digits, `-` and `_`, none of them empty.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.split('.').all(|label| !label.is_empty() && label.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(entries: &[&str]) -> Hosts {
        let owned: Vec<_> = entries.iter().map(ToString::to_string).collect();
        Hosts::parse(&owned).unwrap()
    }

    #[test]
    fn only_a_plain_url_of_a_named_host_is_called() {
        let hosts = hosts(&["hub-a", "*.hub.svc", "10.1.0.0/16", "::1"]);
        let table = [
            ("http://hub-a:8080", true),
            ("http://HUB-A:8080/", true),
            ("https://0.hub.svc", true),
            ("http://10.1.2.3:8080/", true),
            ("http://[::1]:8080/", true),
            ("http://hub-b/", false),
            ("http://hub.svc/", false),
            ("http://evilhub.svc/", false),
            ("http://hub-a.evil.example/", false),
            ("http://10.2.2.3/", false),
            // Other spellings of an address are that address.
            ("http://0x0a010203/", true),
            ("http://0x0a020203/", false),
            ("http://user@hub-a/", false),
            ("http://:secret@hub-a/", false),
            ("http://hub-a/admin", false),
            ("http://hub-a/?a=b", false),
            ("ftp://hub-a/", false),
            ("file:///etc/passwd", false),
            ("hub-a", false),
            ("", false),
        ];
        for (url, called) in table {
            assert_eq!(hosts.base(url).is_some(), called, "{url}");
        }
        assert!(Hosts::parse(&[]).unwrap().base("http://hub-a/").is_none());
    }

    #[test]
    fn an_entry_that_names_no_host_is_refused() {
        for entry in ["", "*", "http://hub-a/", "hub-a:8080", "a b", "*.*.x", "10.0.0.0/99", "."] {
            assert_eq!(Hosts::parse(&[entry.to_owned()]), Err(entry.to_owned()), "{entry:?}");
        }
    }
}
