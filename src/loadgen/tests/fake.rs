//! A small Durable Streams server in memory that misbehaves at its [`FAULTY`]-th append, or altogether.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The append that meets the fault.
pub const FAULTY: u64 = 10;
/// Records of a page.
const PAGE_RECORDS: usize = 7;
/// How long [`Fault::Sleeps`] sleeps.
const NAP: Duration = Duration::from_millis(50);

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Acknowledges a record and forgets it.
    Loses,
    /// Keeps a record twice.
    Doubles,
    /// Keeps a record with a changed byte.
    Changes,
    /// Answers with an error.
    Refuses,
    /// Answers with an error, but keeps the record.
    RefusesAndKeeps,
    /// Closes the connection without an answer.
    Cuts,
    /// Keeps the record and closes the connection without an answer.
    CutsAndKeeps,
    /// Sleeps before it answers.
    Sleeps,
    /// Leaves a record out of what long-polls deliver, but not of other reads.
    Hides,
    /// Acknowledges that a stream is closed and leaves it open.
    LeavesOpen,
    /// Acknowledges that a stream is deleted and keeps it.
    KeepsDeleted,
    /// Does not let a stream be deleted.
    Protects,
    /// Speaks something else.
    Garbage,
    /// Answers everything with an empty 200.
    NoOffsets,
    /// Answers everything with 404.
    Nothing,
    /// Closes every connection at the first request.
    Hangs,
}

#[derive(Default)]
struct Stream {
    is_json: bool,
    records: Vec<Vec<u8>>,
    is_closed: bool,
    /// The record that long-polls are not shown.
    hidden: Option<usize>,
}

struct Shared {
    fault: Fault,
    appends: AtomicU64,
    stop: AtomicBool,
    streams: Mutex<HashMap<String, Stream>>,
}

/// A running one. Dropping it ends it once its clients are gone.
pub struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub fn start(fault: Fault) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault,
            appends: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming() {
                let shared = of_thread.clone();
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || serve(&shared, socket.unwrap()));
            }
        });
        Fake { address, shared, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Streams, and buckets, that there are.
    pub fn paths(&self) -> Vec<String> {
        self.shared.streams.lock().unwrap().keys().cloned().collect()
    }

    /// Whether the append that meets the fault has come.
    pub fn has_misbehaved(&self) -> bool {
        self.shared.appends.load(Ordering::Relaxed) >= FAULTY
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    is_json: bool,
    closes: bool,
    body: Vec<u8>,
}

fn read_request(socket: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Request> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(head_bytes) = head.parse(unread).unwrap() {
            let value = |name: &str| {
                let header = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
                Some(std::str::from_utf8(header.value).unwrap().to_owned())
            };
            let body_bytes: usize = value("content-length").map_or(0, |text| text.parse().unwrap());
            if unread.len() >= head_bytes + body_bytes {
                let (path, query) = head.path.unwrap().split_once('?').unwrap_or((head.path.unwrap(), ""));
                let request = Request {
                    method: head.method.unwrap().to_owned(),
                    path: path.to_owned(),
                    query: query.to_owned(),
                    is_json: value("content-type").as_deref() == Some("application/json"),
                    closes: value("stream-closed").is_some(),
                    body: unread[head_bytes..head_bytes + body_bytes].to_vec(),
                };
                unread.drain(..head_bytes + body_bytes);
                return Some(request);
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => unread.extend_from_slice(&piece[..count]),
        }
    }
}

fn serve(shared: &Shared, mut socket: TcpStream) {
    let mut unread = Vec::new();
    while let Some(request) = read_request(&mut socket, &mut unread) {
        let Some(answer) = answer(shared, &request) else { return };
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

fn response(status: &str, headers: &str, body: &[u8]) -> Option<Vec<u8>> {
    let length =
        if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    Some([format!("HTTP/1.1 {status}\r\n{headers}{length}\r\n").as_bytes(), body].concat())
}

/// The answer; none if the connection is closed instead.
fn answer(shared: &Shared, request: &Request) -> Option<Vec<u8>> {
    match shared.fault {
        Fault::Garbage => return Some(b"220 mail.example.com ESMTP\r\n".to_vec()),
        Fault::NoOffsets => return response("200 OK", "", b""),
        Fault::Nothing => return response("404 Not Found", "", b"not here"),
        Fault::Hangs => return None,
        _ => {}
    }
    if request.query.contains("live=long-poll") {
        return long_poll(shared, request);
    }
    let mut streams = shared.streams.lock().unwrap();
    match request.method.as_str() {
        "PUT" => {
            streams.insert(request.path.clone(), Stream { is_json: request.is_json, ..Stream::default() });
            response("201 Created", "Stream-Next-Offset: 0\r\n", b"")
        }
        "POST" if request.closes => {
            let stream = streams.get_mut(&request.path).expect("a stream");
            stream.is_closed = shared.fault != Fault::LeavesOpen;
            response("204 No Content", "Stream-Closed: true\r\n", b"")
        }
        "DELETE" if shared.fault == Fault::Protects => response("403 Forbidden", "", b"not yours"),
        "DELETE" => {
            if shared.fault != Fault::KeepsDeleted {
                streams.remove(&request.path);
            }
            response("204 No Content", "", b"")
        }
        "POST" => {
            let count = shared.appends.fetch_add(1, Ordering::Relaxed) + 1;
            let fault = if count == FAULTY { shared.fault } else { Fault::None };
            if fault == Fault::Sleeps {
                std::thread::sleep(NAP);
            }
            append(streams.get_mut(&request.path).expect("a stream"), &request.body, fault)
        }
        "GET" => match streams.get(&request.path) {
            Some(stream) => page(stream, &request.query, None),
            None => response("404 Not Found", "", b"not here"),
        },
        method => panic!("method {method}"),
    }
}

fn append(stream: &mut Stream, body: &[u8], fault: Fault) -> Option<Vec<u8>> {
    let mut record = body.to_vec();
    if fault == Fault::Changes {
        let last_of_fill = record.len() - 4;
        record[last_of_fill] ^= 1;
    }
    if fault == Fault::Hides {
        stream.hidden = Some(stream.records.len());
    }
    let copies = match fault {
        Fault::Loses | Fault::Refuses | Fault::Cuts => 0,
        Fault::Doubles => 2,
        _ => 1,
    };
    stream.records.extend((0..copies).map(|_| record.clone()));
    match fault {
        Fault::Cuts | Fault::CutsAndKeeps => None,
        Fault::Refuses | Fault::RefusesAndKeeps => {
            let body = br#"{"error":{"code":"SHARD_LATCHED","message":"no more writes"}}"#;
            response("503 Service Unavailable", "Content-Type: application/json\r\n", body)
        }
        _ => response("204 No Content", "Stream-Next-Offset: 1\r\n", b""),
    }
}

/// Waits for records, but not for long.
fn long_poll(shared: &Shared, request: &Request) -> Option<Vec<u8>> {
    for _ in 0..20 {
        let streams = shared.streams.lock().unwrap();
        let stream = &streams[&request.path];
        if offset_in(&request.query) < stream.records.len() {
            return page(stream, &request.query, stream.hidden);
        }
        drop(streams);
        std::thread::sleep(Duration::from_millis(1));
    }
    let headers = format!("Stream-Next-Offset: {}\r\nStream-Up-To-Date: true\r\n", offset_in(&request.query));
    response("204 No Content", &headers, b"")
}

/// Offsets are record numbers here.
fn offset_in(query: &str) -> usize {
    let offset = query.strip_prefix("offset=").expect("an offset").split('&').next().unwrap();
    if offset == "-1" { 0 } else { offset.parse().expect("an offset that was given out") }
}

/// A page of records, without the hidden one.
fn page(stream: &Stream, query: &str, hidden: Option<usize>) -> Option<Vec<u8>> {
    let from = offset_in(query);
    let to = (from + PAGE_RECORDS).min(stream.records.len());
    let shown: Vec<&[u8]> = (from..to)
        .filter(|record| Some(*record) != hidden)
        .map(|record| stream.records[record].as_slice())
        .collect();
    let body =
        if stream.is_json { [b"[", shown.join(&b',').as_slice(), b"]"].concat() } else { shown.concat() };
    let up_to_date = if to == stream.records.len() { "Stream-Up-To-Date: true\r\n" } else { "" };
    let closed = if stream.is_closed { "Stream-Closed: true\r\n" } else { "" };
    response("200 OK", &format!("Stream-Next-Offset: {to}\r\n{up_to_date}{closed}"), &body)
}
