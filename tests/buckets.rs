//! Buckets: section 1 of the extensions and decisions 1 to 4.

mod common;

use common::client::assert_no_white_space;
use common::{JSON, Server, Stream, TEXT};
use serde_json::{Value, json};

/// A page of a listing.
#[track_caller]
fn list(server: &Server, bucket: &str, query: &str) -> Value {
    let response = server.request("GET", format!("/{bucket}/streams{query}")).expect(200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_no_white_space(&response.body);
    response.json()
}

fn ids(page: &Value) -> Vec<&str> {
    let streams = page["streams"].as_array().expect("a page has streams");
    streams.iter().map(|stream| stream["stream_id"].as_str().expect("an id is text")).collect()
}

fn stream_of<'s>(server: &'s Server, bucket: &str, id: &str) -> Stream<'s> {
    let stream = server.stream(&format!("/{bucket}/{id}"), TEXT);
    stream.put().expect(201);
    stream
}

#[test]
fn decision_3_a_bucket_is_created_once_and_explicitly() {
    let server = Server::start(&[]);
    server.request("GET", "/agents").expect(404);
    server.request("PUT", "/agents").expect(201);
    server.request("PUT", "/agents").expect(409);
    let metadata = server.request("GET", "/agents").expect(200);
    assert_eq!(metadata.header("content-type"), Some("application/json"));
    assert_eq!(metadata.json()["bucket_id"], "agents");
    assert_eq!(metadata.json()["streams"], 0);
    assert_no_white_space(&metadata.body);
    assert_eq!(server.request("HEAD", "/agents").expect(200).body, b"");
}

#[test]
fn decision_3_no_stream_operation_makes_a_bucket() {
    let server = Server::start(&[]);
    let stream = server.stream("/absent/stream", TEXT);
    stream.put().expect(404);
    stream.post("x").expect(404);
    stream.get("").expect(404);
    stream.request("HEAD").expect(404);
    stream.request("DELETE").expect(404);
    stream.batch_request(common::batch::frames(&["x"])).expect(404);
    server.request("GET", "/absent/streams").expect(404);
    server.request("GET", "/absent").expect(404);
    server.request("DELETE", "/absent").expect(404);
}

#[test]
fn bucket_ids_follow_section_1_1() {
    let server = Server::start(&[]);
    let longest = "a".repeat(64);
    for good in ["abcd", "a_-9", "----", "____", "0000", longest.as_str()] {
        server.request("PUT", format!("/{good}")).expect(201);
        server.request("GET", format!("/{good}")).expect(200);
    }
    let too_long = "a".repeat(65);
    let bad = [
        "abc",
        "a",
        "Abcd",
        "ABCD",
        "ab.d",
        "ab%20d",
        "ab%2Fd",
        "%C3%A4bcd",
        "abc%00",
        "__ds",
        "ab~d",
        &too_long,
    ];
    for id in bad {
        for method in ["PUT", "GET", "DELETE"] {
            let status = server.request(method, format!("/{id}")).send().status;
            assert_eq!(status, 400, "{method} /{id}");
        }
        assert_eq!(server.request("PUT", format!("/{id}/stream")).send().status, 400, "PUT /{id}/stream");
        assert_eq!(server.request("GET", format!("/{id}/streams")).send().status, 400, "GET /{id}/streams");
    }
    // An id that is spelled with percent signs is the same id.
    server.request("PUT", "/%61bcd").expect(409);
}

#[test]
fn decision_3_a_bucket_is_deleted_when_it_is_empty() {
    let server = Server::start(&["--shards", "3"]);
    server.request("PUT", "/agents").expect(201);
    let streams: Vec<_> = (0..8).map(|n| stream_of(&server, "agents", &format!("s{n}"))).collect();
    assert_eq!(server.request("GET", "/agents").expect(200).json()["streams"], 8);
    for (gone, stream) in streams.iter().enumerate() {
        server.request("DELETE", "/agents").expect(409);
        // A refused delete leaves the bucket as it was.
        stream_of(&server, "agents", "probe").delete();
        stream.append("still there");
        stream.delete();
        assert_eq!(server.request("GET", "/agents").expect(200).json()["streams"], 7 - gone);
    }
    server.request("DELETE", "/agents").expect(204);
    server.request("DELETE", "/agents").expect(404);
    server.request("GET", "/agents").expect(404);
    server.stream("/agents/s0", TEXT).put().expect(404);
    // The id can have another life, which begins empty.
    server.request("PUT", "/agents").expect(201);
    assert_eq!(server.request("GET", "/agents").expect(200).json()["streams"], 0);
    assert_eq!(ids(&list(&server, "agents", "")), Vec::<&str>::new());
}

#[test]
fn a_bucket_is_known_to_every_shard_when_its_create_answers() {
    let server = Server::start(&["--shards", "4"]);
    let mut creator = server.connect();
    let mut others: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for round in 0..20 {
        let bucket = format!("bucket-{round}");
        creator.send(&server.request("PUT", format!("/{bucket}"))).expect(201);
        for (n, other) in others.iter_mut().enumerate() {
            other.send(&server.stream(&format!("/{bucket}/s{n}"), TEXT).put()).expect(201);
        }
        assert_eq!(ids(&list(&server, &bucket, "")).len(), others.len());
    }
}

#[test]
fn decision_4_a_listing_tells_what_section_1_4_says() {
    let server = Server::start(&["--shards", "3"]);
    server.request("PUT", "/agents").expect(201);
    let text = stream_of(&server, "agents", "user-1");
    text.append("12345");
    text.append("67");
    let json = server.stream("/agents/user-2", JSON);
    json.put().header("Stream-Closed", "true").body("[1,2]").expect(201);
    stream_of(&server, "agents", "zebra");
    let page = list(&server, "agents", "?prefix=user-");
    assert_eq!(page["bucket_id"], "agents");
    assert_eq!(page["prefix"], "user-");
    assert_eq!(page["stream_count"], 2);
    assert_eq!(page["next_cursor"], Value::Null);
    assert_eq!(page["has_more"], false);
    assert_eq!(ids(&page), ["user-1", "user-2"]);
    let first = &page["streams"][0];
    assert_eq!(first["status"], "Open");
    assert_eq!(first["content_type"], TEXT);
    assert_eq!(first["tail_offset"], 7);
    let (created, written) = (first["created_at_ms"].as_u64(), first["last_write_at_ms"].as_u64());
    assert!(created.is_some() && created <= written, "{first}");
    let second = &page["streams"][1];
    assert_eq!(second["status"], "Closed");
    assert_eq!(second["content_type"], JSON);
    // Each record and its separator.
    assert_eq!(second["tail_offset"], 4);
    // `tail_offset` is an offset of a read.
    assert_eq!(text.get("offset=7").expect(200).text(), "");
    // A HEAD of the listing has no body.
    server.request("HEAD", "/agents/streams").expect(200);
}

#[test]
fn decision_4_pages_go_through_all_streams_in_byte_order() {
    let server = Server::start(&["--shards", "3"]);
    server.request("PUT", "/agents").expect(201);
    let mut names: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
    names.extend(["A", "_", "a", "b", "~", "\u{e4}", "\u{1f30a}", "s", "s-", "z y"].map(str::to_owned));
    for name in &names {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        stream_of(&server, "agents", &encoded);
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    for limit in [1, 7, 59, 60, 61, 1000] {
        let mut seen: Vec<String> = Vec::new();
        let mut after = String::new();
        loop {
            let page = list(&server, "agents", &format!("?limit={limit}&after={after}"));
            let found = ids(&page);
            assert!(found.len() <= limit);
            assert_eq!(page["stream_count"], found.len());
            seen.extend(found.iter().map(|&id| id.to_owned()));
            if page["has_more"] == false {
                assert_eq!(page["next_cursor"], Value::Null, "decision 4: null at the end");
                break;
            }
            let cursor = page["next_cursor"].as_str().expect("a cursor while there is more");
            assert_eq!(Some(cursor), found.last().copied(), "decision 4: the last id of the page");
            after = cursor.bytes().map(|byte| format!("%{byte:02X}")).collect();
        }
        assert_eq!(seen, names, "limit {limit}");
    }
    let page = list(&server, "agents", "?prefix=s1&after=s12&limit=3");
    assert_eq!(ids(&page), ["s13", "s14", "s15"]);
    assert_eq!(page["has_more"], true);
    // Without a limit a page holds up to a thousand.
    assert_eq!(ids(&list(&server, "agents", "")).len(), names.len());
    // Decision 2: query values are percent-decoded, and an empty one is as if absent.
    assert_eq!(ids(&list(&server, "agents", "?prefix=z%20")), ["z y"]);
    assert_eq!(ids(&list(&server, "agents", "?prefix=&after=&limit=2")), names[..2]);
}

#[test]
fn listings_refuse_bad_parameters() {
    let server = Server::start(&[]);
    server.request("PUT", "/agents").expect(201);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "limit=1.0",
        "limit=99999999999999999999",
        "prefix=%FF",
        "after=%C3",
    ] {
        let status = server.request("GET", format!("/agents/streams?{query}")).send().status;
        assert_eq!(status, 400, "{query}");
    }
    list(&server, "agents", "?limit=1000&unknown=1");
    list(&server, "agents", "?limit=1");
}

#[test]
fn decision_3_only_get_and_head_reach_the_listing() {
    let server = Server::start(&[]);
    server.request("PUT", "/agents").expect(201);
    for method in ["PUT", "POST", "DELETE"] {
        let status =
            server.request(method, "/agents/streams").header("Content-Type", TEXT).body("x").send().status;
        assert_eq!(status, 400, "{method}");
    }
    assert_eq!(server.request("GET", "/agents").expect(200).json()["streams"], 0);
}

#[test]
fn decision_4_a_deleted_stream_is_not_listed() {
    let server = Server::start(&[]);
    let stream = server.create("deleted", TEXT);
    assert_eq!(ids(&list(&server, "test", "")), ["deleted"]);
    stream.delete();
    assert_eq!(ids(&list(&server, "test", "")), Vec::<&str>::new());
}

#[test]
fn decision_4_an_expired_stream_is_not_listed_and_frees_its_bucket() {
    let server = Server::start(&[]);
    server.request("PUT", "/agents").expect(201);
    server.stream("/agents/short", TEXT).put().header("Stream-TTL", "1").expect(201);
    let deadline = std::time::Instant::now() + common::server::PATIENCE;
    // HEAD and listings do not renew the window.
    while !ids(&list(&server, "agents", "")).is_empty() {
        assert!(std::time::Instant::now() < deadline, "the stream does not expire");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.request("HEAD", "/agents/short").expect(404);
    assert_eq!(server.request("GET", "/agents").expect(200).json()["streams"], 0);
    server.request("DELETE", "/agents").expect(204);
}

#[test]
fn decision_1_flat_streams_are_in_no_bucket() {
    let server = Server::start(&[]);
    let flat = server.stream("/v1/stream/test/flat", TEXT);
    flat.put().expect(201);
    flat.append("flat");
    let bucketed = server.create("flat", TEXT);
    bucketed.append("bucketed");
    assert_eq!(flat.read_text(), "flat");
    assert_eq!(bucketed.read_text(), "bucketed");
    assert_eq!(ids(&list(&server, "test", "")), ["flat"]);
    // A flat path needs no bucket, and `v1` is none.
    server.request("PUT", "/v1").expect(400);
    bucketed.delete();
    server.request("DELETE", "/test").expect(204);
    assert_eq!(flat.read_text(), "flat");
}

#[test]
fn error_bodies_of_buckets_have_stable_codes() {
    let server = Server::start(&[]);
    server.request("PUT", "/agents").expect(201);
    let code = |method: &str, target: &str| server.request(method, target).send().error_code();
    assert_eq!(code("PUT", "/agents"), code("PUT", "/agents"));
    assert_ne!(
        code("GET", "/absent"),
        code("GET", "/agents/absent"),
        "a missing bucket is told from a missing stream"
    );
    assert_eq!(json!(code("GET", "/absent")), json!(code("GET", "/absent/stream")));
}
