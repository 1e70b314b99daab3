//! What an error of AMQP means: by the broker's reply code where it gave one, else by how the
//! connection ended. Texts hold the broker's own, never an address or a password.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};
use streaming_hub_model::attempt::{ErrorClass, Outcome};

/// The outcome of an exchange that ended with an error.
pub(super) fn outcome(error: &Error) -> Outcome {
    let (class, detail) = match error.kind() {
        ErrorKind::ProtocolError(told) => {
            let (code, text) = (told.get_id(), told.get_message());
            (by_code(told.kind(), text.as_str()), format!("the broker answered {code}: {text}"))
        }
        ErrorKind::MissingHeartbeatError => {
            (ErrorClass::Connect, "the broker sends no heartbeats any more".to_owned())
        }
        ErrorKind::IOError(error) => {
            (ErrorClass::Connect, format!("the connection was lost: {error}"))
        }
        ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidConnectionState(_)
        | ErrorKind::InvalidChannel(_) => {
            (ErrorClass::Connect, "the connection was lost".to_owned())
        }
        _ => (ErrorClass::Protocol, format!("no valid answer: {error}")),
    };
    Outcome::failed(class, detail)
}

fn by_code(kind: &AMQPErrorKind, text: &str) -> ErrorClass {
    match kind {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => ErrorClass::AccessDenied,
        // A virtual host that is not there, or that the user may not enter.
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if text.contains("not found") => {
            ErrorClass::NotFound
        }
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => ErrorClass::AccessDenied,
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)
        | AMQPErrorKind::Hard(AMQPHardError::INVALIDPATH) => ErrorClass::NotFound,
        AMQPErrorKind::Soft(AMQPSoftError::CONTENTTOOLARGE) => ErrorClass::TooLarge,
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if text.contains("message size") => {
            ErrorClass::TooLarge
        }
        AMQPErrorKind::Soft(AMQPSoftError::NOROUTE) => ErrorClass::Unroutable,
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => ErrorClass::Rejected,
        AMQPErrorKind::Hard(AMQPHardError::RESOURCEERROR) => ErrorClass::Throttled,
        AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED) => ErrorClass::Connect,
        _ => ErrorClass::Protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::protocol::AMQPError;

    #[test]
    fn a_brokers_reply_code_decides_the_class() {
        for (code, text, class) in [
            (403, "ACCESS_REFUSED - Login was refused", ErrorClass::AccessDenied),
            (404, "NOT_FOUND - no exchange 'x' in vhost '/'", ErrorClass::NotFound),
            (530, "NOT_ALLOWED - vhost v not found", ErrorClass::NotFound),
            (530, "NOT_ALLOWED - access to vhost 'v' refused", ErrorClass::AccessDenied),
            (406, "PRECONDITION_FAILED - message size 9 is larger", ErrorClass::TooLarge),
            (320, "CONNECTION_FORCED - broker forced connection closure", ErrorClass::Connect),
        ] {
            let told = AMQPError::from_id(code, text.into()).unwrap();
            let outcome = outcome(&Error::from(ErrorKind::ProtocolError(told)));
            let expected = format!("the broker answered {code}: {text}");
            assert_eq!(outcome, Outcome::failed(class, expected));
        }
    }
}
