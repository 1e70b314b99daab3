//! The address guard, the one place that says which addresses and URLs the hub may call (contract
//! section 5). It resolves nothing: names are judged by [`crate::resolver`], which asks here for
//! every address that it finds; literals are judged here, since no resolver ever sees them.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// The longest destination URL, bytes, as it is given and as it is kept.
pub const URL_BYTES_MAX: usize = 2048;

/// What the operator opens beyond the public internet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddressPolicy {
    /// Opens loopback, private, unique-local, site-local and shared (CGNAT) addresses, and plain
    /// `http`. Everything else, link-local and the clouds' metadata services above all, takes an
    /// entry in `allow`.
    pub allow_private: bool,
    /// Opens exactly these ranges, whatever they are. An address that carries an IPv4 address
    /// inside (IPv4-mapped, NAT64, …) counts as that IPv4 address.
    pub allow: Vec<IpNet>,
}

/// Why a destination is refused. The texts go to the tenant, so they never name an address: a
/// tenant must not learn what a name resolves to inside the hub's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The address lies in a range that is not open.
    #[error("the address is {0}, which this hub does not call")]
    Address(Range),
    /// The text is no absolute URL.
    #[error("the URL is not readable: {0}")]
    Url(#[from] url::ParseError),
    /// The URL is longer than [`URL_BYTES_MAX`].
    #[error("the URL has more than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Neither `https` nor, where that is allowed, `http`.
    #[error("the URL's scheme is not https")]
    Scheme,
    /// The URL holds a user name or a password.
    #[error("the URL holds a user name or a password")]
    Userinfo,
    /// There is no host, or one with an empty label.
    #[error("the URL has no usable host")]
    Host,
    /// Port 0.
    #[error("the URL's port is 0")]
    Port,
}

/// Ranges that are not the public internet (IANA's special-purpose address registries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// A cloud's metadata or host service, whatever range it lies in.
    CloudMetadata,
    /// 127/8, ::1.
    Loopback,
    /// RFC 1918, unique-local and the old site-local addresses.
    Private,
    /// 100.64/10, between a provider and its customers (RFC 6598).
    Shared,
    /// 169.254/16, fe80::/10.
    LinkLocal,
    /// 224/4, ff00::/8.
    Multicast,
    /// 0.0.0.0 and ::, which connect to the machine itself.
    Unspecified,
    /// 255.255.255.255.
    Broadcast,
    /// Addresses of examples.
    Documentation,
    /// 198.18/15 (RFC 2544), 2001:2::/48.
    Benchmarking,
    /// Anything else that is not global unicast.
    Reserved,
}

impl Range {
    /// Whether [`AddressPolicy::allow_private`] opens it.
    fn is_private(self) -> bool {
        match self {
            Self::Loopback | Self::Private | Self::Shared => true,
            Self::CloudMetadata
            | Self::LinkLocal
            | Self::Multicast
            | Self::Unspecified
            | Self::Broadcast
            | Self::Documentation
            | Self::Benchmarking
            | Self::Reserved => false,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CloudMetadata => "a cloud's metadata service",
            Self::Loopback => "a loopback address",
            Self::Private => "private",
            Self::Shared => "a shared (CGNAT) address",
            Self::LinkLocal => "link-local",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "unspecified",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "reserved for documentation",
            Self::Benchmarking => "reserved for benchmarks",
            Self::Reserved => "reserved",
        })
    }
}

impl AddressPolicy {
    /// Whether the hub may connect to this address.
    ///
    /// # Errors
    /// [`Refused::Address`] with the range that it lies in.
    pub fn judge(&self, ip: IpAddr) -> Result<(), Refused> {
        // An IPv4-mapped address is connected to over IPv4, so it is judged as what it maps.
        let ip = ip.to_canonical();
        if self.allow.iter().any(|net| net.contains(&ip)) {
            return Ok(());
        }
        let range = match ip {
            IpAddr::V4(v4) => range_of_v4(v4),
            IpAddr::V6(v6) => match embedded(v6) {
                Some(inner) => return self.judge(IpAddr::V4(inner)),
                None => range_of_v6(v6),
            },
        };
        match range {
            None => Ok(()),
            Some(range) if self.allow_private && range.is_private() => Ok(()),
            Some(range) => Err(Refused::Address(range)),
        }
    }
}

/// All networks: what an operator's own choice of an address is judged by.
pub(crate) fn everywhere() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
    let v6 = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0);
    vec![IpNet::V4(v4), IpNet::V6(v6)]
}

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// A network whose address has nothing behind its first four groups.
const fn v6(groups: [u16; 4], prefix: u8) -> Ipv6Net {
    let [a, b, c, d] = groups;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// The first match counts.
const RANGES_V4: [(Ipv4Net, Range); 21] = [
    (v4([169, 254, 169, 254], 32), Range::CloudMetadata), // AWS, Azure, Google, Oracle, …
    (v4([169, 254, 170, 0], 24), Range::CloudMetadata),   // AWS container credentials
    (v4([168, 63, 129, 16], 32), Range::CloudMetadata),   // Azure's host, in public space
    (v4([100, 100, 100, 200], 32), Range::CloudMetadata), // Alibaba
    (v4([192, 0, 0, 192], 32), Range::CloudMetadata),     // Oracle, older
    (v4([0, 0, 0, 0], 8), Range::Unspecified),            // RFC 1122: this host, this network
    (v4([10, 0, 0, 0], 8), Range::Private),
    (v4([100, 64, 0, 0], 10), Range::Shared),
    (v4([127, 0, 0, 0], 8), Range::Loopback),
    (v4([169, 254, 0, 0], 16), Range::LinkLocal),
    (v4([172, 16, 0, 0], 12), Range::Private),
    (v4([192, 0, 0, 0], 24), Range::Reserved), // IETF protocol assignments
    (v4([192, 0, 2, 0], 24), Range::Documentation),
    (v4([192, 88, 99, 0], 24), Range::Reserved), // the former 6to4 relays
    (v4([192, 168, 0, 0], 16), Range::Private),
    (v4([198, 18, 0, 0], 15), Range::Benchmarking),
    (v4([198, 51, 100, 0], 24), Range::Documentation),
    (v4([203, 0, 113, 0], 24), Range::Documentation),
    (v4([224, 0, 0, 0], 4), Range::Multicast),
    (v4([255, 255, 255, 255], 32), Range::Broadcast),
    (v4([240, 0, 0, 0], 4), Range::Reserved),
];

/// Metadata services that have an IPv6 address: AWS, Google.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The first match counts; what matches nothing is refused unless it is global unicast.
const RANGES_V6: [(Ipv6Net, Range); 8] = [
    (v6([0xfc00, 0, 0, 0], 7), Range::Private),
    (v6([0xfec0, 0, 0, 0], 10), Range::Private),
    (v6([0xfe80, 0, 0, 0], 10), Range::LinkLocal),
    (v6([0xff00, 0, 0, 0], 8), Range::Multicast),
    (v6([0x2001, 0xdb8, 0, 0], 32), Range::Documentation),
    (v6([0x3fff, 0, 0, 0], 20), Range::Documentation),
    (v6([0x2001, 2, 0, 0], 48), Range::Benchmarking),
    (v6([0x2001, 0, 0, 0], 23), Range::Reserved), // Teredo, ORCHID and other assignments
];

/// All that is routed on the public internet; the discard prefix, segment identifiers, translated
/// IPv4 and the local-use NAT64 prefix (where the IPv4 address lies is the operator's choice there,
/// RFC 8215, so that it cannot be judged) are outside of it.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

fn range_of_v4(ip: Ipv4Addr) -> Option<Range> {
    RANGES_V4.iter().find(|(net, _)| net.contains(&ip)).map(|(_, range)| *range)
}

fn range_of_v6(ip: Ipv6Addr) -> Option<Range> {
    if ip.is_unspecified() {
        return Some(Range::Unspecified);
    }
    if ip.is_loopback() {
        return Some(Range::Loopback);
    }
    if METADATA_V6.contains(&ip) {
        return Some(Range::CloudMetadata);
    }
    let special = RANGES_V6.iter().find(|(net, _)| net.contains(&ip)).map(|(_, range)| *range);
    special.or((!GLOBAL_UNICAST.contains(&ip)).then_some(Range::Reserved))
}

/// The IPv4 address that traffic to this address ends at, for the schemes that fix where it lies:
/// IPv4-compatible (`::/96`), NAT64 (`64:ff9b::/96`) and 6to4 (`2002::/16`).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    if ip.is_unspecified() || ip.is_loopback() {
        return None;
    }
    let [first, second, third, fourth, fifth, sixth, seventh, eighth] = ip.segments();
    let (high, low) = match [first, second, third, fourth, fifth, sixth] {
        [0, 0, 0, 0, 0, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => (seventh, eighth),
        [0x2002, ..] => (second, third),
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

/// A destination URL in its canonical form, checked as far as that goes without a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: String,
    port: u16,
    literal: Option<IpAddr>,
}

impl Target {
    /// The URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The canonical text: scheme, host, port unless it is the scheme's, path and query, as `url`
    /// serialises them (lower-case host, Punycode, IPv4 addresses in dotted decimal); no fragment
    /// and no trailing dot, since neither changes where a request goes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The host as the URL spells it, IPv6 addresses in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the scheme's when the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host's address when it is one and not a name; it has been judged.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        self.literal
    }
}

/// Reads a destination URL: `https` (or `http` under `allow_private`), a host, no user name or
/// password, and no address that the policy refuses. A fragment is dropped.
///
/// # Errors
/// See [`Refused`].
pub fn target(text: &str, policy: &AddressPolicy) -> Result<Target, Refused> {
    if text.len() > URL_BYTES_MAX {
        return Err(Refused::TooLong);
    }
    let mut url = Url::parse(text)?;
    match url.scheme() {
        "https" => {}
        "http" if policy.allow_private => {}
        _ => return Err(Refused::Scheme),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::Userinfo);
    }
    url.set_fragment(None);
    drop_trailing_dot(&mut url)?;
    let literal = match url.host().ok_or(Refused::Host)? {
        Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
        Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
        Host::Domain(_) => None,
    };
    if let Some(ip) = literal {
        policy.judge(ip)?;
    }
    let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(Refused::Port)?;
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(Refused::TooLong);
    }
    let host = url.host_str().ok_or(Refused::Host)?.to_owned();
    Ok(Target { url, host, port, literal })
}

/// `example.com.` and `example.com` are one destination.
fn drop_trailing_dot(url: &mut Url) -> Result<(), Refused> {
    let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
    let bare = name.strip_suffix('.').unwrap_or(name).to_owned();
    if bare.split('.').any(str::is_empty) {
        return Err(Refused::Host);
    }
    if bare.len() < name.len() {
        url.set_host(Some(&bare))?;
    }
    Ok(())
}
