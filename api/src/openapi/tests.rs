//! The document describes every route, refers to nothing that is not there, and its committed copy
//! is the one that is served.

use std::collections::HashSet;

use serde_json::Value;

use super::{document, method_key, text};
use crate::routes;

fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&'a Value)) {
    visit(value);
    match value {
        Value::Object(members) => members.values().for_each(|member| walk(member, visit)),
        Value::Array(entries) => entries.iter().for_each(|entry| walk(entry, visit)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_with_an_id_of_its_own_and_an_answer() {
    let (all, mut ids) = (routes(), HashSet::new());
    let document = document(&all);
    for route in &all {
        let operation = &document["paths"][route.path][method_key(&route.method)];
        let at = format!("{} {}", route.method, route.path);
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{at}");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{at}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{at}");
        assert!(responses.contains_key("503"), "{at}");
        let described = operation["parameters"].as_array().map_or(0, Vec::len);
        assert!(described >= route.path.matches('{').count(), "{at}");
    }
    let described: usize =
        document["paths"].as_object().unwrap().values().map(|m| m.as_object().unwrap().len()).sum();
    assert_eq!(described, all.len());
}

#[test]
fn every_reference_leads_to_something() {
    let document = document(&routes());
    let mut count = 0;
    walk(&document, &mut |value| {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
            count += 1;
        }
    });
    assert!(count > 10);
}

#[test]
fn the_committed_table_of_problems_is_the_one_of_the_code() {
    committed("errors.md", &crate::problems_markdown());
}

/// Compares a page of docs/ with what the code makes of it; `UPDATE_DOCS=1` writes it.
fn committed(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == text, "docs/{name} is not what the code makes: UPDATE_DOCS=1 writes it");
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    committed("openapi.json", &text());
}
