//! Buckets: section 1 of the extensions and decisions 1 to 4.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use common::client::assert_no_white_space;
use common::{Connection, DataDir, JSON, Random, Response, Server, Stream, TEXT};
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
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
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

/// Streams that stay, while others around them come and go: each is on exactly one page, in order.
#[test]
fn decision_4_a_stream_that_stays_is_on_one_page_whatever_comes_and_goes() {
    let seed = Random::seed("THALWEG_LISTING_SEED");
    println!("THALWEG_LISTING_SEED={seed}");
    let server = Server::start(&["--shards", "3"]);
    server.request("PUT", "/agents").expect(201);
    let mut random = Random::new(seed);
    let stays: BTreeSet<String> = (0..120).map(|n| format!("{}-{n}", random.letters(3))).collect();
    let mut connection = server.connect();
    for id in &stays {
        connection.send(&server.stream(&format!("/agents/{id}"), TEXT).put()).expect(201);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (server, done, mut random) = (&server, &done, Random::new(seed + 1 + thread));
            scope.spawn(move || {
                let mut connection = server.connect();
                while !done.load(Ordering::Relaxed) {
                    let path = format!("/agents/{}+{thread}", random.letters(2));
                    let stream = server.stream(&path, TEXT);
                    if connection.send(&stream.put()).status == 201 && !random.one_in(4) {
                        connection.send(&stream.request("DELETE")).expect(204);
                    }
                }
            });
        }
        let end = End(&done);
        for limit in [1, 7, 50] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let target = format!("/agents/streams?limit={limit}&after={}", after.replace('+', "%2B"));
                let page = connection.send(&server.request("GET", target)).expect(200).json();
                seen.extend(ids(&page).into_iter().map(str::to_owned));
                match page["next_cursor"].as_str() {
                    Some(cursor) => cursor.clone_into(&mut after),
                    None => break,
                }
            }
            assert!(seen.is_sorted_by(|a, b| a < b), "limit {limit}: {seen:?}");
            let stayed: BTreeSet<String> = seen.into_iter().filter(|id| !id.contains('+')).collect();
            assert_eq!(stayed, stays, "limit {limit}");
        }
        drop(end);
    });
    // A cursor need not name a stream that is there.
    let page = list(&server, "agents", "?limit=5");
    let (found, cursor) = (ids(&page), page["next_cursor"].as_str().expect("there is more"));
    for id in &found {
        server.stream(&format!("/agents/{}", id.replace('+', "%2B")), TEXT).delete();
    }
    let next = list(&server, "agents", &format!("?limit=5&after={}", cursor.replace('+', "%2B")));
    assert_eq!(ids(&next), ids(&list(&server, "agents", "?limit=5")));
}

/// Sets a flag when it is dropped, also by a failed assertion.
struct End<'f>(&'f AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One client of many that create and delete the same few buckets and streams of their own in them.
struct Racer<'s> {
    server: &'s Server,
    connection: Connection,
    random: Random,
    number: u64,
    /// Buckets that it ended.
    ended: u32,
    /// Creates that found their bucket missing, refused deletes.
    beaten: (u32, u32),
}

impl<'s> Racer<'s> {
    fn new(server: &'s Server, seed: u64, number: u64) -> Racer<'s> {
        let random = Random::new(seed.wrapping_add(number));
        Racer { server, connection: server.connect(), random, number, ended: 0, beaten: (0, 0) }
    }

    fn send(&mut self, method: &str, target: &str) -> Response {
        self.connection.send(&self.server.request(method, target))
    }

    /// Creates a stream; whether its bucket was there.
    fn create(&mut self, bucket: &str, id: &str) -> bool {
        let stream = self.server.stream(&format!("/{bucket}/{id}"), TEXT);
        let response = self.connection.send(&stream.put().body("kept"));
        match response.status {
            201 => true,
            404 => {
                self.beaten.0 += 1;
                false
            }
            _ => panic!("a create waits for the outcome of a delete: {response:?}"),
        }
    }

    /// A stream whose create was acknowledged is there, and so is its bucket, whoever tries to delete it.
    fn check(&mut self, bucket: &str, id: &str) {
        assert_eq!(self.send("GET", &format!("/{bucket}/{id}")).expect(200).body, b"kept");
        let listed = self.send("GET", &format!("/{bucket}/streams?prefix={id}")).expect(200).json();
        assert_eq!(ids(&listed), [id], "racer {}: /{bucket}", self.number);
        let streams = self.send("GET", &format!("/{bucket}")).expect(200).json()["streams"].clone();
        assert!(streams.as_u64().is_some_and(|streams| streams > 0), "racer {}: {streams}", self.number);
    }

    fn delete_bucket(&mut self, bucket: &str) -> u16 {
        let status = self.send("DELETE", &format!("/{bucket}")).status;
        match status {
            204 => self.ended += 1,
            409 => self.beaten.1 += 1,
            404 => {}
            _ => panic!("deleting a bucket answered {status}"),
        }
        status
    }

    fn race(&mut self, rounds: u32) {
        for round in 0..rounds {
            let bucket = format!("bucket-{}", self.random.below(3));
            let status = self.send("PUT", &format!("/{bucket}")).status;
            assert!(status == 201 || status == 409, "creating a bucket answered {status}");
            let id = format!("{}-{round}", self.number);
            if self.create(&bucket, &id) {
                if self.random.one_in(2) {
                    self.check(&bucket, &id);
                }
                if self.random.one_in(2) {
                    let status = self.delete_bucket(&bucket);
                    assert_eq!(status, 409, "racer {}: /{bucket}/{id} is there", self.number);
                }
                self.send("DELETE", &format!("/{bucket}/{id}")).expect(204);
            }
            self.delete_bucket(&bucket);
        }
    }

    /// Creates a stream that stays.
    fn settle(&mut self) -> (String, String) {
        let (bucket, id) = (format!("bucket-{}", self.number % 3), format!("{}-stays", self.number));
        loop {
            self.send("PUT", &format!("/{bucket}"));
            if self.create(&bucket, &id) {
                return (bucket, id);
            }
        }
    }
}

/// Section 1.5: a bucket is empty when it is deleted; and a create that was acknowledged is never lost by that.
#[test]
fn section_1_5_a_bucket_that_is_deleted_is_empty_whatever_races_with_it() {
    const RACERS: u64 = 8;
    let seed = Random::seed("THALWEG_BUCKETS_SEED");
    println!("THALWEG_BUCKETS_SEED={seed}");
    for shards in ["2", "3"] {
        let dir = DataDir::new();
        let server = Server::start_in(&dir, &["--shards", shards]);
        let (mut ended, mut beaten) = (0, (0, 0));
        let mut stayed = BTreeMap::<String, BTreeSet<String>>::new();
        std::thread::scope(|scope| {
            let racers: Vec<_> = (0..RACERS)
                .map(|number| {
                    let mut racer = Racer::new(&server, seed, number);
                    scope.spawn(move || {
                        racer.race(60);
                        let stays = racer.settle();
                        (stays, racer.ended, racer.beaten)
                    })
                })
                .collect();
            for racer in racers {
                let ((bucket, id), ends, beats) = racer.join().expect("a racer finds nothing wrong");
                stayed.entry(bucket).or_default().insert(id);
                ended += ends;
                beaten = (beaten.0 + beats.0, beaten.1 + beats.1);
            }
        });
        println!("{shards} shards: {ended} buckets ended, {beaten:?} creates and deletes came too late");
        assert!(ended > 0 && beaten.1 > 0, "there was no race");
        server.kill();
        let server = Server::start_in(&dir, &["--shards", shards]);
        for (bucket, stays) in &stayed {
            let page = list(&server, bucket, "");
            assert_eq!(ids(&page), stays.iter().collect::<Vec<_>>(), "/{bucket}");
            let count = server.request("GET", format!("/{bucket}")).expect(200).json()["streams"].clone();
            assert_eq!(count, stays.len());
            for id in stays {
                server.stream(&format!("/{bucket}/{id}"), TEXT).delete();
            }
            server.request("DELETE", format!("/{bucket}")).expect(204);
        }
    }
}

/// Creates and deletes a bucket of its own and a stream in it, again and again, until the server ends. Returns how many
/// of these steps were acknowledged.
fn cycle(server: &Server, bucket: &str, step_done: &mpsc::Sender<()>) -> usize {
    let mut connection = server.connect();
    let (bucket, stream) = (format!("/{bucket}"), format!("/{bucket}/s"));
    let steps =
        [("PUT", &bucket, 201), ("PUT", &stream, 201), ("DELETE", &stream, 204), ("DELETE", &bucket, 204)];
    for acknowledged in 0.. {
        let (method, target, status) = steps[acknowledged % steps.len()];
        let request = server.request(method, target.as_str());
        let answer = match connection.try_write(&request.bytes()) {
            Ok(()) => connection.read_response_or_cut(method).unwrap_or_default(),
            Err(_) => None,
        };
        match answer {
            Some(response) if response.status == status => {}
            // A server that stops may say so; the change may have been made or not.
            Some(response) if response.status != 503 => panic!("{method} {target}: {response:?}"),
            _ => return acknowledged,
        }
        // Nobody listens any more once the server is about to end.
        let _ = step_done.send(());
    }
    unreachable!("steps never end")
}

/// A server that ends, however it does, in the midst of changes of buckets: each was made or not, as it was acknowledged.
#[test]
fn bucket_changes_are_whole_whenever_the_server_ends() {
    const CLIENTS: usize = 6;
    let dir = DataDir::new();
    for round in 0..6 {
        let server = Server::start_in(&dir, &["--shards", "3"]);
        let (step_done, steps) = mpsc::channel();
        let pid = server.pid() as i32;
        let bucket = |client: usize| format!("bucket-{round}-{client}");
        let signal = if round % 2 == 0 { libc::SIGKILL } else { libc::SIGTERM };
        let acknowledged: Vec<usize> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (server, step_done) = (&server, step_done.clone());
                    scope.spawn(move || cycle(server, &bucket(client), &step_done))
                })
                .collect();
            steps.iter().take(100).for_each(drop);
            drop(steps);
            // SAFETY: plain system call; the server has not been waited for, so the id is still its own.
            assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "the server runs");
            clients.into_iter().map(|client| client.join().expect("a client finds nothing wrong")).collect()
        });
        let ended = server.wait();
        assert!(
            signal == libc::SIGKILL || ended.status.success(),
            "the server did not stop cleanly: {ended:?}"
        );
        let server = Server::start_in(&dir, &["--shards", "3"]);
        for (client, acknowledged) in acknowledged.into_iter().enumerate() {
            let bucket = bucket(client);
            let found = match server.request("GET", format!("/{bucket}")).send() {
                metadata if metadata.status == 200 => {
                    let count = metadata.json()["streams"].as_u64().expect("a count") as usize;
                    assert_eq!(ids(&list(&server, &bucket, "")), vec!["s"; count]);
                    Some(count)
                }
                metadata => {
                    metadata.expect(404);
                    None
                }
            };
            // After none, one, two or three steps of a cycle.
            let states = [None, Some(0), Some(1), Some(0)];
            let (now, next) = (states[acknowledged % 4], states[(acknowledged + 1) % 4]);
            assert!(found == now || found == next, "/{bucket}: {found:?} after {acknowledged} steps");
        }
        server.stop();
    }
}
