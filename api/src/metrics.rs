//! The API's own numbers, and the text that `/metrics` shows of all registered ones. Labels are
//! bounded: the route is a template, the method one of HTTP's, the status a class.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder, exponential_buckets,
};

/// The process's metrics, and how the API counts its requests in them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
}

impl Metrics {
    /// Registers the API's metrics in the registry that `/metrics` shows.
    ///
    /// # Errors
    /// When they are registered already: a process has one API.
    pub fn new(registry: Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("streaming_hub_http_requests_total", "HTTP requests answered"),
            &["route", "method", "status"],
        )?;
        // 1 ms to 32 s: a read takes less than the first, nothing takes more than the last.
        let buckets = exponential_buckets(0.001, 2.0, 16)?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "streaming_hub_http_request_duration_seconds",
                "Time from a request's headers to its answer",
            )
            .buckets(buckets),
            &["route", "method"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(durations.clone()))?;
        Ok(Self { registry, requests, durations })
    }

    /// Counts one answered request.
    pub(crate) fn observe(&self, route: &str, method: &Method, status: StatusCode, took: Duration) {
        let method = label(method);
        self.requests.with_label_values(&[route, method, class(status)]).inc();
        self.durations.with_label_values(&[route, method]).observe(took.as_secs_f64());
    }

    /// Everything registered, in the text exposition format.
    ///
    /// # Errors
    /// When a collector reports something that the format cannot show.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// A caller may invent methods; their names are no labels.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invented_method_makes_no_new_series() {
        let metrics = Metrics::new(Registry::new()).unwrap();
        for name in ["BREW", "WHEN"] {
            let method = Method::from_bytes(name.as_bytes()).unwrap();
            metrics.observe("unmatched", &method, StatusCode::NOT_FOUND, Duration::ZERO);
        }
        let text = metrics.text().unwrap();
        let series = r#"requests_total{method="other",route="unmatched",status="4xx"} 2"#;
        assert!(text.contains(series), "{text}");
    }

    #[test]
    fn one_registry_holds_one_api() {
        let registry = Registry::new();
        assert!(Metrics::new(registry.clone()).is_ok());
        assert!(Metrics::new(registry).is_err());
    }
}
