//! Attributes of streams (extension 5): read, replace, limits, and all that they do not touch.

mod common;

use common::{DataDir, JSON, Server, Stream, TEXT};

fn replace(stream: &Stream<'_>, body: &str) -> common::Response {
    stream.below("PUT", "attrs").header("Content-Type", JSON).body(body).send()
}

fn read(stream: &Stream<'_>) -> String {
    let answer = stream.below("GET", "attrs").expect(200);
    assert_eq!(answer.header("content-type"), Some(JSON));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer.text().to_owned()
}

#[test]
fn attributes_are_replaced_as_a_whole_in_their_normal_form() {
    let server = Server::start(&[]);
    let stream = server.create("s", TEXT);
    assert_eq!(read(&stream), "{}");
    let table = [
        (r#"{"title":"a"}"#, r#"{"title":"a"}"#),
        (
            r#" { "metadata" : { "b" : [1, 2.50], "a" : null } , "color": "red" } "#,
            r#"{"metadata":{"a":null,"b":[1,2.50]}}"#,
        ),
        (
            r#"{"metadata":{"id":123456789012345678901234567890}}"#,
            r#"{"metadata":{"id":123456789012345678901234567890}}"#,
        ),
        (r#"{"color":"red"}"#, "{}"),
        (r#"{"title":"","metadata":{}}"#, r#"{"metadata":{},"title":""}"#),
        ("{}", "{}"),
    ];
    for (sent, kept) in table {
        replace(&stream, sent).expect(204);
        let expected: serde_json::Value = serde_json::from_str(kept).expect("JSON");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&read(&stream)).expect("JSON"),
            expected,
            "{sent}"
        );
        replace(&stream, &read(&stream)).expect(204);
    }
    let head = stream.below("HEAD", "attrs").expect(200);
    assert_eq!(head.header("content-length"), Some("2"));
}

#[test]
fn what_is_no_attribute_object_is_refused_and_changes_nothing() {
    let server = Server::start(&[]);
    let stream = server.create_with("s", TEXT, &[("Stream-Attrs", r#"{"title":"kept"}"#)]);
    let bodies =
        ["", "[]", "null", "{", r#"{"title":1}"#, r#"{"title":null}"#, r#"{"metadata":[]}"#, "{}x", "\"a\""];
    for body in bodies {
        replace(&stream, body).expect_error(400, "INVALID_ATTRIBUTES");
    }
    let put = || stream.below("PUT", "attrs").body("{}");
    put().expect(400).expect_error(400, "CONTENT_TYPE_REQUIRED");
    put().header("Content-Type", TEXT).expect(400).expect_error(400, "INVALID_CONTENT_TYPE");
    put().header("Content-Type", "application/jsonx").expect(400).expect_error(400, "INVALID_CONTENT_TYPE");
    assert_eq!(read(&stream), r#"{"title":"kept"}"#);
    put().header("Content-Type", "Application/JSON; charset=utf-8").expect(204);
    assert_eq!(read(&stream), "{}");
    for method in ["POST", "DELETE"] {
        let answer = stream.below(method, "attrs").header("Content-Type", JSON).expect(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT, OPTIONS"));
    }
}

/// Both as sent and as kept. What is too long to be any is refused before it is read.
#[test]
fn sixteen_kibibytes_are_the_limit() {
    let server = Server::start(&[]);
    let stream = server.create("s", TEXT);
    let of = |bytes: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(bytes - r#"{"title":""}"#.len()));
    replace(&stream, &of(16 * 1024)).expect(204);
    let kept = read(&stream);
    for body in [of(16 * 1024 + 1), of(100_000), of(3_000_000), format!("{}{{}}", " ".repeat(16 * 1024))] {
        replace(&stream, &body).expect_error(400, "INVALID_ATTRIBUTES");
        let chunked = stream.below("PUT", "attrs").header("Content-Type", JSON).body(&body).chunked();
        chunked.send().expect_error(400, "INVALID_ATTRIBUTES");
    }
    let long = stream.below("PUT", "attrs").header("Content-Type", TEXT).body(of(3_000_000));
    long.send().expect_error(400, "INVALID_CONTENT_TYPE");
    assert_eq!(read(&stream), kept);
}

#[test]
fn a_missing_stream_has_none() {
    let server = Server::start(&[]);
    let bucket = server.prefix();
    let missing = server.stream(&format!("{bucket}missing"), TEXT);
    for length in [2, 100_000] {
        replace(&missing, &" ".repeat(length)).expect_error(404, "STREAM_NOT_FOUND");
    }
    missing.below("GET", "attrs").expect(404).expect_error(404, "STREAM_NOT_FOUND");
    server.stream("/nowhere/s", TEXT).below("GET", "attrs").expect(404).expect_error(404, "BUCKET_NOT_FOUND");
    let stream = server.create("s", TEXT);
    stream.delete();
    replace(&stream, "{}").expect_error(404, "STREAM_NOT_FOUND");
}

#[test]
fn they_touch_nothing_else_and_outlive_a_close_and_a_kill() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let stream = server.create_with("s", JSON, &[("Stream-TTL", "3600")]);
    let path = stream.path.clone();
    stream.append("[1,2]");
    let face = |stream: &Stream<'_>| {
        let (head, page) = (stream.head(), stream.get("offset=-1").expect(200));
        let names =
            ["stream-next-offset", "stream-closed", "stream-record-next", "content-type", "stream-ttl"];
        let head = names.map(|name| head.header(name).map(str::to_owned));
        (head, page.header("etag").map(str::to_owned), page.body, stream.bootstrap().updates)
    };
    let before = face(&stream);
    replace(&stream, r#"{"title":"open"}"#).expect(204);
    assert_eq!(face(&stream), before);
    stream.close();
    let before = face(&stream);
    replace(&stream, r#"{"title":"closed","metadata":{"a":1}}"#).expect(204);
    assert_eq!(face(&stream), before);
    server.kill();
    let server = Server::start_in(&dir, &[]);
    let stream = server.stream(&path, JSON);
    assert_eq!(read(&stream), r#"{"metadata":{"a":1},"title":"closed"}"#);
    assert_eq!(face(&stream), before);
    // A create compares with what they are now.
    let create = |attributes| {
        stream
            .put()
            .header("Stream-TTL", "3600")
            .header("Stream-Closed", "true")
            .header("Stream-Attrs", attributes)
    };
    create(r#"{"title":"closed","metadata":{"a":1}}"#).expect(200);
    create(r#"{"title":"open"}"#).expect(409);
    replace(&stream, "{}").expect(204);
    server.kill();
    let server = Server::start_in(&dir, &[]);
    assert_eq!(read(&server.stream(&path, JSON)), "{}");
}
