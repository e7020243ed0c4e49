//! Opens a log: finds its segments, replays them, finds the end, refuses what is damaged.
//!
//! The recovery table of `storage-format.md` in code. Per segment, in list order: a segment that another one follows is
//! complete: replayed from its footer, or scanned where it has no valid one; it must reach up to the first commit of the
//! next. The last one, unless it is sealed, is scanned up to the first commit that is not valid; if any commit of this or a later sequence
//! number follows anywhere behind that, it is damage, else the end of the log. An I/O error is an error, never an end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use crate::limits::{BLOCK_BYTES, READ_BYTES_MAX};
use crate::signal::{News, Signal};
use crate::storage::appender::{Active, Appender, Resume};
use crate::storage::buffer::Pool;
use crate::storage::cache::Cache;
use crate::storage::codec::{DecodeError, DecodeScratch, Entry, own_time_ms};
use crate::storage::device::{File, Mode, Store, read_exact};
use crate::storage::event::{Event, EventContext};
use crate::storage::file_name;
use crate::storage::footer::{FooterBuilder, FooterProblem, read_footer};
use crate::storage::format::{
    BadStructure, FIRST_COMMIT_POSITION, SEGMENT_HEADER_BYTES, SegmentHeader, Trailer, is_zero,
};
use crate::storage::log::{Inner, LogOptions};
use crate::storage::recovered::{OpenError, Recovered, TornTail};
use crate::storage::roll::{self, ReadySegment, Roller, SealJob};
use crate::storage::scan::{StopReason, find_commit, parse_commit};
use crate::storage::segment_list::{Listed, SegmentList, first_lsns_behind};
use crate::storage::segment_table::{Segment, SegmentTable};
use crate::storage::waiters::TicketWaiters;

mod retire;

pub(super) use retire::retire;

/// Bytes of zeros at the start of a new log's first segment, which nobody could make ahead.
const FIRST_ZEROS_BYTES: u64 = 64 * 1024 * 1024;

type Visit<'a> = dyn FnMut(&Event<'_>, EventContext) + 'a;

/// See `Log::open`.
pub(super) async fn open(
    store: Rc<dyn Store>,
    options: LogOptions,
    visit: &mut Visit<'_>,
) -> Result<(Inner, Recovered), OpenError> {
    let list = read_list(&*store).await?;
    remove_garbage(&*store, &list).await?;
    let mut recovery = Recovery::new(&*store, &options, list.lineage);
    let unused = recovery.open_segments(&list).await?;
    recovery.replay(visit).await?;
    let Recovery { table, recovered, last_time_ms, epoch, active, marked, seals, .. } = recovery;
    let (list, ready) = ready_segment(&*store, &options, list, unused, active.is_none()).await?;

    let pool = Pool::default();
    let resume = Resume {
        active,
        next_lsn: recovered.last_lsn + 1,
        last_time_ms,
        epoch: epoch + 1,
        highest_lineage: recovered.highest_lineage,
    };
    let mut appender = Appender::new(&options, pool.clone(), resume);
    if marked {
        appender.set_marked();
    }
    let mut tickets = TicketWaiters::default();
    tickets.start(recovered.last_lsn);
    let inner = Inner {
        store: Rc::clone(&store),
        cache: RefCell::new(Cache::new(options.cache_bytes, pool)),
        options,
        table: RefCell::new(table),
        appender: RefCell::new(appender),
        roller: Roller::new(list, ready, seals),
        durable: Cell::new(recovered.last_lsn),
        latch: RefCell::new(None),
        latched: Cell::new(false),
        stopping: Cell::new(false),
        publisher: RefCell::new(None),
        tickets: RefCell::new(tickets),
        room: News::default(),
        work: Signal::default(),
        idle: Signal::default(),
        running: Cell::new(0),
        ended: Signal::default(),
        stop: Signal::default(),
        discarded: RefCell::default(),
        to_settle: Signal::default(),
        end_of_pause: Signal::default(),
    };
    Ok((inner, recovered))
}

/// The list of the log; an empty one if the log has not begun.
async fn read_list(store: &dyn Store) -> Result<SegmentList, OpenError> {
    match SegmentList::read(store).await? {
        Some(list) => Ok(list),
        None => {
            refuse_orphans(store).await?;
            Ok(SegmentList::default())
        }
    }
}

/// Without a list there must be no commits: a segment gets its header only after it is listed.
async fn refuse_orphans(store: &dyn Store) -> Result<(), OpenError> {
    for name in list_files(store).await? {
        if !file_name::is_segment(&name) {
            continue;
        }
        let file = open_file(store, &name, Mode::Read).await?;
        let len =
            file.file_bytes().await.map_err(|source| io_error(store, &name, "reading its length", source))?;
        if len >= SEGMENT_HEADER_BYTES as u64 {
            let block = read_block(store, &*file, &name, 0).await?;
            if SegmentHeader::parse(&block).is_ok() {
                let what = "it holds data but there is no segment list that names it".to_string();
                return Err(damaged(store, &name, 0, what));
            }
        }
        file.close().await;
    }
    Ok(())
}

async fn remove_garbage(store: &dyn Store, list: &SegmentList) -> Result<(), OpenError> {
    for name in list_files(store).await? {
        if roll::is_garbage(&name, list) {
            store.remove(&name).await.map_err(|source| io_error(store, &name, "removing it", source))?;
        }
    }
    Ok(())
}

async fn list_files(store: &dyn Store) -> Result<Vec<String>, OpenError> {
    store.list().await.map_err(|source| io_error(store, "", "listing the directory", source))
}

/// The segment that the log goes on in when the active one is full: listed already, or made now if there is none at all.
async fn ready_segment(
    store: &dyn Store,
    options: &LogOptions,
    mut list: SegmentList,
    unused: Option<(Listed, u64)>,
    needed: bool,
) -> Result<(SegmentList, Option<ReadySegment>), OpenError> {
    if let Some((listed, bytes)) = unused {
        let file = open_file(store, &listed.name, options.write_mode()).await?;
        return Ok((list, Some(ReadySegment { listed, file, bytes })));
    }
    if !needed {
        return Ok((list, None));
    }
    let bytes = options.segment_bytes;
    let listed = Listed::own(roll::next_number(&list, options.log_id), options.log_id);
    let name = listed.name.clone();
    let problem = |source| io_error(store, &name, "making the first segment", source);
    let file = roll::create(store, &listed, bytes).await.map_err(problem)?;
    let mut position = 0;
    while position < bytes.min(FIRST_ZEROS_BYTES) {
        position = roll::zeros_at(&*file, position, bytes).await.map_err(problem)?;
    }
    let mode = options.write_mode();
    roll::make_durable(store, &*file).await.map_err(problem)?;
    file.close().await;
    list.segments.push(listed.clone());
    list.write(store).await.map_err(problem)?;
    let file = store.open(&listed.name, mode).await.map_err(problem)?;
    Ok((list, Some(ReadySegment { listed, file, bytes })))
}

struct Recovery<'a> {
    store: &'a dyn Store,
    options: &'a LogOptions,
    table: SegmentTable,
    recovered: Recovered,
    last_time_ms: u64,
    epoch: u64,
    active: Option<Active>,
    /// Whether the last commit is a mark, or there is none.
    marked: bool,
    seals: VecDeque<SealJob>,
}

/// Where the scan of a segment ended.
struct Scanned {
    position: u64,
    reason: StopReason,
    footer: FooterBuilder,
}

impl<'a> Recovery<'a> {
    fn new(store: &'a dyn Store, options: &'a LogOptions, highest_lineage: u64) -> Recovery<'a> {
        Recovery {
            store,
            options,
            table: SegmentTable::default(),
            recovered: Recovered { highest_lineage, ..Recovered::default() },
            last_time_ms: 0,
            epoch: 0,
            active: None,
            marked: true,
            seals: VecDeque::new(),
        }
    }

    /// Opens every listed segment that has begun. Returns this log's segment that has not: its last one at most.
    async fn open_segments(&mut self, list: &SegmentList) -> Result<Option<(Listed, u64)>, OpenError> {
        let mut unused = None;
        for (index, listed) in list.segments.iter().enumerate() {
            let name = &listed.name;
            let file = open_file(self.store, name, Mode::Read).await?;
            let len =
                file.file_bytes().await.map_err(|source| self.io(name, "reading its length", source))?;
            if len < 2 * BLOCK_BYTES as u64 || !len.is_multiple_of(BLOCK_BYTES as u64) {
                return Err(self.damaged(name, 0, format!("the file is {len} bytes long")));
            }
            let block = read_block(self.store, &*file, name, 0).await?;
            let header = match SegmentHeader::parse(&block) {
                Ok(header) => header,
                Err(BadStructure::NewerVersion(found)) => {
                    return Err(OpenError::Newer { path: self.store.path_of(name), found });
                }
                Err(problem) => {
                    // Commits follow only once the header is durable: a header that is missing, or torn with nothing behind
                    // it, is that of a segment that has not begun.
                    let mut later = list.segments[index + 1..].iter();
                    let last = !later.any(|later| later.log_id == listed.log_id);
                    let behind = read_block(self.store, &*file, name, BLOCK_BYTES as u64).await?;
                    if !last || !is_zero(&behind) {
                        return Err(self.damaged(name, 0, format!("segment header: {problem}")));
                    }
                    file.close().await;
                    if listed.log_id == self.options.log_id {
                        unused = Some((listed.clone(), len));
                    }
                    continue;
                }
            };
            self.check_header(listed, &header, len)?;
            self.epoch = self.epoch.max(header.epoch);
            self.table.push(Segment::new(listed.clone(), header, file));
        }
        Ok(unused)
    }

    fn check_header(&self, listed: &Listed, header: &SegmentHeader, len: u64) -> Result<(), OpenError> {
        let what = if header.segment_number != listed.number || header.log_id != listed.log_id {
            let (number, log_id) = (header.segment_number, header.log_id);
            format!(
                "it is segment {number} of log {log_id}, the list says {} of {}",
                listed.number, listed.log_id
            )
        } else if header.segment_bytes != len {
            format!("it is {len} bytes long, its header says {}", header.segment_bytes)
        } else {
            return Ok(());
        };
        Err(self.damaged(&listed.name, 0, what))
    }

    async fn replay(&mut self, visit: &mut Visit<'_>) -> Result<(), OpenError> {
        let mut scratch = DecodeScratch::default();
        let count = self.table.len() as u32;
        self.recovered.segments = count;
        for index in 0..count {
            let segment = Rc::clone(self.table.get(index));
            // Logs interleave: what follows a segment may stand further on.
            let is_followed = self.later(index).any(|later| later.listed.log_id == segment.listed.log_id);
            let own_last = !is_followed && segment.listed.log_id == self.options.log_id;
            let from_footer = self.replay_footer(index, &segment, &mut scratch, visit).await?;
            let (last_lsn, end) = if let Some(last_lsn) = from_footer {
                self.recovered.from_footers += 1;
                self.marked = false;
                (last_lsn, 0)
            } else if segment.header.settled.is_some() {
                // It was complete before it was listed.
                let what = "it was rewritten, and its footer or trailer is damaged".to_string();
                return Err(self.damaged(&segment.listed.name, segment.header.segment_bytes, what));
            } else {
                let scanned = self.scan(index, &segment, &mut scratch, visit).await?;
                let (last_lsn, end) = (scanned.footer.last_lsn(), scanned.position);
                self.end_of_scan(index, &segment, scanned, is_followed, own_last).await?;
                (last_lsn, end)
            };
            let later = self.later(index);
            let later = later
                .map(|later| (later.header.origin_log_id(), later.listed.hashes, later.header.first_lsn));
            let next = first_lsns_behind(segment.header.origin_log_id(), segment.listed.hashes, later);
            if let Some(first) = next.into_iter().find(|first| *first != last_lsn + 1) {
                let what = format!("it ends with commit {last_lsn}, the next segment begins with {first}");
                return Err(self.damaged(&segment.listed.name, end, what));
            }
        }
        Ok(())
    }

    /// The segments behind one, in the order of the list.
    fn later(&self, index: u32) -> impl Iterator<Item = &Segment> {
        self.table.iter().skip(index as usize + 1).map(|(_, segment)| &**segment)
    }

    /// Replays a segment from its footer and returns its last sequence number; `None` if it has no valid footer.
    async fn replay_footer(
        &mut self,
        index: u32,
        segment: &Rc<Segment>,
        scratch: &mut DecodeScratch,
        visit: &mut Visit<'_>,
    ) -> Result<Option<u64>, OpenError> {
        let (name, nonce) = (&segment.listed.name, segment.header.nonce);
        let end = segment.header.segment_bytes - BLOCK_BYTES as u64;
        let block = read_block(self.store, &*segment.file, name, end).await?;
        let Ok(trailer) = Trailer::parse(&block, nonce) else { return Ok(None) };
        let footer_end = trailer.footer_position.checked_add(trailer.footer_bytes);
        let numbers = (trailer.segment_number, trailer.first_lsn);
        if footer_end.is_none_or(|footer_end| footer_end > end)
            || numbers != (segment.header.segment_number, segment.header.first_lsn)
        {
            return Ok(None);
        }
        let mut footer = Vec::with_capacity(trailer.footer_bytes as usize);
        while (footer.len() as u64) < trailer.footer_bytes {
            let position = trailer.footer_position + footer.len() as u64;
            let len = (trailer.footer_bytes - footer.len() as u64).min(READ_BYTES_MAX as u64) as usize;
            let read = read_exact(&*segment.file, position, len).await;
            footer.extend_from_slice(&read.map_err(|source| self.io(name, "reading its footer", source))?);
            crate::signal::give_way_if_needed().await;
        }
        // Nothing may be visited twice: the pages are verified before the first event is handed out.
        if !pages_are_valid(&footer, nonce) {
            return Ok(None);
        }
        let Recovery { table, recovered, last_time_ms, .. } = self;
        let index_of = |number| table.index_of(segment.listed.log_id, number);
        let last_lsn = segment.header.settled.map_or(trailer.last_lsn, |settled| settled.last_lsn);
        let mut seen = |entry: &Entry<'_>, mut context: EventContext| {
            *last_time_ms = (*last_time_ms).max(context.time_ms);
            context.hashes = segment.listed.hashes;
            // Commits of a settled segment are numbered apart from those that it stands for.
            context.lsn = context.lsn.min(last_lsn);
            deliver(recovered, entry, context, visit);
        };
        match read_footer(&footer, &trailer, index, &index_of, scratch, &mut seen) {
            Ok(()) => {}
            Err(FooterProblem::Record(problem)) => {
                let what = format!("the footer's checksums hold, but: {problem}");
                return Err(self.damaged(name, trailer.footer_position, what));
            }
            Err(problem) => return Err(self.damaged(name, trailer.footer_position, problem.to_string())),
        }
        segment.trailer.set(Some(trailer));
        self.recovered.highest_lineage = self.recovered.highest_lineage.max(trailer.highest_lineage);
        self.recovered.last_lsn = self.recovered.last_lsn.max(last_lsn);
        Ok(Some(last_lsn))
    }

    /// Replays a segment from its commits, up to the first one that is not valid.
    async fn scan(
        &mut self,
        index: u32,
        segment: &Rc<Segment>,
        scratch: &mut DecodeScratch,
        visit: &mut Visit<'_>,
    ) -> Result<Scanned, OpenError> {
        let header = &segment.header;
        let mut window = Window::new(segment);
        let mut footer = FooterBuilder::new(header);
        let mut position = u64::from(FIRST_COMMIT_POSITION);
        let mut expected = header.first_lsn;
        let reason = loop {
            let bytes = window.at(position, BLOCK_BYTES).await;
            let bytes = bytes.map_err(|source| self.io(&segment.listed.name, "reading it", source))?;
            if bytes.is_empty() {
                break StopReason::Zeros;
            }
            let mut parsed = parse_commit(bytes, header.nonce, Some(expected));
            if let Err(StopReason::Short { commit_bytes }) = parsed {
                let bytes = window.at(position, commit_bytes).await;
                let bytes = bytes.map_err(|source| self.io(&segment.listed.name, "reading it", source))?;
                parsed = parse_commit(bytes, header.nonce, Some(expected));
            }
            let commit = match parsed {
                Ok(commit) => commit,
                Err(reason) => break reason,
            };
            let mut context = commit.context();
            context.hashes = segment.listed.hashes;
            footer.commit(context.lsn, context.time_ms);
            let Recovery { table, recovered, .. } = self;
            let index_of = |number| table.index_of(segment.listed.log_id, number);
            for raw in commit.raw_entries() {
                // Positions are smaller than 4 GiB.
                let decoded = raw.decode(index, position as u32, &index_of, scratch);
                let entry =
                    decoded.map_err(|problem| undecodable(self.store, segment, position, &problem))?;
                footer.scanned(&raw, &entry);
                let time_ms = own_time_ms(raw.flags, raw.meta).unwrap_or(context.time_ms);
                deliver(recovered, &entry, EventContext { time_ms, ..context }, visit);
            }
            self.last_time_ms = self.last_time_ms.max(context.time_ms);
            self.marked = commit.header.is_mark();
            self.recovered.last_lsn = self.recovered.last_lsn.max(context.lsn);
            position += commit.commit_bytes() as u64;
            expected += 1;
            crate::signal::give_way_if_needed().await;
        };
        // A segment without commits still says where its log stands.
        self.recovered.last_lsn = self.recovered.last_lsn.max(footer.last_lsn());
        Ok(Scanned { position, reason, footer })
    }

    /// Tells the end of the log from damage, and goes on from there.
    async fn end_of_scan(
        &mut self,
        index: u32,
        segment: &Rc<Segment>,
        scanned: Scanned,
        is_followed: bool,
        own_last: bool,
    ) -> Result<(), OpenError> {
        let Scanned { position, reason, footer } = scanned;
        let due = footer.last_lsn() + 1;
        let rest = self.look_behind(segment, position, due).await?;
        let name = &segment.listed.name;
        if let Some(later) = rest.later_commit {
            let what = format!("commit {due} is due there ({reason}), and a later commit stands at {later}");
            return Err(self.damaged(name, position, what));
        }
        if let StopReason::WrongLsn { found } = reason {
            return Err(self.damaged(
                name,
                position,
                format!("commit {due} is due there, {found} was found"),
            ));
        }
        if own_last {
            if rest.used_bytes > 0 {
                let path = self.store.path_of(name);
                self.recovered.torn = Some(TornTail { path, position, bytes: rest.used_bytes, reason });
            }
            let file = open_file(self.store, name, self.options.write_mode()).await?;
            self.table.replace_file(index, file).close().await;
            self.active = Some(Active { index, header: segment.header, position, footer });
        } else if is_followed && segment.listed.log_id == self.options.log_id {
            // A crash came between the roll and the seal: the footer is made up for.
            let file = open_file(self.store, name, self.options.write_mode()).await?;
            self.table.replace_file(index, file).close().await;
            self.seals.push_back(SealJob { segment: index, footer });
        }
        Ok(())
    }

    /// Looks at everything behind `position`: for commits from `due` on, and for anything at all.
    async fn look_behind(&self, segment: &Segment, position: u64, due: u64) -> Result<Rest, OpenError> {
        let mut rest = Rest { later_commit: None, used_bytes: 0 };
        let end = segment.header.segment_bytes;
        let mut at = position;
        while at < end {
            let len = (end - at).min(READ_BYTES_MAX as u64) as usize;
            let read = read_exact(&*segment.file, at, len).await;
            let bytes = read.map_err(|source| self.io(&segment.listed.name, "reading it", source))?;
            if let Some(last) = bytes.chunks(BLOCK_BYTES).rposition(|block| !is_zero(block)) {
                rest.used_bytes = at + ((last + 1) * BLOCK_BYTES) as u64 - position;
                // The commit at `position` itself is the one that is not valid.
                let skip = if at == position { BLOCK_BYTES.min(len) } else { 0 };
                if let Some(found) = find_commit(&bytes[skip..], segment.header.nonce, due) {
                    rest.later_commit = Some(at + (skip + found) as u64);
                    return Ok(rest);
                }
            }
            at += len as u64;
            crate::signal::give_way_if_needed().await;
        }
        Ok(rest)
    }

    fn io(&self, name: &str, what: &'static str, source: io::Error) -> OpenError {
        io_error(self.store, name, what, source)
    }

    fn damaged(&self, name: &str, position: u64, what: String) -> OpenError {
        damaged(self.store, name, position, what)
    }
}

/// What stands behind the last valid commit.
struct Rest {
    later_commit: Option<u64>,
    used_bytes: u64,
}

fn deliver(recovered: &mut Recovered, entry: &Entry<'_>, context: EventContext, visit: &mut Visit<'_>) {
    if let Entry::Event(event) = entry {
        recovered.events += 1;
        recovered.highest_lineage = recovered.highest_lineage.max(event.issued_id().unwrap_or(0));
        visit(event, context);
    }
}

fn pages_are_valid(footer: &[u8], nonce: u64) -> bool {
    use crate::storage::format::PageHeader;
    let mut rest = footer;
    while !rest.is_empty() {
        let Ok(header) = PageHeader::parse(rest, nonce) else { return false };
        rest = &rest[header.blocks as usize * BLOCK_BYTES..];
    }
    true
}

/// A sliding view of a segment for the scan.
struct Window<'a> {
    segment: &'a Segment,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(segment: &'a Segment) -> Window<'a> {
        Window { segment, start: 0, bytes: Vec::new() }
    }

    /// At least `len` bytes at `position`, or all up to the end of the file.
    async fn at(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let file_end = self.segment.header.segment_bytes;
        let wanted_end = (position + len as u64).next_multiple_of(BLOCK_BYTES as u64).min(file_end);
        if wanted_end > self.start + self.bytes.len() as u64 || position < self.start {
            self.bytes.drain(..((position - self.start) as usize).min(self.bytes.len()));
            self.start = position;
            while self.start + (self.bytes.len() as u64) < wanted_end {
                let at = self.start + self.bytes.len() as u64;
                let read =
                    read_exact(&*self.segment.file, at, (file_end - at).min(READ_BYTES_MAX as u64) as usize);
                self.bytes.extend_from_slice(&read.await?);
            }
        }
        Ok(&self.bytes[(position - self.start) as usize..])
    }
}

async fn open_file(store: &dyn Store, name: &str, mode: Mode) -> Result<Rc<dyn File>, OpenError> {
    match store.open(name, mode).await {
        Ok(file) => Ok(file),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            Err(damaged(store, name, 0, "the segment list names it, but it does not exist".to_string()))
        }
        Err(source) => Err(io_error(store, name, "opening it", source)),
    }
}

async fn read_block(
    store: &dyn Store,
    file: &dyn File,
    name: &str,
    position: u64,
) -> Result<Vec<u8>, OpenError> {
    let read = read_exact(file, position, BLOCK_BYTES).await;
    read.map(|bytes| bytes.to_vec()).map_err(|source| io_error(store, name, "reading it", source))
}

fn io_error(store: &dyn Store, name: &str, what: &'static str, source: io::Error) -> OpenError {
    OpenError::Io { path: store.path_of(name), what, source }
}

fn damaged(store: &dyn Store, name: &str, position: u64, what: String) -> OpenError {
    OpenError::Damaged { path: store.path_of(name), position, what }
}

fn undecodable(store: &dyn Store, segment: &Segment, position: u64, problem: &DecodeError) -> OpenError {
    let what = format!("the commit's checksums hold, but an entry cannot be decoded: {problem}");
    damaged(store, &segment.listed.name, position, what)
}
