//! A sink of the type `sqs` in a body.

use serde_json::Value;
use streaming_hub_model::destination::{SqsConfig, VerifyWith};
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
    /// Reads the fields; what is left out is taken from `current`, where there is one.
    pub(super) fn read(mut fields: Fields<'_>, current: Option<&SqsConfig>) -> Option<Self> {
        let kept = current.map(|current| current.queue_url.clone());
        let queue_url = super::field(&mut fields, "queue_url", queue_url, kept);
        let endpoint = aws::endpoint(&mut fields, current.map(|current| current.endpoint.as_ref()));
        let region = fields.optional("region", aws::region);
        let credentials =
            aws::credentials(&mut fields, current.map(|current| &current.credentials));
        let verify_with = aws::verify_with(&mut fields, current.map(|current| current.verify_with));
        let (queue_url, endpoint) = (queue_url?, endpoint?);
        let of_url = region_of(&queue_url);
        if of_url.is_none() && endpoint.is_none() {
            let message = "must be a queue of Amazon SQS, https://sqs.<region>.amazonaws.com/\
                           <account>/<name>, or come with an endpoint";
            return fields.fail("queue_url", Fault::Invalid, message);
        }
        let kept = current
            .filter(|current| current.queue_url == queue_url)
            .map(|current| current.region.clone());
        let region = region?.or(of_url).or(kept);
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
