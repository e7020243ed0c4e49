//! A writer: random appends to the shared streams, and a log of what became of them.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::Sender;

use crate::common::batch::{acknowledgements, frames};
use crate::common::{Connection, JSON, Random, Request, Response};
use crate::model::{Model, Producer};

/// Bytes of a payload: around blocks, checksummed chunks and the largest commit of a small segment.
const SIZES: [u64; 6] = [20, 200, 3_000, 20_000, 70_000, 300_000];

/// What must be kept or lost as a whole.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Canonical bytes of the stream: records with their separators, or an append of a byte stream.
    pub bytes: Vec<u8>,
    /// Records in it; 0 in a byte stream.
    pub records: u64,
}

/// One request.
#[derive(Clone)]
pub struct Operation {
    /// Who sent it.
    pub writer: usize,
    /// Which shared stream it appends to.
    pub stream: usize,
    /// Its parts: one, or one for each frame of a batch.
    pub pieces: Vec<Piece>,
    /// What was sent.
    pub request: Request<'static>,
    /// Epoch and sequence, if a producer sent it.
    pub producer: Option<(u64, u64)>,
}

/// One request with its acknowledgement.
#[derive(Clone)]
pub struct Acknowledged {
    /// The request.
    pub operation: Operation,
    /// Position after each piece.
    pub ends: Vec<u64>,
    /// Ordinals of a JSON append.
    pub ordinals: Option<(u64, u64)>,
    /// The token, if one was given.
    pub next_offset: Option<String>,
}

/// What writers wrote down.
#[derive(Default)]
pub struct Log {
    /// Requests that were acknowledged, each writer's in order.
    pub acknowledged: Vec<Acknowledged>,
    /// Requests that were sent and not acknowledged, each writer's in order.
    pub in_flight: Vec<Operation>,
}

impl Log {
    /// Adds another writer's.
    pub fn append(&mut self, other: Log) {
        self.acknowledged.extend(other.acknowledged);
        self.in_flight.extend(other.in_flight);
    }
}

/// One writer.
pub struct Writer {
    id: usize,
    random: Random,
    acknowledged: Sender<()>,
    /// Path, content type and this writer's producer, for each stream.
    streams: Vec<(String, &'static str, Producer)>,
    /// Counts pieces over all rounds, so that no two are alike.
    pieces: u64,
}

impl Writer {
    /// A writer that continues where its predecessor of the last round stopped.
    pub fn new(id: usize, models: &[Model], mut random: Random, acknowledged: Sender<()>) -> Writer {
        let streams = models.iter().map(|model| (model.path.clone(), model.content_type, model.producer(id)));
        let pieces = random.next() >> 20 << 20;
        Writer { id, random, acknowledged, streams: streams.collect(), pieces }
    }

    /// Leaves the producers' state for the next round.
    pub fn remember(self, models: &mut [Model]) {
        for (model, (_, _, producer)) in models.iter_mut().zip(self.streams) {
            model.remember(self.id, producer);
        }
    }

    /// Writes until the server is gone.
    pub fn run(&mut self, address: SocketAddr) -> Log {
        let mut log = Log::default();
        let Ok(socket) = TcpStream::connect(address) else { return log };
        let mut connection = Connection::new(socket, false);
        loop {
            let count = if self.random.one_in(3) { 1 + self.random.below(20) } else { 1 };
            let operations: Vec<Operation> = (0..count).map(|_| self.operation()).collect();
            let bytes: Vec<u8> = operations.iter().flat_map(|operation| operation.request.bytes()).collect();
            let sent = connection.try_write(&bytes).is_ok();
            let mut operations = operations.into_iter();
            while let Some(operation) = operations.next() {
                // Even if not all could be sent: what was sent may have been carried out and answered.
                match connection.read_response_or_cut("POST") {
                    Ok(Some(response)) => {
                        log.acknowledged.push(acknowledge(operation, &response));
                        // Nobody listens any more once the kill is under way.
                        let _ = self.acknowledged.send(());
                    }
                    _ => {
                        log.in_flight.push(operation);
                        log.in_flight.extend(operations);
                        return log;
                    }
                }
            }
            if !sent {
                return log;
            }
        }
    }

    fn operation(&mut self) -> Operation {
        let stream = self.random.below(self.streams.len() as u64) as usize;
        let (path, content_type, _) = self.streams[stream].clone();
        let json = content_type == JSON;
        let is_batch = self.random.one_in(4) && !path.starts_with("/v1/");
        let count = if is_batch { 1 + self.random.below(30) } else { 1 };
        let mut bodies = Vec::new();
        let mut pieces = Vec::new();
        for _ in 0..count {
            let (body, piece) = self.piece(json, is_batch);
            bodies.push(body);
            pieces.push(piece);
        }
        let request = if is_batch {
            Request::new("POST", format!("{path}/append-batch")).body(frames(&bodies))
        } else {
            Request::new("POST", path).body(&bodies[0])
        };
        let mut request = request.header("Content-Type", content_type);
        if self.random.one_in(4) {
            request = request.chunked();
        }
        let mut producer = None;
        if !is_batch && self.random.one_in(2) {
            let (epoch, seq) = self.streams[stream].2.next();
            producer = Some((epoch, seq));
            request = request
                .header("Producer-Id", format!("writer-{}", self.id))
                .header("Producer-Epoch", epoch.to_string())
                .header("Producer-Seq", seq.to_string());
        }
        Operation { writer: self.id, stream, pieces, request, producer }
    }

    /// A body and what it becomes in the stream.
    fn piece(&mut self, json: bool, small: bool) -> (Vec<u8>, Piece) {
        let mut record = |random: &mut Random, most: u64| {
            self.pieces += 1;
            let length = random.below(most) as usize;
            let name = format!("{}-{}", self.id, self.pieces);
            let pad = random.letters(length);
            if json {
                format!("{{\"name\":\"{name}\",\"pad\":\"{pad}\"}}")
            } else {
                format!("<{name}:{pad}>")
            }
        };
        let most = SIZES[self.random.below(if small { 3 } else { SIZES.len() as u64 }) as usize];
        if !json {
            let bytes = record(&mut self.random, most).into_bytes();
            return (bytes.clone(), Piece { bytes, records: 0 });
        }
        if self.random.one_in(2) {
            let text = record(&mut self.random, most);
            return (text.clone().into_bytes(), Piece { bytes: (text + ",").into_bytes(), records: 1 });
        }
        let count = 1 + self.random.below(40);
        let records: Vec<String> = (0..count).map(|_| record(&mut self.random, 1 + most / count)).collect();
        // White space that goes, and one level of array.
        let body = format!("[ {} ]", records.join(" ,\n"));
        (body.into_bytes(), Piece { bytes: (records.join(",") + ",").into_bytes(), records: count })
    }
}

fn acknowledge(operation: Operation, response: &Response) -> Acknowledged {
    if operation.request.target.ends_with("/append-batch") {
        let response = response.clone().expect(200);
        let ends = acknowledgements(&response).into_iter().map(|frame| {
            assert_eq!(frame["status"], 204, "{frame}");
            frame["stream_next_offset"].as_u64().expect("a frame that succeeded tells its end")
        });
        return Acknowledged { ends: ends.collect(), operation, ordinals: None, next_offset: None };
    }
    let response = response.clone().expect(if operation.producer.is_some() { 200 } else { 204 });
    Acknowledged {
        operation,
        ends: vec![position(&response.next_offset())],
        ordinals: ordinals(&response),
        next_offset: Some(response.next_offset()),
    }
}

/// The range of records that an answer names.
pub fn ordinals(response: &Response) -> Option<(u64, u64)> {
    let number = |name: &str| response.header(name).map(|text| text.parse().expect("an ordinal"));
    number("stream-record-start").zip(number("stream-record-next"))
}

/// The position in a token.
pub fn position(token: &str) -> u64 {
    token.rsplit('_').next().and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("token {token}"))
}
