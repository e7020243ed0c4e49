//! The footer of a sealed segment, page by page.

use std::rc::Rc;

use super::SettleError;
use crate::limits::BLOCK_BYTES;
use crate::storage::codec::{DecodeScratch, Entry};
use crate::storage::device::read_exact;
use crate::storage::event::EventContext;
use crate::storage::footer::{FooterProblem, PAGE_BYTES, PageReader};
use crate::storage::format::Trailer;
use crate::storage::log::Inner;
use crate::storage::segment_table::Segment;

/// Reads a footer.
pub(super) struct Pages<'a> {
    inner: &'a Inner,
    segment: &'a Rc<Segment>,
    trailer: Trailer,
    reader: Option<PageReader>,
    position: u64,
}

impl<'a> Pages<'a> {
    /// The footer of a segment that is sealed.
    pub(super) fn new(inner: &'a Inner, index: u32, segment: &'a Rc<Segment>) -> Pages<'a> {
        let trailer = segment.trailer.get().expect("only sealed segments are rewritten");
        let reader = Some(PageReader::new(segment.header.nonce, index));
        Pages { inner, segment, trailer, reader, position: trailer.footer_position }
    }

    /// Hands the entries of the next page to `visit`; whether there was one. After the last page, the footer as a whole is
    /// checked.
    pub(super) async fn next(
        &mut self,
        scratch: &mut DecodeScratch,
        visit: &mut impl FnMut(&Entry<'_>, EventContext),
    ) -> Result<bool, SettleError> {
        if self.reader.is_none() {
            return Ok(false);
        }
        let end = self.trailer.footer_position + self.trailer.footer_bytes;
        if self.position == end {
            let done = self.reader.take().expect("looked at above").finish(&self.trailer);
            return done.map(|()| false).map_err(|problem| self.problem(problem));
        }
        let left = (end - self.position) as usize;
        let mut bytes = self.read(left.min(PAGE_BYTES)).await?;
        let reader = self.reader.as_ref().expect("looked at above");
        let page_bytes = match reader.page_bytes(&bytes) {
            Ok(page_bytes) if page_bytes <= left => page_bytes,
            Ok(_) => {
                return Err(self.problem(FooterProblem::Page(crate::storage::format::BadStructure::Short)));
            }
            Err(problem) => return Err(self.problem(problem)),
        };
        if page_bytes > bytes.len() {
            bytes = self.read(page_bytes).await?;
        }
        let log_id = self.segment.listed.log_id;
        let inner = self.inner;
        let index_of = |number| inner.table.borrow().index_of(log_id, number);
        let reader = self.reader.as_mut().expect("looked at above");
        let hashes = self.segment.listed.hashes;
        let mut within =
            |entry: &Entry<'_>, context: EventContext| visit(entry, EventContext { hashes, ..context });
        let read = reader.page(&bytes[..page_bytes], &index_of, scratch, &mut within);
        read.map_err(|problem| self.problem(problem))?;
        self.position += page_bytes as u64;
        Ok(true)
    }

    async fn read(&self, len: usize) -> Result<Vec<u8>, SettleError> {
        assert!(len.is_multiple_of(BLOCK_BYTES), "footers are whole blocks, not {len} bytes");
        let read = read_exact(&*self.segment.file, self.position, len).await;
        read.map(|bytes| bytes.to_vec()).map_err(|source| SettleError::Io {
            path: self.inner.store.path_of(&self.segment.listed.name),
            what: "reading its footer",
            source,
        })
    }

    fn problem(&self, problem: FooterProblem) -> SettleError {
        SettleError::Footer { path: self.inner.store.path_of(&self.segment.listed.name), problem }
    }
}
