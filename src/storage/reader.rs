//! Reads payload bytes back: from memory, else from disk with every byte verified before it is handed out.
//!
//! A small read does not need the whole commit: an entry carries its own checksum and one for each 64 KiB of its payload.
//! So what is fetched for a piece is the entry's head (header, table of checksums, meta) and the 64 KiB chunks that hold
//! the piece. Pieces whose needs lie close together are fetched with one read, a few reads at a time:
//!
//! ```text
//!  segment  ...[head|payload 1]..other streams..[head|payload 2].................[head|  large payload  ]...
//!              ^------------ one run, <= 1 MiB -------------^                    ^--^    ^--^ far piece
//! ```

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use crate::limits::{BLOCK_BYTES, COMMIT_BYTES_MAX, READ_BYTES_MAX, READ_GAP_BYTES_MAX};
use crate::storage::cache::CachedBytes;
use crate::storage::device::{LocalFuture, ReadBytes, read_exact};
use crate::storage::format::{ENTRY_HEADER_BYTES, EntryHeader, Seed};
use crate::storage::log::Inner;
use crate::storage::scan::{verified_range, verify_payload};
use crate::storage::segment_table::Segment;

pub use crate::storage::extents::Piece;

/// Reads of one call that are under way at a time.
const READS_AT_A_TIME: usize = 4;

/// Why bytes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The device said so.
    #[error("{path}: reading at position {position}: {source}")]
    Io {
        /// The segment's file.
        path: String,
        /// Position in it.
        position: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("{path}: entry at position {position}: {what}; run `thalweg verify`")]
    Damaged {
        /// The segment's file.
        path: String,
        /// Position of the entry in it.
        position: u64,
        /// What does not match.
        what: &'static str,
    },
}

/// Where the bytes of a piece come from.
enum Source {
    Memory(CachedBytes),
    /// Fetched together with its neighbours.
    Near,
    /// A part of a large entry, far from its head: fetched by itself.
    Far,
}

/// Pieces that are fetched with one read.
struct Run {
    segment: Rc<Segment>,
    /// Whole blocks of the file.
    range: Range<u64>,
    /// Which pieces, by index.
    pieces: Range<usize>,
    far: bool,
}

/// Pieces, with the segments that they lie in: settling may remove a segment from the log at any time, and whoever has found
/// out where bytes lie must still be able to read them there.
pub struct Held {
    pieces: Vec<Piece>,
    /// Sorted by index.
    segments: Vec<(u32, Rc<Segment>)>,
}

impl Held {
    /// Holds the segments of `pieces`, whose places the caller has just looked up.
    pub(super) fn new(inner: &Inner, pieces: Vec<Piece>) -> Held {
        let table = inner.table.borrow();
        let mut segments: Vec<(u32, Rc<Segment>)> = Vec::new();
        let mut last = None;
        for Piece { place, .. } in &pieces {
            if last != Some(place.segment) {
                last = Some(place.segment);
                if let Err(at) = segments.binary_search_by_key(&place.segment, |(index, _)| *index) {
                    segments.insert(at, (place.segment, Rc::clone(table.get(place.segment))));
                }
            }
        }
        Held { pieces, segments }
    }

    /// Other pieces in the same segments.
    pub fn of(&self, pieces: Vec<Piece>) -> Held {
        Held { pieces, segments: self.segments.clone() }
    }

    fn segment(&self, index: u32) -> &Rc<Segment> {
        let at = self.segments.binary_search_by_key(&index, |(index, _)| *index);
        &self.segments[at.expect("segments of all pieces are held")].1
    }
}

/// See `Log::read`.
pub(super) async fn read(inner: &Inner, held: &Held, out: &mut Vec<u8>) -> Result<(), ReadError> {
    let before = out.len();
    let cached = copy_cached(inner, &held.pieces, out);
    let result = if cached == held.pieces.len() { Ok(()) } else { read_rest(inner, held, cached, out).await };
    if result.is_err() {
        out.truncate(before);
    }
    result
}

/// Copies the leading pieces that are in memory; returns how many.
fn copy_cached(inner: &Inner, pieces: &[Piece], out: &mut Vec<u8>) -> usize {
    let cache = inner.cache.borrow();
    for (index, piece) in pieces.iter().enumerate() {
        match cache.get(piece.place, piece.from, piece.len) {
            Some(bytes) => out.extend_from_slice(&bytes),
            None => return index,
        }
    }
    pieces.len()
}

/// Reads the pieces from number `first` on.
async fn read_rest(inner: &Inner, held: &Held, first: usize, out: &mut Vec<u8>) -> Result<(), ReadError> {
    let pieces = &held.pieces[first..];
    let (sources, runs) = plan(inner, held, pieces);
    let mut fetches: VecDeque<Fetch<'_>> = VecDeque::new();
    let mut ahead = runs.iter();
    let mut current: Option<(&Run, ReadBytes)> = None;
    let mut next_run = runs.iter();
    for (index, (piece, source)) in pieces.iter().zip(&sources).enumerate() {
        if let Source::Memory(bytes) = source {
            out.extend_from_slice(bytes);
            continue;
        }
        if current.as_ref().is_none_or(|(run, _)| !run.pieces.contains(&index)) {
            let run = next_run.next().expect("every piece that is not in memory has a run");
            while fetches.len() < READS_AT_A_TIME
                && let Some(run) = ahead.next()
            {
                fetches.push_back(Fetch::Pending(fetch(run)));
            }
            let bytes = next_fetched(&mut fetches).await.map_err(|source| io_problem(inner, run, source))?;
            current = Some((run, bytes));
        }
        let (run, bytes) = current.as_ref().expect("just set");
        let verified = if run.far { None } else { verified_in_run(inner, run, bytes, piece)? };
        match verified {
            Some(found) => out.extend_from_slice(found),
            None => read_exactly(inner, &run.segment, piece, out).await?,
        }
    }
    Ok(())
}

/// Decides where each piece comes from, and which are fetched together.
fn plan(inner: &Inner, held: &Held, pieces: &[Piece]) -> (Vec<Source>, Vec<Run>) {
    let cache = inner.cache.borrow();
    let mut sources = Vec::with_capacity(pieces.len());
    let mut runs: Vec<Run> = Vec::new();
    let mut run_segment = u32::MAX;
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(bytes) = cache.get(piece.place, piece.from, piece.len) {
            sources.push(Source::Memory(bytes));
            continue;
        }
        let (needed, far) = needed_range(piece);
        sources.push(if far { Source::Far } else { Source::Near });
        if let Some(run) = runs.last_mut()
            && !far
            && !run.far
            && run_segment == piece.place.segment
            && joins(&run.range, &needed)
        {
            run.range.end = run.range.end.max(needed.end);
            run.pieces.end = index + 1;
            continue;
        }
        let segment = Rc::clone(held.segment(piece.place.segment));
        run_segment = piece.place.segment;
        runs.push(Run { segment, range: needed, pieces: index..index + 1, far });
    }
    (sources, runs)
}

/// Whether one read should serve both ranges: close together, in order, and not too much.
fn joins(run: &Range<u64>, needed: &Range<u64>) -> bool {
    needed.start >= run.start
        && needed.start <= run.end + READ_GAP_BYTES_MAX as u64
        && needed.end.max(run.end) - run.start <= READ_BYTES_MAX as u64
}

/// The blocks that serve a piece if its extent is the whole payload of its entry (it nearly always is); and whether the
/// entry's head is far from them. Example: `back` 30, payload at 5000, 100 bytes from 0: blocks 4096..8192.
fn needed_range(piece: &Piece) -> (Range<u64>, bool) {
    let place = piece.place;
    let wanted = verified_range(piece.extent_len, piece.from, piece.len);
    let entry = u64::from(place.position - place.back);
    let payload = u64::from(place.position);
    let end = (payload + u64::from(wanted.to)).next_multiple_of(BLOCK_BYTES as u64);
    let far = wanted.from as usize > READ_GAP_BYTES_MAX || place.back as usize > 2 * READ_GAP_BYTES_MAX;
    let start = if far { payload + u64::from(wanted.from) } else { entry };
    (start / BLOCK_BYTES as u64 * BLOCK_BYTES as u64..end, far)
}

enum Fetch<'a> {
    Pending(LocalFuture<'a, io::Result<ReadBytes>>),
    Done(io::Result<ReadBytes>),
}

fn fetch(run: &Run) -> LocalFuture<'_, io::Result<ReadBytes>> {
    if run.far {
        // It is read with its head, when its turn comes.
        return Box::pin(async { Ok(ReadBytes::Heap(Vec::new())) });
    }
    let Range { start, end } = run.range;
    Box::pin(read_exact(&*run.segment.file, start, (end - start) as usize))
}

/// Drives all reads under way and returns the oldest one's bytes.
async fn next_fetched(fetches: &mut VecDeque<Fetch<'_>>) -> io::Result<ReadBytes> {
    poll_fn(|context| {
        for slot in fetches.iter_mut() {
            if let Fetch::Pending(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *slot = Fetch::Done(result);
            }
        }
        match fetches.pop_front() {
            Some(Fetch::Done(result)) => Poll::Ready(result),
            Some(pending) => {
                fetches.push_front(pending);
                Poll::Pending
            }
            None => unreachable!("a read is under way for every run that is waited for"),
        }
    })
    .await
}

/// The verified bytes of `piece` in a run; `None` if its extent is not its entry's whole payload, or seems not to be.
fn verified_in_run<'a>(
    inner: &Inner,
    run: &Run,
    bytes: &'a [u8],
    piece: &Piece,
) -> Result<Option<&'a [u8]>, ReadError> {
    let (back, len) = (piece.place.back as usize, piece.extent_len);
    let entry_position = u64::from(piece.place.position) - back as u64;
    let entry = &bytes[(entry_position - run.range.start) as usize..];
    let whole =
        EntryHeader::parse(entry).filter(|head| head.back_bytes() == back && head.payload_bytes == len);
    let Some(header) = whole else { return Ok(None) };
    let damaged = |what| damage(inner, &run.segment, entry_position, what);
    let seed = Seed::of(run.segment.header.nonce);
    if seed.checksum(&entry[4..back]) != header.checksum {
        return Err(damaged("its head does not match its checksum"));
    }
    let range = verified_range(len, piece.from, piece.len);
    let payload = &entry[back + range.from as usize..back + range.to as usize];
    verify_payload(seed, &entry[ENTRY_HEADER_BYTES..], range.first_chunk, payload)
        .map_err(|_| damaged("its payload does not match its checksum"))?;
    Ok(Some(&payload[(piece.from - range.from) as usize..][..piece.len as usize]))
}

/// Reads one piece by what its entry's header says, whatever part of the payload its extent is.
async fn read_exactly(
    inner: &Inner,
    segment: &Rc<Segment>,
    piece: &Piece,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let position = u64::from(piece.place.position - piece.place.back);
    let damaged = |what| damage(inner, segment, position, what);
    let seed = Seed::of(segment.header.nonce);
    let first = read_bytes(inner, segment, position, ENTRY_HEADER_BYTES).await?;
    let header = EntryHeader::parse(&first).expect("sixteen bytes were read");
    let back = header.back_bytes();
    let bytes = back + header.payload_bytes as usize;
    if bytes > COMMIT_BYTES_MAX || position + bytes as u64 > segment.header.segment_bytes {
        return Err(damaged("it is longer than an entry can be there"));
    }
    let head = read_bytes(inner, segment, position, back).await?;
    if seed.checksum(&head[4..]) != header.checksum {
        return Err(damaged("its head does not match its checksum"));
    }
    let start = (piece.place.back as usize + piece.from as usize).checked_sub(back);
    let inside = start.is_some_and(|start| start + piece.len as usize <= header.payload_bytes as usize);
    let Some(start) = start.filter(|_| inside) else {
        return Err(damaged("it does not hold the bytes that the index looks for there"));
    };
    let range = verified_range(header.payload_bytes, start as u32, piece.len);
    let from = position + (back + range.from as usize) as u64;
    let payload = read_bytes(inner, segment, from, (range.to - range.from) as usize).await?;
    verify_payload(seed, &head[ENTRY_HEADER_BYTES..], range.first_chunk, &payload)
        .map_err(|_| damaged("its payload does not match its checksum"))?;
    out.extend_from_slice(&payload[start - range.from as usize..][..piece.len as usize]);
    Ok(())
}

/// Bytes at any position.
async fn read_bytes(
    inner: &Inner,
    segment: &Segment,
    position: u64,
    len: usize,
) -> Result<Vec<u8>, ReadError> {
    let start = position / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let end = (position + len as u64).next_multiple_of(BLOCK_BYTES as u64);
    let path = || inner.store.path_of(&segment.listed.name);
    let read = read_exact(&*segment.file, start, (end - start) as usize).await;
    let bytes = read.map_err(|source| ReadError::Io { path: path(), position: start, source })?;
    Ok(bytes[(position - start) as usize..][..len].to_vec())
}

fn io_problem(inner: &Inner, run: &Run, source: io::Error) -> ReadError {
    ReadError::Io { path: inner.store.path_of(&run.segment.listed.name), position: run.range.start, source }
}

fn damage(inner: &Inner, segment: &Segment, position: u64, what: &'static str) -> ReadError {
    ReadError::Damaged { path: inner.store.path_of(&segment.listed.name), position, what }
}
