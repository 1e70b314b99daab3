//! A tenant's erasure (contract section 8): its subscriptions are deleted, what waits for them
//! ends, its dead letters go. Copies in the logs of the hub go by themselves, and the answer says
//! when the last one will be gone.
//!
//! What waits ends a little after its subscription, also of subscriptions that were deleted before,
//! so that an erasure may need another request: it is repeated until `complete`. Every step may be
//! repeated without harm.

use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use serde_json::json;
use streaming_hub_model::change::{Action, Decision};
use streaming_hub_model::delivery_calls::{Answer, Question};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::tenant::TenantId;
use tokio::time::{Duration, sleep};

use super::dead_letters::parsed;
use crate::ask::{Missing, ask, home, misfit, partitions};
use crate::auth::OperatorCaller;
use crate::body::JsonBody;
use crate::fields;
use crate::forward::{Inbound, InternalCaller, Owned, owned};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Where instances ask each other's pull tasks for what deleted subscriptions have.
pub(crate) const PATH: &str = "/internal/pull/{partition}";
/// The largest answer that is read, bytes: a number.
const ANSWER_BYTES_MAX: usize = 64;
/// How often what still waits is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// What is left of the request's time when the answer is given.
const SPARE: Duration = Duration::from_secs(2);
const MS_PER_HOUR: u64 = 3_600_000;

/// `POST /admin/tenants/erase`.
pub(crate) async fn erase(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let tenant = fields::read(body, |mut fields| {
        let tenant = fields.required("tenant", |value, at| {
            parsed(value, at, "must be a tenant's id", |text| TenantId::parse(text).ok())
        });
        fields.finish();
        tenant
    });
    let tenant = tenant.map_err(Problem::validation)?;
    tracing::info!(token = inbound.token(), "a tenant is erased");
    api.table.catch_up().await;
    let ids: Vec<_> = api.table.of_tenant(&tenant).iter().map(|record| record.id).collect();
    let mut deleted = 0;
    for id in &ids {
        match api.submit(&tenant, *id, Action::Delete { expected: None }).await {
            Ok(Decision::Deleted) => deleted += 1,
            Ok(_) => {}
            Err(problem) if problem.code() == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    let erasure = Erasure { api: &api, inbound: &inbound, tenant: &tenant };
    let mut missing = Missing::default();
    let waiting = erasure.ended(&ids, &mut missing).await?;
    let (letters, done) = erasure.forget_all(&ids, &mut missing).await?;
    let gone_at = api.operations.clock.now().plus(api.retention_hours * MS_PER_HOUR);
    let mut body = json!({
        "subscriptions_deleted": deleted,
        "dead_letters_deleted": letters,
        "complete": waiting == 0 && done,
        "last_copy_gone_at": gone_at.to_rfc3339(),
    });
    missing.mark(&mut body);
    if body["partial"] == true {
        body["complete"] = false.into();
    }
    Ok(Json(body).into_response())
}

struct Erasure<'a> {
    api: &'a Api,
    inbound: &'a Inbound,
    tenant: &'a TenantId,
}

impl Erasure<'_> {
    fn has_time(&self) -> bool {
        self.inbound.remaining() > SPARE
    }

    /// Waits until nothing waits for these subscriptions; answers for how many something does.
    async fn ended(&self, ids: &[SubscriptionId], missing: &mut Missing) -> Result<usize, Problem> {
        let mut left: Vec<_> = ids.to_vec();
        loop {
            let mut waiting = Vec::new();
            for id in left {
                let partition = home(self.api, id);
                let question = Question::Stats { subscription: id };
                let answer = ask(self.api, &self.inbound.hasty(), partition, question).await;
                match missing.note(|| format!("delivery/{partition}"), answer)? {
                    Some(Answer::Stats(stats)) if stats.backlog == 0 => {}
                    Some(Answer::Stats(_)) => waiting.push(id),
                    Some(_) => return Err(misfit()),
                    None => {}
                }
            }
            if waiting.is_empty() || !self.has_time() {
                return Ok(waiting.len());
            }
            left = waiting;
            sleep(LOOK).await;
        }
    }

    /// Throws the tenant's dead letters away until none can come any more, and waits for the end of
    /// its pull entries; answers how many letters, and whether that was all.
    async fn forget_all(
        &self,
        ids: &[SubscriptionId],
        missing: &mut Missing,
    ) -> Result<(u64, bool), Problem> {
        let mut count = 0;
        loop {
            let mut left = 0;
            for partition in partitions(self.api) {
                let (letters, ending) = self.forget(partition, missing).await?;
                count += letters;
                left += ending;
                left += self.pull_leftover(partition, ids, missing).await?;
            }
            if left == 0 || !self.has_time() {
                return Ok((count, left == 0));
            }
            sleep(LOOK).await;
        }
    }

    /// Throws the letters of a partition away; answers how many, and how many subscriptions may
    /// still get some.
    async fn forget(&self, partition: i32, missing: &mut Missing) -> Result<(u64, u64), Problem> {
        let (mut count, mut after) = (0, None);
        loop {
            let question = Question::Forget { tenant: self.tenant.clone(), after };
            let answer = ask(self.api, &self.inbound.hasty(), partition, question).await;
            match missing.note(|| format!("delivery/{partition}"), answer)? {
                Some(Answer::Forgotten { letters, next, ending }) => {
                    (count, after) = (count + letters, next);
                    if letters == 0 && after.is_none() {
                        return Ok((count, ending));
                    }
                    if !self.has_time() {
                        return Ok((count, ending.max(1)));
                    }
                }
                Some(_) => return Err(misfit()),
                None => return Ok((count, 0)),
            }
        }
    }

    /// How many deleted pull subscriptions still have entries in a partition.
    async fn pull_leftover(
        &self,
        partition: i32,
        ids: &[SubscriptionId],
        missing: &mut Missing,
    ) -> Result<u64, Problem> {
        let body = serde_json::to_vec(ids).map_err(|e| Problem::internal(e.to_string()))?;
        let path = PATH.replace("{partition}", &partition.to_string());
        let asked = self.inbound.hasty().another(Method::POST, path).with_json(body).reading();
        let leftover = || self.api.pull.leftover(partition, ids.to_vec());
        let answer = match owned(self.api, &asked, leftover).await {
            Ok(Owned::Here(left)) => Ok(left),
            Ok(Owned::There(response)) => read_leftover(response).await,
            Err(problem) => Err(problem),
        };
        Ok(missing.note(|| format!("pull/{partition}"), answer)?.unwrap_or(0))
    }
}

async fn read_leftover(response: Response) -> Result<u64, Problem> {
    if response.status() != StatusCode::OK {
        return Err(Problem::no_owner(format!("the owner answered {}", response.status())));
    }
    let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    let body = body.map_err(|error| Problem::timeout().because(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| Problem::internal(error.to_string()))
}

/// The route of other instances: how many of these or other deleted subscriptions still have
/// entries here.
pub(crate) fn route() -> MethodRouter<Arc<Api>> {
    post(left_here)
}

async fn left_here(
    State(api): State<Arc<Api>>,
    InternalCaller(inbound): InternalCaller,
    Path(partition): Path<i32>,
    JsonBody(ids): JsonBody,
) -> Result<Response, Problem> {
    let ids: Vec<SubscriptionId> = serde_json::from_value(ids)
        .map_err(|error| Problem::internal(format!("an instance asks what is unknown: {error}")))?;
    let inbound = inbound.reading();
    let asked = owned(&api, &inbound, || api.pull.leftover(partition, ids.clone()));
    Ok(asked.await?.answer(Json))
}
