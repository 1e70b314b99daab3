//! An operator's holds (contract section 4, "Pause and hold"): set, lifted and listed. What is held
//! keeps matching and waits.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use streaming_hub_model::hold::{Hold, Scope};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::Unavailable;
use streaming_hub_model::tenant::TenantId;

use super::Query;
use super::dead_letters::parsed;
use crate::ask::shown;
use crate::auth::OperatorCaller;
use crate::body::JsonBody;
use crate::fields::{self, Errors, Fault, Fields};
use crate::forward::Inbound;
use crate::problem::{Code, Problem};
use crate::query::Parameters;
use crate::state::Api;

/// The longest reason, characters.
pub(crate) const REASON_CHARS_MAX: usize = 500;

/// What a scope is called.
pub(crate) const SCOPES: [&str; 4] = ["everything", "tenant", "destination", "subscription"];

/// `GET /admin/holds`.
pub(crate) async fn list(State(api): State<Arc<Api>>, _: OperatorCaller) -> Response {
    let holds: Vec<_> = api.holds.all().iter().map(|hold| shown(&**hold)).collect();
    Json(json!({"holds": holds})).into_response()
}

/// `PUT /admin/holds`. A hold of the same scope is replaced.
pub(crate) async fn set(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let (scope, reason) = parse(body)?;
    let by = inbound.token().to_owned();
    let hold = Hold { scope, reason, since: api.operations.clock.now(), by };
    api.holds.hold(hold.clone()).await.map_err(unavailable)?;
    Ok(Json(shown(hold)).into_response())
}

/// `DELETE /admin/holds`. One that is not there is lifted already.
pub(crate) async fn lift(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    Query(query): Query,
) -> Result<StatusCode, Problem> {
    let scope = of_query(query)?;
    api.holds.lift(scope).await.map_err(unavailable)?;
    Ok(StatusCode::NO_CONTENT)
}

fn unavailable(error: Unavailable) -> Problem {
    match error {
        Unavailable::NotRecorded => Code::Unavailable.into(),
        Unavailable::Undecided => Problem::timeout(),
    }
}

fn parse(body: Value) -> Result<(Scope, Option<String>), Problem> {
    fields::read(body, read).map_err(Problem::validation)
}

fn read(mut fields: Fields<'_>) -> Option<(Scope, Option<String>)> {
    let kind = fields.required("scope", |value, at| {
        let message = "must be everything, tenant, destination or subscription";
        parsed(value, at, message, |text| SCOPES.iter().find(|name| **name == text).copied())
    });
    let scope = match kind {
        Some("tenant") => fields.required("tenant", |value, at| {
            let tenant =
                parsed(value, at, "must be a tenant's id", |text| TenantId::parse(text).ok())?;
            Some(Scope::Tenant { tenant })
        }),
        Some("destination") => fields.required("destination", |value, at| {
            let message = "must be a destination's hash";
            parsed(value, at, message, destination)
        }),
        Some("subscription") => fields.required("subscription", |value, at| {
            let message = "must be a subscription's id";
            let id = parsed(value, at, message, |text| SubscriptionId::parse(text).ok())?;
            Some(Scope::Subscription { subscription: id })
        }),
        Some(_) => Some(Scope::Everything),
        None => None,
    };
    let reason = fields.optional("reason", |value, at| {
        let reason = at.text(value)?;
        if reason.chars().count() > REASON_CHARS_MAX {
            let message = format!("must have at most {REASON_CHARS_MAX} characters");
            return at.fail(Fault::TooLong, message);
        }
        Some(reason)
    });
    fields.finish();
    Some((scope?, reason?))
}

fn destination(text: &str) -> Option<Scope> {
    let scope = Scope::Destination { destination: text.to_owned() };
    scope.is_valid().then_some(scope)
}

fn of_query(mut query: Parameters) -> Result<Scope, Problem> {
    let kind = query.take("scope", "everything, tenant, destination or subscription", |text| {
        SCOPES.iter().find(|name| **name == text).copied()
    });
    let scope = match kind {
        Some("tenant") => query.take("tenant", "a tenant's id", |text| {
            TenantId::parse(text).ok().map(|tenant| Scope::Tenant { tenant })
        }),
        Some("destination") => query.take("destination", "a destination's hash", destination),
        Some("subscription") => query.take("subscription", "a subscription's id", |text| {
            let id = SubscriptionId::parse(text).ok()?;
            Some(Scope::Subscription { subscription: id })
        }),
        Some(_) => Some(Scope::Everything),
        None => None,
    };
    query.finish(())?;
    scope.ok_or_else(|| {
        let message = "names what is held, with the parameter of that name beside it";
        let mut errors = Errors::default();
        errors.push(crate::fields::Place::Parameter("scope".into()), Fault::Required, message);
        let errors = errors.or(None::<()>).err().unwrap_or_default();
        Problem::fields(Code::InvalidQuery, errors)
    })
}
