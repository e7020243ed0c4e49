//! The segment that a rewrite produces: commits of large entries, then footer, trailer, and at last the header.

use std::ops::Range;
use std::rc::Rc;

use super::SettleError;
use super::gather::BucketEvent;
use super::turn::Turn;
use crate::limits::{BLOCK_BYTES, COMMIT_BYTES_MAX, SEGMENT_BYTES_MAX, SETTLED_COMMIT_BYTES};
use crate::storage::appender::{new_nonce, now_ms};
use crate::storage::buffer::AlignedBuffer;
use crate::storage::codec::{CHUNK_META_BYTES_MAX, TIME_BYTES, meta_bytes_max};
use crate::storage::commit::{CommitBuilder, PayloadWriter, Pushed, entry_bytes_max};
use crate::storage::commit_loop::write_all;
use crate::storage::device::{File, Mode};
use crate::storage::event::{Event, Part, Place};
use crate::storage::footer::FooterBuilder;
use crate::storage::format::{
    COMMIT_HEADER_BYTES, FIRST_COMMIT_POSITION, SEGMENT_HEADER_BYTES, SegmentHeader, Settled, TRAILER_BYTES,
};
use crate::storage::log::Inner;
use crate::storage::roll;
use crate::storage::segment_table::Segment;

/// Payload that is put together from places in a window.
pub(super) struct Pieced<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) from: &'a [Range<usize>],
    pub(super) len: usize,
}

impl Pieced<'_> {
    const EMPTY: Pieced<'static> = Pieced { bytes: &[], from: &[], len: 0 };

    fn put(&self, writer: &mut PayloadWriter<'_>) {
        for range in self.from {
            writer.put(&self.bytes[range.clone()]);
        }
    }
}

/// The output of a rewrite, while it is written. Nobody but its maker knows of it.
pub(super) struct Output<'a> {
    inner: &'a Inner,
    /// Its index in the log's table.
    index: u32,
    header: SegmentHeader,
    file: Rc<dyn File>,
    footer: FooterBuilder,
    /// Filled by `commit`; never shared between writes.
    buffer: AlignedBuffer,
    commit: Option<CommitBuilder>,
    next_lsn: u64,
    position: u64,
    payload_bytes: u64,
    turn: Turn<'a>,
}

impl<'a> Output<'a> {
    /// Begins the segment that stands for everything from `first` to `last`.
    pub(super) async fn create(
        inner: &'a Inner,
        first: &Segment,
        last: &Segment,
    ) -> Result<Output<'a>, SettleError> {
        let trailer = last.trailer.get().expect("only sealed segments are rewritten");
        let last_lsn = last.header.settled.map_or(trailer.last_lsn, |settled| settled.last_lsn);
        let mut listed = inner.roller.next_listed(inner.options.log_id);
        listed.hashes = first.listed.hashes;
        let settled = Settled { origin_log_id: first.header.origin_log_id(), last_lsn, payload_bytes: 0 };
        let header = SegmentHeader {
            segment_number: listed.number,
            log_id: inner.options.log_id,
            epoch: last.header.epoch,
            first_lsn: first.header.first_lsn,
            nonce: new_nonce(),
            segment_bytes: SEGMENT_BYTES_MAX,
            created_ms: now_ms(),
            settled: Some(settled),
        };
        let io = |source| problem(inner, &listed.name, "creating it", source);
        let file = roll::create_empty(&*inner.store, &listed.name).await.map_err(io)?;
        let segment = Segment::new(listed, header, Rc::clone(&file));
        let index = inner.table.borrow_mut().push(segment);
        Ok(Output {
            inner,
            index,
            header,
            file,
            footer: FooterBuilder::new(&header),
            buffer: AlignedBuffer::new(COMMIT_BYTES_MAX),
            commit: None,
            next_lsn: header.first_lsn,
            position: u64::from(FIRST_COMMIT_POSITION),
            payload_bytes: 0,
            turn: Turn::new(inner),
        })
    }

    /// Adds an entry without payload.
    pub(super) async fn push(&mut self, event: &Event<'_>, time_ms: u64) -> Result<(), SettleError> {
        self.push_payload(event, time_ms, Pieced::EMPTY).await.map(|_| ())
    }

    /// Adds what a bucket did.
    pub(super) async fn push_bucket(&mut self, event: &BucketEvent) -> Result<(), SettleError> {
        self.push(&event.event(), event.time_ms).await
    }

    /// Adds an entry and says where its payload lies.
    pub(super) async fn push_payload(
        &mut self,
        event: &Event<'_>,
        time_ms: u64,
        payload: Pieced<'_>,
    ) -> Result<Place, SettleError> {
        self.make_room(meta_bytes_max(event) + TIME_BYTES, payload.len).await?;
        let (inner, commit) = (self.inner, self.commit.as_mut().expect("room was made"));
        let number_of = |index| inner.table.borrow().number_of(index);
        let buffer = self.buffer.bytes_mut();
        let fill = |writer: &mut PayloadWriter<'_>| payload.put(writer);
        let pushed =
            commit.push_timed(buffer, &mut self.footer, event, time_ms, number_of, payload.len, fill);
        self.payload_bytes += payload.len as u64;
        Ok(self.place(pushed))
    }

    /// Adds a part of a large payload.
    pub(super) async fn push_chunk(&mut self, lineage: u64, bytes: &[u8]) -> Result<Part, SettleError> {
        self.make_room(CHUNK_META_BYTES_MAX, bytes.len()).await?;
        let commit = self.commit.as_mut().expect("room was made");
        let fill = |writer: &mut PayloadWriter<'_>| writer.put(bytes);
        let pushed = commit.push_chunk(self.buffer.bytes_mut(), &mut self.footer, lineage, bytes.len(), fill);
        self.payload_bytes += bytes.len() as u64;
        Ok(Part { place: self.place(pushed), len: bytes.len() as u32 })
    }

    fn place(&self, pushed: Pushed) -> Place {
        // A segment is smaller than 4 GiB, so positions fit.
        Place { segment: self.index, position: self.position as u32 + pushed.payload_at, back: pushed.back }
    }

    async fn make_room(&mut self, meta_bytes: usize, payload_bytes: usize) -> Result<(), SettleError> {
        let entry_bytes = entry_bytes_max(meta_bytes, payload_bytes);
        assert!(entry_bytes + COMMIT_HEADER_BYTES <= COMMIT_BYTES_MAX, "an entry of {entry_bytes} bytes");
        if let Some(commit) = &self.commit
            && (commit.used() >= SETTLED_COMMIT_BYTES || commit.used() + entry_bytes > COMMIT_BYTES_MAX)
        {
            self.write().await?;
        }
        if self.commit.is_none() {
            if self.position as usize + COMMIT_BYTES_MAX + self.footer.bytes_max(COMMIT_BYTES_MAX)
                > SEGMENT_BYTES_MAX as usize
            {
                return Err(SettleError::TooLarge);
            }
            self.commit = Some(CommitBuilder::new(self.header.nonce, self.next_lsn, self.header.created_ms));
            self.next_lsn += 1;
        }
        Ok(())
    }

    /// Writes the open commit.
    async fn write(&mut self) -> Result<(), SettleError> {
        let Some(commit) = self.commit.take() else { return Ok(()) };
        if self.inner.ending() {
            return Err(SettleError::Ending);
        }
        let bytes = commit.finish(self.buffer.bytes_mut());
        let buffer = Rc::new(std::mem::replace(&mut self.buffer, AlignedBuffer::new(BLOCK_BYTES)));
        let written = write_all(&*self.file, &buffer, bytes, self.position).await;
        written.map_err(|source| self.problem("writing it", source))?;
        self.buffer = Rc::try_unwrap(buffer).ok().expect("nobody keeps the buffer of a completed write");
        self.turn.give_way().await;
        self.position += bytes as u64;
        assert_eq!(
            u64::from(self.footer.commit_position()),
            self.position,
            "the footer counts the same bytes"
        );
        Ok(())
    }

    /// Completes the segment: on return it is durable, and may be listed.
    pub(super) async fn complete(mut self) -> Result<(u32, Segment), SettleError> {
        match self.finish().await {
            Ok(segment) => Ok((self.index, segment)),
            Err(error) => {
                self.give_up().await;
                Err(error)
            }
        }
    }

    async fn finish(&mut self) -> Result<Segment, SettleError> {
        self.write().await?;
        let footer = std::mem::replace(&mut self.footer, FooterBuilder::new(&self.header));
        let (pages, trailer) = footer.finish();
        let settled =
            self.header.settled.map(|settled| Settled { payload_bytes: self.payload_bytes, ..settled });
        let segment_bytes = self.position + (pages.len() + TRAILER_BYTES) as u64;
        let header = SegmentHeader { segment_bytes, settled, ..self.header };
        let listed = self.inner.table.borrow().get(self.index).listed.clone();
        let store = &*self.inner.store;
        let unfinished = Segment::new(listed.clone(), header, Rc::clone(&self.file));
        let sealed = roll::seal(&unfinished, &pages, &trailer).await;
        sealed.map_err(|source| self.problem("writing its footer", source))?;
        drop(unfinished);
        let mut block = AlignedBuffer::new(SEGMENT_HEADER_BYTES);
        header.encode(block.bytes_mut());
        let written = write_all(&*self.file, &Rc::new(block), SEGMENT_HEADER_BYTES, 0).await;
        written.map_err(|source| self.problem("writing its header", source))?;
        let completed = roll::make_durable(store, &*self.file).await;
        completed.map_err(|source| self.problem("making it durable", source))?;
        let opened = store.open(&listed.name, Mode::Read).await;
        let file = opened.map_err(|source| self.problem("opening it", source))?;
        let writable = std::mem::replace(&mut self.file, Rc::clone(&file));
        let segment = Segment::new(listed, header, file);
        segment.trailer.set(Some(trailer));
        self.close(writable).await;
        Ok(segment)
    }

    /// Closes the file that was written; the log's table holds it, too, until now.
    async fn close(&self, file: Rc<dyn File>) {
        self.inner.table.borrow_mut().replace_file(self.index, Rc::clone(&self.file));
        file.close().await;
    }

    /// Removes the file: nothing has become of it.
    pub(super) async fn give_up(self) {
        let segment = self.inner.table.borrow_mut().remove(self.index);
        let name = segment.listed.name.clone();
        drop(segment);
        self.file.close().await;
        // What cannot be removed now is garbage, which the next start removes.
        let _ = self.inner.store.remove(&name).await;
    }

    fn problem(&self, what: &'static str, source: std::io::Error) -> SettleError {
        let name = self.inner.table.borrow().get(self.index).listed.name.clone();
        problem(self.inner, &name, what, source)
    }
}

fn problem(inner: &Inner, name: &str, what: &'static str, source: std::io::Error) -> SettleError {
    SettleError::Io { path: inner.store.path_of(name), what, source }
}
