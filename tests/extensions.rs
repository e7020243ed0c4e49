//! `Stream-Extensions`: the extension is named on every answer about a stream of records, and on no other (extension 6).

mod common;

use common::batch::{acknowledgements, frames};
use common::records::{NDJSON, TOKEN};
use common::{JSON, OCTETS, Request, Server, TEXT};

#[test]
fn the_extension_is_named_on_every_answer_about_a_record_stream() {
    let server = Server::start(&["--long-poll-timeout-ms", "50", "--max-body-bytes", "5000"]);
    for stream in server.create_on_both("named", JSON) {
        let tail = stream.append("[1,2]");
        stream.produce("p", 1, 0, "3").expect(200);
        let etag = stream.get("offset=-1").expect(200).required("etag").to_owned();
        let as_text = |method| stream.request(method).header("Content-Type", TEXT);
        let answers: Vec<(Request<'_>, u16)> = vec![
            (stream.put(), 200),
            (as_text("PUT"), 409),
            (stream.put().header("Stream-TTL", "x"), 400),
            (stream.request("PUT").header("Content-Type", "nonsense"), 400),
            (stream.post("4"), 204),
            (stream.produce("p", 1, 1, "5"), 200),
            (stream.produce("p", 1, 0, "3"), 204),
            (stream.produce("p", 0, 0, "x"), 403),
            (stream.produce("p", 1, 9, "x"), 409),
            (stream.produce("p", 2, 1, "x"), 400),
            (as_text("POST").body("x"), 409),
            (stream.post("{"), 400),
            (stream.post("[]"), 400),
            (stream.post(""), 400),
            (stream.post("6").header("Stream-Record-Match", "0"), 412),
            (stream.post("6").header("Stream-Record-Match", "x"), 400),
            (stream.post("6").header("Producer-Id", "p"), 400),
            (stream.post("x".repeat(5001)), 413),
            (stream.request("HEAD"), 200),
            (stream.get(""), 200),
            (stream.get("").header("Accept", NDJSON), 200),
            (stream.get("offset=now"), 200),
            (stream.get("offset=-1&max_bytes=1"), 200),
            (stream.get("record=1"), 200),
            (stream.get("record=1&record_view=envelope"), 200),
            (stream.get("record=99"), 400),
            (stream.get("offset=nonsense"), 400),
            (stream.get("offset=99999"), 400),
            (stream.get("live=nonsense"), 400),
            (stream.get("offset=-1&live=long-poll"), 200),
            (stream.get("offset=now&live=long-poll"), 204),
            (stream.get("record=now&live=long-poll"), 204),
            (stream.get(&format!("offset={tail}")), 200),
            (stream.request("PATCH"), 405),
            (stream.post("7").header("Stream-Closed", "true"), 204),
            (stream.post("8"), 409),
            (stream.request("POST").header("Stream-Closed", "true"), 204),
            (stream.get("offset=-1&live=sse").header("Last-Event-ID", "now"), 204),
            (stream.request("DELETE"), 204),
        ];
        let revalidated = stream.get("offset=-1").header("If-None-Match", &etag).expect(304);
        assert_eq!(revalidated.header("stream-extensions"), Some(TOKEN));
        for query in ["offset=-1", "record=0", "record=0&record_view=envelope"] {
            assert_eq!(stream.events(query).response.header("stream-extensions"), Some(TOKEN), "{query}");
        }
        for (request, status) in answers {
            let answer = request.expect(status);
            assert_eq!(answer.header("stream-extensions"), Some(TOKEN), "{} {answer:?}", request.target);
        }
        // There is no stream any more that it could be active on.
        for request in [stream.get(""), stream.post("1"), stream.request("HEAD"), stream.request("DELETE")] {
            assert_eq!(request.expect(404).header("stream-extensions"), None);
        }
        assert_eq!(as_text("PUT").expect(201).header("stream-extensions"), None);
        assert_eq!(
            stream.request("PUT").header("Content-Type", JSON).expect(409).header("stream-extensions"),
            None
        );
    }
}

#[test]
fn the_extension_is_named_in_batches_and_at_the_first_answer() {
    let server = Server::start(&["--max-body-bytes", "5000"]);
    let stream = server.stream(&format!("{}first", server.prefix()), "application/json; charset=utf-8");
    assert_eq!(stream.put().body("[1]").expect(201).header("stream-extensions"), Some(TOKEN));
    for (request, status) in [
        (stream.batch_request(frames(&["2"])), 200),
        (stream.batch_request(frames(&["2"])).header("Stream-Seq", "1"), 400),
        (stream.batch_request("cut"), 400),
        (stream.batch_request("x".repeat(5001)), 413),
        (server.request("GET", format!("{}/append-batch", stream.path)), 405),
    ] {
        let answer = request.expect(status);
        assert_eq!(answer.header("stream-extensions"), Some(TOKEN), "{answer:?}");
        if status == 200 {
            assert_eq!(acknowledgements(&answer).len(), 1);
        }
    }
    // Refused by its head, before there is a body.
    for request in [stream.post("x".repeat(5001)), stream.put().body("x".repeat(5001))] {
        let mut connection = server.connect();
        connection.write(&request.head_bytes());
        let refused = connection.read_response(&request.method).expect(413);
        assert_eq!(refused.header("stream-extensions"), Some(TOKEN), "{refused:?}");
    }
    let read = stream.get("").header("Origin", "http://page.test").expect(200);
    let exposed = read.required("access-control-expose-headers").to_ascii_lowercase();
    for header in [
        "stream-extensions",
        "stream-record-first",
        "stream-record-start",
        "stream-record-next",
        "stream-data-content-type",
    ] {
        assert!(exposed.split(',').any(|item| item.trim() == header), "{header} in {exposed}");
    }
}

#[test]
fn the_extension_is_not_named_where_it_is_not_active() {
    let server = Server::start(&["--long-poll-timeout-ms", "50"]);
    for content_type in [TEXT, OCTETS, NDJSON] {
        let stream = server.stream(&format!("{}not-{}", server.prefix(), content_type.len()), content_type);
        for (request, status) in [
            (stream.put(), 201),
            (stream.put(), 200),
            (stream.post("x"), 204),
            (stream.produce("p", 0, 0, "x"), 200),
            (stream.produce("p", 0, 0, "x"), 204),
            (stream.batch_request(frames(&["x"])), 200),
            (stream.get(""), 200),
            (stream.get("offset=now&live=long-poll"), 204),
            (stream.request("HEAD"), 200),
            (stream.request("PATCH"), 405),
            (stream.request("OPTIONS"), 204),
            (stream.request("DELETE"), 204),
        ] {
            let answer = request.expect(status);
            for header in
                ["stream-extensions", "stream-record-start", "stream-record-next", "stream-record-first"]
            {
                assert_eq!(answer.header(header), None, "{answer:?}");
            }
        }
    }
}
