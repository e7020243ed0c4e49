//! Stream attributes (extension 5.1): a JSON object with an optional `title` (a string) and `metadata` (an object).
//!
//! The normal form keeps these two members alone, in this order, and without white space; an object with neither is as if
//! there were none. Numbers keep their digits, however many. Two attribute objects are the same if their normal forms are equal as JSON values.

use serde_json::{Map, Value};

use super::errors::{Code, Problem};
use crate::limits::ATTRIBUTES_BYTES_MAX;

/// The normal form of an attribute object; empty when nothing is set.
///
/// Errors: `INVALID_ATTRIBUTES` (400) if the text is no attribute object, or its encoded form exceeds 16 KiB.
pub fn normalise(text: &[u8]) -> Result<Vec<u8>, Problem> {
    if text.len() > ATTRIBUTES_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let object: Map<String, Value> = serde_json::from_slice(text)
        .map_err(|_| Problem::fixed(Code::InvalidAttributes, "attributes are a JSON object"))?;
    let mut kept = Map::new();
    match object.get("title") {
        None => {}
        Some(title @ Value::String(_)) => drop(kept.insert("title".into(), title.clone())),
        Some(_) => return Err(Problem::fixed(Code::InvalidAttributes, "title is a string")),
    }
    match object.get("metadata") {
        None => {}
        Some(metadata @ Value::Object(_)) => drop(kept.insert("metadata".into(), metadata.clone())),
        Some(_) => return Err(Problem::fixed(Code::InvalidAttributes, "metadata is a JSON object")),
    }
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    let encoded = Value::Object(kept).to_string().into_bytes();
    if encoded.len() > ATTRIBUTES_BYTES_MAX { Err(TOO_LARGE) } else { Ok(encoded) }
}

/// Attributes that are longer than they may be, as they were sent or in their normal form.
pub const TOO_LARGE: Problem = Problem::fixed(Code::InvalidAttributes, "attributes have at most 16 KiB");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        let table: [(&str, Result<&str, ()>); 11] = [
            ("{}", Ok("")),
            (r#" { "other" : 1 } "#, Ok("")),
            (r#"{"title":"a","other":[1]}"#, Ok(r#"{"title":"a"}"#)),
            (r#"{ "metadata" : { "b" : 1, "a" : 2 } }"#, Ok(r#"{"metadata":{"a":2,"b":1}}"#)),
            (
                r#"{"metadata":{"a":[1e400, 12345678901234567890123, 1.10]}}"#,
                Ok(r#"{"metadata":{"a":[1e+400,12345678901234567890123,1.10]}}"#),
            ),
            (r#"{"metadata":{}}"#, Ok(r#"{"metadata":{}}"#)),
            (r#"{"title":1}"#, Err(())),
            (r#"{"title":null}"#, Err(())),
            (r#"{"metadata":[]}"#, Err(())),
            ("[]", Err(())),
            ("{", Err(())),
        ];
        for (text, expected) in table {
            let normal = normalise(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(normal.as_deref().map_err(|_| ()), expected, "{text}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let with_title =
            |bytes: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(bytes - r#"{"title":""}"#.len()));
        assert!(normalise(with_title(ATTRIBUTES_BYTES_MAX).as_bytes()).is_ok());
        assert!(normalise(with_title(ATTRIBUTES_BYTES_MAX + 1).as_bytes()).is_err());
    }
}
