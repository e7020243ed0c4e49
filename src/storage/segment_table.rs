//! The open segments of a log, by index: what `Place::segment` counts. An index is never reused while the log is open, also not
//! that of a segment which settling has removed.

use std::cell::Cell;
use std::rc::Rc;

use crate::storage::device::File;
use crate::storage::format::{SegmentHeader, Trailer};
use crate::storage::segment_list::Listed;

/// A segment that holds, or may hold, commits.
pub(super) struct Segment {
    /// How the list names it.
    pub(super) listed: Listed,
    /// Its header: on disk, or about to be written.
    pub(super) header: SegmentHeader,
    /// Its file.
    pub(super) file: Rc<dyn File>,
    /// Its trailer, once it is sealed and its footer is known to be whole.
    pub(super) trailer: Cell<Option<Trailer>>,
}

impl Segment {
    /// A segment that is not sealed, as far as is known.
    pub(super) fn new(listed: Listed, header: SegmentHeader, file: Rc<dyn File>) -> Segment {
        Segment { listed, header, file, trailer: Cell::new(None) }
    }
}

/// The table.
#[derive(Default)]
pub(super) struct SegmentTable {
    segments: Vec<Option<Rc<Segment>>>,
}

impl SegmentTable {
    /// Adds a segment and returns its index.
    pub(super) fn push(&mut self, segment: Segment) -> u32 {
        self.segments.push(Some(Rc::new(segment)));
        self.segments.len() as u32 - 1
    }

    /// Replaces the file of a segment, for instance by one that can be written.
    pub(super) fn replace_file(&mut self, index: u32, file: Rc<dyn File>) -> Rc<dyn File> {
        let segment = self.segments[index as usize].as_mut().expect("it is in use");
        let trailer = segment.trailer.clone();
        let replaced = Segment { listed: segment.listed.clone(), header: segment.header, file, trailer };
        std::mem::replace(segment, Rc::new(replaced)).file.clone()
    }

    /// Replaces a segment by what has become of it.
    pub(super) fn replace(&mut self, index: u32, segment: Segment) {
        let before = self.segments[index as usize].replace(Rc::new(segment));
        assert!(before.is_some(), "segment {index} was removed");
    }

    /// The segment at `index`.
    pub(super) fn get(&self, index: u32) -> &Rc<Segment> {
        self.segments[index as usize].as_ref().unwrap_or_else(|| panic!("segment {index} was removed"))
    }

    /// Removes the segment at `index`: nobody may look for it any more.
    pub(super) fn remove(&mut self, index: u32) -> Rc<Segment> {
        self.segments[index as usize].take().unwrap_or_else(|| panic!("segment {index} was removed before"))
    }

    /// All segments with their indexes, in the order in which they were opened.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Rc<Segment>)> {
        let numbered = self.segments.iter().enumerate();
        numbered.filter_map(|(index, segment)| segment.as_ref().map(|segment| (index as u32, segment)))
    }

    /// Number on disk of the segment at `index`.
    pub(super) fn number_of(&self, index: u32) -> u32 {
        self.get(index).listed.number
    }

    /// Index of segment `number` of log `log_id`.
    pub(super) fn index_of(&self, log_id: u64, number: u32) -> Option<u32> {
        // Later segments are asked for more often: an append in parts ends close to its parts.
        let is_it = |segment: &Segment| segment.listed.log_id == log_id && segment.listed.number == number;
        self.iter().rev().find(|(_, segment)| is_it(segment)).map(|(index, _)| index)
    }

    /// The index that stands for all indexes of the same file: a file that is listed several times has several.
    pub(super) fn same_file(&self, index: u32) -> u32 {
        let Some(Some(segment)) = self.segments.get(index as usize) else { return index };
        let Listed { log_id, number, .. } = segment.listed;
        self.index_of(log_id, number).unwrap_or(index)
    }

    /// Number of segments.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Gives up all segments, to close their files.
    pub(super) fn take(&mut self) -> Vec<Rc<Segment>> {
        std::mem::take(&mut self.segments).into_iter().flatten().collect()
    }
}
