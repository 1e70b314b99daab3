//! Who runs what: the tasks of every instance with positions, lag, restores and warm copies, each
//! asked of the instance itself; and what the hub is made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};
use streaming_hub_model::overview::{Here, TaskOwner};
use streaming_hub_model::peer::Peer;
use tokio::time::timeout;

use crate::ask::{Missing, shown};
use crate::auth::OperatorCaller;
use crate::forward::{Failure, Inbound, InternalCaller, forward, returned};
use crate::state::Api;

/// Where an instance tells another what it runs.
pub(crate) const PATH: &str = "/internal/instance";
/// How long one instance is waited for.
const ONE: Duration = Duration::from_secs(2);
/// The largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The route of other instances.
pub(crate) fn route() -> MethodRouter<Arc<Api>> {
    get(here)
}

async fn here(State(api): State<Arc<Api>>, _: InternalCaller) -> Response {
    Json(api.overview.here()).into_response()
}

/// `GET /admin/tasks`.
pub(crate) async fn tasks(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
) -> Response {
    let own = api.overview.here();
    let owners = api.overview.owners();
    let mut missing = Missing::default();
    let mut instances = vec![own];
    for (instance, url) in others(&owners, &instances[0].instance) {
        let peer = Peer { instance: instance.to_owned(), url: url.to_owned() };
        match of_peer(&api, &inbound, &peer).await {
            Ok(there) => instances.push(there),
            Err(why) => {
                tracing::warn!(instance, cause = why, "an instance does not say what it runs");
                missing.add(format!("instance/{instance}"));
            }
        }
    }
    let mut body = json!({"instances": instances, "owners": shown(owners)});
    missing.mark(&mut body);
    Json(body).into_response()
}

/// The other instances that own something, and where each said last that it is reached.
fn others<'a>(owners: &'a [TaskOwner], own: &str) -> BTreeMap<&'a str, &'a str> {
    let mut sorted: Vec<_> = owners.iter().filter(|owner| owner.instance != own).collect();
    sorted.sort_by_key(|owner| owner.since);
    sorted.iter().map(|owner| (&*owner.instance, &*owner.url)).collect()
}

async fn of_peer(api: &Api, inbound: &Inbound, peer: &Peer) -> Result<Here, String> {
    let asked = inbound.another(Method::GET, PATH);
    let answer = async {
        let answer = forward(api, &asked, peer).await.map_err(|failure| match failure {
            Failure::NotSent(why) | Failure::Unknown(why) => why,
        })?;
        if answer.status() != StatusCode::OK {
            return Err(format!("it answered {}", answer.status()));
        }
        let body = to_bytes(returned(answer).into_body(), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    };
    timeout(ONE, answer).await.unwrap_or_else(|_| Err("no answer within the time".to_owned()))
}

/// `GET /admin/topology`.
pub(crate) async fn topology(State(api): State<Arc<Api>>, _: OperatorCaller) -> Response {
    let owners = api.overview.owners();
    let mut counts = BTreeMap::<&str, BTreeMap<&str, u64>>::new();
    for owner in &owners {
        *counts.entry(&owner.instance).or_default().entry(&owner.sub_topology).or_default() += 1;
    }
    let instances: Vec<Value> = counts
        .iter()
        .map(|(instance, tasks)| json!({"instance": instance, "tasks": tasks}))
        .collect();
    Json(json!({
        "application": api.overview.application(),
        "partitions": api.deliveries.partitions(),
        "sub_topologies": api.overview.shape(),
        "instances": instances,
    }))
    .into_response()
}
