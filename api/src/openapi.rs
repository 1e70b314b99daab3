//! The OpenAPI 3.1 document, made from the routes table: a route cannot stand there without its
//! [`Operation`], so nothing is served that is not described. What follows from a route's access,
//! method and path (security, path parameters, the problems that every such route has) is added
//! here and said nowhere else.
//!
//! Not here: the schemas, one file for each resource, and the texts of a route, beside it in the
//! table.

mod admin;
mod events;
mod process;
pub(crate) mod schemas;
mod sinks;
mod subscriptions;

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::idempotency;
use crate::problem::Code;
use crate::routes::{Access, Route};

/// What a route does, for the document.
#[derive(Debug, Clone)]
pub struct Operation {
    id: &'static str,
    summary: &'static str,
    about: &'static str,
    parameters: Vec<Value>,
    body: Option<Body>,
    answers: Vec<Answer>,
    problems: Vec<Code>,
}

/// The body that a request has.
#[derive(Debug, Clone)]
struct Body {
    schema: &'static str,
    media_type: &'static str,
    required: bool,
}

/// One answer that is no problem.
#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    about: &'static str,
    /// Media type and schema; none without a body.
    content: Option<(&'static str, Value)>,
    headers: Vec<(&'static str, &'static str)>,
}

/// A reference to a schema of [`schemas`].
pub(crate) fn schema_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

impl Operation {
    /// An operation: a unique id in camel case, from which clients name their methods, and what it
    /// does in a few words.
    pub(crate) fn new(id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            summary,
            about: "",
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What a caller should know beside the summary, Markdown.
    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// A query parameter that may be left out.
    pub(crate) fn query(mut self, name: &str, schema: Value, about: &str) -> Self {
        self.parameters.push(json!({
            "name": name, "in": "query", "required": false, "description": about, "schema": schema,
        }));
        self
    }

    /// Takes `If-Match`.
    pub(crate) fn if_match(mut self) -> Self {
        self.parameters.push(json!({
            "name": "If-Match", "in": "header", "required": false,
            "description": "The ETag that the subscription must have; 412 otherwise.",
            "schema": {"type": "string"},
        }));
        self.problems(&[Code::PreconditionFailed])
    }

    /// A JSON body of this schema.
    pub(crate) fn body(self, schema: &'static str) -> Self {
        self.body_of(schema, "application/json", true)
    }

    /// A body of this schema and media type, which may be optional.
    pub(crate) fn body_of(
        mut self,
        schema: &'static str,
        media_type: &'static str,
        required: bool,
    ) -> Self {
        self.body = Some(Body { schema, media_type, required });
        self
    }

    /// An answer with a JSON body of this schema.
    pub(crate) fn answer(
        self,
        status: StatusCode,
        about: &'static str,
        schema: &'static str,
    ) -> Self {
        self.answer_of(status, about, Some(("application/json", schema_ref(schema))))
    }

    /// An answer of any media type and schema, or without a body.
    pub(crate) fn answer_of(
        mut self,
        status: StatusCode,
        about: &'static str,
        content: Option<(&'static str, Value)>,
    ) -> Self {
        self.answers.push(Answer { status, about, content, headers: Vec::new() });
        self
    }

    /// A header of the answer that was named last.
    pub(crate) fn with_header(mut self, name: &'static str, about: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.push((name, about));
        }
        self
    }

    /// Problems beside those that follow from access, method, path, query and body.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend_from_slice(codes);
        self
    }

    /// Every problem that this operation of a route may answer.
    fn all_problems(&self, route: &Route) -> Vec<Code> {
        let mut codes = self.problems.clone();
        codes.extend([Code::Internal, Code::Timeout, Code::HeadersTooLarge]);
        if route.access != Access::Open {
            codes.extend([Code::Unauthenticated, Code::Forbidden]);
        }
        if route.access == Access::Tenant {
            codes.push(Code::RateLimited);
        }
        if self.parameters.iter().any(|parameter| parameter["in"] == "query") {
            codes.push(Code::InvalidQuery);
        }
        if takes_key(route) {
            codes.extend(idempotency::CODES);
        }
        if self.body.is_some() {
            codes.extend([Code::MalformedJson, Code::BodyTooLarge, Code::ValidationFailed]);
            codes.push(Code::UnsupportedMediaType);
        }
        if route.path.contains('{') {
            codes.push(Code::NotFound);
        }
        codes
    }

    fn document(&self, route: &Route) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [tag(route)],
            "responses": self.responses(route),
            "security": security(route.access),
        });
        if !self.about.is_empty() {
            operation["description"] = self.about.into();
        }
        let mut parameters = path_parameters(route.path);
        parameters.extend(self.parameters.iter().cloned());
        parameters.extend(takes_key(route).then(key_parameter));
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = &self.body {
            operation["requestBody"] = json!({
                "required": body.required,
                "content": {body.media_type: {"schema": schema_ref(body.schema)}},
            });
        }
        operation
    }

    fn responses(&self, route: &Route) -> Value {
        let mut responses = Map::new();
        for answer in &self.answers {
            let mut headers = json!({"X-Request-Id": {"$ref": "#/components/headers/RequestId"}});
            if route.access == Access::Tenant {
                tell_rate(&mut headers);
            }
            for (name, about) in &answer.headers {
                headers[name] = json!({"description": about, "schema": {"type": "string"}});
            }
            let mut response = json!({"description": answer.about, "headers": headers});
            if let Some((media_type, schema)) = &answer.content {
                response["content"] = json!({*media_type: {"schema": schema}});
            }
            responses.insert(answer.status.as_str().to_owned(), response);
        }
        let mut by_status = BTreeMap::<StatusCode, Vec<Code>>::new();
        for code in self.all_problems(route) {
            let codes = by_status.entry(code.status()).or_default();
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        for (status, codes) in by_status {
            let key = status.as_str().to_owned();
            let described = problem_response(&codes);
            // A status that is an answer, too, stays an answer with the problem beside it.
            match responses.get_mut(&key) {
                Some(answer) => {
                    answer["content"]["application/problem+json"] =
                        described["content"]["application/problem+json"].clone();
                }
                None => _ = responses.insert(key, described),
            }
        }
        responses.into()
    }
}

/// The first word behind the version: what the document's sections are called.
fn tag(route: &Route) -> &'static str {
    let mut words = route.path.split('/').filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (Some("v1"), Some(resource)) => resource,
        (Some("admin"), _) => "admin",
        _ => "operations",
    }
}

/// Whether a request may have an idempotency key.
fn takes_key(route: &Route) -> bool {
    route.method == Method::POST && route.access != Access::Open
}

fn key_parameter() -> Value {
    json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "The same request under the same key is answered once, and the same \
                        answer is given again for 24 h.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    })
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Tenant => json!([{"tenant": []}]),
        Access::Operator => json!([{"operator": []}]),
    }
}

/// Path parameters, by what stands in braces.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let about = match name {
            "id" => "The subscription's id.",
            "ceId" => "The event's `ce-id`.",
            _ => "Names the resource.",
        };
        let schema = match name {
            "id" | "ceId" => json!({"type": "string", "format": "uuid"}),
            _ => json!({"type": "string", "minLength": 1}),
        };
        json!({
            "name": name, "in": "path", "required": true, "description": about, "schema": schema,
        })
    };
    names.map(parameter).collect()
}

/// The fields that tell a tenant how often it may ask.
fn tell_rate(headers: &mut Value) {
    for name in ["RateLimit", "RateLimit-Policy"] {
        let component = name.replace('-', "");
        headers[name] = json!({"$ref": format!("#/components/headers/{component}")});
    }
}

/// Headers that many answers have.
fn headers() -> Value {
    let text = |about: &str| json!({"description": about, "schema": {"type": "string"}});
    json!({
        "RequestId": {
            "description": "Names the request, as does the log line of its failure.",
            "schema": {"type": "string", "format": "uuid"},
        },
        "RateLimit": text(
            "What is left (`r`) and after how many seconds all of it is there again (`t`), for \
             each policy: `requests`, and `pull` for reads.",
        ),
        "RateLimitPolicy": text("How many requests (`q`) in how many seconds (`w`)."),
    })
}

fn problem_response(codes: &[Code]) -> Value {
    let lines: Vec<_> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
    let mut headers = json!({"X-Request-Id": {"$ref": "#/components/headers/RequestId"}});
    let limited = codes.contains(&Code::RateLimited);
    if limited {
        tell_rate(&mut headers);
    }
    if limited || codes.iter().any(|code| code.retry_after_s().is_some()) {
        headers["Retry-After"] = json!({
            "description": "After how many seconds the request is worth repeating.",
            "schema": {"type": "integer", "minimum": 0},
        });
    }
    let examples: Map<_, _> = codes
        .iter()
        .map(|code| (code.as_str().to_owned(), json!({"value": schemas::problem_example(*code)})))
        .collect();
    json!({
        "description": lines.join("\n\n"),
        "headers": headers,
        "content": {"application/problem+json": {
            "schema": schema_ref("Problem"),
            "examples": examples,
        }},
    })
}

/// The whole document.
#[must_use]
pub fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[method_key(&route.method)] = route.operation.document(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Streaming Hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": schemas::ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This hub."}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "headers": headers(),
            "securitySchemes": {
                "tenant": {
                    "type": "http", "scheme": "bearer",
                    "description": "A tenant's token: a static one, or a JWT.",
                },
                "operator": {
                    "type": "http", "scheme": "bearer",
                    "description": "An operator's token: a static one of that role, or a JWT \
                                    whose scope allows it.",
                },
            },
        },
    })
}

fn method_key(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// `docs/openapi.json`: the document of every route, as text.
#[must_use]
pub fn text() -> String {
    let mut text = format!("{:#}", document(&crate::routes()));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
