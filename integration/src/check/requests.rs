//! What the receiver must have got: each match delivered, with the event's bytes and attributes, a
//! signature that is valid and a delivery id of its own; and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::{Delivered, EventId, Expected, History};
use crate::api::Subscriber;
use crate::producer::Source;
use crate::receiver::Request;

/// All rules about requests.
pub(super) fn requests(history: &History, expected: &Expected<'_>, faults: &mut Vec<String>) {
    let mut found: BTreeMap<(EventId, usize), usize> = BTreeMap::new();
    let mut delivery_ids = BTreeSet::new();
    for request in &history.requests {
        let text = |name| request.text(name).unwrap_or_default();
        let mut fault = |what: &str| {
            let id = text("X-Lerian-Event-Id");
            faults.push(format!("request to {} with {id}: {what}", request.target));
        };
        let delivery_id = text("X-Lerian-Delivery-Id");
        if delivery_id.len() != 36 || !delivery_ids.insert(delivery_id) {
            fault("its delivery id is none or was used before");
        }
        let owner = history.subscribers.iter().position(|own| own.path == request.target);
        let Some(number) = owner else {
            fault("nobody subscribed with this path");
            continue;
        };
        let subscriber = &history.subscribers[number];
        if let Err(what) = request.verify(&[&subscriber.secret]) {
            fault(&format!("its signature: {what}"));
        }
        if text("X-Lerian-Tenant-Id") != subscriber.wanted.tenant {
            fault("its tenant is another");
        }
        if request.is_probe() {
            continue;
        }
        let id = (subscriber.wanted.tenant.clone(), text("X-Lerian-Event-Id").to_owned());
        let job = (id, number);
        if !expected.jobs.contains(&job) {
            fault("it is no match");
            continue;
        }
        for what in differences(request, &expected.events[&job.0]) {
            fault(&what);
        }
        *found.entry(job).or_default() += 1;
    }
    for job in &expected.jobs {
        let subscriber = &history.subscribers[job.1];
        let times = found.get(job).copied().unwrap_or(0);
        if !enough(times, subscriber, history.delivered) {
            let name = &subscriber.wanted.name;
            faults.push(format!("requests: {times} times {:?} to {name}", job.0));
        }
    }
}

fn enough(times: usize, subscriber: &Subscriber, delivered: Delivered) -> bool {
    match delivered {
        _ if !subscriber.takes => true,
        Delivered::Once => times == 1,
        Delivered::AtLeastOnce => times >= 1,
    }
}

/// What a request has that none of an event's copies has; nothing when it is one of them.
fn differences(request: &Request, copies: &[&Source]) -> Vec<String> {
    let mut least: Option<Vec<String>> = None;
    for copy in copies {
        let differences = difference(request, copy);
        if least.as_ref().is_none_or(|least| differences.len() < least.len()) {
            least = Some(differences);
        }
    }
    least.unwrap_or_default()
}

fn difference(request: &Request, source: &Source) -> Vec<String> {
    let fact = &source.fact;
    let mut faults = Vec::new();
    let body = fact.value.as_deref().unwrap_or_default();
    if request.method != "POST" {
        faults.push(format!("its method is {}", request.method));
    }
    if request.body != body {
        let (found, wanted) = (request.body.len(), body.len());
        faults.push(format!("its body ({found} bytes) is not the payload ({wanted} bytes)"));
    }
    let text = |name| fact.text(name).unwrap_or_default();
    let key = format!("{}.{}", text("ce-resourcetype"), text("ce-eventtype"));
    let content_type = fact.text("ce-datacontenttype").unwrap_or("application/json");
    let mut wanted = vec![
        ("X-Lerian-Event-Type", vec![key.as_str()]),
        ("X-Lerian-Schema-Version", vec![text("ce-schemaversion")]),
        ("Content-Type", vec![content_type]),
        ("baggage", vec![]),
    ];
    if let Some(parent) = fact.text("traceparent").filter(|parent| is_plain_traceparent(parent)) {
        wanted.push(("traceparent", vec![parent]));
    }
    for (name, values) in wanted {
        let values = values.into_iter().map(str::as_bytes).collect::<Vec<_>>();
        let found = request.lines(name);
        if found != values {
            let found = found.iter().map(|v| String::from_utf8_lossy(v)).collect::<Vec<_>>();
            faults.push(format!("its {name} is {found:?}"));
        }
    }
    if request.headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("ce-")) {
        faults.push("it has a ce- header".to_owned());
    }
    faults
}

/// Version 00 of W3C trace context, which every reader takes.
fn is_plain_traceparent(text: &str) -> bool {
    let parts = text.split('-').collect::<Vec<_>>();
    let hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = parts.iter().map(|part| part.len());
    parts[0] == "00"
        && lengths.eq([2, 32, 16, 2])
        && parts.iter().all(|part| hex(part))
        && [parts[1], parts[2]].iter().all(|part| part.bytes().any(|byte| byte != b'0'))
}
