//! Every route: who may use it, and how what is not a route answers.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use serde_json::json;

use super::{Access, Route, routes};
use crate::Limits;
use crate::testing::{ACME, Answer, EVIL, Harness, LONG, OPERATOR, body};

async fn call(harness: &Harness, route: &Route, id: &str, token: Option<&str>) -> Answer {
    let path = route.path.replace("{id}", id);
    let body = match route.method {
        Method::POST => Some(body()),
        Method::PATCH => Some(json!({"enabled": true})),
        _ => None,
    };
    harness.call(route.method.clone(), &path, token, body.as_ref()).await
}

fn of_operators() -> impl Iterator<Item = Route> {
    routes().into_iter().filter(|route| route.access == Access::Operator)
}

fn of_tenants() -> impl Iterator<Item = Route> {
    routes().into_iter().filter(|route| route.access == Access::Tenant)
}

#[tokio::test]
async fn no_route_but_an_open_one_answers_without_a_valid_token() {
    let harness = Harness::new();
    let id = harness.created().await;
    for route in of_tenants().chain(of_operators()) {
        let mut bodies = Vec::new();
        for token in [None, Some("token-of-nobody"), Some("")] {
            let answer = call(&harness, &route, &id, token).await;
            answer.assert_problem(401, "unauthenticated");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            let mut body = answer.json();
            body["request_id"] = json!(null);
            bodies.push(body);
        }
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{}", route.path);
    }
    assert!(harness.hub.record(&id).is_some());
}

#[tokio::test]
async fn another_tenants_id_is_answered_as_one_that_does_not_exist() {
    let harness = Harness::new();
    let id = harness.created().await;
    let mut seen = 0;
    for route in of_tenants().filter(|route| route.path.contains("{id}")) {
        let unknown = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
        let mut bodies = Vec::new();
        for id in [&*id, unknown, "17", "%FF", "..%2F"] {
            let answer = call(&harness, &route, id, Some(EVIL)).await;
            answer.assert_problem(404, "not_found");
            let mut body = answer.json();
            body["request_id"] = json!(null);
            bodies.push(body);
        }
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{}", route.path);
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
    // What names one elsewhere than in its path.
    let read = |id: &str| format!("/v1/events?subscription_id={id}");
    let other = harness.call(Method::GET, &read(&id), Some(EVIL), None).await;
    other.assert_problem(404, "not_found");
    let paths: Vec<_> = of_tenants().map(|r| r.path).filter(|p| !p.contains("{id}")).collect();
    for path in paths {
        // The last is looked for among the caller's own events only: integration/tests/calls.rs.
        let known = ["/v1/subscriptions", "/v1/events", "/v1/events/{ceId}/trace"];
        assert!(known.contains(&path), "is another tenant's {path} answered with 404?");
    }
    assert!(harness.hub.record(&id).is_some());
    assert!(harness.hub.attempts.lock().unwrap().is_empty(), "it was probed for a stranger");
}

#[tokio::test]
async fn an_operator_has_no_tenants_routes() {
    let harness = Harness::new();
    let id = harness.created().await;
    for route in of_tenants() {
        call(&harness, &route, &id, Some(OPERATOR)).await.assert_problem(403, "forbidden");
    }
    assert!(harness.hub.record(&id).is_some());
}

#[tokio::test]
async fn a_tenant_has_no_operators_routes() {
    let harness = Harness::new();
    let id = harness.created().await;
    for route in of_operators() {
        call(&harness, &route, &id, Some(ACME)).await.assert_problem(403, "forbidden");
    }
}

#[tokio::test]
async fn an_operator_sees_everyones_subscriptions_and_whose_they_are() {
    let harness = Harness::new();
    let id = harness.created().await;
    harness.call(Method::POST, "/v1/subscriptions", Some(EVIL), Some(&body())).await;
    let list = async |query: &str| {
        let path = format!("/admin/subscriptions{query}");
        harness.call(Method::GET, &path, Some(OPERATOR), None).await.json()
    };
    let everyone = list("").await;
    let owners: Vec<_> = everyone["subscriptions"].as_array().unwrap().iter().collect();
    assert_eq!((&owners[0]["tenant"], &owners[1]["tenant"]), (&json!("acme"), &json!("evil")));
    assert_eq!(list("?tenant=acme").await["subscriptions"].as_array().unwrap().len(), 1);
    let path = format!("/admin/subscriptions/{id}");
    let one = harness.call(Method::GET, &path, Some(OPERATOR), None).await;
    assert_eq!((one.header("etag"), &one.json()["tenant"]), (Some("\"1\""), &json!("acme")));
}

#[tokio::test]
async fn an_open_route_needs_no_token() {
    let harness = Harness::new();
    for route in routes().iter().filter(|route| route.access == Access::Open) {
        let answer = call(&harness, route, "", None).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }
}

#[tokio::test]
async fn what_is_not_in_the_table_is_a_problem() {
    let harness = Harness::new();
    for path in ["/", "/v1", "/v2/subscriptions", "/v1/subscriptions/", "/admin/none"] {
        harness.get(path).await.assert_problem(404, "unknown_path");
    }
    let table = [
        (Method::PUT, "/v1/subscriptions", "POST"),
        (Method::PUT, "/v1/subscriptions/17", "DELETE"),
        (Method::GET, "/v1/subscriptions/17/verify", "POST"),
        (Method::POST, "/healthz", "GET"),
    ];
    for (method, path, allowed) in table {
        let answer = harness.call(method, path, Some(ACME), None).await;
        answer.assert_problem(405, "method_not_allowed");
        let allow = answer.header("allow").unwrap();
        assert!(allow.split(',').any(|method| method == allowed), "{path}: {allow}");
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_problem_of_its_own() {
    let harness = Harness::with(Limits { body_bytes_max: 1000, ..Limits::default() }, LONG);
    let deep = "[".repeat(500);
    let (large, full) = (format!("{{{}", " ".repeat(1000)), "{ ".repeat(500));
    let table = [
        (Some("application/json"), "{", 400, "malformed_json"),
        (Some("application/json"), "", 400, "malformed_json"),
        (Some("application/json"), "{} {}", 400, "malformed_json"),
        (Some("application/json"), &deep, 400, "malformed_json"),
        (Some("application/json"), &full, 400, "malformed_json"),
        (Some("application/json"), &large, 413, "body_too_large"),
        (Some("application/json"), "[]", 422, "validation_failed"),
        (Some("text/plain"), "{}", 415, "unsupported_media_type"),
        (None, "{}", 415, "unsupported_media_type"),
    ];
    for (content_type, text, status, code) in table {
        let mut request =
            Request::post("/v1/subscriptions").header("authorization", format!("Bearer {ACME}"));
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(text.to_owned())).unwrap();
        harness.raw(request).await.assert_problem(status, code);
    }
    assert!(harness.hub.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_body_of_a_stranger_is_not_read() {
    let harness = Harness::new();
    let request = Request::post("/v1/subscriptions").header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from("x".repeat(1 << 20))).unwrap();
    harness.raw(request).await.assert_problem(401, "unauthenticated");
}

#[tokio::test]
async fn a_path_that_names_nothing_is_not_found_and_never_the_frameworks_own_text() {
    let harness = Harness::new();
    for place in ["x/y", "-/0", "0/%F1%BC%BD%AC"] {
        let path = format!("/admin/dlq/topic/{place}");
        let answer = harness.call(Method::GET, &path, Some(OPERATOR), None).await;
        answer.assert_problem(404, "not_found");
    }
}
