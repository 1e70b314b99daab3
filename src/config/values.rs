//! Types of configuration values that cannot be wrong once parsed, and how they are written: an
//! empty text stands for "none", a secret is written as a mask.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use streaming_hub_model::secret;
use streaming_hub_model::tenant::{self, TenantId};

/// What stands for a secret wherever a configuration is shown.
pub(crate) const MASK: &str = "********";

/// A part of the hub that an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Reads the producers' topics.
    Ingest,
    /// Deduplicates, joins with subscriptions.
    Match,
    /// Attempts deliveries.
    Delivery,
    /// Keeps and serves the logs of pull subscriptions.
    Pull,
    /// Decides changes of subscriptions.
    Registry,
    /// Lists the producers' dead letters.
    Dlq,
    /// Answers HTTP.
    Api,
}

impl Role {
    /// All of them, in the order of a record's life.
    pub(crate) const ALL: [Self; 7] = [
        Self::Ingest,
        Self::Match,
        Self::Delivery,
        Self::Pull,
        Self::Registry,
        Self::Dlq,
        Self::Api,
    ];

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Match => "match",
            Self::Delivery => "delivery",
            Self::Pull => "pull",
            Self::Registry => "registry",
            Self::Dlq => "dlq",
            Self::Api => "api",
        }
    }
}

/// The roles of an instance, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<&'static str>")]
pub(crate) struct Roles(BTreeSet<Role>);

impl Roles {
    /// Whether this instance has the role.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl TryFrom<Vec<String>> for Roles {
    type Error = String;
    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let known = Role::ALL.map(Role::name).join(", ");
        if names.is_empty() {
            return Err(format!("names no role; the roles are {known}"));
        }
        let find = |name: &String| Role::ALL.into_iter().find(|role| role.name() == name);
        let unknown: Vec<_> = names.iter().filter(|name| find(name).is_none()).collect();
        if !unknown.is_empty() {
            return Err(format!("names the unknown {unknown:?}; the roles are {known}"));
        }
        Ok(Self(names.iter().filter_map(find).collect()))
    }
}

impl From<Roles> for Vec<&'static str> {
    fn from(roles: Roles) -> Self {
        roles.0.into_iter().map(Role::name).collect()
    }
}

/// Where the very first start reads a source from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Start {
    /// The oldest record.
    Earliest,
    /// The first record at or after this time.
    At(jiff::Timestamp),
}

impl TryFrom<String> for Start {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            time => time.parse().map(Self::At).map_err(|_| {
                "is neither `earliest` nor an RFC 3339 time such as `2026-01-31T00:00:00Z`".into()
            }),
        }
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        match start {
            Start::Earliest => "earliest".into(),
            Start::At(time) => time.to_string(),
        }
    }
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For a person at a terminal.
    Human,
    /// One JSON object a line.
    Json,
}

/// Whose requests a static token admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TokenRole {
    /// `/v1`, as one tenant.
    Tenant,
    /// `/admin`.
    Operator,
}

/// A static bearer token. Its parts are checked when the configuration is; [`Token::tenant`] and
/// [`Token::digest`] give them in their own types.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// For the log; not empty, and no other token's.
    pub(crate) name: String,
    /// Whose requests it admits.
    pub(crate) role: TokenRole,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    sha256: DigestText,
}

impl Token {
    /// The tenant of a tenant's token, `None` for an operator's.
    ///
    /// # Errors
    /// What is wrong with the tenant.
    pub(crate) fn tenant(&self) -> Result<Option<TenantId>, String> {
        match (self.role, &self.tenant) {
            (TokenRole::Tenant, None) => Err("has the role `tenant` and no `tenant`".into()),
            (TokenRole::Operator, Some(_)) => {
                Err("has the role `operator` and a `tenant`, which only a tenant's has".into())
            }
            (TokenRole::Operator, None) => Ok(None),
            (TokenRole::Tenant, Some(text)) => TenantId::parse(text)
                .map(Some)
                .map_err(|error: tenant::Error| format!("has a bad tenant: {error}")),
        }
    }

    /// SHA-256 of the token.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn digest(&self) -> Result<[u8; 32], String> {
        let text = &self.sha256.0;
        let bad = || format!("has a `sha256` that is not 64 hex digits but {} bytes", text.len());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut digest = [0; 32];
        for (index, byte) in digest.iter_mut().enumerate() {
            let pair = &text[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(digest)
    }
}

/// A token's digest as it is written; shown in part, since a weak token can be found from it.
#[derive(Clone, Deserialize)]
struct DigestText(String);

impl DigestText {
    fn shown(&self) -> String {
        let head: String = self.0.chars().take(8).collect();
        format!("{head}{MASK}")
    }
}

impl fmt::Debug for DigestText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for DigestText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

/// Why there is no encryption key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// Neither text nor file.
    #[error("is empty, and so is encryption.key_file")]
    Missing,
    /// Text and file.
    #[error("is set, and so is encryption.key_file")]
    Both,
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// The text is no key.
    #[error("is no key: {0}")]
    Bad(secret::Error),
}

/// An empty text is `None`.
macro_rules! optional {
    ($(#[$doc:meta])* $name:ident, $type:ty, $parse:expr, $show:expr) => {
        $(#[$doc])*
        pub(super) mod $name {
            use serde::de::Error as _;
            use serde::{Deserialize, Deserializer, Serializer};

            pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<Option<$type>, D::Error>
            where
                D: Deserializer<'de>,
            {
                let text = String::deserialize(deserializer)?;
                let parse: fn(String) -> Result<$type, String> = $parse;
                if text.is_empty() {
                    return Ok(None);
                }
                parse(text).map(Some).map_err(D::Error::custom)
            }

            pub(crate) fn serialize<S>(
                value: &Option<$type>,
                serializer: S,
            ) -> Result<S::Ok, S::Error>
            where
                S: Serializer,
            {
                let show: fn(&$type) -> String = $show;
                serializer.serialize_str(&value.as_ref().map_or(String::new(), show))
            }
        }
    };
}

optional!(
    /// Text or none.
    optional_text,
    String,
    Ok,
    String::clone
);
optional!(
    /// A path or none.
    optional_path,
    std::path::PathBuf,
    |text| Ok(text.into()),
    |path| path.display().to_string()
);
optional!(
    /// A tenant or none.
    optional_tenant,
    streaming_hub_model::tenant::TenantId,
    |text| {
        let parse = streaming_hub_model::tenant::TenantId::parse;
        parse(&text).map_err(|error| format!("is no tenant id: {error}"))
    },
    ToString::to_string
);
optional!(
    /// A secret or none; written as a mask.
    optional_secret,
    secrecy::SecretString,
    |text| Ok(text.into()),
    |_| super::MASK.to_owned()
);

/// Networks, or single addresses.
pub(super) mod networks {
    use std::net::IpAddr;

    use ipnet::IpNet;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    fn parse(text: &str) -> Option<IpNet> {
        let network = text.parse::<IpNet>().ok();
        network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    }

    pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<Vec<IpNet>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let bad: Vec<_> = texts.iter().filter(|text| parse(text).is_none()).collect();
        if !bad.is_empty() {
            return Err(D::Error::custom(format!("names {bad:?}, which is no network")));
        }
        Ok(texts.iter().filter_map(|text| parse(text)).collect())
    }

    pub(crate) fn serialize<S: Serializer>(
        networks: &[IpNet],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let texts: Vec<_> = networks.iter().map(ToString::to_string).collect();
        texts.serialize(serializer)
    }
}

/// The base URL of an HTTP server.
pub(super) mod http_url {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use url::Url;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Url, D::Error> {
        let text = String::deserialize(d)?;
        let url =
            Url::parse(&text).map_err(|error| D::Error::custom(format!("is no URL: {error}")))?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        if !matches!(url.scheme(), "http" | "https") || !plain || url.fragment().is_some() {
            let message = "is not `http://host:port` or `https://host:port` without user and query";
            return Err(D::Error::custom(message));
        }
        Ok(url)
    }

    pub(crate) fn serialize<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(url.as_str().trim_end_matches('/'))
    }
}
