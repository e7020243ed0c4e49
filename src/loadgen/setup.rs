//! Before the load: the bucket and the streams are made, and what answers is found to be a Durable Streams server. After it they
//! are deleted, if that is wanted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::clock::Clock;
use super::engine::{Engine, Member};
use super::exchange::Exchange;
use super::measure::{Measure, Window};
use super::response::Head;
use super::role::{Context, Role};
use super::target::{Names, Style, Target};

/// Connections that make or delete streams, and requests in flight on each.
const WORKERS: usize = 32;
const DEPTH: usize = 8;

/// The shard of each stream, if the server tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shards {
    /// Shards of the server; 0 if it does not tell.
    pub count: usize,
    /// The shard of each stream.
    pub of_stream: Vec<usize>,
}

/// Makes all streams of a run. The error says what the server made of the first one that it did not take.
pub fn make_streams(
    target: &Target,
    names: &Names,
    count: usize,
    media_type: &str,
) -> Result<Shards, String> {
    let count = u32::try_from(count).expect("names limit streams");
    let shards = Rc::new(RefCell::new(Shards { count: 0, of_stream: vec![0; count as usize] }));
    // The first alone: what is wrong with the server shows in one answer.
    let bucket = (target.style == Style::Thalweg).then(|| names.bucket().to_owned());
    let work = Work { target, names, method: "PUT", media_type: Some(media_type), shards: &shards };
    work.run(bucket.map(Thing::Bucket))?;
    work.run([Thing::Stream(0)])?;
    work.run((1..count).map(Thing::Stream))?;
    Ok(shards.take())
}

/// Deletes the streams of a run, and their bucket. What is gone already is no error.
pub fn delete_streams(target: &Target, names: &Names, count: usize) -> Result<(), String> {
    let count = u32::try_from(count).expect("names limit streams");
    let work = Work { target, names, method: "DELETE", media_type: None, shards: &Rc::default() };
    work.run((0..count).map(Thing::Stream))?;
    let bucket = (target.style == Style::Thalweg).then(|| names.bucket().to_owned());
    work.run(bucket.map(Thing::Bucket))
}

/// What is done to buckets and streams.
struct Work<'a> {
    target: &'a Target,
    names: &'a Names,
    method: &'static str,
    media_type: Option<&'a str>,
    shards: &'a Rc<RefCell<Shards>>,
}

impl Work<'_> {
    fn run(&self, things: impl IntoIterator<Item = Thing>) -> Result<(), String> {
        let things: VecDeque<Thing> = things.into_iter().collect();
        let workers = WORKERS.min(things.len());
        if workers == 0 {
            return Ok(());
        }
        let queue = Rc::new(RefCell::new(things));
        let member = |_| Member {
            address: self.target.address,
            lane: 0,
            depth: DEPTH,
            role: Box::new(Worker {
                target: self.target.clone(),
                names: self.names.clone(),
                method: self.method,
                media_type: self.media_type.map(str::to_owned),
                queue: queue.clone(),
                under_way: VecDeque::new(),
                shards: self.shards.clone(),
                problem: None,
            }),
        };
        let engine = Engine::connect(Clock::start(), (0..workers).map(member).collect(), 1)?;
        engine.run(Window::ALWAYS, vec![None], Measure::new(0, Window::ALWAYS, None)).map(drop)
    }
}

/// What is to be made, or deleted.
#[derive(Clone, Debug)]
enum Thing {
    Bucket(String),
    Stream(u32),
}

/// Makes, or deletes, what is in a queue.
struct Worker {
    target: Target,
    names: Names,
    method: &'static str,
    media_type: Option<String>,
    queue: Rc<RefCell<VecDeque<Thing>>>,
    under_way: VecDeque<Thing>,
    shards: Rc<RefCell<Shards>>,
    problem: Option<String>,
}

impl Worker {
    fn makes(&self) -> bool {
        self.media_type.is_some()
    }

    /// Of what was asked for first.
    fn path(&self) -> String {
        self.path_of(self.under_way.front())
    }

    fn path_of(&self, thing: Option<&Thing>) -> String {
        match thing {
            Some(Thing::Bucket(path)) => path.clone(),
            Some(Thing::Stream(stream)) => self.names.path(*stream),
            None => "nothing".to_owned(),
        }
    }

    fn note_shard(&self, head: &Head<'_>) {
        let Some((shard, count)) = head.shard.and_then(parse_shard) else { return };
        let mut shards = self.shards.borrow_mut();
        shards.count = count;
        if let Some(Thing::Stream(stream)) = self.under_way.front() {
            shards.of_stream[*stream as usize] = shard;
        }
    }
}

impl Role for Worker {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        let Some(thing) = self.queue.borrow_mut().pop_front() else { return false };
        let (method, host) = (self.method, self.target.host());
        let media_type = match (&thing, &self.media_type) {
            (Thing::Stream(_), Some(media_type)) => format!("Content-Type: {media_type}\r\n"),
            _ => String::new(),
        };
        self.under_way.push_back(thing);
        let path = self.path_of(self.under_way.back());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{media_type}");
        exchange.push(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        if !self.makes() {
            return matches!(head.status, 200 | 202 | 204 | 404 | 410);
        }
        if !matches!(head.status, 200 | 201 | 204) {
            return false;
        }
        if matches!(self.under_way.front(), Some(Thing::Stream(_))) && head.next_offset.is_none() {
            let (url, path) = (self.target.url(), self.path());
            self.problem = Some(format!(
                "{url} answered {} to PUT {path}, without Stream-Next-Offset: it is no Durable Streams server",
                head.status
            ));
        }
        self.note_shard(head);
        true
    }

    fn end(&mut self, context: &mut Context<'_>) {
        self.under_way.pop_front();
        *context.fatal = context.fatal.take().or(self.problem.take());
    }

    fn refused(&mut self, error: &str, context: &mut Context<'_>) {
        let (url, path, style) = (self.target.url(), self.path(), self.target.style.name());
        if !self.makes() {
            *context.fatal = Some(format!("{url} answered {error} to DELETE {path}: what is left stays"));
            return;
        }
        *context.fatal = Some(format!(
            "{url} answered {error} to PUT {path}: is it a Durable Streams server, and is --style {style} right for it \
             (thalweg, durable, ursula)?"
        ));
    }

    fn lost(&mut self, why: &str, context: &mut Context<'_>) {
        if !self.under_way.is_empty() {
            let (url, method, path) = (self.target.url(), self.method, self.path());
            *context.fatal = Some(format!("{url}: {method} {path} failed: {why}"));
        }
    }
}

/// `n/m` of `Stream-Shard`, n below m.
fn parse_shard(value: &[u8]) -> Option<(usize, usize)> {
    let (shard, count) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let (shard, count) = (shard.parse().ok()?, count.parse().ok()?);
    (shard < count).then_some((shard, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read() {
        assert_eq!(parse_shard(b"3/8"), Some((3, 8)));
        for wrong in ["", "3", "8/8", "a/8", "3/", "-1/8"] {
            assert_eq!(parse_shard(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
