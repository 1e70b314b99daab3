//! The resolver against scripted answers, and once against the machine's own.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;
use crate::guard::Range;

/// Gives its answers in turn.
struct Script(Mutex<VecDeque<io::Result<Vec<IpAddr>>>>);

impl Lookup for Script {
    fn lookup<'a>(&'a self, _: &'a str) -> SinkFuture<'a, io::Result<Vec<IpAddr>>> {
        let next = self.0.lock().unwrap().pop_front().expect("no more answers");
        Box::pin(async { next })
    }
}

fn resolver(answers: &[&[&str]]) -> Resolver {
    let parse = |answer: &&[&str]| Ok(answer.iter().map(|ip| ip.parse().unwrap()).collect());
    let script = Script(Mutex::new(answers.iter().map(parse).collect()));
    Resolver::with_lookup(AddressPolicy::default(), Arc::new(script))
}

async fn resolve(resolver: &Resolver) -> Result<Vec<SocketAddr>, String> {
    let found = Resolve::resolve(resolver, "a.example".parse().unwrap()).await;
    found.map(Iterator::collect).map_err(|error| {
        // The client's error chain must lead to our own error, or nothing could be classified.
        error.downcast_ref::<Error>().unwrap().to_string()
    })
}

#[tokio::test]
async fn permitted_addresses_come_out_in_order() {
    let public = ["8.8.8.8", "2606:4700::1", "1.1.1.1"];
    let with_port = ["8.8.8.8:0", "[2606:4700::1]:0", "1.1.1.1:0"];
    let expected = with_port.map(|text| text.parse().unwrap());
    assert_eq!(resolve(&resolver(&[&public])).await.unwrap(), expected);
}

#[tokio::test]
async fn one_private_address_among_public_ones_refuses_the_name() {
    for mixed in [["8.8.8.8", "10.0.0.1"], ["::1", "1.1.1.1"]] {
        let refused = resolver(&[&mixed]).permitted("a").await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{mixed:?}");
    }
}

#[tokio::test]
async fn a_name_with_refused_addresses_only_is_refused_without_naming_them() {
    let refused = resolve(&resolver(&[&["169.254.1.1", "10.0.0.1"]])).await.unwrap_err();
    let why = Refused::Address(Range::LinkLocal);
    assert_eq!(
        refused,
        format!("the host name resolves to an address that is not permitted: {why}")
    );
    assert!(!refused.contains("10.0"));
}

#[tokio::test]
async fn a_name_that_answers_anew_is_judged_anew() {
    let rebinding = resolver(&[&["8.8.8.8"], &["127.0.0.1"], &["::ffff:10.0.0.1"], &["8.8.8.8"]]);
    assert!(resolve(&rebinding).await.is_ok());
    assert!(resolve(&rebinding).await.is_err());
    assert!(resolve(&rebinding).await.is_err());
    assert!(resolve(&rebinding).await.is_ok());
}

#[tokio::test]
async fn a_name_without_an_address_is_no_refusal() {
    assert!(matches!(resolver(&[&[]]).permitted("a").await, Err(Error::Empty)));
}

#[tokio::test]
async fn the_machine_s_resolver_knows_no_invalid_name_and_refuses_localhost() {
    let system = Resolver::new(AddressPolicy::default());
    assert!(matches!(system.permitted("nope.invalid").await, Err(Error::Failed(_))));
    let localhost = system.permitted("localhost").await;
    assert!(matches!(localhost, Err(Error::Refused(Refused::Address(Range::Loopback)))));
    let open = AddressPolicy { allow_private: true, ..AddressPolicy::default() };
    assert!(Resolver::new(open).permitted("localhost").await.is_ok());
}
