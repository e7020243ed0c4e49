//! Does operations on a server and in the oracle, and compares all that there is to see.
//!
//! The invariants of extension 6.13, and where they are checked:
//! 1. every record has one ordinal: appends (`predict`), and `verify` (every record is met once, at its ordinal);
//! 2. ordinals are contiguous and never reused: the oracle never forgets one; `verify` walks them without a gap;
//! 3. an atomic append has one range or none: `predict` (appends, errors), and what a crash leaves (`outcomes`);
//! 4. a deduplicated append returns its original range: `repeat_producers`, for every sequence of the present epoch;
//! 5. O(r) is where r starts: `show_record`, by record and by offset; every `Stream-Next-Offset` with a record beside it;
//! 6. offset and record reads show the same: `walk`, in all four views, against the same list;
//! 7. no partial records: `Page::check`;
//! 8. nothing changes a surviving ordinal: `verify` after every restart, crash, rewrite, snapshot and retention;
//! 9. N - F is the number of retained messages: `HEAD` against the list, and `walk`;
//! 10. base clients see no change: plain reads and appends tell what they always told (`Page::check`, entity tags included).

use std::collections::VecDeque;
use std::time::Instant;

use super::Random;
use super::check::check;
use super::choose::{choose, pick, read};
use super::content::alike;
use super::exchange::{Answer, Request, Server};
use super::operation::{Act, Append, Content, From, Offset, Operation, Read};
use super::oracle::{Stream, World};

/// Operations that are shown when a run fails.
const SHOWN: usize = 25;
/// Sequences of a producer that are repeated by a look at everything.
const REPEATED: usize = 30;

/// What was done last; told when the test fails.
pub struct Journal {
    seed: u64,
    step: u64,
    lines: VecDeque<(Instant, String)>,
}

impl Journal {
    /// The journal of a run.
    pub fn new(seed: u64) -> Journal {
        Journal { seed, step: 0, lines: VecDeque::new() }
    }

    /// Begins a step.
    pub fn step(&mut self, step: u64) {
        self.step = step;
    }

    /// Takes down what is about to be done.
    pub fn note(&mut self, line: String) {
        if self.lines.len() == SHOWN {
            self.lines.pop_front();
        }
        self.lines.push_back((Instant::now(), format!("step {}: {line:.600}", self.step)));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("THALWEG_SEED={} failed at step {}; what was done last:", self.seed, self.step);
            for (noted, line) in &self.lines {
                eprintln!("  {:.3?} ago: {line}", noted.elapsed());
            }
        }
    }
}

/// Does an operation; returns where its page ends, if it is one.
pub async fn perform<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    operation: &Operation,
) -> Option<u64> {
    journal.note(format!("{operation:?}"));
    let answer = server.send(&operation.request(world)).await;
    judge(world, operation, &answer)
}

/// Compares the answer to an operation with the oracle's, which does the operation now.
pub fn judge(world: &mut World, operation: &Operation, answer: &Answer) -> Option<u64> {
    let expected = world.apply(operation, Some(answer));
    check(world, operation, &expected, answer)
}

/// Does a random operation, and looks at its stream.
pub async fn step<S: Server>(server: &S, world: &mut World, journal: &mut Journal, random: &mut Random) {
    let operation = choose(random, world, false);
    perform(server, world, journal, &operation).await;
    glance(server, world, journal, random, operation.name).await;
}

/// Appends of one producer that follow each other and are alike, as most are in practice; then one of them once more.
pub async fn series<S: Server>(server: &S, world: &mut World, journal: &mut Journal, random: &mut Random) {
    let name = random.below(world.paths.len() as u64) as usize;
    let Some(stream) = world.streams.get(&name).filter(|stream| !stream.closed) else { return };
    let kind = stream.kind;
    let id = pick(random, &["p0", "p1", "p2"]).to_owned();
    let known = stream.producers.get(&id);
    let (epoch, from) = known.map_or((0, 0), |known| (known.epoch, known.appends.len() as u64));
    let records = 1 + random.below(8);
    let count = 2 + random.below(6);
    let claims = (from..from + count).chain([from + random.below(count)]);
    for seq in claims {
        let content = alike(random, kind, records);
        let producer = Some((id.clone(), epoch, seq));
        let act = Act::Append(Append { producer, ..Append::of(kind, content) });
        perform(server, world, journal, &Operation { name, act }).await;
    }
    glance(server, world, journal, random, name).await;
}

/// A short look at a stream.
pub async fn glance<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    random: &mut Random,
    name: usize,
) {
    perform(server, world, journal, &Operation { name, act: Act::Head }).await;
    if let Some(stream) = world.streams.get(&name)
        && stream.first < stream.next()
    {
        let ordinal = stream.first + random.below(stream.next() - stream.first);
        show_record(server, world, journal, name, ordinal).await;
    }
}

/// Shows one message by its offset, and by its ordinal if it has one.
async fn show_record<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    name: usize,
    ordinal: u64,
) {
    let stream = &world.streams[&name];
    let (at, end) = (stream.offset_of(ordinal), stream.offset_of(ordinal + 1));
    let is_json = stream.is_json();
    let by_offset = Read { max_bytes: Some(end - at), ..Read::at(From::Offset(Offset::Plain(at))) };
    let act = Act::Read(by_offset);
    let to = perform(server, world, journal, &Operation { name, act }).await;
    assert!(!is_json || to == Some(end), "record {ordinal} lies from {at} to {end}, not to {to:?}");
    if is_json {
        let by_record = Read { max_records: Some(1), ..Read::at(From::Record(ordinal)) };
        let to = perform(server, world, journal, &Operation { name, act: Act::Read(by_record) }).await;
        assert_eq!(to, Some(end), "record {ordinal} starts at {at}");
    }
}

/// Looks at everything that there is to see of every stream.
pub async fn verify_all<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    random: &mut Random,
) {
    for name in 0..world.paths.len() {
        verify(server, world, journal, random, name).await;
    }
    verify_bucket(server, world).await;
}

/// Looks at everything that there is to see of a stream.
pub async fn verify<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    random: &mut Random,
    name: usize,
) {
    perform(server, world, journal, &Operation { name, act: Act::Head }).await;
    if world.has_suffixes(name) {
        let snapshot = world
            .streams
            .get(&name)
            .and_then(|stream| stream.snapshot.as_ref().map(|snapshot| stream.offset_of(snapshot.record)));
        let mut looks = vec![Act::Attributes, Act::Latest, Act::Bootstrap];
        looks.extend(snapshot.map(|at| Act::ReadSnapshot(Offset::Plain(at))));
        for act in looks {
            perform(server, world, journal, &Operation { name, act }).await;
        }
    }
    let Some(stream) = world.streams.get(&name).cloned() else { return };
    for view in 0..if stream.is_json() { 4 } else { 1 } {
        walk(server, world, journal, random, name, view).await;
    }
    trimmed(server, world, journal, name).await;
    for _ in 0..2 {
        let random_read = read(random, world, name, Some(&stream));
        perform(server, world, journal, &Operation { name, act: Act::Read(random_read) }).await;
    }
    for _ in 0..3 {
        glance(server, world, journal, random, name).await;
    }
    repeat_producers(server, world, journal, random, name).await;
}

/// Reads a stream page by page from its first message to its tail: plain, as lines, by record, or as envelopes.
async fn walk<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    random: &mut Random,
    name: usize,
    view: u64,
) {
    let (mut at, tail) = {
        let stream = &world.streams[&name];
        (stream.first_offset(), stream.tail())
    };
    // Small pages take many requests: now and then is enough.
    let small = random.one_in(4) && tail - at < 40_000;
    loop {
        let stream = &world.streams[&name];
        let by_record = view >= 2;
        let from = match by_record {
            true => From::Record(stream.ordinal_at(at).expect("a page of records ends at one")),
            false => From::Offset(Offset::Token(stream.lineage.expect("it is known"), at)),
        };
        let limit = small.then(|| 1 + random.below(if by_record { 12 } else { 3000 }));
        let act = Act::Read(Read {
            max_bytes: limit.filter(|_| !by_record),
            max_records: limit.filter(|_| by_record),
            lines: view == 1,
            envelope: view == 3,
            ..Read::at(from)
        });
        let to = perform(server, world, journal, &Operation { name, act }).await.expect("a page");
        if to == tail {
            return;
        }
        assert!(to > at, "a page leads on");
        at = to;
    }
}

/// Asks for what retention has taken.
async fn trimmed<S: Server>(server: &S, world: &mut World, journal: &mut Journal, name: usize) {
    let stream = &world.streams[&name];
    if stream.first == 0 {
        return;
    }
    let mut reads = vec![From::Nowhere, From::Offset(Offset::Plain(stream.first_offset() - 1))];
    if stream.is_json() {
        reads.extend([From::Record(0), From::Record(stream.first - 1)]);
    }
    for from in reads {
        let act = Act::Read(Read::at(from));
        perform(server, world, journal, &Operation { name, act }).await;
    }
}

/// Sends again what producers have sent: all of it, or of very much a part.
async fn repeat_producers<S: Server>(
    server: &S,
    world: &mut World,
    journal: &mut Journal,
    random: &mut Random,
    name: usize,
) {
    let stream = &world.streams[&name];
    let kind = stream.kind;
    let mut claims = Vec::new();
    for (id, producer) in &stream.producers {
        let count = producer.appends.len();
        let every = 1 + count / REPEATED;
        let from = random.below(every as u64) as usize;
        claims.extend((from..count).step_by(every).map(|seq| (id.clone(), producer.epoch, seq as u64)));
    }
    for claim in claims {
        let content = Content { sent: b"0".as_slice().into(), messages: Ok(vec![b"0".as_slice().into()]) };
        let act = Act::Append(Append { producer: Some(claim), ..Append::of(kind, content) });
        perform(server, world, journal, &Operation { name, act }).await;
    }
}

/// Compares the bucket and its listing with the streams in it.
async fn verify_bucket<S: Server>(server: &S, world: &World) {
    let get = |target: &str| Request {
        method: "GET",
        target: target.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let bucketed = world.streams.iter().filter(|(name, _)| world.has_suffixes(**name));
    let mut expected: Vec<(String, &Stream)> = bucketed
        .map(|(name, stream)| (world.paths[*name].trim_start_matches("/test/").to_owned(), stream))
        .collect();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    let parse = |answer: &Answer| -> serde_json::Value {
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"))
    };
    let bucket = parse(&server.send(&get("/test")).await);
    assert_eq!(bucket["streams"], expected.len(), "{bucket}");
    let listing = parse(&server.send(&get("/test/streams")).await);
    let listed: Vec<_> =
        listing["streams"].as_array().unwrap_or_else(|| panic!("{listing}")).iter().collect();
    assert_eq!(listed.len(), expected.len(), "{listing}");
    for (listed, (id, stream)) in listed.into_iter().zip(expected) {
        assert_eq!(listed["stream_id"], id);
        assert_eq!(listed["tail_offset"], stream.tail(), "{listed}");
        assert_eq!(listed["status"], if stream.closed { "Closed" } else { "Open" }, "{listed}");
        assert_eq!(listed["content_type"], stream.kind.content_type(), "{listed}");
    }
}

/// What an operation may have come to whose answer nobody saw: nothing, or all of it, or the first frames of a batch.
pub fn outcomes(world: &World, operation: &Operation) -> Vec<World> {
    let mut outcomes = vec![world.clone()];
    let mut add = |operation: &Operation| {
        let mut after = world.clone();
        after.apply(operation, None);
        outcomes.push(after);
    };
    match &operation.act {
        Act::Batch { kind, frames } => {
            for count in 1..=frames.len() {
                let act = Act::Batch { kind: *kind, frames: frames[..count].to_vec() };
                add(&Operation { name: operation.name, act });
            }
        }
        _ => add(operation),
    }
    outcomes
}

/// Which of the outcomes came true, by what can be seen of the stream.
pub async fn resolve<S: Server>(
    server: &S,
    outcomes: Vec<World>,
    journal: &mut Journal,
    operation: &Operation,
) -> World {
    let name = operation.name;
    let look = |act| Operation { name, act };
    // Where a byte stream begins is told by a read alone.
    let mut acts = vec![Act::Head, Act::Read(Read::at(From::Nowhere))];
    if outcomes[0].has_suffixes(name) {
        acts.push(Act::Attributes);
    }
    let mut seen = Vec::new();
    for act in acts {
        let operation = look(act);
        let answer = server.send(&operation.request(&outcomes[0])).await;
        seen.push((operation, answer));
    }
    journal.note(format!("after {operation:?}, whose answer nobody saw: {seen:?}"));
    for mut world in outcomes {
        if let Some(stream) = world.streams.get_mut(&name)
            && stream.lineage.is_none()
            && seen[0].1.status == 200
        {
            let (lineage, _) = seen[0].1.next_offset();
            assert!(world.lineages.insert(lineage), "lineage {lineage} comes a second time (decision 8)");
            stream.lineage = Some(lineage);
        }
        let agrees = |(operation, answer): &(Operation, Answer)| {
            let mut world = world.clone();
            let expected = world.apply(operation, None);
            agrees(&expected, answer)
        };
        if seen.iter().all(agrees) {
            return world;
        }
    }
    panic!("neither what was before nor what was asked for: {seen:?}");
}

/// Whether an answer is as expected, as far as status, headers and JSON say.
fn agrees(expected: &super::predict::Expected, answer: &Answer) -> bool {
    let headers = || expected.headers.iter().all(|(name, value)| answer.header(name) == value.as_deref());
    let body = || match &expected.body {
        super::predict::Body::Json(value) => {
            serde_json::from_slice(&answer.body).is_ok_and(|found: serde_json::Value| found == *value)
        }
        _ => true,
    };
    answer.status == expected.status && headers() && body()
}
