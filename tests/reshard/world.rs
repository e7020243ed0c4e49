//! Everything that a data directory can hold, with what its clients know of it.

use crate::common::stream::split_array;
use crate::common::{JSON, OCTETS, Server, Stream, TEXT};
use thalweg::limits;

/// An append of a producer, and how it was answered.
pub struct Produced {
    seq: u64,
    offset: String,
    record_start: Option<String>,
    record_next: Option<String>,
}

/// A stream and what a client knows of it.
pub struct Known {
    /// Its path.
    pub path: String,
    content_type: &'static str,
    /// Everything in it: bytes, or records with a comma behind each.
    content: Vec<u8>,
    /// Offsets that were handed out, and how much of the content lies before each.
    tokens: Vec<(String, usize)>,
    produced: Vec<Produced>,
    closed: bool,
    /// How much of the content retention has taken.
    trimmed: usize,
    /// Its snapshot: token and body.
    snapshot: Option<(String, Vec<u8>)>,
    /// Its attributes, if they were set.
    attributes: Option<String>,
    /// What HEAD says of it beside the offset.
    settings: Vec<Option<String>>,
}

impl Known {
    pub fn create(
        server: &Server,
        path: &str,
        content_type: &'static str,
        headers: &[(&str, &str)],
    ) -> Known {
        let stream = server.stream(path, content_type);
        let answer = stream.put().headers(headers).expect(201);
        let mut known = Known {
            path: path.to_owned(),
            content_type,
            content: Vec::new(),
            tokens: vec![(answer.next_offset(), 0)],
            produced: Vec::new(),
            closed: false,
            trimmed: 0,
            snapshot: None,
            attributes: None,
            settings: Vec::new(),
        };
        known.settings = known.settings(server);
        known
    }

    pub fn on<'s>(&self, server: &'s Server) -> Stream<'s> {
        server.stream(&self.path, self.content_type)
    }

    fn settings(&self, server: &Server) -> Vec<Option<String>> {
        let head = self.on(server).head();
        let names = [
            "content-type",
            "stream-ttl",
            "stream-expires-at",
            "stream-record-first",
            "stream-snapshot-offset",
        ];
        names.iter().map(|name| head.header(name).map(str::to_owned)).collect()
    }

    /// The canonical form of a body: of JSON, the records in it, a comma behind each.
    fn added(&mut self, body: &[u8]) {
        if self.content_type != JSON {
            return self.content.extend_from_slice(body);
        }
        let records = match body.first() {
            Some(b'[') => split_array(body),
            _ => vec![String::from_utf8(body.to_vec()).expect("JSON is text")],
        };
        for record in records {
            self.content.extend_from_slice(record.as_bytes());
            self.content.push(b',');
        }
    }

    pub fn append(&mut self, server: &Server, body: impl AsRef<[u8]>) {
        let offset = self.on(server).append(&body);
        self.added(body.as_ref());
        self.tokens.push((offset, self.content.len()));
    }

    fn batch(&mut self, server: &Server, bodies: &[&str]) {
        self.on(server).batch(bodies);
        bodies.iter().for_each(|body| self.added(body.as_bytes()));
    }

    /// The next append of producer `p`.
    fn produce(&mut self, server: &Server, body: &str) {
        let seq = self.produced.len() as u64;
        let answer = self.on(server).produce("p", 3, seq, body).expect(200);
        self.added(body.as_bytes());
        let offset = answer.next_offset();
        self.tokens.push((offset.clone(), self.content.len()));
        let header = |name: &str| answer.header(name).map(str::to_owned);
        let (record_start, record_next) = (header("stream-record-start"), header("stream-record-next"));
        self.produced.push(Produced { seq, offset, record_start, record_next });
    }

    /// A snapshot of everything, and what it makes superfluous goes, but for the last few appends; new attributes.
    fn condense(&mut self, server: &Server, round: usize) {
        let (token, _) = self.tokens.last().expect("its creation has one").clone();
        let body = format!("{} in round {round} ", self.path).repeat(3000 * (round % 3)).into_bytes();
        let put = |what: String| server.request("PUT", format!("{}/{what}", self.path));
        put(format!("snapshot/{token}")).header("Content-Type", TEXT).body(&body).expect(204);
        let (from, before) = &self.tokens[self.tokens.len().saturating_sub(3)];
        put(format!("retention/{from}")).expect(204);
        let attributes = format!("{{\"title\":\"round {round}\"}}");
        put("attrs".to_owned()).header("Content-Type", JSON).body(&attributes).expect(204);
        self.attributes = Some(attributes);
        (self.trimmed, self.snapshot) = (*before, Some((token, body)));
        self.settings = self.settings(server);
    }

    pub fn close(&mut self, server: &Server) {
        self.on(server).close();
        self.closed = true;
    }

    /// Compares the server with what is known.
    pub fn check(&self, server: &Server, when: &str) {
        let (stream, path) = (self.on(server), &self.path);
        if let Some(attributes) = &self.attributes {
            let read = server.request("GET", format!("{path}/attrs")).expect(200);
            assert_eq!(read.text(), attributes, "{when}: attributes of {path}");
        }
        if let Some((token, body)) = &self.snapshot {
            let read = server.request("GET", format!("{path}/snapshot/{token}")).expect(200);
            assert!(read.body == *body, "{when}: snapshot of {path}: {} bytes", read.body.len());
        }
        for (token, before) in [("-1".to_owned(), 0)].iter().chain(&self.tokens) {
            if *before < self.trimmed {
                stream.get(&format!("offset={token}")).expect(410);
                continue;
            }
            let mut read = Vec::new();
            for page in stream.pages(token) {
                match self.content_type {
                    JSON => split_array(&page).iter().for_each(|record| {
                        read.extend_from_slice(record.as_bytes());
                        read.push(b',');
                    }),
                    _ => read.extend_from_slice(&page),
                }
            }
            assert!(read == self.content[*before..], "{when}: {path} from {token}: {} bytes", read.len());
        }
        assert_eq!(self.settings(server), self.settings, "{when}: {path}");
        let head = stream.head();
        assert_eq!(head.header("stream-closed"), self.closed.then_some("true"), "{when}: {path}");
        for Produced { seq, offset, record_start, record_next } in &self.produced {
            // The body of a duplicate does not matter.
            let again = stream.produce("p", 3, *seq, "[0]").expect(204);
            // Of a place that retention has taken, only the ordinals are known.
            if self.tokens.iter().any(|(token, before)| token == offset && *before >= self.trimmed) {
                assert_eq!(again.next_offset(), *offset, "{when}: {path}, sequence {seq}");
            }
            assert_eq!(again.header("stream-record-start"), record_start.as_deref(), "{when}: {path} {seq}");
            assert_eq!(again.header("stream-record-next"), record_next.as_deref(), "{when}: {path} {seq}");
        }
        if !self.produced.is_empty() && !self.closed {
            let gap = stream.produce("p", 3, self.produced.len() as u64 + 5, "[0]").expect(409);
            assert_eq!(gap.header("producer-expected-seq"), Some(&*self.produced.len().to_string()));
            stream.produce("p", 2, 0, "[0]").expect(403);
        }
    }
}

/// Everything that a directory holds, as its clients know it.
pub struct World {
    /// Streams that are there.
    pub streams: Vec<Known>,
    /// Streams that are gone, each with a token of its life.
    gone: Vec<(String, String)>,
    round: usize,
}

const BUCKETS: [&str; 3] = ["alpha", "beta", "gamma"];

impl World {
    /// Some of everything.
    pub fn create(server: &Server) -> World {
        let mut world = World { streams: Vec::new(), gone: Vec::new(), round: 0 };
        for bucket in BUCKETS {
            server.request("PUT", format!("/{bucket}")).expect(201);
            for n in 0..5 {
                let content_type = [JSON, TEXT, OCTETS][n % 3];
                let path = format!("/{bucket}/s{n}");
                let mut known = Known::create(server, &path, content_type, &[("Stream-TTL", "86400")]);
                known.append(server, format!("[{n},\"{}\"]", "w".repeat(30_000 * n)));
                known.batch(server, &["1", "[2,3]", "{\"four\":5}"]);
                for seq in 0..4 {
                    known.produce(server, &format!("[{seq},[{n}]]"));
                }
                world.streams.push(known);
            }
        }
        for n in 0..4 {
            let path = format!("/v1/stream/flat/{n}/tail");
            let mut known =
                Known::create(server, &path, TEXT, &[("Stream-Expires-At", "2099-01-01T00:00:00Z")]);
            known.append(server, format!("flat {n}"));
            world.streams.push(known);
        }
        for (path, content_type) in [("/alpha/large", TEXT), ("/v1/stream/large", JSON)] {
            let mut known = Known::create(server, path, content_type, &[]);
            known.append(server, "[\"small\"]");
            // More than a commit holds: written in parts.
            let word = "abcdefghijklmnopqrstuvwxyz".repeat(200);
            let records: Vec<String> = (0..1000).map(|n| format!("\"{n} {word}\"")).collect();
            known.append(server, format!("[{}]", records.join(",")));
            assert!(known.content.len() > limits::COMMIT_BYTES_MAX);
            known.append(server, "[\"small again\"]");
            world.streams.push(known);
        }
        world.streams[3].close(server);
        world
    }

    /// What each life of the directory adds: growth, and names that are given up and taken again.
    pub fn grow(&mut self, server: &Server) {
        self.round += 1;
        let round = self.round;
        for known in self.streams.iter_mut().filter(|known| !known.closed) {
            known.append(server, format!("[\"round {round}\"]"));
            if !known.path.starts_with("/v1/") {
                known.batch(server, &["7", "8"]);
            }
            if !known.produced.is_empty() {
                known.produce(server, &format!("[\"{round}\"]"));
            }
        }
        for bucket in BUCKETS {
            let path = format!("/{bucket}/again");
            if let Some(at) = self.streams.iter().position(|known| known.path == path) {
                let known = self.streams.remove(at);
                known.on(server).delete();
                self.gone.push((path.clone(), known.tokens[1].0.clone()));
            }
            let mut known = Known::create(server, &path, JSON, &[]);
            known.append(server, format!("[{round}]"));
            known.produce(server, "[1,2]");
            self.streams.push(known);
        }
        // A bucket that comes and goes, with a stream that does so before it.
        server.request("PUT", "/passing").expect(201);
        let passing = Known::create(server, "/passing/s", TEXT, &[]);
        passing.on(server).delete();
        server.request("DELETE", "/passing").expect(204);
    }

    pub fn check(&self, server: &Server, when: &str) {
        self.streams.iter().for_each(|known| known.check(server, when));
        for (path, token) in &self.gone {
            let stream = server.stream(path, JSON);
            assert_eq!(stream.get(&format!("offset={token}")).send().status, 410, "{when}: {path} {token}");
        }
        for bucket in BUCKETS {
            let prefix = format!("/{bucket}/");
            let inside = self.streams.iter().filter_map(|known| known.path.strip_prefix(&prefix));
            let mut expected: Vec<&str> = inside.collect();
            expected.sort_unstable();
            let page = server.request("GET", format!("/{bucket}/streams")).expect(200).json();
            let listed = page["streams"].as_array().expect("an array").iter();
            let listed: Vec<&str> =
                listed.map(|stream| stream["stream_id"].as_str().expect("an id")).collect();
            assert_eq!(listed, expected, "{when}: bucket {bucket}");
            let described = server.request("GET", format!("/{bucket}")).expect(200).json();
            assert_eq!(described["streams"], expected.len(), "{when}: bucket {bucket}");
            server.request("PUT", format!("/{bucket}")).expect(409);
        }
        server.request("GET", "/passing").expect(404);
    }
}

impl World {
    /// What settling is for: snapshots that take the place of others, data that goes, streams that come and go between the
    /// others on every shard.
    pub fn churn(&mut self, server: &Server) {
        let round = self.round;
        for known in self.streams.iter_mut().filter(|known| !known.closed && !known.path.starts_with("/v1/"))
        {
            known.condense(server, round);
        }
        for n in 0..12 {
            let filler = server.stream(&format!("/alpha/filler-{n}"), OCTETS);
            filler.put().expect(201);
            for _ in 0..6 {
                filler.append(vec![n; 60_000]);
            }
        }
        for known in self.streams.iter_mut().filter(|known| !known.closed) {
            known.append(server, format!("[\"behind the fillers of {round}\"]"));
        }
        for n in 0..12 {
            server.stream(&format!("/alpha/filler-{n}"), OCTETS).delete();
        }
    }
}
