//! Reading a JSON object field by field so that one answer names everything that is wrong with it:
//! each error with its JSON pointer (RFC 6901), a stable code and a message. Values are never
//! repeated in an error, since one of them may be a secret.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most errors of one answer; a body of 256 KiB can hold far more of them than anyone reads.
pub(crate) const ERRORS_MAX: usize = 100;

/// The longest name of an unknown field that an error repeats, characters.
const NAME_CHARS_MAX: usize = 128;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// It is missing.
    Required,
    /// It is of another JSON type.
    WrongType,
    /// Too few characters or entries.
    TooShort,
    /// Too many characters or entries.
    TooLong,
    /// A number outside of its bounds.
    OutOfRange,
    /// Of the right type and size, and still wrong.
    Invalid,
    /// It stands there twice.
    Duplicate,
    /// There is no such field.
    UnknownField,
    /// It is the hub's to set.
    ReadOnly,
    /// It does not go with the other fields.
    NotAllowed,
    /// The destination is not one that the hub may call.
    DestinationRefused,
}

/// Where an error is: in the body or in the query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// JSON pointer into the body.
    Pointer(String),
    /// Name of a query parameter.
    Parameter(String),
}

/// One entry of a problem's `errors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldError {
    /// Where.
    #[serde(flatten)]
    pub(crate) place: Place,
    /// What, for programs.
    pub(crate) code: Fault,
    /// What, for people.
    pub(crate) message: String,
}

/// The errors found so far.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds one, up to [`ERRORS_MAX`].
    pub(crate) fn push(&mut self, place: Place, code: Fault, message: impl Into<String>) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(FieldError { place, code, message: message.into() });
        }
    }

    /// `value` if there was no error.
    pub(crate) fn or<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}

/// Reads a body, which is an object, with every error at once.
pub(crate) fn read<T>(
    body: Value,
    read: impl FnOnce(Fields<'_>) -> Option<T>,
) -> Result<T, Vec<FieldError>> {
    let mut errors = Errors::default();
    let value = At::root(&mut errors).object(body).and_then(read);
    errors.or(value)
}

/// One place in the body, where errors are reported.
pub(crate) struct At<'a> {
    pointer: String,
    errors: &'a mut Errors,
}

impl<'a> At<'a> {
    /// The whole body.
    pub(crate) fn root(errors: &'a mut Errors) -> Self {
        Self { pointer: String::new(), errors }
    }

    /// A place below this one.
    pub(crate) fn child(&mut self, segment: &str) -> At<'_> {
        let pointer = format!("{}/{}", self.pointer, escape(segment));
        At { pointer, errors: self.errors }
    }

    /// Reports an error here. Always `None`, so that a parser can end with it.
    pub(crate) fn fail<T>(&mut self, code: Fault, message: impl Into<String>) -> Option<T> {
        self.errors.push(Place::Pointer(self.pointer.clone()), code, message);
        None
    }

    /// The value as a text.
    pub(crate) fn text(&mut self, value: Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            _ => self.fail(Fault::WrongType, "must be a string"),
        }
    }

    /// The value as a truth value.
    pub(crate) fn boolean(&mut self, value: &Value) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(*value),
            _ => self.fail(Fault::WrongType, "must be true or false"),
        }
    }

    /// The value as an integer in `min..=max`.
    pub(crate) fn integer(&mut self, value: &Value, min: u64, max: u64) -> Option<u64> {
        let Value::Number(number) = value else {
            return self.fail(Fault::WrongType, "must be an integer");
        };
        if number.is_f64() {
            return self.fail(Fault::WrongType, "must be an integer");
        }
        match number.as_u64() {
            Some(number) if (min..=max).contains(&number) => Some(number),
            _ => self.fail(Fault::OutOfRange, format!("must be an integer from {min} to {max}")),
        }
    }

    /// The value as a list of `min` to `max` entries.
    pub(crate) fn list(&mut self, value: Value, min: usize, max: usize) -> Option<Vec<Value>> {
        let Value::Array(entries) = value else {
            return self.fail(Fault::WrongType, "must be an array");
        };
        if entries.len() < min {
            return self.fail(Fault::TooShort, format!("must have at least {min} entries"));
        }
        if entries.len() > max {
            return self.fail(Fault::TooLong, format!("must have at most {max} entries"));
        }
        Some(entries)
    }

    /// The value of a field as an object of its own.
    pub(crate) fn child_object(&mut self, value: Value) -> Option<Fields<'_>> {
        At { pointer: self.pointer.clone(), errors: self.errors }.object(value)
    }

    /// The value as an object whose fields are read one by one.
    pub(crate) fn object(mut self, value: Value) -> Option<Fields<'a>> {
        match value {
            Value::Object(members) => Some(Fields { at: self, members }),
            _ => self.fail(Fault::WrongType, "must be an object"),
        }
    }
}

/// The fields of one object; each is taken once, and what is left at the end is unknown.
pub(crate) struct Fields<'a> {
    at: At<'a>,
    members: Map<String, Value>,
}

impl Fields<'_> {
    /// A field that must be there. `null` counts as missing.
    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(Value, &mut At<'_>) -> Option<T>,
    ) -> Option<T> {
        match self.members.remove(name) {
            None | Some(Value::Null) => self.at.child(name).fail(Fault::Required, "is required"),
            Some(value) => parse(value, &mut self.at.child(name)),
        }
    }

    /// A field that may be missing; `null` counts as missing. `Some(None)` when it is, `None` when
    /// it is wrong.
    pub(crate) fn optional<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(Value, &mut At<'_>) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.members.remove(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => parse(value, &mut self.at.child(name)).map(Some),
        }
    }

    /// Takes a field that must be there and is an object itself.
    pub(crate) fn object(&mut self, name: &str) -> Option<Fields<'_>> {
        match self.members.remove(name) {
            None | Some(Value::Null) => self.at.child(name).fail(Fault::Required, "is required"),
            Some(value) => self.at.child(name).object(value),
        }
    }

    /// Reports an error at one of the fields, taken or not.
    pub(crate) fn fail<T>(
        &mut self,
        name: &str,
        code: Fault,
        message: impl Into<String>,
    ) -> Option<T> {
        self.at.child(name).fail(code, message)
    }

    /// Reports those of these fields that are there: they are the hub's to set.
    pub(crate) fn read_only(&mut self, names: &[&str]) {
        for name in names {
            if self.members.remove(*name).is_some() {
                let message = "is set by the hub and cannot be written";
                self.fail::<()>(name, Fault::ReadOnly, message);
            }
        }
    }

    /// Reports the fields that nobody took.
    pub(crate) fn finish(self) {
        let Self { mut at, members } = self;
        for name in members.keys() {
            let name: String = name.chars().take(NAME_CHARS_MAX).collect();
            let message = format!("there is no field {name:?} here");
            at.child(&name).fail::<()>(Fault::UnknownField, message);
        }
    }
}

/// A segment of a JSON pointer, RFC 6901 section 3.
fn escape(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(value: Value, read: impl FnOnce(&mut Fields<'_>)) -> Vec<(String, Fault)> {
        let mut errors = Errors::default();
        if let Some(mut fields) = At::root(&mut errors).object(value) {
            read(&mut fields);
            fields.finish();
        }
        let flat = |error: FieldError| match error.place {
            Place::Pointer(at) | Place::Parameter(at) => (at, error.code),
        };
        errors.0.into_iter().map(flat).collect()
    }

    #[test]
    fn an_unknown_field_is_named_by_an_escaped_pointer() {
        let found = errors(json!({"a/b~c": 1}), |_| {});
        assert_eq!(found, [("/a~1b~0c".to_owned(), Fault::UnknownField)]);
    }

    #[test]
    fn null_is_no_value() {
        let found = errors(json!({"a": null, "b": null}), |fields| {
            assert_eq!(fields.optional("a", |v, at| at.text(v)), Some(None));
            assert_eq!(fields.required("b", |v, at| at.text(v)), None);
        });
        assert_eq!(found, [("/b".to_owned(), Fault::Required)]);
    }

    #[test]
    fn an_integer_is_no_fraction_and_no_text() {
        let table = [
            (json!(3), None),
            (json!(4), Some(Fault::OutOfRange)),
            (json!(-1), Some(Fault::OutOfRange)),
            (json!(1e30), Some(Fault::WrongType)),
            (json!(1.5), Some(Fault::WrongType)),
            (json!("1"), Some(Fault::WrongType)),
        ];
        for (value, fault) in table {
            let found = errors(json!({"n": value}), |fields| {
                fields.required("n", |v, at| at.integer(&v, 0, 3));
            });
            assert_eq!(found.first().map(|(_, fault)| *fault), fault, "{value}");
        }
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_errors() {
        let many: Map<String, Value> = (0..500).map(|n| (n.to_string(), json!(1))).collect();
        assert_eq!(errors(Value::Object(many), |_| {}).len(), ERRORS_MAX);
    }

    #[test]
    fn a_body_that_is_no_object_is_one_error_at_the_root() {
        assert_eq!(errors(json!([]), |_| {}), [(String::new(), Fault::WrongType)]);
    }
}
