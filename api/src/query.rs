//! Queries: parameters are taken one by one like the fields of a body, so that unknown, repeated
//! and malformed ones are refused by name, all at once. And the query of a list.

use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::value::{Error as NameError, StrDeserializer};
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::subscription::{Subscription, VerificationState};
use streaming_hub_model::tenant::TenantId;

use crate::fields::{Errors, Fault, Place};
use crate::problem::{Code, Problem};

/// How many entries a page has at most.
pub(crate) const LIMIT_MAX: usize = 1000;
/// How many entries a page has when the caller does not say.
const LIMIT_DEFAULT: usize = 100;

/// The parameters of one request; each is taken once, and what is left at the end is unknown.
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
    errors: Errors,
}

impl Parameters {
    /// Those of a query text, which may be empty.
    pub(crate) fn new(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Self { pairs, errors: Errors::default() }
    }

    /// Takes one that may be missing. `wanted` completes "must be …" for a value that `parse`
    /// refuses.
    pub(crate) fn take<T>(
        &mut self,
        name: &str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let mut own = self.pairs.extract_if(.., |(other, _)| other == name);
        let (_, value) = own.next()?;
        let twice = own.next().is_some();
        drop(own);
        let parsed = if twice { None } else { parse(&value) };
        if parsed.is_none() {
            let (fault, message) = match twice {
                true => (Fault::Duplicate, "is given twice".to_owned()),
                false => (Fault::Invalid, format!("must be {wanted}")),
            };
            self.errors.push(Place::Parameter(name.to_owned()), fault, message);
        }
        parsed
    }

    /// Takes an integer that may be missing.
    pub(crate) fn integer(&mut self, name: &str, min: u64, max: u64) -> Option<u64> {
        self.take(name, &format!("an integer from {min} to {max}"), |value| {
            value.parse().ok().filter(|number| (min..=max).contains(number))
        })
    }

    /// Takes `true` or `false`.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        self.take(name, "true or false", |value| value.parse().ok())
    }

    /// `value`, if every parameter was known and right.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<T, Problem> {
        for (name, _) in self.pairs {
            let fault = Fault::UnknownField;
            self.errors.push(Place::Parameter(name), fault, "there is no such parameter");
        }
        let read = self.errors.or(Some(value));
        read.map_err(|errors| Problem::fields(Code::InvalidQuery, errors))
    }
}

/// Which page of a list of subscriptions is wanted, and which of them are listed at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct List {
    /// The most entries, 1 to 1000.
    pub(crate) limit: usize,
    /// The page begins behind this id. To callers it is opaque.
    pub(crate) after: Option<SubscriptionId>,
    /// Whose; for an operator's list only.
    pub(crate) tenant: Option<TenantId>,
    state: Option<VerificationState>,
    enabled: Option<bool>,
    sink_type: Option<String>,
    event_type: Option<KeyPattern>,
}

impl List {
    fn parse(query: &str, of_operator: bool) -> Result<Self, Problem> {
        let mut own = Parameters::new(query);
        let limit = own.integer("limit", 1, LIMIT_MAX as u64);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let cursor = "a `next_cursor` of this list";
        let list = Self {
            limit: limit.unwrap_or(LIMIT_DEFAULT),
            after: own.take("cursor", cursor, |text| SubscriptionId::parse(text).ok()),
            state: own.take("state", "pending, active or failed", |text| {
                VerificationState::deserialize(StrDeserializer::<NameError>::new(text)).ok()
            }),
            enabled: own.boolean("enabled"),
            sink_type: own.take("sink_type", "a sink type", |text| {
                (!text.is_empty()).then(|| text.to_owned())
            }),
            event_type: own
                .take("event_type", "an event type", |text| KeyPattern::parse(text).ok()),
            tenant: of_operator
                .then(|| own.take("tenant", "a tenant's id", |text| TenantId::parse(text).ok()))
                .flatten(),
        };
        own.finish(list)
    }

    /// Whether a subscription is among those that are listed.
    pub(crate) fn wants(&self, subscription: &Subscription) -> bool {
        self.after.is_none_or(|after| subscription.id > after)
            && self.state.is_none_or(|state| subscription.verification_state == state)
            && self.enabled.is_none_or(|enabled| subscription.enabled == enabled)
            && self.sink_type.as_ref().is_none_or(|kind| subscription.sink.kind() == kind)
            && self.event_type.as_ref().is_none_or(|wanted| {
                subscription.event_types.iter().any(|listed| covers(listed, wanted))
            })
    }
}

/// Whether a listed pattern is the wanted one, or would match it.
fn covers(listed: &KeyPattern, wanted: &KeyPattern) -> bool {
    match wanted {
        KeyPattern::Exact(key) => {
            let (resource, event) = key.segments();
            listed.matches(resource, event)
        }
        KeyPattern::Resource(_) | KeyPattern::Any => listed == wanted,
    }
}

/// A tenant's list.
pub(crate) struct TenantList(pub(crate) List);

/// An operator's list, which may name a tenant.
pub(crate) struct OperatorList(pub(crate) List);

async fn query<S: Send + Sync>(parts: &mut Parts, state: &S) -> String {
    let Ok(RawQuery(query)) = RawQuery::from_request_parts(parts, state).await;
    query.unwrap_or_default()
}

impl<S: Send + Sync> FromRequestParts<S> for TenantList {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        List::parse(&query(parts, state).await, false).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OperatorList {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        List::parse(&query(parts, state).await, true).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";

    #[test]
    fn a_page_has_a_limit_and_a_place_to_begin() {
        let after = SubscriptionId::parse(ID).unwrap();
        let table = [
            (String::new(), 100, None),
            ("limit=1".into(), 1, None),
            (format!("cursor={ID}&limit=1000"), 1000, Some(after)),
        ];
        for (query, limit, after) in table {
            let list = List::parse(&query, false).unwrap();
            assert_eq!((list.limit, list.after), (limit, after), "{query}");
        }
    }

    #[test]
    fn a_wrong_parameter_is_refused() {
        let bad = [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=",
            "limit=1&limit=2",
            "cursor=17",
            "offset=3",
            "=",
            "state=actve",
            "enabled=1",
            "event_type=account",
            "sink_type=",
            "tenant=acme",
        ];
        for query in bad {
            let problem = List::parse(query, false).unwrap_err();
            assert_eq!(problem.code(), Code::InvalidQuery, "{query}");
        }
        assert!(List::parse("tenant=acme", true).unwrap().tenant.is_some());
    }

    #[test]
    fn an_event_type_finds_what_would_match_it_and_a_pattern_what_lists_it() {
        let table = [
            ("account.created", "account.created", true),
            ("account.*", "account.created", true),
            ("*", "account.created", true),
            ("account.deleted", "account.created", false),
            ("account.*", "account.*", true),
            ("*", "account.*", false),
            ("account.created", "account.*", false),
        ];
        for (listed, wanted, found) in table {
            let parse = |text| KeyPattern::parse(text).unwrap();
            assert_eq!(covers(&parse(listed), &parse(wanted)), found, "{listed} {wanted}");
        }
    }
}
