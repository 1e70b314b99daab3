//! A sink of the type `sqs` in a body.

use serde_json::Value;
use streaming_hub_model::sink_config::{SqsConfig, VerifyWith};
use streaming_hub_model::subscription::SinkConfig;
use url::Url;

use super::Seal;
use super::aws::{self, CredentialsDraft};
use crate::fields::{At, Fault, Fields};
use crate::problem::Problem;

/// A queue as its tenant asks for it.
#[derive(Debug)]
pub(crate) struct SqsDraft {
    queue_url: String,
    region: String,
    endpoint: Option<String>,
    credentials: CredentialsDraft,
    verify_with: VerifyWith,
}

impl SqsDraft {
    /// Reads the fields; secrets that are not given again are those of `current`.
    pub(super) fn read(mut fields: Fields<'_>, current: Option<&SinkConfig>) -> Option<Self> {
        let current = match current {
            Some(SinkConfig::Sqs(current)) => Some(&current.credentials),
            _ => None,
        };
        let queue_url = fields.required("queue_url", queue_url);
        let endpoint = aws::endpoint(&mut fields);
        let region = fields.optional("region", aws::region);
        let credentials = aws::credentials(&mut fields, current);
        let verify_with = aws::verify_with(&mut fields);
        let (queue_url, endpoint) = (queue_url?, endpoint?);
        let of_url = region_of(&queue_url);
        if of_url.is_none() && endpoint.is_none() {
            let message = "must be a queue of Amazon SQS, https://sqs.<region>.amazonaws.com/\
                           <account>/<name>, or come with an endpoint";
            return fields.fail("queue_url", Fault::Invalid, message);
        }
        // Where the URL names a region, that is the one.
        let region = of_url.or(region?);
        if region.is_none() {
            fields.fail::<()>("region", Fault::Required, "is required: the URL names none");
        }
        fields.finish();
        Some(Self {
            queue_url,
            region: region?,
            endpoint,
            credentials: credentials?,
            verify_with: verify_with?,
        })
    }

    /// The configuration as it may leave the process.
    pub(crate) fn sealed(self, seal: &Seal<'_>) -> Result<SqsConfig, Problem> {
        Ok(SqsConfig {
            queue_url: self.queue_url,
            region: self.region,
            endpoint: self.endpoint,
            credentials: self.credentials.sealed(seal)?,
            verify_with: self.verify_with,
        })
    }
}

fn queue_url(value: Value, at: &mut At<'_>) -> Option<String> {
    let text = super::url(value, at)?;
    let has_name = Url::parse(&text).is_ok_and(|url| {
        url.query().is_none()
            && url.path_segments().is_some_and(|mut path| path.next_back() != Some(""))
    });
    if !has_name {
        return at.fail(Fault::Invalid, "must end in the queue's name");
    }
    Some(text)
}

/// The region in a queue's URL of the service's form.
fn region_of(queue_url: &str) -> Option<String> {
    let url = Url::parse(queue_url).ok()?;
    let host = url.host_str()?;
    let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let region = host.strip_prefix("sqs.").or_else(|| host.strip_prefix("sqs-fips."))?;
    aws::is_region(region).then(|| region.to_owned())
}
