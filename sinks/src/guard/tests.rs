//! The guard in tables: every range with its edges, and every spelling of a URL.

use super::*;

fn policy(allow_private: bool, allow: &[&str]) -> AddressPolicy {
    let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
    AddressPolicy { allow_private, allow }
}

fn judge(policy: &AddressPolicy, ip: &str) -> Result<(), Refused> {
    policy.judge(ip.parse().unwrap())
}

/// Every range with its first and last address and an address inside.
const REFUSED: &[(Range, &[&str])] = &[
    (
        Range::CloudMetadata,
        &[
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ],
    ),
    (Range::Unspecified, &["0.0.0.0", "0.1.2.3", "0.255.255.255", "::", "::ffff:0.0.0.0"]),
    (
        Range::Loopback,
        &["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::7f00:1"],
    ),
    (
        Range::Private,
        &[
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            "fc00::",
            "fd12:3456::1",
            "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fec0::",
            "feff:ffff::1",
            "::ffff:10.1.2.3",
            "::ffff:a01:203",
            "::10.1.2.3",
            "64:ff9b::10.1.2.3",
            "64:ff9b::c0a8:101",
            "2002:0a01:0203::1",
            "2002:c0a8:0101:1:2:3:4:5",
        ],
    ),
    (Range::Shared, &["100.64.0.0", "100.127.255.255", "::ffff:100.64.0.1"]),
    (Range::LinkLocal, &["169.254.0.0", "169.254.255.255", "fe80::", "fe80::1", "febf:ffff::1"]),
    (
        Range::Multicast,
        &["224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff::1", "::ffff:224.0.0.1"],
    ),
    (Range::Broadcast, &["255.255.255.255", "::ffff:255.255.255.255"]),
    (
        Range::Documentation,
        &[
            "192.0.2.0",
            "192.0.2.255",
            "198.51.100.1",
            "203.0.113.255",
            "2001:db8::",
            "2001:db8:ffff::1",
            "3fff::",
            "3fff:fff:ffff::1",
        ],
    ),
    (Range::Benchmarking, &["198.18.0.0", "198.19.255.255", "2001:2::1"]),
    (
        Range::Reserved,
        &[
            "192.0.0.0",
            "192.0.0.255",
            "192.88.99.1",
            "240.0.0.0",
            "255.255.255.254",
            "100::",
            "100::1",
            "100:0:0:1::1",
            "2001::",
            "2001::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:fffe::a01:203",
            "::ffff:0:8.8.8.8",
            "5f00::1",
            "4000::1",
            "1::1",
        ],
    ),
];

const PERMITTED: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:db7:ffff::1",
    "2001:db9::1",
    "2606:4700:4700::1111",
    "2a00:1450::1",
    "3ffe:ffff::1",
    "3fff:1000::1",
    "::ffff:8.8.8.8",
    "::8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
];

#[test]
fn every_range_that_is_not_the_public_internet_is_refused() {
    let closed = policy(false, &[]);
    for (range, addresses) in REFUSED {
        for ip in *addresses {
            assert_eq!(judge(&closed, ip), Err(Refused::Address(*range)), "{ip}");
        }
    }
}

#[test]
fn public_addresses_are_permitted_up_to_the_edges_of_the_ranges() {
    for ip in PERMITTED {
        assert_eq!(judge(&policy(false, &[]), ip), Ok(()), "{ip}");
    }
}

#[test]
fn private_addresses_can_be_opened_and_the_metadata_services_not_with_them() {
    let open = policy(true, &[]);
    for (range, addresses) in REFUSED {
        for ip in *addresses {
            let opened = matches!(range, Range::Loopback | Range::Private | Range::Shared);
            assert_eq!(judge(&open, ip).is_ok(), opened, "{ip}");
        }
    }
    for ip in PERMITTED {
        assert_eq!(judge(&open, ip), Ok(()), "{ip}");
    }
}

#[test]
fn the_allow_list_opens_exactly_its_ranges() {
    let list = policy(false, &["10.1.0.0/16", "fd00:1::/32", "169.254.169.254/32", "100::/64"]);
    let table = [
        ("10.1.0.0", true),
        ("10.1.255.255", true),
        ("::ffff:10.1.2.3", true),
        ("64:ff9b::10.1.2.3", true),
        ("10.0.255.255", false),
        ("10.2.0.0", false),
        ("::ffff:10.2.0.0", false),
        ("fd00:1::5", true),
        ("fd00:2::5", false),
        ("169.254.169.254", true),
        ("169.254.169.253", false),
        ("100::7", true),
        ("127.0.0.1", false),
        ("8.8.8.8", true),
    ];
    for (ip, opened) in table {
        assert_eq!(judge(&list, ip).is_ok(), opened, "{ip}");
    }
}

#[test]
fn an_ipv6_range_does_not_open_ipv4_by_its_mapped_form() {
    let list = policy(false, &["::/0"]);
    assert!(judge(&list, "fd00::1").is_ok());
    assert!(judge(&list, "::ffff:10.0.0.1").is_err());
}

#[test]
fn a_target_is_kept_in_its_canonical_form() {
    let table = [
        ("https://Example.COM", "https://example.com/"),
        ("https://example.com:443/a?b=c#frag", "https://example.com/a?b=c"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("https://exa\u{ad}mple.com/", "https://example.com/"),
        ("https://%65xample.com/", "https://example.com/"),
        ("  https://example.com/\t", "https://example.com/"),
        ("https:\\\\example.com\\a", "https://example.com/a"),
        ("https://8.8.8.8./", "https://8.8.8.8/"),
        ("https://0x8080808/", "https://8.8.8.8/"),
        ("https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
        ("https://a.example/x/../y/./z", "https://a.example/y/z"),
    ];
    for (text, canonical) in table {
        let target = target(text, &policy(false, &[])).unwrap();
        assert_eq!(target.as_str(), canonical);
        let again = super::target(canonical, &policy(false, &[])).unwrap();
        assert_eq!(again, target);
    }
}

#[test]
fn a_target_knows_its_host_port_and_address() {
    let parts = |text| {
        let target = target(text, &policy(true, &[])).unwrap();
        (target.host().to_owned(), target.port(), target.literal())
    };
    assert_eq!(parts("https://a.example/"), ("a.example".into(), 443, None));
    assert_eq!(parts("http://a.example/"), ("a.example".into(), 80, None));
    let loopback = Some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(parts("http://[::1]:81/"), ("[::1]".into(), 81, loopback));
}

#[test]
fn a_target_that_is_no_plain_https_url_is_refused() {
    use Refused::{Host, Port, Scheme, TooLong, Userinfo};
    let long = format!("https://example.com/{}", "a".repeat(URL_BYTES_MAX));
    // Short as it is given, too long once it is escaped.
    let escaped = format!("https://example.com/{}", "ä".repeat(1000));
    let table = [
        ("http://example.com/", Scheme),
        ("ftp://example.com/", Scheme),
        ("file:///etc/passwd", Scheme),
        ("unix:/run/x.sock", Scheme),
        ("https://user@example.com/", Userinfo),
        ("https://user:word@example.com/", Userinfo),
        ("https://:word@example.com/", Userinfo),
        ("https://example.com@evil.example/", Userinfo),
        ("https://example..com/", Host),
        ("https://example.com../", Host),
        ("https://.example.com/", Host),
        ("https://./", Host),
        ("https://example.com:0/", Port),
        (&long, TooLong),
        (&escaped, TooLong),
    ];
    for (text, refused) in table {
        assert_eq!(target(text, &policy(false, &[])), Err(refused), "{text}");
    }
    let unreadable =
        ["", "example.com", "/path", "https://", "https://exa mple.com/", "https://[::1", "//a/b"];
    for text in unreadable.into_iter().chain(["https://a:99999/", "https://[fe80::1%25eth0]/"]) {
        assert!(matches!(target(text, &policy(false, &[])), Err(Refused::Url(_))), "{text}");
    }
}

#[test]
fn plain_http_comes_with_private_destinations_only() {
    assert!(target("http://example.com/", &policy(true, &[])).is_ok());
    let listed = policy(false, &["10.0.0.0/8"]);
    assert_eq!(target("http://10.0.0.1/", &listed), Err(Refused::Scheme));
    assert!(target("https://10.0.0.1/", &listed).is_ok());
}

#[test]
fn every_spelling_of_an_address_is_judged_as_that_address() {
    let loopback = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "127.1.",
        "0x7F.0.0.0x1",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "127。0。0。1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ];
    for host in loopback {
        let refused = target(&format!("https://{host}/"), &policy(false, &[]));
        assert_eq!(refused, Err(Refused::Address(Range::Loopback)), "{host}");
    }
    let metadata = target("https://0xa9fea9fe/latest/meta-data", &policy(true, &[]));
    assert_eq!(metadata, Err(Refused::Address(Range::CloudMetadata)));
    assert_eq!(
        target("https://0/", &policy(false, &[])),
        Err(Refused::Address(Range::Unspecified))
    );
}

#[test]
fn a_refusal_names_no_address() {
    let refused = target("https://10.1.2.3/", &policy(false, &[])).unwrap_err();
    assert_eq!(refused.to_string(), "the address is private, which this hub does not call");
}
