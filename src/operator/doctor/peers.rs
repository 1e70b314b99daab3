//! What `doctor` sees of other instances: whether the URLs that they advertise can be reached.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use streaming_hub_topology::instances::Owner;
use streaming_hub_topology::tools::scan::{Scan, scan};
use streaming_hub_topology::topics::Topic;
use tokio::runtime::Handle;

use super::super::status;
use super::Findings;
use crate::config::Config;
use crate::settings;

/// How long an instance may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

pub(super) async fn look(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let urls = match advertised(config) {
        Ok(urls) => urls,
        Err(error) => {
            findings.warning("instances", error.to_string(), "streaming-hub topics create");
            return Ok(());
        }
    };
    let client = status::client(ANSWER)?;
    let asked = urls.into_iter().map(|(url, instance)| {
        let request = client.get(format!("{}/healthz", url.trim_end_matches('/')));
        (url, instance, Handle::current().spawn(request.send()))
    });
    for (url, instance, answer) in asked.collect::<Vec<_>>() {
        match answer.await {
            Ok(Ok(answer)) if answer.status().is_success() => {
                findings.ok("instances", format!("{instance} answers at {url}"));
            }
            Ok(Ok(answer)) => findings.problem(
                "instances",
                format!("{instance} at {url}: {}", answer.status()),
                "something else answers there: set api.advertised_url",
            ),
            _ => findings.warning(
                "instances",
                format!("{instance} does not answer at {url}"),
                "it is stopped, or api.advertised_url is no address that others can reach",
            ),
        }
    }
    Ok(())
}

/// The URL of each instance that runs a task, or ran it last.
fn advertised(config: &Config) -> anyhow::Result<BTreeMap<String, String>> {
    let topic = Topic::Instances.name(&config.application_id);
    let mut owners: BTreeMap<Vec<u8>, Owner> = BTreeMap::new();
    let what = Scan { topic: &topic, partition: None, since: None };
    scan(&settings::kafka(config), &config.application_id, what, &mut |record| {
        if let (Some(key), Some(value)) = (record.key, record.value)
            && let Ok(owner) = serde_json::from_slice::<Owner>(value)
        {
            owners.insert(key.to_vec(), owner);
        }
        ControlFlow::Continue(())
    })?;
    Ok(owners.into_values().map(|owner| (owner.url, owner.instance)).collect())
}
