//! Compressed answers (RFC 9110, `Accept-Encoding`): a page of entries as gzip when its caller
//! takes that and it is worth the work. Not for answers with secrets: their size would tell of
//! them.
//!
//! An answer that another instance made comes here as it is: between instances nothing is
//! compressed.

use std::io::Write as _;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Smaller bodies are sent as they are, bytes.
const BYTES_MIN: usize = 1024;

/// Whether a caller takes gzip: named, or by `*` when it is not named, and not at the weight 0.
pub(crate) fn is_taken(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut named, mut any) = (None, None);
    for one in fields.flat_map(|field| field.split(',')) {
        let mut parts = one.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        // A weight that is none is no wish for the coding.
        let wanted = weight.is_none_or(|q| q.parse::<f32>().is_ok_and(|q| q > 0.0));
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            named = Some(wanted);
        } else if coding == "*" {
            any = Some(wanted);
        }
    }
    named.or(any).unwrap_or(false)
}

/// The answer, compressed if its caller takes that and its body is large enough. `None` when the
/// body could not be read to its end.
pub(crate) async fn answer(mut response: Response, taken: bool) -> Option<Response> {
    if response.status() != StatusCode::OK {
        return Some(response);
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if !taken || response.headers().contains_key(CONTENT_ENCODING) {
        return Some(response);
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.ok()?;
    if body.len() < BYTES_MIN {
        return Some(Response::from_parts(parts, Body::from(body)));
    }
    // A page may have megabytes: not on a thread that serves others.
    let plain = body.clone();
    let smaller = tokio::task::spawn_blocking(move || compressed(&plain)).await.ok().flatten();
    let Some(smaller) = smaller else {
        return Some(Response::from_parts(parts, Body::from(body)));
    };
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    Some(Response::from_parts(parts, Body::from(smaller)))
}

fn compressed(plain: &Bytes) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().filter(|smaller| smaller.len() < plain.len())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn takes(fields: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(field).unwrap());
        }
        is_taken(&headers)
    }

    #[test]
    fn gzip_is_taken_when_it_is_named_or_anything_is_and_not_refused() {
        let taken = ["gzip", "deflate, GZIP;q=0.5", "br;q=1.0, *", "x-gzip", "gzip;q=1, *;q=0"];
        for field in taken {
            assert!(takes(&[field]), "{field}");
        }
        for field in ["", "identity", "br", "gzip;q=0", "gzip; q=0.0", "*, gzip;q=0", "gzip;q=x"] {
            assert!(!takes(&[field]), "{field}");
        }
        assert!(takes(&["br", "gzip"]) && !takes(&[]));
    }

    async fn answered(status: StatusCode, body: &str, taken: bool) -> (HeaderMap, Bytes) {
        let mut response = Response::new(Body::from(body.to_owned()));
        *response.status_mut() = status;
        let (parts, body) = answer(response, taken).await.unwrap().into_parts();
        (parts.headers, to_bytes(body, usize::MAX).await.unwrap())
    }

    #[tokio::test]
    async fn a_large_answer_is_compressed_for_who_takes_it_and_says_so() {
        let large = "entry ".repeat(1_000);
        let (headers, body) = answered(StatusCode::OK, &large, true).await;
        assert_eq!(
            (&headers["content-encoding"], &headers["vary"]),
            (&HeaderValue::from_static("gzip"), &HeaderValue::from_static("accept-encoding"),)
        );
        assert!(body.len() < large.len() / 10);
        let mut plain = String::new();
        GzDecoder::new(&body[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, large);
        // Who does not take it, a small answer, and one that is no page.
        let (headers, body) = answered(StatusCode::OK, &large, false).await;
        assert!(!headers.contains_key("content-encoding") && headers.contains_key("vary"));
        assert_eq!(body, large);
        for (status, text) in [(StatusCode::OK, "small"), (StatusCode::CONFLICT, &*large)] {
            let (headers, body) = answered(status, text, true).await;
            assert!(!headers.contains_key("content-encoding") && body == text, "{status}");
        }
    }
}
