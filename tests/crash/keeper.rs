//! The keeper of the shared streams: publishes snapshots, lets retention take what they fold, replaces attributes; one request
//! after the other. After a crash each stream is where its last acknowledgement left it, or one step further.

use std::net::{SocketAddr, TcpStream};

use crate::common::{Connection, JSON, OCTETS, Random, Request, Server};
use crate::model::Model;

/// What the keeper has made of a stream.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Position and body of the snapshot.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// Where the stream begins.
    pub first: u64,
    /// Number in the attributes.
    pub attributes: u64,
}

impl Kept {
    /// Whether the stream is like this.
    fn is_true(&self, server: &Server, path: &str) -> bool {
        let found = server.request("GET", format!("{path}/snapshot")).send();
        let snapshot = match &self.snapshot {
            None => found.status == 404,
            Some((at, body)) => {
                let read = server.request("GET", format!("{path}/snapshot/{at}")).send();
                read.status == 200 && read.body == *body
            }
        };
        let attributes = server.request("GET", format!("{path}/attrs")).expect(200).json();
        let title = attributes["title"].as_str().map_or(0, |title| title.parse().expect("a number"));
        snapshot && title == self.attributes && self.first == first(server, path)
    }
}

/// Where a stream begins, by what a read from its very start says.
pub fn first(server: &Server, path: &str) -> u64 {
    let read = server.request("GET", format!("{path}?offset=-1")).send();
    match read.status {
        200 => 0,
        410 => crate::writer::position(&read.next_offset()),
        status => panic!("{path}: a read from the start answered {status}"),
    }
}

/// A stream, and places in it at which snapshots may stand.
struct Stream {
    path: String,
    boundaries: Vec<u64>,
    done: Kept,
    /// What it is if the request under way is carried out.
    sent: Kept,
}

/// The keeper.
pub struct Keeper {
    streams: Vec<Stream>,
    random: Random,
    numbers: u64,
}

impl Keeper {
    /// For the shared streams that have snapshots, as they are known.
    pub fn new(models: &[Model], mut random: Random) -> Keeper {
        let streams = models.iter().filter(|model| model.has_keeper()).map(|model| Stream {
            path: model.path.clone(),
            boundaries: model.boundaries.clone(),
            done: model.kept.clone(),
            sent: model.kept.clone(),
        });
        let numbers = random.next() >> 32 << 20;
        Keeper { streams: streams.collect(), random, numbers }
    }

    /// Works until the server is gone.
    pub fn run(&mut self, address: SocketAddr) {
        let Ok(socket) = TcpStream::connect(address) else { return };
        let mut connection = Connection::new(socket, false);
        loop {
            let at = self.random.below(self.streams.len() as u64) as usize;
            let request = self.next(at);
            if connection.try_write(&request.bytes()).is_err() {
                return;
            }
            let Ok(Some(answer)) = connection.read_response_or_cut("PUT") else { return };
            assert!(answer.status / 100 == 2, "{}: {answer:?}", request.target);
            let stream = &mut self.streams[at];
            stream.done = stream.sent.clone();
        }
    }

    fn next(&mut self, at: usize) -> Request<'static> {
        self.numbers += 1;
        let (stream, number) = (&mut self.streams[at], self.numbers);
        let path = &stream.path;
        let snapshot_at = stream.done.snapshot.as_ref().map_or(0, |(at, _)| *at);
        let later: Vec<u64> =
            stream.boundaries.iter().copied().filter(|at| *at > snapshot_at.max(stream.done.first)).collect();
        let before = |at: &u64| *at > stream.done.first && *at <= snapshot_at;
        let trimmable: Vec<u64> = stream.boundaries.iter().copied().filter(before).collect();
        match self.random.below(3) {
            0 if !later.is_empty() => {
                // Not the last ones: others may follow.
                let at = later[self.random.below(later.len().div_ceil(2) as u64) as usize];
                let length = [0, 50, 5_000, 200_000][self.random.below(4) as usize];
                let body = format!("{number}:{}", self.random.letters(length)).into_bytes();
                stream.sent.snapshot = Some((at, body.clone()));
                Request::new("PUT", format!("{path}/snapshot/{at}")).header("Content-Type", OCTETS).body(body)
            }
            1 if !trimmable.is_empty() => {
                let at = trimmable[self.random.below(trimmable.len() as u64) as usize];
                stream.sent.first = at;
                Request::new("PUT", format!("{path}/retention/{at}"))
            }
            _ => {
                stream.sent.attributes = number;
                let attributes = format!("{{\"title\":\"{number}\"}}");
                Request::new("PUT", format!("{path}/attrs")).header("Content-Type", JSON).body(attributes)
            }
        }
    }

    /// What each stream was, and what it is if the request under way was carried out, for the models.
    pub fn remember(self, models: &mut [Model]) {
        for stream in self.streams {
            let model = models.iter_mut().find(|model| model.path == stream.path).expect("it has a model");
            (model.kept, model.kept_if_done) = (stream.done, stream.sent);
        }
    }
}

/// Finds out what became of the request that was under way; whatever it is now it has to stay.
pub fn settle(server: &Server, model: &mut Model) {
    let found = [&model.kept, &model.kept_if_done].into_iter().find(|kept| kept.is_true(server, &model.path));
    let found = found.unwrap_or_else(|| {
        let at = first(server, &model.path);
        let lengths = [&model.kept, &model.kept_if_done].map(|kept| {
            let snapshot = kept.snapshot.as_ref().map(|(at, body)| (*at, body.len()));
            (snapshot, kept.first, kept.attributes)
        });
        panic!("{}: begins at {at}; neither as acknowledged nor as sent: {lengths:?}", model.path)
    });
    model.kept = found.clone();
    model.kept_if_done = model.kept.clone();
}
