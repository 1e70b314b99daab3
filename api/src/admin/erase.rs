//! A tenant's erasure (contract section 8): its subscriptions are deleted, what waits for them
//! ends, its dead letters go. Copies in the logs of the hub go by themselves, and the answer says
//! when the last one will be gone.
//!
//! What waits ends a little after its subscription, so that an erasure may need another request: it
//! is repeated until `complete`. Every step may be repeated without harm.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
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
use crate::forward::Inbound;
use crate::problem::{Code, Problem};
use crate::state::Api;

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
    let (letters, forgotten) = erasure.forget(&mut missing).await?;
    let gone_at = api.operations.clock.now().plus(api.retention_hours * MS_PER_HOUR);
    let mut body = json!({
        "subscriptions_deleted": deleted,
        "dead_letters_deleted": letters,
        "complete": waiting == 0 && forgotten,
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

    /// Throws the tenant's dead letters away; answers how many, and whether there are none left.
    async fn forget(&self, missing: &mut Missing) -> Result<(u64, bool), Problem> {
        let mut count = 0;
        for partition in partitions(self.api) {
            loop {
                let question = Question::Forget { tenant: self.tenant.clone() };
                let answer = ask(self.api, &self.inbound.hasty(), partition, question).await;
                match missing.note(|| format!("delivery/{partition}"), answer)? {
                    Some(Answer::Forgotten { letters: 0 }) | None => break,
                    Some(Answer::Forgotten { letters }) => count += letters,
                    Some(_) => return Err(misfit()),
                }
                if !self.has_time() {
                    return Ok((count, false));
                }
            }
        }
        Ok((count, true))
    }
}
