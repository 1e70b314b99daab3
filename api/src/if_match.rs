//! `If-Match` (RFC 9110 section 13.1.1): the version that a write expects. Compared strongly; what
//! is no ETag of ours matches nothing.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;

use crate::problem::Problem;

/// The condition of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// None, or that it exists at all.
    Any,
    /// One of these versions.
    One(Vec<u64>),
}

impl IfMatch {
    fn of(headers: &HeaderMap) -> Self {
        let mut versions = Vec::new();
        for value in headers.get_all(IF_MATCH) {
            for tag in value.to_str().unwrap_or_default().split(',').map(str::trim) {
                if tag == "*" {
                    return Self::Any;
                }
                let quoted = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                versions.extend(quoted.and_then(|digits| digits.parse::<u64>().ok()));
            }
        }
        match headers.contains_key(IF_MATCH) {
            true => Self::One(versions),
            false => Self::Any,
        }
    }

    /// The version that the registry is to find, when this instance sees `current`. 0 is that of
    /// no subscription.
    pub(crate) fn expected(&self, current: Option<u64>) -> Option<u64> {
        let Self::One(versions) = self else { return None };
        let seen = current.filter(|current| versions.contains(current));
        Some(seen.or(versions.iter().max().copied()).unwrap_or(0))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::of(&parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_versions_in_quotes() {
        let table: [(&[&str], Option<u64>, Option<u64>); 9] = [
            (&[], Some(3), None),
            (&["*"], Some(3), None),
            (&["\"3\""], Some(3), Some(3)),
            (&["\"2\""], Some(3), Some(2)),
            (&["\"2\", \"3\""], Some(3), Some(3)),
            (&["\"2\"", "\"3\""], Some(2), Some(2)),
            (&["W/\"3\""], Some(3), Some(0)),
            (&["3"], Some(3), Some(0)),
            (&[""], None, Some(0)),
        ];
        for (values, current, expected) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_MATCH, value.parse().unwrap());
            }
            assert_eq!(IfMatch::of(&headers).expected(current), expected, "{values:?}");
        }
    }
}
