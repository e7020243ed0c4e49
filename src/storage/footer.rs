//! The footer of a sealed segment: every entry again, without payload, so that recovery reads it instead of
//! the data.
//!
//! Contract: the records of a footer are the entries of the segment's commits in the same order, each exactly
//! once; so a reader that meets a bad page could go on with the commits from the entry it had reached
//! ([`PageReader::entries_seen`]). Pages are whole blocks and decode independently. Positions are not stored:
//! they follow from the lengths, since commits and entries lie one behind the other. The layout is in
//! `storage-format.md`, Footer.

use super::codec::{
    Coded, Coding, DecodeError, DecodeScratch, Entry, Get, LENGTHS_ONE, Put, SegmentIndex, Stem,
    VARINT_BYTES_MAX, decode, own_time_ms, varint_bytes,
};
use super::event::{Appended, Event, EventContext, HashRange, Lengths, Payload, Place};
use super::format::{
    BadStructure, COMMIT_HEADER_BYTES, FIRST_COMMIT_POSITION, Kind, PAGE_HEADER_BYTES, PageHeader,
    SegmentHeader, TRAILER_BYTES, Trailer, block_round_up, entry_back_bytes, entry_bytes,
};
use super::scan::RawEntry;
use super::varint;

/// Bytes after which a page is closed. A longer record has a page of its own length.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Tag of a record that begins a commit; other tags are kinds of entries.
const TAG_COMMIT: u8 = 0;
/// Bit of a tag: the append goes on where the one before it in this page ended, and its stem is left out.
const TAG_FOLLOWS: u8 = 0x80;
/// Bytes of a record at most, its meta part aside.
const RECORD_HEAD_BYTES_MAX: usize = 2 + 2 * VARINT_BYTES_MAX;

/// Collects the footer of the segment that is being written.
#[derive(Debug)]
pub struct FooterBuilder {
    nonce: u64,
    segment_number: u32,
    first_lsn: u64,
    /// Sealed pages, then the open page with room for its header.
    bytes: Vec<u8>,
    page_at: usize,
    page: PageHeader,
    /// End of the last entry, or of the last commit's header.
    position: u32,
    context: EventContext,
    follows: Option<(u64, u64)>,
    highest_lineage: u64,
    entry_count: u64,
    record_count: u64,
}

impl FooterBuilder {
    /// Starts the footer of an empty segment.
    pub fn new(header: &SegmentHeader) -> FooterBuilder {
        let context =
            EventContext { lsn: header.first_lsn - 1, time_ms: header.created_ms, hashes: HashRange::ALL };
        let page = PageHeader {
            index: 0,
            blocks: 0,
            body_bytes: 0,
            entry_count: 0,
            lsn: context.lsn,
            time_ms: context.time_ms,
            position: FIRST_COMMIT_POSITION,
        };
        FooterBuilder {
            nonce: header.nonce,
            segment_number: header.segment_number,
            first_lsn: header.first_lsn,
            bytes: vec![0; PAGE_HEADER_BYTES],
            page_at: 0,
            page,
            position: FIRST_COMMIT_POSITION,
            context,
            follows: None,
            highest_lineage: 0,
            entry_count: 0,
            record_count: 0,
        }
    }

    /// A commit begins. Called by the commit builder, and by recovery for each commit that it scans.
    pub fn commit(&mut self, lsn: u64, time_ms: u64) {
        assert!(lsn > self.context.lsn, "commits go up: {lsn} after {}", self.context.lsn);
        self.room(1 + 2 * VARINT_BYTES_MAX);
        self.bytes.push(TAG_COMMIT);
        varint::put(&mut self.bytes, lsn - self.context.lsn);
        varint::put(&mut self.bytes, varint::step(self.context.time_ms, time_ms));
        (self.context.lsn, self.context.time_ms) = (lsn, time_ms);
        self.position = self.commit_position() + COMMIT_HEADER_BYTES as u32;
    }

    /// Goes on with commit `lsn` at `position`, over a gap: for offline tools, which look behind damage. What
    /// was collected is no footer any more.
    pub(super) fn skip_to(&mut self, lsn: u64, position: u32) {
        assert!(lsn > self.context.lsn, "commits go up: {lsn} after {}", self.context.lsn);
        self.context.lsn = lsn - 1;
        self.position = position;
    }

    /// An entry of the present commit, with its event unless it is a chunk. Called by the commit builder.
    #[inline]
    pub(super) fn entry(
        &mut self,
        coded: &Coded,
        meta: &[u8],
        payload_bytes: u32,
        event: Option<&Event<'_>>,
    ) {
        if let Some(event) = event {
            self.count(event);
        }
        self.room(RECORD_HEAD_BYTES_MAX + meta.len());
        let mut tag = coded.kind as u8;
        let mut left = meta;
        if let Some(stem) = coded.stem {
            if self.follows == Some((stem.lineage, stem.start)) {
                tag |= TAG_FOLLOWS;
                left = &meta[stem.bytes..];
            }
            self.follows = Some((stem.lineage, stem.end));
        }
        let mut head = [0; RECORD_HEAD_BYTES_MAX];
        let mut put = Put { out: &mut head, at: 2 };
        put.varint(u64::from(payload_bytes));
        put.varint(left.len() as u64);
        let head_bytes = put.at;
        head[..2].copy_from_slice(&[tag, coded.flags]);
        self.bytes.extend_from_slice(&head[..head_bytes]);
        self.bytes.extend_from_slice(left);
        self.position += entry_bytes(meta.len(), payload_bytes as usize) as u32;
        self.page.entry_count += 1;
        self.entry_count += 1;
    }

    /// An entry of the present commit that recovery scanned; in order, once each.
    pub fn scanned(&mut self, raw: &RawEntry<'_>, entry: &Entry<'_>) {
        let event = match entry {
            Entry::Event(event) => Some(event),
            Entry::Chunk { .. } => None,
        };
        let stem = match event {
            Some(Event::Appended(append)) => Some(Stem {
                lineage: append.lineage,
                start: append.start,
                end: append.start + append.lengths.total_bytes(),
                bytes: varint_bytes(append.lineage) + varint_bytes(append.start),
            }),
            _ => None,
        };
        let kind = Kind::from_u8(raw.kind).expect("the entry was decoded");
        let coded = Coded { kind, flags: raw.flags, meta_bytes: raw.meta.len(), stem };
        self.entry(&coded, raw.meta, raw.payload_bytes, event);
    }

    #[inline]
    fn count(&mut self, event: &Event<'_>) {
        match event {
            Event::Appended(append) => self.record_count += append.lengths.count(),
            _ => self.highest_lineage = self.highest_lineage.max(event.issued_id().unwrap_or(0)),
        }
    }

    /// Position in the file where the next commit begins: the end of the last one.
    pub fn commit_position(&self) -> u32 {
        block_round_up(self.position as usize) as u32
    }

    /// Last sequence number seen; the one before the segment's first if there is none.
    pub fn last_lsn(&self) -> u64 {
        self.context.lsn
    }

    /// Entries so far, chunks included.
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// An upper bound of the bytes that footer and trailer will take at the end of the segment if
    /// `more_bytes` of commits follow: the log rolls while they still fit.
    pub fn bytes_max(&self, more_bytes: usize) -> usize {
        // A record takes less than its entry, a commit's record less than its header. Pages waste less than a
        // block each and a page is closed only when the next record does not fit, so two neighbours fill more
        // than one page.
        let records = self.bytes.len() + more_bytes;
        let pages = 2 * (records / PAGE_BYTES + 1);
        records + pages * (PAGE_HEADER_BYTES + crate::limits::BLOCK_BYTES) + TRAILER_BYTES
    }

    /// Completes the footer: the pages, to be written at [`Self::commit_position`], and the trailer for the
    /// last block of the file.
    pub fn finish(mut self) -> (Vec<u8>, Trailer) {
        let footer_position = u64::from(self.commit_position());
        self.close_page();
        self.bytes.truncate(self.page_at);
        let trailer = Trailer {
            segment_number: self.segment_number,
            nonce: self.nonce,
            footer_position,
            footer_bytes: self.bytes.len() as u64,
            first_lsn: self.first_lsn,
            last_lsn: self.context.lsn,
            highest_lineage: self.highest_lineage,
            entry_count: self.entry_count,
            record_count: self.record_count,
            page_count: self.page.index,
        };
        (self.bytes, trailer)
    }

    /// Closes the page if the next record might not fit into it.
    #[inline]
    fn room(&mut self, record_bytes_max: usize) {
        if self.bytes.len() - self.page_at + record_bytes_max > PAGE_BYTES {
            self.close_page();
        }
    }

    #[cold]
    fn close_page(&mut self) {
        let used = self.bytes.len() - self.page_at;
        if used == PAGE_HEADER_BYTES {
            return;
        }
        let page_bytes = block_round_up(used);
        self.bytes.resize(self.page_at + page_bytes, 0);
        self.page.blocks = (page_bytes / crate::limits::BLOCK_BYTES) as u32;
        self.page.body_bytes = (used - PAGE_HEADER_BYTES) as u32;
        self.page.encode(&mut self.bytes[self.page_at..], self.nonce);
        self.page_at = self.bytes.len();
        self.bytes.resize(self.page_at + PAGE_HEADER_BYTES, 0);
        self.page = PageHeader {
            index: self.page.index + 1,
            blocks: 0,
            body_bytes: 0,
            entry_count: 0,
            lsn: self.context.lsn,
            time_ms: self.context.time_ms,
            position: self.position,
        };
        self.follows = None;
    }
}

/// Why a footer cannot be used. The segment is scanned instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FooterProblem {
    /// A page is damaged or missing.
    #[error("footer page: {0}")]
    Page(#[from] BadStructure),
    /// A page out of order.
    #[error("footer page {found} where page {expected} should be")]
    Order {
        /// Number that was due.
        expected: u32,
        /// Number that was found.
        found: u32,
    },
    /// A record makes no sense although the page's checksum holds.
    #[error("footer record: {0}")]
    Record(#[from] DecodeError),
    /// The pages do not hold what the trailer says.
    #[error("footer holds {found} entries, its trailer says {expected}")]
    Count {
        /// Entries that the trailer promises.
        expected: u64,
        /// Entries that were found.
        found: u64,
    },
}

/// Reads a footer page by page; the caller does the I/O.
#[derive(Debug)]
pub struct PageReader {
    nonce: u64,
    segment: u32,
    next_page: u32,
    entries_seen: u64,
}

impl PageReader {
    /// For the footer of the segment with this nonce, which has index `segment` in the log's table.
    pub fn new(nonce: u64, segment: u32) -> PageReader {
        PageReader { nonce, segment, next_page: 0, entries_seen: 0 }
    }

    /// Entries handed out so far: where a scan of the commits has to go on if a page turns out bad.
    pub fn entries_seen(&self) -> u64 {
        self.entries_seen
    }

    /// Bytes of the page that starts with `bytes` (64 of them are enough): how much [`Self::page`] needs to
    /// see.
    pub fn page_bytes(&self, bytes: &[u8]) -> Result<usize, FooterProblem> {
        Ok(PageHeader::page_bytes(bytes, self.nonce)?)
    }

    /// Verifies the page that starts with `bytes`, hands every entry to `visit` in order, and returns the
    /// page's length.
    pub fn page(
        &mut self,
        bytes: &[u8],
        index_of: &SegmentIndex<'_>,
        scratch: &mut DecodeScratch,
        visit: &mut impl FnMut(&Entry<'_>, EventContext),
    ) -> Result<usize, FooterProblem> {
        let header = PageHeader::parse(bytes, self.nonce)?;
        if header.index != self.next_page {
            return Err(FooterProblem::Order { expected: self.next_page, found: header.index });
        }
        let body = &bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + header.body_bytes as usize];
        let mut records = Records {
            get: Get { rest: body },
            segment: self.segment,
            position: header.position,
            context: EventContext { lsn: header.lsn, time_ms: header.time_ms, hashes: HashRange::ALL },
            follows: None,
        };
        let before = self.entries_seen;
        while let Some(head) = records.head()? {
            let entry = match records.plain(&head)? {
                Some(append) => Entry::Event(Event::Appended(append)),
                None => records.entry(&head, index_of, scratch)?,
            };
            let mut context = records.context;
            context.time_ms = own_time_ms(head.flags, head.meta).unwrap_or(context.time_ms);
            visit(&entry, context);
            self.entries_seen += 1;
        }
        let found = self.entries_seen - before;
        if found != u64::from(header.entry_count) {
            return Err(FooterProblem::Count { expected: u64::from(header.entry_count), found });
        }
        self.next_page += 1;
        Ok(header.blocks as usize * crate::limits::BLOCK_BYTES)
    }

    /// All pages are read: whether they are what the trailer promised.
    pub fn finish(self, trailer: &Trailer) -> Result<(), FooterProblem> {
        if self.next_page != trailer.page_count {
            return Err(FooterProblem::Order { expected: trailer.page_count, found: self.next_page });
        }
        if self.entries_seen != trailer.entry_count {
            return Err(FooterProblem::Count { expected: trailer.entry_count, found: self.entries_seen });
        }
        Ok(())
    }
}

/// The records of one page.
struct Records<'b> {
    get: Get<'b>,
    segment: u32,
    position: u32,
    context: EventContext,
    follows: Option<(u64, u64)>,
}

/// The fixed part of an entry's record.
struct RecordHead<'b> {
    kind: u8,
    flags: u8,
    payload_bytes: u32,
    /// Stream and start of an append that follows.
    stem: Option<(u64, u64)>,
    meta: &'b [u8],
}

impl<'b> Records<'b> {
    /// The next record that is an entry; `None` at the end of the page.
    #[inline]
    fn head(&mut self) -> Result<Option<RecordHead<'b>>, DecodeError> {
        let tag = loop {
            if self.get.rest.is_empty() {
                return Ok(None);
            }
            match self.get.byte()? {
                TAG_COMMIT => self.commit()?,
                tag => break tag,
            }
        };
        let flags = self.get.byte()?;
        let payload_bytes = self.get.u32()?;
        let meta_bytes = self.get.varint()?;
        let meta = self.get.take(meta_bytes)?;
        let kind = tag & !TAG_FOLLOWS;
        let stem = if tag & TAG_FOLLOWS == 0 {
            None
        } else if kind == Kind::Appended as u8 {
            Some(self.follows.ok_or(DecodeError::UnknownKind(tag))?)
        } else {
            return Err(DecodeError::UnknownKind(tag));
        };
        Ok(Some(RecordHead { kind, flags, payload_bytes, stem, meta }))
    }

    /// The commonest record by far, an append of one record and nothing else, without the detour through the
    /// codec: tens of millions of them are read at a restart. `None` if it is another one.
    #[inline]
    fn plain(&mut self, head: &RecordHead<'b>) -> Result<Option<Appended<'static>>, DecodeError> {
        let len = head.payload_bytes;
        if head.kind != Kind::Appended as u8 || head.flags != LENGTHS_ONE || len == 0 {
            return Ok(None);
        }
        let mut get = Get { rest: head.meta };
        let (lineage, start, stem_bytes) = match head.stem {
            Some((lineage, start)) => (lineage, start, varint_bytes(lineage) + varint_bytes(start)),
            None => (get.varint()?, get.varint()?, head.meta.len()),
        };
        get.end()?;
        let end = start.checked_add(u64::from(len)).ok_or(DecodeError::Lengths)?;
        let back = entry_back_bytes(stem_bytes, len as usize) as u32;
        let place = Place { segment: self.segment, position: self.position.wrapping_add(back), back };
        self.position = place.position.wrapping_add(len);
        self.follows = Some((lineage, end));
        Ok(Some(Appended {
            lineage,
            start,
            lengths: Lengths::Uniform { len, count: 1 },
            producer: None,
            stream_seq: None,
            closed: false,
            payload: Payload::Here(place),
        }))
    }

    fn entry<'s>(
        &mut self,
        head: &RecordHead<'b>,
        index_of: &SegmentIndex<'_>,
        scratch: &'s mut DecodeScratch,
    ) -> Result<Entry<'s>, DecodeError>
    where
        'b: 's,
    {
        let coding = Coding {
            kind: head.kind,
            flags: head.flags,
            payload_bytes: head.payload_bytes,
            segment: self.segment,
            position: self.position,
            stem: head.stem,
            meta: head.meta,
        };
        let entry = decode(&coding, index_of, scratch)?;
        if let Entry::Event(Event::Appended(append)) = &entry {
            self.follows = Some((append.lineage, append.start + append.lengths.total_bytes()));
        }
        let stem_bytes = head.stem.map_or(0, |(lineage, start)| varint_bytes(lineage) + varint_bytes(start));
        let bytes = entry_bytes(stem_bytes + head.meta.len(), head.payload_bytes as usize);
        self.position = self.position.wrapping_add(bytes as u32);
        Ok(entry)
    }

    fn commit(&mut self) -> Result<(), DecodeError> {
        self.context.lsn = self.context.lsn.checked_add(self.get.varint()?).ok_or(DecodeError::Varint)?;
        self.context.time_ms = varint::apply_step(self.context.time_ms, self.get.varint()?);
        self.position = (block_round_up(self.position as usize) + COMMIT_HEADER_BYTES) as u32;
        Ok(())
    }
}

/// Reads a whole footer that is in memory: [`PageReader`] over all of it.
pub fn read_footer(
    footer: &[u8],
    trailer: &Trailer,
    segment: u32,
    index_of: &SegmentIndex<'_>,
    scratch: &mut DecodeScratch,
    visit: &mut impl FnMut(&Entry<'_>, EventContext),
) -> Result<(), FooterProblem> {
    let mut reader = PageReader::new(trailer.nonce, segment);
    let mut rest = footer;
    while !rest.is_empty() {
        let page_bytes = reader.page(rest, index_of, scratch, visit)?;
        rest = &rest[page_bytes..];
    }
    reader.finish(trailer)
}

#[cfg(test)]
mod tests;
