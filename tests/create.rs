//! Creating streams: section 5.1 of the protocol, decisions 1, 2 and 6.

mod common;

use common::{JSON, OCTETS, Server, TEXT};

#[test]
fn a_create_answers_what_it_made() {
    let server = Server::start(&[]);
    for path in [format!("{}made", server.prefix()), "/v1/stream/a/b/c".to_owned()] {
        let stream = server.stream(&path, TEXT);
        let made = stream.put().expect(201);
        assert_eq!(made.header("location"), Some(format!("http://thalweg.test{path}").as_str()));
        assert_eq!(made.header("content-type"), Some(TEXT));
        assert_eq!(made.header("stream-closed"), None);
        let again = stream.put().expect(200);
        assert_eq!(again.next_offset(), made.next_offset());
        assert_eq!(again.header("content-type"), Some(TEXT));
        assert_eq!(stream.tail(), made.next_offset());
    }
}

#[test]
fn without_a_content_type_a_stream_holds_octets() {
    let server = Server::start(&[]);
    let stream = server.stream(&format!("{}octets", server.prefix()), OCTETS);
    assert_eq!(stream.request("PUT").expect(201).header("content-type"), Some(OCTETS));
    stream.put().expect(200);
}

#[test]
fn an_initial_body_is_the_first_content() {
    let server = Server::start(&[]);
    let text = server.stream(&format!("{}text", server.prefix()), TEXT);
    let made = text.put().body("hello").expect(201);
    assert_eq!(text.tail(), made.next_offset());
    assert_eq!(text.read_text(), "hello");
    let chunked = server.stream(&format!("{}chunked", server.prefix()), TEXT);
    chunked.put().body("hello".repeat(1000)).chunked().expect(201);
    assert_eq!(chunked.read_text(), "hello".repeat(1000));
    let json = server.stream(&format!("{}json", server.prefix()), JSON);
    json.put().body("[ {\"a\": 1}, [2] ]").expect(201);
    assert_eq!(json.records(), ["{\"a\":1}", "[2]"]);
    let empty = server.stream(&format!("{}empty", server.prefix()), JSON);
    empty.put().body(" [ ] ").expect(201);
    assert_eq!(empty.get("offset=-1").expect(200).text(), "[]");
    let single = server.stream(&format!("{}single", server.prefix()), JSON);
    single.put().body("null").expect(201);
    assert_eq!(single.records(), ["null"]);
}

#[test]
fn a_body_that_is_not_json_makes_no_stream() {
    let server = Server::start(&[]);
    let stream = server.stream(&format!("{}broken", server.prefix()), JSON);
    for body in ["{", "[1,", "nul", "[1] 2", "\u{feff}[]"] {
        stream.put().body(body).expect(400);
        stream.request("HEAD").expect(404);
    }
    stream.put().expect(201);
}

#[test]
fn section_5_1_closure_takes_part_in_matching() {
    let server = Server::start(&[]);
    let open = server.create("open", TEXT);
    open.put().header("Stream-Closed", "true").expect(409);
    for ignored in ["false", "1", "yes", ""] {
        open.put().header("Stream-Closed", ignored).expect(200);
    }
    let closed = server.stream(&format!("{}closed", server.prefix()), TEXT);
    let made = closed.put().header("Stream-Closed", "True").body("all").expect(201);
    assert_eq!(made.header("stream-closed"), Some("true"));
    closed.put().expect(409);
    assert_eq!(
        closed.put().header("Stream-Closed", "TRUE").expect(200).header("stream-closed"),
        Some("true")
    );
    assert_eq!(closed.post("x").expect(409).header("stream-closed"), Some("true"));
    assert_eq!(closed.read_text(), "all");
    open.close();
    open.put().expect(409);
    open.put().header("Stream-Closed", "true").expect(200);
}

#[test]
fn decision_6_content_types_match_by_media_type() {
    let server = Server::start(&[]);
    let stream = server.create("types", "Application/JSON; charset=utf-8");
    for same in
        ["application/json", "APPLICATION/JSON", "application/json;charset=latin1", "application/json ; x=y"]
    {
        server.stream(&stream.path, same).put().expect(200);
        server.stream(&stream.path, same).post("1").expect(204);
    }
    // It is a record stream all the same.
    assert_eq!(stream.records(), ["1", "1", "1", "1"]);
    for other in ["application/jsonl", "application/json-seq", "text/json", "application/ndjson", TEXT] {
        server.stream(&stream.path, other).put().expect(409);
        server.stream(&stream.path, other).post("1").expect(409);
    }
}

#[test]
fn malformed_content_types_are_refused() {
    let server = Server::start(&[]);
    for bad in ["text", "text/", "/plain", "text plain", "te xt/plain"] {
        let stream = server.stream(&format!("{}bad-type", server.prefix()), bad);
        assert_eq!(stream.put().send().status, 400, "{bad:?}");
    }
}

#[test]
fn decision_6_a_matching_put_ignores_its_body() {
    let server = Server::start(&[]);
    let stream = server.create("matching", JSON);
    stream.append("1");
    let before = stream.tail();
    for body in ["[2]", "not json", ""] {
        let response = stream.put().body(body).expect(200);
        assert_eq!(response.next_offset(), before);
    }
    assert_eq!(stream.records(), ["1"]);
}

#[test]
fn a_ttl_is_a_plain_number_of_seconds() {
    let server = Server::start(&[]);
    let good = server.create_with("ttl", TEXT, &[("Stream-TTL", "3600")]);
    assert_eq!(good.head().header("stream-ttl"), Some("3600"));
    good.put().header("Stream-TTL", "3600").expect(200);
    good.put().header("Stream-TTL", "3601").expect(409);
    good.put().expect(409);
    for bad in
        ["", "+3600", "-1", "03600", "3600.0", "3.6e3", "1h", " ", "0x10", "99999999999999999999", "00"]
    {
        let stream = server.stream(&format!("{}bad-ttl", server.prefix()), TEXT);
        assert_eq!(stream.put().header("Stream-TTL", bad).send().status, 400, "{bad:?}");
        stream.request("HEAD").expect(404);
    }
}

#[test]
fn decision_6_expiry_times_compare_as_instants() {
    let server = Server::start(&[]);
    let stream = server.create_with("expires", TEXT, &[("Stream-Expires-At", "2099-06-01T12:00:00Z")]);
    for same in [
        "2099-06-01T12:00:00Z",
        "2099-06-01T12:00:00.000Z",
        "2099-06-01T14:00:00+02:00",
        "2099-06-01t12:00:00z",
        "2099-06-01T06:30:00-05:30",
        "2099-06-01T12:00:00-00:00",
    ] {
        stream.put().header("Stream-Expires-At", same).expect(200);
    }
    for other in ["2099-06-01T12:00:01Z", "2099-06-01T12:00:00+02:00", "2099-06-01T12:00:00.001Z"] {
        stream.put().header("Stream-Expires-At", other).expect(409);
    }
    stream.put().expect(409);
    let shown = stream.head().required("stream-expires-at").to_owned();
    stream.put().header("Stream-Expires-At", &shown).expect(200);
}

#[test]
fn malformed_expiry_times_are_refused() {
    let server = Server::start(&[]);
    for bad in [
        "",
        "tomorrow",
        "2099-06-01",
        "2099-06-01T12:00:00",
        "2099-06-01 12:00:00 Z",
        "2099-13-01T12:00:00Z",
        "2099-02-29T12:00:00Z",
        "2099-06-31T12:00:00Z",
        "2099-06-01T24:00:00Z",
        "2099-06-01T12:60:00Z",
        "2099-06-01T12:00:00+24:00",
        "2099-06-01T12:00Z",
        "99-06-01T12:00:00Z",
        "1798761600",
        "2099-06-01T12:00:00.Z",
    ] {
        let stream = server.stream(&format!("{}bad-expiry", server.prefix()), TEXT);
        assert_eq!(stream.put().header("Stream-Expires-At", bad).send().status, 400, "{bad:?}");
    }
    let both = server.stream(&format!("{}both", server.prefix()), TEXT);
    both.put().header("Stream-TTL", "60").header("Stream-Expires-At", "2099-06-01T12:00:00Z").expect(400);
}

#[test]
fn decision_2_ids_are_decoded_then_checked() {
    let server = Server::start(&[]);
    let prefix = server.prefix();
    let longest = "x".repeat(122 - "test/".len());
    let good = [
        "a",
        "A.b~c_d-e",
        "%41",
        "a%20b",
        "%C3%A4",
        "%F0%9F%8C%8A",
        "a%2Bb",
        "a:b@c!d$e&f'g(h)i*j,k;l=m",
        "%25",
        ".",
        "a.b.c",
        "%0A",
        "streams2",
        "Streams",
        "__dsx",
        "%3F",
        &longest,
    ];
    for id in good {
        let status = server.stream(&format!("{prefix}{id}"), TEXT).put().send().status;
        assert_eq!(status, 201, "{id}");
    }
    // Another spelling of the same id names the same stream.
    server.stream(&format!("{prefix}%61"), TEXT).put().expect(200);
    server.stream(&format!("{prefix}%7E"), TEXT).put().expect(201);
    server.stream(&format!("{prefix}~"), TEXT).put().expect(200);
    let too_long = format!("{longest}x");
    let bad = [
        "..",
        "a..b",
        "%2e%2e",
        "a%2Fb",
        "a%2fb",
        "a%00",
        "%00",
        "%FF",
        "%C3",
        "%ED%A0%80",
        "%C0%AF",
        "%zz",
        "%4",
        "%",
        "streams",
        "%73treams",
        "__ds",
        "%5F%5Fds",
        &too_long,
    ];
    for id in bad {
        for method in ["PUT", "POST", "HEAD", "DELETE"] {
            let stream = server.stream(&format!("{prefix}{id}"), TEXT);
            let request = stream.request(method).header("Content-Type", TEXT).body("x");
            // `GET`, `HEAD` of the listing and its 400s are another test's.
            if method == "HEAD" && id.ends_with("treams") {
                continue;
            }
            assert_eq!(request.send().status, 400, "{method} {id}");
        }
    }
}

#[test]
fn decision_2_flat_paths_are_decoded_then_checked() {
    let server = Server::start(&[]);
    for path in ["a", "a/b", "a/b/c.d/e", "streams", "a/streams", "%C3%A4/b", "a%20b"] {
        let status = server.stream(&format!("/v1/stream/{path}"), TEXT).put().send().status;
        assert_eq!(status, 201, "{path}");
    }
    for path in ["", "a/../b", "..", "a/%2e%2e/b", "a%2Fb", "a%00b", "%FF", "a/%C3"] {
        let status = server.stream(&format!("/v1/stream/{path}"), TEXT).put().send().status;
        assert_eq!(status, 400, "{path:?}");
    }
}

#[test]
fn decision_1_suffixes_exist_on_the_bucket_surface_only() {
    let server = Server::start(&[]);
    // On the flat surface it is a name like any other.
    let stream = server.stream("/v1/stream/a/append-batch", TEXT);
    stream.put().expect(201);
    stream.append("plain");
    assert_eq!(stream.read_text(), "plain");
}

#[test]
fn decision_2_location_is_absolute_and_encoded() {
    let server = Server::start(&[]);
    let location = |path: &str| {
        let made = server.stream(path, TEXT).put().expect(201);
        made.required("location").to_owned()
    };
    server.prefix();
    assert_eq!(location("/test/a%20%c3%a4%3f"), "http://thalweg.test/test/a%20%C3%A4%3F");
    assert_eq!(location("/v1/stream/x%20y/%c3%a4"), "http://thalweg.test/v1/stream/x%20y/%C3%A4");
    // Without --trust-proxy a client cannot choose the scheme.
    let stream = server.stream("/test/proxied", TEXT);
    let made = stream.put().header("X-Forwarded-Proto", "https").expect(201);
    assert_eq!(made.required("location"), "http://thalweg.test/test/proxied");
}

#[test]
fn decision_2_a_trusted_proxy_names_the_scheme() {
    let server = Server::start(&["--trust-proxy"]);
    server.prefix();
    let stream = server.stream("/test/proxied", TEXT);
    let made = stream.put().header("X-Forwarded-Proto", "https").expect(201);
    assert_eq!(made.required("location"), "https://thalweg.test/test/proxied");
}

#[test]
fn a_create_that_finds_another_configuration_changes_nothing() {
    let server = Server::start(&[]);
    let stream = server.create("stays", TEXT);
    stream.append("x");
    let before = stream.head();
    server.stream(&stream.path, JSON).put().body("[1]").expect(409);
    stream.put().header("Stream-TTL", "60").expect(409);
    let after = stream.head();
    assert_eq!(after.next_offset(), before.next_offset());
    assert_eq!(after.header("content-type"), Some(TEXT));
    assert_eq!(after.header("stream-ttl"), None);
}

#[test]
fn many_creates_of_one_name_make_one_stream() {
    let server = Server::start(&[]);
    let path = format!("{}raced", server.prefix());
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| server.stream(&path, TEXT).put().body("once").send().status))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    assert_eq!(answers.iter().filter(|&&status| status == 201).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|&status| status == 201 || status == 200), "{answers:?}");
    assert_eq!(server.stream(&path, TEXT).read_text(), "once");
}
