//! Dead letters of everyone: listed across partitions, looked at, redelivered one by one or by
//! filter. Each partition's owner has its own; what an owner cannot answer now is named.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::delivery_calls::{
    Answer, Chosen, Cursor, DeadLetter, Filter, PAGE_MAX, Question, Redelivered,
};
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::tenant::TenantId;

use super::{Query, TIME, time};
use crate::ask::{Missing, ask, home, misfit, partitions, shown};
use crate::auth::OperatorCaller;
use crate::body::JsonBody;
use crate::fields::{self, At, Fault, Fields};
use crate::forward::Inbound;
use crate::idempotency::key;
use crate::problem::{Code, Problem};
use crate::query::Parameters;
use crate::state::Api;

/// Entries of a page when the caller does not say.
const LIMIT_DEFAULT: u64 = 100;
/// The most that one request redelivers.
pub(crate) const REDELIVERED_MAX: u64 = 10_000;
/// How many when the caller does not say.
pub(crate) const REDELIVERED_DEFAULT: u64 = 1_000;

/// Where a listing of all partitions goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    partition: i32,
    after: Option<Cursor>,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (partition, after) = text.split_once('_')?;
        let after = if after.is_empty() { None } else { Some(after.parse().ok()?) };
        let partition = partition.parse().ok().filter(|partition| *partition >= 0)?;
        Some(Self { partition, after })
    }

    fn text(self) -> String {
        let after = self.after.map(|after| after.to_string()).unwrap_or_default();
        format!("{}_{after}", self.partition)
    }
}

/// `GET /admin/dead-letters`.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Query(mut query): Query,
) -> Result<Response, Problem> {
    let filter = filter_of(&mut query);
    let limit = query.integer("limit", 1, PAGE_MAX.into()).unwrap_or(LIMIT_DEFAULT);
    let start = query.take("cursor", "a `next_cursor` of this list", Place::parse);
    query.finish(())?;
    let (hasty, mut missing) = (inbound.hasty(), Missing::default());
    let (mut letters, mut next) = (Vec::new(), None);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut places = places(&api, &filter, start);
    for place in places.by_ref() {
        let room = u16::try_from(limit - letters.len()).unwrap_or(PAGE_MAX);
        let question =
            Question::DeadLetters { filter: filter.clone(), after: place.after, limit: room };
        let answer = ask(&api, &hasty, place.partition, question).await;
        match missing.note(|| partition_name(place.partition), answer)? {
            Some(Answer::DeadLetters(page)) => {
                letters.extend(page.letters);
                next = page.next.map(|after| Place { after: Some(after), ..place });
            }
            Some(_) => return Err(misfit()),
            None => {}
        }
        // A page of a partition may be short and still have a next one.
        if next.is_some() || letters.len() >= limit {
            break;
        }
    }
    let next = next.or_else(|| places.next()).map(Place::text);
    let mut body = json!({"dead_letters": shown(letters), "next_cursor": next});
    missing.mark(&mut body);
    Ok(Json(body).into_response())
}

/// The partitions that may hold what a filter names, from a place on.
fn places(api: &Api, filter: &Filter, start: Option<Place>) -> impl Iterator<Item = Place> {
    let only = filter.subscription.map(|id| home(api, id));
    let first = start.unwrap_or(Place { partition: 0, after: None });
    partitions(api)
        .filter(move |partition| only.is_none_or(|only| *partition == only))
        .filter(move |partition| *partition >= first.partition)
        .map(move |partition| {
            let after = first.after.filter(|_| partition == first.partition);
            Place { partition, after }
        })
}

fn partition_name(partition: i32) -> String {
    format!("delivery/{partition}")
}

fn filter_of(query: &mut Parameters) -> Filter {
    Filter {
        tenant: query.take("tenant", "a tenant's id", |text| TenantId::parse(text).ok()),
        subscription: query
            .take("subscription", "a subscription's id", |text| SubscriptionId::parse(text).ok()),
        reason: query.take("reason", "a reason of dead letters", EndReason::parse),
        from: query.take("from", TIME, time),
        to: query.take("to", TIME, time),
    }
}

/// The `{job}` of a path.
fn job_of(text: &str) -> Result<JobId, Problem> {
    JobId::parse(text).map_err(|_| Code::NotFound.into())
}

/// `GET /admin/dead-letters/{job}`.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Path(job): Path<String>,
) -> Result<Response, Problem> {
    let (_, letter) = find(&api, &inbound, job_of(&job)?).await?;
    Ok(Json(shown(letter)).into_response())
}

/// Looks for a letter in every partition: a job's id does not say where it lies. Not found is
/// answered only when every one of them was asked.
async fn find(api: &Api, inbound: &Inbound, job: JobId) -> Result<(i32, DeadLetter), Problem> {
    let (hasty, mut away) = (inbound.hasty(), None);
    for partition in partitions(api) {
        match ask(api, &hasty, partition, Question::DeadLetter { job }).await {
            Ok(Answer::DeadLetter { letter: Some(letter) }) => return Ok((partition, *letter)),
            Ok(Answer::DeadLetter { letter: None }) => {}
            Ok(_) => return Err(misfit()),
            Err(problem) => away = Some(problem),
        }
    }
    Err(away.unwrap_or_else(|| Code::NotFound.into()))
}

/// `POST /admin/dead-letters/{job}/redeliver`.
pub(crate) async fn redeliver_one(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    Path(job): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = job_of(&job)?;
    let (partition, _) = find(&api, &inbound, job).await?;
    let question = Question::Redeliver { what: Chosen::One { job }, key: key(&headers)? };
    let Answer::Redelivered(done) = ask(&api, &inbound, partition, question).await? else {
        return Err(misfit());
    };
    Ok(Json(shown(done)).into_response())
}

/// `POST /admin/dead-letters/redeliver`: a bounded number of those that a filter names. What is
/// left is behind `next_cursor`.
pub(crate) async fn redeliver_many(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let wish = Wish::parse(body)?;
    let (key, mut missing) = (key(&headers)?, Missing::default());
    let (mut done, mut next) = (Redelivered::default(), None);
    let mut places = places(&api, &wish.filter, wish.start);
    let mut at = places.next();
    while let Some(place) = at {
        let left = wish.limit.saturating_sub(done.redelivered.len() + done.refused.len());
        if left == 0 || inbound.remaining().is_zero() {
            next = Some(place);
            break;
        }
        let limit = u16::try_from(left).unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let what = Chosen::Filtered { filter: wish.filter.clone(), after: place.after, limit };
        let question = Question::Redeliver { what, key: key.clone() };
        let answer = ask(&api, &inbound.hasty(), place.partition, question).await;
        at = match missing.note(|| partition_name(place.partition), answer)? {
            Some(Answer::Redelivered(batch)) => {
                done.redelivered.extend(batch.redelivered);
                done.refused.extend(batch.refused);
                let after = batch.next.map(|after| Place { after: Some(after), ..place });
                after.or_else(|| places.next())
            }
            Some(_) => return Err(misfit()),
            None => places.next(),
        };
    }
    let mut body = json!({
        "redelivered": shown(done.redelivered),
        "refused": shown(done.refused),
        "next_cursor": next.map(Place::text),
    });
    missing.mark(&mut body);
    Ok(Json(body).into_response())
}

/// Which dead letters to redeliver.
struct Wish {
    filter: Filter,
    limit: usize,
    start: Option<Place>,
}

impl Wish {
    fn parse(body: Value) -> Result<Self, Problem> {
        fields::read(body, Self::read).map_err(Problem::validation)
    }

    fn read(mut fields: Fields<'_>) -> Option<Self> {
        let tenant = fields.optional("tenant", |value, at| {
            parsed(value, at, "must be a tenant's id", |text| TenantId::parse(text).ok())
        });
        let subscription = fields.optional("subscription", |value, at| {
            parsed(value, at, "must be a subscription's id", |text| {
                SubscriptionId::parse(text).ok()
            })
        });
        let reason = fields.optional("reason", |value, at| {
            parsed(value, at, "must be a reason of dead letters", EndReason::parse)
        });
        let mut moment = |name| {
            fields.optional(name, |value, at| parsed(value, at, &format!("must be {TIME}"), time))
        };
        let (from, to) = (moment("from"), moment("to"));
        let limit = fields.optional("limit", |value, at| at.integer(&value, 1, REDELIVERED_MAX));
        let start = fields.optional("cursor", |value, at| {
            parsed(value, at, "must be a `next_cursor` of this request", Place::parse)
        });
        fields.finish();
        let filter = Filter {
            tenant: tenant?,
            subscription: subscription?,
            reason: reason?,
            from: from?,
            to: to?,
        };
        let limit = usize::try_from(limit?.unwrap_or(REDELIVERED_DEFAULT)).unwrap_or(usize::MAX);
        Some(Self { filter, limit, start: start? })
    }
}

/// A text that `parse` takes.
pub(crate) fn parsed<T>(
    value: Value,
    at: &mut At<'_>,
    message: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let text = at.text(value)?;
    parse(&text).or_else(|| at.fail(Fault::Invalid, message))
}
