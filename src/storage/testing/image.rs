//! A log made by hand, in memory and on disk, for the tests of the offline tools.

use std::path::Path;

use crate::limits::BLOCK_BYTES;
use crate::storage::commit::{CommitBuilder, PayloadWriter};
use crate::storage::event::{Appended, Event, Lengths, Part, Payload, Place, Producer, StreamCreated};
use crate::storage::file_name;
use crate::storage::footer::FooterBuilder;
use crate::storage::format::{FIRST_COMMIT_POSITION, SegmentHeader, TRAILER_BYTES};
use crate::storage::segment_list::{Listed, SegmentList};

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = 1 << 20;
/// Id of the log.
pub const LOG: u64 = 77;

/// One segment file as the log writes it.
pub struct Image {
    /// Its header.
    pub header: SegmentHeader,
    /// All of the file.
    pub bytes: Vec<u8>,
    footer: FooterBuilder,
    commit: Option<CommitBuilder>,
    /// Where the next commit begins.
    pub position: usize,
    lsn: u64,
}

impl Image {
    /// An empty segment of the log.
    pub fn new(segment_number: u32, first_lsn: u64) -> Image {
        let header = SegmentHeader {
            segment_number,
            log_id: LOG,
            epoch: 1,
            first_lsn,
            nonce: 0x1111 * u64::from(segment_number),
            segment_bytes: SEGMENT_BYTES as u64,
            created_ms: 1_700_000_000_000,
            settled: None,
        };
        let mut bytes = vec![0; SEGMENT_BYTES];
        header.encode(&mut bytes[..BLOCK_BYTES]);
        let footer = FooterBuilder::new(&header);
        Image {
            header,
            bytes,
            footer,
            commit: None,
            position: FIRST_COMMIT_POSITION as usize,
            lsn: first_lsn,
        }
    }

    fn open(&self) -> CommitBuilder {
        CommitBuilder::new(self.header.nonce, self.lsn, 1_700_000_000_000 + self.lsn)
    }

    /// Puts an event into the open commit.
    pub fn push(&mut self, event: &Event<'_>, payload: &[u8]) {
        let mut commit = self.commit.take().unwrap_or_else(|| self.open());
        let fill = |writer: &mut PayloadWriter<'_>| writer.put(payload);
        let number_of = |index| index;
        commit.push(
            &mut self.bytes[self.position..],
            &mut self.footer,
            event,
            number_of,
            payload.len(),
            fill,
        );
        self.commit = Some(commit);
    }

    /// A part of a large payload; segments are named by their number here.
    pub fn push_chunk(&mut self, lineage: u64, payload: &[u8]) -> Part {
        let mut commit = self.commit.take().unwrap_or_else(|| self.open());
        let fill = |writer: &mut PayloadWriter<'_>| writer.put(payload);
        let buf = &mut self.bytes[self.position..];
        let pushed = commit.push_chunk(buf, &mut self.footer, lineage, payload.len(), fill);
        self.commit = Some(commit);
        let position = self.position as u32 + pushed.payload_at;
        let place = Place { segment: self.header.segment_number, position, back: pushed.back };
        Part { place, len: payload.len() as u32 }
    }

    /// Ends the open commit; without one, a mark.
    pub fn end_commit(&mut self) -> usize {
        let buf = &mut self.bytes[self.position..];
        let bytes = match self.commit.take() {
            Some(commit) => commit.finish(buf),
            None => {
                let time_ms = 1_700_000_000_000 + self.lsn;
                CommitBuilder::new(self.header.nonce, self.lsn, time_ms).finish_mark(buf, &mut self.footer)
            }
        };
        let position = self.position;
        self.position += bytes;
        self.lsn += 1;
        position
    }

    /// Seals the segment and returns the positions at which its footer begins and ends.
    pub fn seal(&mut self) -> (usize, usize) {
        let empty = FooterBuilder::new(&self.header);
        let (pages, trailer) = std::mem::replace(&mut self.footer, empty).finish();
        self.bytes[self.position..self.position + pages.len()].copy_from_slice(&pages);
        trailer.encode(&mut self.bytes[SEGMENT_BYTES - TRAILER_BYTES..]);
        (self.position, self.position + pages.len())
    }
}

/// A stream begins.
pub fn created(lineage: u64, key: &[u8]) -> Event<'_> {
    Event::StreamCreated(StreamCreated {
        lineage,
        placement: 5,
        key,
        content_type: b"application/json",
        ttl_seconds: Some(60),
        expires_at_ms: None,
        bucket_generation: 1,
        attributes: b"",
        closed: false,
    })
}

/// The producer `writer` appends.
pub fn append(lineage: u64, start: u64, lengths: Lengths<'_>, seq: u64) -> Event<'_> {
    let producer = Some(Producer { id: b"writer", epoch: 3, seq });
    let payload = Payload::Here(Place::default());
    Event::Appended(Appended { lineage, start, lengths, producer, stream_seq: None, closed: false, payload })
}

/// A sealed segment, one that is written, one made ahead of use.
pub fn images() -> Vec<Image> {
    let mut first = Image::new(1, 1);
    first.push(&Event::BucketCreated { bucket: b"orders", generation: 1 }, b"");
    first.push(&created(10, b"orders/eu"), b"");
    first.push(&append(10, 0, Lengths::Uniform { len: 8, count: 1 }, 0), b"{\"a\":1},");
    first.end_commit();
    first.push(&append(10, 8, Lengths::Each(&[3, 4]), 1), b"10,200,");
    let part = first.push_chunk(10, &[b'x'; 5000]);
    first.end_commit();
    first.end_commit();
    first.seal();
    let mut second = Image::new(2, 4);
    let parts = [part];
    let large = Event::Appended(Appended {
        lineage: 10,
        start: 15,
        lengths: Lengths::Uniform { len: 5000, count: 1 },
        producer: None,
        stream_seq: Some(b"7"),
        closed: true,
        payload: Payload::Parts(&parts),
    });
    second.push(&large, b"");
    second.push(&created(11, b"/flat"), b"");
    second.push(&Event::Renewed { lineage: 11, used_ms: 1_700_000_000_004 }, b"");
    second.end_commit();
    second.push(&Event::StreamDeleted { lineage: 11 }, b"");
    second.end_commit();
    let mut ready = Image::new(3, 99);
    ready.bytes.fill(0);
    vec![first, second, ready]
}

/// Writes the segments and their list into `dir`.
pub fn write_log(dir: &Path, images: &[Image]) {
    let segments: Vec<Listed> =
        images.iter().map(|image| Listed::own(image.header.segment_number, LOG)).collect();
    for (listed, image) in segments.iter().zip(images) {
        std::fs::write(dir.join(&listed.name), &image.bytes).expect("written");
    }
    std::fs::write(dir.join(file_name::LIST), SegmentList { segments, lineage: 11 }.encode())
        .expect("written");
}
