//! The query of a list: `limit` and `cursor`. Unknown, repeated and malformed parameters are
//! refused by name, all at once.

use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use streaming_hub_model::id::SubscriptionId;

use crate::fields::{Errors, Fault, Place};
use crate::problem::{Code, Problem};

/// How many entries a page has at most.
const LIMIT_MAX: usize = 1000;
/// How many entries a page has when the caller does not say.
const LIMIT_DEFAULT: usize = 100;

/// Which page of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// The most entries, 1 to 1000.
    pub(crate) limit: usize,
    /// The page begins behind this id. To callers it is opaque.
    pub(crate) after: Option<SubscriptionId>,
}

impl Page {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut errors = Errors::default();
        let (mut limit, mut after) = (None, None);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let mut fail = |code, message: &str| {
                errors.push(Place::Parameter(name.to_string()), code, message);
            };
            match &*name {
                "limit" if limit.is_some() => fail(Fault::Duplicate, "is given twice"),
                "limit" => match value.parse() {
                    Ok(n) if (1..=LIMIT_MAX).contains(&n) => limit = Some(n),
                    _ => fail(Fault::OutOfRange, "must be an integer from 1 to 1000"),
                },
                "cursor" if after.is_some() => fail(Fault::Duplicate, "is given twice"),
                "cursor" => match SubscriptionId::parse(&value) {
                    Ok(id) => after = Some(id),
                    Err(_) => fail(Fault::Invalid, "must be a `next_cursor` of this list"),
                },
                _ => fail(Fault::UnknownField, "there is no such parameter"),
            }
        }
        errors
            .or(Some(Self { limit: limit.unwrap_or(LIMIT_DEFAULT), after }))
            .map_err(|errors| Problem::fields(Code::InvalidQuery, errors))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Page {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(RawQuery(query)) = RawQuery::from_request_parts(parts, state).await;
        Self::parse(query.as_deref().unwrap_or_default())
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
            assert_eq!(Page::parse(&query).unwrap(), Page { limit, after }, "{query}");
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
        ];
        for query in bad {
            let problem = Page::parse(query).unwrap_err();
            assert_eq!(problem.code(), Code::InvalidQuery, "{query}");
        }
    }
}
