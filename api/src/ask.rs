//! Questions to the delivery tasks, wherever they run (design 24): one to the task of a partition,
//! or one to all of them. Between instances a question travels as it is, to a path that only other
//! instances reach.

use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use serde_json::Value;
use streaming_hub_model::delivery_calls::{Answer, Question};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::routing;

use crate::body::JsonBody;
use crate::forward::{Inbound, InternalCaller, Owned, owned};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Where instances ask each other's delivery tasks.
pub(crate) const PATH: &str = "/internal/delivery/{partition}";

/// The largest answer that is read, bytes: a page of attempts, or a letter with its payload.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The route of other instances. It stands in no document: nobody else gets past its door.
pub(crate) fn route() -> MethodRouter<Arc<Api>> {
    post(answer)
}

async fn answer(
    State(api): State<Arc<Api>>,
    InternalCaller(inbound): InternalCaller,
    Path(partition): Path<i32>,
    JsonBody(question): JsonBody,
) -> Result<Response, Problem> {
    let question: Question = serde_json::from_value(question)
        .map_err(|error| Problem::internal(format!("an instance asks what is unknown: {error}")))?;
    let inbound = if is_read(&question) { inbound.reading() } else { inbound };
    let asked = owned(&api, &inbound, || api.deliveries.ask(partition, question.clone()));
    Ok(asked.await?.answer(Json))
}

/// Whether asking again does no harm.
fn is_read(question: &Question) -> bool {
    !matches!(
        question,
        Question::Redeliver { .. } | Question::Replay { .. } | Question::Forget { .. }
    )
}

/// Asks the task of a partition, here or where it runs.
///
/// # Errors
/// As [`owned`].
pub(crate) async fn ask(
    api: &Api,
    inbound: &Inbound,
    partition: i32,
    question: Question,
) -> Result<Answer, Problem> {
    let body = serde_json::to_vec(&question).map_err(|e| Problem::internal(e.to_string()))?;
    let path = PATH.replace("{partition}", &partition.to_string());
    let inner = inbound.another(Method::POST, path).with_json(body);
    let inner = if is_read(&question) { inner.reading() } else { inner };
    match owned(api, &inner, || api.deliveries.ask(partition, question.clone())).await? {
        Owned::Here(answer) => Ok(answer),
        Owned::There(response) if response.status() == StatusCode::OK => {
            let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
            let body = body.map_err(|error| Problem::timeout().because(error.to_string()))?;
            serde_json::from_slice(&body).map_err(|error| Problem::internal(error.to_string()))
        }
        Owned::There(response) => {
            let why = format!("the owner answered {}", response.status());
            let unknown = !is_read(&question);
            Err(if unknown { Problem::timeout().because(why) } else { Problem::no_owner(why) })
        }
    }
}

/// The partition that has a subscription's jobs.
pub(crate) fn home(api: &Api, id: SubscriptionId) -> i32 {
    routing::partition_for_subscription(id, api.deliveries.partitions())
}

/// All partitions.
pub(crate) fn partitions(api: &Api) -> std::ops::Range<i32> {
    0..i32::try_from(api.deliveries.partitions()).unwrap_or(i32::MAX)
}

/// An answer of another kind than its question.
pub(crate) fn misfit() -> Problem {
    Problem::internal("a task answered another question")
}

/// Which parts of the hub an answer is without.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<String>);

impl Missing {
    /// Takes an answer; one that could not be had now is noted, anything else is an error.
    pub(crate) fn note<T>(
        &mut self,
        what: impl FnOnce() -> String,
        answer: Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(problem) if matches!(problem.code(), Code::NoOwner | Code::Timeout) => {
                let what = what();
                tracing::warn!(part = what, cause = problem.cause(), "an answer is partial");
                self.add(what);
                Ok(None)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Notes a part, once.
    pub(crate) fn add(&mut self, what: String) {
        if !self.0.contains(&what) {
            self.0.push(what);
        }
    }

    /// Marks the body of an answer.
    pub(crate) fn mark(self, body: &mut Value) {
        body["partial"] = (!self.0.is_empty()).into();
        if !self.0.is_empty() {
            body["missing"] = self.0.into();
        }
    }
}

/// Members of answers that hold a time in Unix milliseconds, which callers get as RFC 3339.
const TIMES: [&str; 8] = [
    "at",
    "due",
    "ended_at",
    "matched_at",
    "oldest_waiting_at",
    "since",
    "started_at",
    "timestamp",
];

/// Shows a task's answer: its times as texts.
pub(crate) fn shown(value: impl serde::Serialize) -> Value {
    // What the model made of plain data always has a JSON value.
    let mut value = serde_json::to_value(value).unwrap_or_default();
    show_times(&mut value);
    value
}

fn show_times(value: &mut Value) {
    match value {
        Value::Array(entries) => entries.iter_mut().for_each(show_times),
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_i64() {
                    Some(ms) if TIMES.contains(&&**name) => {
                        *member = streaming_hub_model::time::UnixMillis(ms).to_rfc3339().into();
                    }
                    _ => show_times(member),
                }
            }
        }
        _ => {}
    }
}
