//! Compares an answer with what it must say.

use serde_json::Value;

use super::exchange::Answer;
use super::operation::{Act, Operation};
use super::oracle::World;
use super::predict::{Body, Expected};
use super::read::Page;

/// Checks an answer; panics if it is not as expected. Returns where its page ends, if it is one.
pub fn check(world: &mut World, operation: &Operation, expected: &Expected, answer: &Answer) -> Option<u64> {
    assert_eq!(answer.status, expected.status, "expected {:?}: {answer:?}", expected.code);
    if let Some(code) = expected.code
        && !matches!(operation.act, Act::Head)
    {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
        assert_eq!(body["error"]["code"], code, "{answer:?}");
    }
    for (name, value) in &expected.headers {
        assert_eq!(answer.header(name), value.as_deref(), "{name}: {answer:?}");
    }
    match &expected.body {
        Body::Any => {}
        Body::Exactly(bytes) => assert!(answer.body == *bytes, "another body: {answer:?}"),
        Body::Json(value) => {
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
            assert_eq!(body, *value, "{answer:?}");
        }
        Body::Page(page) => return Some(check_page(world, operation.name, page, answer)),
        Body::Acknowledgements(expected) => check_acknowledgements(expected, answer),
        Body::Parts(expected) => check_parts(expected, answer),
    }
    None
}

fn check_page(world: &mut World, name: usize, page: &Page, answer: &Answer) -> u64 {
    let stream = &world.streams[&name];
    let to = page.check(stream, answer);
    assert_eq!(answer.header("etag").is_some(), page.has_tag, "{answer:?}");
    if let Some(tag) = answer.header("etag") {
        let closed = stream.closed && to == stream.tail();
        let page_of = format!("{:?} {} {to} {closed} {:?}", stream.lineage, page.from, page.view);
        let before = world.tags.entry(page_of.clone()).or_insert_with(|| tag.to_owned());
        assert_eq!(before, tag, "the entity tag of {page_of} has changed");
        let meant = world.tagged.entry(tag.to_owned()).or_insert_with(|| page_of.clone());
        assert_eq!(*meant, page_of, "two pages have one entity tag");
    }
    to
}

fn check_acknowledgements(expected: &[Value], answer: &Answer) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
    let found = body.as_array().unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(found.len(), expected.len(), "{answer:?}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let mut found = found.as_object().unwrap_or_else(|| panic!("{answer:?}")).clone();
        let text = found.remove("error");
        assert_eq!(text.is_some(), found.contains_key("error_code"), "frame {index}: {text:?}");
        assert_eq!(
            Value::Object(found),
            *expected,
            "frame {index} of {}",
            body.as_array().map_or(0, Vec::len)
        );
    }
}

fn check_parts(expected: &[(String, Vec<u8>)], answer: &Answer) {
    let content_type = answer.required("content-type");
    let boundary = content_type.strip_prefix("multipart/mixed; boundary=");
    let boundary = boundary.unwrap_or_else(|| panic!("{content_type}"));
    let mut rest = &answer.body[..];
    for (index, (content_type, body)) in expected.iter().enumerate() {
        let head = format!("--{boundary}\r\nContent-Type: {content_type}\r\n\r\n");
        let part = rest.strip_prefix(head.as_bytes()).and_then(|rest| rest.strip_prefix(&body[..]));
        let part = part.and_then(|rest| rest.strip_prefix(b"\r\n"));
        let shown = super::exchange::excerpt(rest);
        rest = part.unwrap_or_else(|| panic!("part {index} of {}: {shown}", expected.len()));
    }
    assert!(rest == format!("--{boundary}--\r\n").as_bytes(), "{}", super::exchange::excerpt(rest));
}
