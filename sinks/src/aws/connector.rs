//! The SDK's way to the network: our HTTP client instead of one of its own, so that the address
//! guard, the pinned address and the pools are those of every sink.

use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response};

use crate::guard::{self, AddressPolicy};
use crate::http;

/// The most bytes of an answer that are taken; that of a full batch is far smaller.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A client of the SDK over one of ours.
pub(super) fn client(client: Client, policy: Arc<AddressPolicy>) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(Connector { client, policy });
    http_client_fn(move |_, _| connector.clone())
}

#[derive(Debug, Clone)]
struct Connector {
    client: Client,
    policy: Arc<AddressPolicy>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let own = self.clone();
        HttpConnectorFuture::new(async move { own.exchange(request).await })
    }
}

/// A request or an answer that cannot be carried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unsendable(&'static str);

impl Connector {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = self.request(&request)?;
        let answer = http::foreground(async {
            let response = self.client.execute(request).await.map_err(failed)?;
            read(response).await
        });
        answer.await
    }

    fn request(&self, request: &HttpRequest) -> Result<Request, ConnectorError> {
        let refused = |error| ConnectorError::user(Box::new(error));
        let unsendable = |what| ConnectorError::user(Box::new(Unsendable(what)));
        // An address in the URL itself is judged here: no resolver sees it.
        let target = guard::target(request.uri(), &self.policy).map_err(refused)?;
        let method = Method::from_bytes(request.method().as_bytes());
        let method = method.map_err(|_| unsendable("the method is none of HTTP's"))?;
        let mut carried = Request::new(method, target.url().clone());
        for (name, value) in request.headers() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_str(value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(unsendable("a header cannot be sent"));
            };
            carried.headers_mut().append(name, value);
        }
        let body = request.body().bytes().ok_or_else(|| unsendable("the body is a stream"))?;
        *carried.body_mut() = Some(Bytes::copy_from_slice(body).into());
        Ok(carried)
    }
}

async fn read(mut response: Response) -> Result<HttpResponse, ConnectorError> {
    let other = |what| ConnectorError::other(Box::new(Unsendable(what)), None);
    let status = StatusCode::try_from(response.status().as_u16());
    let status = status.map_err(|_| other("the status is none of HTTP's"))?;
    let headers = response.headers().clone();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(other("the answer is too long"));
        }
    }
    let mut answer = HttpResponse::new(status, SdkBody::from(body));
    for (name, value) in &headers {
        if let Ok(value) = value.to_str() {
            answer.headers_mut().append(name.as_str().to_owned(), value.to_owned());
        }
    }
    Ok(answer)
}

fn failed(error: reqwest::Error) -> ConnectorError {
    if error.is_timeout() {
        ConnectorError::timeout(Box::new(error))
    } else {
        ConnectorError::io(Box::new(error))
    }
}
