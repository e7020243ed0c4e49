//! Random operations: mostly such as succeed, and all the ways in which they do not.

use std::rc::Rc;

use super::Random;
use super::content::content;
use super::operation::{Act, Append, Boundary, Create, From, Offset, Operation, Publish, Read};
use super::oracle::{Kind, Stream, World};
use super::read::would_wait;

/// A lineage that no stream ever has.
const NEVER_ISSUED: u64 = 9_999_999_999_999_990;
/// Bytes of a stream from which on it is deleted more often.
const LARGE_BYTES: u64 = 600_000;
/// Attributes, some of them none.
const ATTRIBUTES: [&str; 7] = [
    "{}",
    r#"{"title":"one"}"#,
    r#" { "title" : "two", "other" : [1] }"#,
    r#"{"metadata":{"b":1,"a":[1.10,{"x":null}]}}"#,
    r#"{"title":"three","metadata":{}}"#,
    r#"{"title":3}"#,
    r#"{"title":"x""#,
];

/// Picks one of a list.
pub fn pick<T: Clone>(random: &mut Random, list: &[T]) -> T {
    list[random.below(list.len() as u64) as usize].clone()
}

/// A random operation. `small`: only such as share a commit with others, and create and delete nothing.
pub fn choose(random: &mut Random, world: &World, small: bool) -> Operation {
    let name = random.below(world.paths.len() as u64) as usize;
    let Some(stream) = world.streams.get(&name) else {
        let act = match random.below(10) {
            0..8 if !small => Act::Create(create(random, world, name)),
            0..9 => Act::Read(read(random, world, name, None)),
            _ => Act::Head,
        };
        return Operation { name, act };
    };
    let mut act = match random.below(100) {
        0..40 => Act::Append(append(random, stream, small)),
        40..48 => batch(random, stream, small),
        48..72 => Act::Read(read(random, world, name, Some(stream))),
        72..79 if !small => Act::Publish(publish(random, world, stream)),
        79..86 if !small => Act::Retain(retain(random, world, stream)),
        72..90 => Act::SetAttributes(pick(random, &ATTRIBUTES).to_owned()),
        90..96 => look(random, world, stream),
        96..98 if !small => Act::Create(create(random, world, name)),
        98 if !small => Act::Delete,
        _ if !small && (stream.tail() > LARGE_BYTES || stream.closed) => Act::Delete,
        _ => Act::Head,
    };
    let needs_suffix =
        !matches!(act, Act::Append(_) | Act::Read(_) | Act::Create(_) | Act::Delete | Act::Head);
    if needs_suffix && !world.has_suffixes(name) {
        act = Act::Append(append(random, stream, small));
    }
    Operation { name, act }
}

/// Something that only looks.
fn look(random: &mut Random, world: &World, stream: &Stream) -> Act {
    let visible = stream.snapshot.as_ref().map_or(0, |snapshot| stream.offset_of(snapshot.record));
    let at = match random.below(6) {
        0..4 => offset(random, stream, visible),
        4 => offset(random, stream, visible + 1),
        _ => foreign(random, world),
    };
    match random.below(6) {
        0 => Act::Attributes,
        1 => Act::Head,
        2 => Act::Bootstrap,
        3 => Act::Latest,
        4 => Act::ReadSnapshot(at),
        _ => Act::DeleteSnapshot(at),
    }
}

fn create(random: &mut Random, world: &World, name: usize) -> Create {
    let stream = world.streams.get(&name);
    // Streams of even names have records.
    let usual = if name.is_multiple_of(2) { Kind::Json } else { Kind::Text };
    let kind = if random.one_in(12) { pick(random, &[Kind::Json, Kind::Text]) } else { usual };
    // What is there is often asked for as it is.
    let as_it_is = stream.filter(|_| random.one_in(2));
    Create {
        kind: as_it_is.map_or(kind, |stream| stream.kind),
        closed: as_it_is.map_or(random.one_in(20), |stream| stream.closed),
        attributes: match as_it_is {
            Some(stream) => Some(stream.attributes.to_string()),
            None => random.one_in(3).then(|| pick(random, &ATTRIBUTES).to_owned()),
        },
        content: random.one_in(2).then(|| content(random, kind, false)),
    }
}

fn append(random: &mut Random, stream: &Stream, small: bool) -> Append {
    let mismatched = random.one_in(50);
    let kind = match (mismatched, stream.kind) {
        (false, kind) => kind,
        (true, Kind::Json) => Kind::Text,
        (true, Kind::Text) => Kind::Json,
    };
    let close = random.one_in(if small { 400 } else { 120 });
    let has_content = !close || random.one_in(2);
    let next = stream.next();
    let last_seq: u64 = stream.stream_seq.as_deref().map_or(0, |seq| seq.parse().expect("we made it"));
    Append {
        kind,
        content: has_content.then(|| content(random, kind, small)),
        producer: random.one_in(2).then(|| producer(random, stream)),
        stream_seq: random.one_in(6).then(|| {
            let seq = if random.one_in(5) { last_seq / 2 } else { last_seq + 1 + random.below(3) };
            format!("{seq:08}")
        }),
        record_match: random.one_in(if stream.is_json() { 8 } else { 40 }).then(|| match random.below(4) {
            0 => next + 1,
            1 => next.saturating_sub(1),
            _ => next,
        }),
        close,
    }
}

fn producer(random: &mut Random, stream: &Stream) -> (String, u64, u64) {
    let id = pick(random, &["p0", "p1", "p2"]).to_owned();
    let (epoch, seq) = match stream.producers.get(&id) {
        None => (random.below(3), random.below(8) / 7),
        Some(known) => {
            let (epoch, next) = (known.epoch, known.appends.len() as u64);
            match random.below(40) {
                0..24 => (epoch, next),
                24..34 => (epoch, random.below(next)),
                34 => (epoch, next + 1 + random.below(3)),
                35 | 36 => (epoch + 1 + random.below(2), 0),
                37 => (epoch + 1, 1 + random.below(2)),
                _ => (epoch.saturating_sub(1), random.below(next + 1)),
            }
        }
    };
    (id, epoch, seq)
}

fn batch(random: &mut Random, stream: &Stream, small: bool) -> Act {
    let count = if random.one_in(8) && !small { 1 + random.below(60) } else { 1 + random.below(5) };
    let kind = if random.one_in(30) { Kind::Text } else { stream.kind };
    let frames = (0..count).map(|_| content(random, stream.kind, small)).collect();
    Act::Batch { kind, frames }
}

/// An offset of the stream in one of its forms.
fn offset(random: &mut Random, stream: &Stream, at: u64) -> Offset {
    match stream.lineage {
        Some(lineage) if !random.one_in(3) => Offset::Token(lineage, at),
        _ => Offset::Plain(at),
    }
}

/// An offset of another stream, or of an earlier life of this one, or of none.
fn foreign(random: &mut Random, world: &World) -> Offset {
    let count = world.lineages.len() as u64;
    let lineage = (count > 0).then(|| world.lineages.iter().nth(random.below(count) as usize).copied());
    let lineage = lineage.flatten().filter(|_| !random.one_in(5)).unwrap_or(NEVER_ISSUED);
    Offset::Token(lineage, if random.one_in(3) { 0 } else { random.below(200) })
}

/// An ordinal from `from` to `to`, both included.
fn between(random: &mut Random, from: u64, to: u64) -> u64 {
    from + random.below(to.saturating_sub(from) + 1)
}

/// A place at an ordinal, named by record or by offset.
fn boundary(random: &mut Random, stream: &Stream, ordinal: u64) -> Boundary {
    let by_record = if stream.is_json() { random.one_in(2) } else { random.one_in(30) };
    match ordinal {
        _ if by_record => Boundary::Record(ordinal),
        ordinal if ordinal > stream.next() => Boundary::Offset(offset(random, stream, stream.tail() + 7)),
        ordinal => Boundary::Offset(offset(random, stream, stream.offset_of(ordinal))),
    }
}

/// A place that no boundary has, mostly.
fn off_boundary(random: &mut Random, world: &World, stream: &Stream) -> Boundary {
    let ordinal = between(random, stream.first, stream.next());
    Boundary::Offset(match random.below(8) {
        0 => Offset::Start,
        1 => Offset::Now,
        2 | 3 => foreign(random, world),
        _ => offset(random, stream, stream.offset_of(ordinal) + 1),
    })
}

fn publish(random: &mut Random, world: &World, stream: &Stream) -> Publish {
    let (first, next) = (stream.first, stream.next());
    let visible = stream.snapshot.as_ref();
    let from = visible.map_or(first, |visible| visible.record);
    let ordinal = match random.below(20) {
        0..12 => between(random, from, next),
        12 | 13 => from,
        14 | 15 => between(random, 0, from),
        16 => between(random, 0, first),
        17 => next + 1,
        _ => next,
    };
    let at = match random.one_in(8) {
        true => off_boundary(random, world, stream),
        false => boundary(random, stream, ordinal),
    };
    let same = visible.filter(|visible| visible.record == ordinal && random.one_in(2));
    let digest = visible.map(super::oracle::Snapshot::digest);
    let body_bytes = match random.below(20) {
        0 | 1 => 0,
        2 => 70_000 + random.below(150_000) as usize,
        _ => random.below(600) as usize,
    };
    Publish {
        at,
        content_type: match same {
            Some(same) => same.content_type.clone(),
            None => pick(random, &["application/json", "application/octet-stream", "text/x-fold"]).to_owned(),
        },
        body: match same {
            Some(same) => same.body.clone(),
            None => Rc::from(random.letters(body_bytes).into_bytes()),
        },
        expected: random
            .one_in(5)
            .then(|| digest.filter(|_| !random.one_in(4)).unwrap_or_else(|| "0123456789abcdef".repeat(4))),
    }
}

fn retain(random: &mut Random, world: &World, stream: &Stream) -> Boundary {
    let (first, next) = (stream.first, stream.next());
    let visible = stream.snapshot.as_ref().map_or(first, |visible| visible.record);
    let ordinal = match random.below(20) {
        0..10 => between(random, first, visible),
        10..14 => visible,
        14 => first,
        15 => between(random, 0, first),
        16 => between(random, visible, next),
        17 => next + 1,
        _ => return off_boundary(random, world, stream),
    };
    boundary(random, stream, ordinal)
}

/// A read, mostly one that succeeds.
pub fn read(random: &mut Random, world: &World, name: usize, stream: Option<&Stream>) -> Read {
    let Some(stream) = stream else {
        return Read::at(match random.below(3) {
            0 => From::Nowhere,
            1 => From::Offset(foreign(random, world)),
            _ => From::Record(0),
        });
    };
    let (first, next) = (stream.first, stream.next());
    let by_record = if stream.is_json() { random.one_in(2) } else { random.one_in(30) };
    let from = match random.below(20) {
        0..12 if by_record => From::Record(between(random, first, next)),
        12..15 if by_record => From::Tail(random.below(next - first + 3)),
        15 if by_record => From::RecordNow,
        16 | 17 if by_record => From::Record(between(random, 0, first)),
        _ if by_record => From::Record(next + random.below(3)),
        0..12 => {
            let ordinal = between(random, first, next);
            From::Offset(offset(random, stream, stream.offset_of(ordinal)))
        }
        12 => From::Nowhere,
        13 => From::Offset(pick(random, &[Offset::Start, Offset::Now])),
        14 | 15 => {
            let ordinal = between(random, 0, first);
            From::Offset(offset(random, stream, stream.offset_of(ordinal)))
        }
        16 => {
            let ordinal = between(random, first, next);
            From::Offset(offset(random, stream, stream.offset_of(ordinal) + 1))
        }
        17 => {
            let beyond = stream.tail() + 1 + random.below(9);
            From::Offset(offset(random, stream, beyond))
        }
        _ => From::Offset(foreign(random, world)),
    };
    let mut read = Read::at(from);
    read.max_bytes = random.one_in(if by_record { 40 } else { 3 }).then(|| 1 + random.below(5000));
    read.max_records = random.one_in(if by_record { 2 } else { 40 }).then(|| 1 + random.below(20));
    read.envelope = random.one_in(if by_record { 3 } else { 40 });
    read.lines = random.one_in(4);
    read.live = random.one_in(5);
    // A read that nobody answers yet is another matter.
    read.live &= !would_wait(world, name, &read);
    read
}
