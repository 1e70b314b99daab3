//! What an operator sees and does across tenants (contract section 7, `/admin`). A tenant stands in
//! a query or a body, never in a path. What spans instances is asked of each owner; what one of
//! them cannot answer now is named, and the rest is shown.

pub(crate) mod attempts;
pub(crate) mod dead_letters;
pub(crate) mod destinations;
pub(crate) mod erase;
pub(crate) mod holds;
pub(crate) mod quarantine;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;

use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use streaming_hub_model::rfc3339;
use streaming_hub_model::time::UnixMillis;

use crate::problem::Problem;
use crate::query::Parameters;

/// The parameters of a query, for a handler that takes them one by one.
pub(crate) struct Query(pub(crate) Parameters);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(RawQuery(query)) = RawQuery::from_request_parts(parts, state).await;
        Ok(Self(Parameters::new(query.as_deref().unwrap_or_default())))
    }
}

/// What a time in a query or a body must be.
pub(crate) const TIME: &str = "an RFC 3339 time such as 2026-01-31T00:00:00Z";

/// A time as callers write it.
pub(crate) fn time(text: &str) -> Option<UnixMillis> {
    rfc3339::parse_millis(text).ok().map(UnixMillis)
}
