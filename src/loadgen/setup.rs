//! Before the load: the bucket and the streams are made, and what answers is found to be a Durable Streams server.

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

/// Connections that make streams, and requests in flight on each.
const MAKERS: usize = 32;
const DEPTH: usize = 8;

/// The shard of each stream, if the server tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shards {
    /// Shards of the server; 0 if it does not tell.
    pub count: usize,
    /// The shard of each stream.
    pub of_stream: Vec<usize>,
}

/// Makes all streams of a run.
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
    make(target, names, media_type, bucket.into_iter().map(Thing::Bucket).collect(), &shards, 1)?;
    make(target, names, media_type, [Thing::Stream(0)].into(), &shards, 1)?;
    make(
        target,
        names,
        media_type,
        (1..count).map(Thing::Stream).collect(),
        &shards,
        MAKERS.min(count as usize),
    )?;
    Ok(shards.take())
}

fn make(
    target: &Target,
    names: &Names,
    media_type: &str,
    things: VecDeque<Thing>,
    shards: &Rc<RefCell<Shards>>,
    makers: usize,
) -> Result<(), String> {
    if things.is_empty() {
        return Ok(());
    }
    let queue = Rc::new(RefCell::new(things));
    let member = |_| Member {
        address: target.address,
        lane: 0,
        depth: DEPTH,
        role: Box::new(Maker {
            target: target.clone(),
            names: names.clone(),
            media_type: media_type.to_owned(),
            queue: queue.clone(),
            under_way: VecDeque::new(),
            shards: shards.clone(),
            problem: None,
        }),
    };
    let engine = Engine::connect(Clock::start(), (0..makers).map(member).collect(), 1)?;
    engine.run(Window::ALWAYS, vec![None], Measure::new(0, Window::ALWAYS, None)).map(drop)
}

/// What is to be made.
#[derive(Clone, Debug)]
enum Thing {
    Bucket(String),
    Stream(u32),
}

/// Makes what is in a queue.
struct Maker {
    target: Target,
    names: Names,
    media_type: String,
    queue: Rc<RefCell<VecDeque<Thing>>>,
    under_way: VecDeque<Thing>,
    shards: Rc<RefCell<Shards>>,
    problem: Option<String>,
}

impl Maker {
    fn path(&self) -> String {
        match self.under_way.front() {
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

impl Role for Maker {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        let Some(thing) = self.queue.borrow_mut().pop_front() else { return false };
        let host = self.target.host();
        let head = match &thing {
            Thing::Bucket(path) => format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\n"),
            Thing::Stream(stream) => {
                let (path, media_type) = (self.names.path(*stream), &self.media_type);
                format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {media_type}\r\n")
            }
        };
        exchange.push(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        self.under_way.push_back(thing);
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
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
        *context.fatal = Some(format!(
            "{url} answered {error} to PUT {path}: is it a Durable Streams server, and is --style {style} right for it \
             (thalweg, durable, ursula)?"
        ));
    }

    fn lost(&mut self, why: &str, context: &mut Context<'_>) {
        if !self.under_way.is_empty() {
            *context.fatal = Some(format!("{}: PUT {} failed: {why}", self.target.url(), self.path()));
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
