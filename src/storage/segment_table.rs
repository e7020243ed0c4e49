//! The open segments of a log, by index: what `Place::segment` counts. An index is never reused while the log is open.

use std::rc::Rc;

use crate::storage::device::File;
use crate::storage::format::SegmentHeader;
use crate::storage::segment_list::Listed;

/// A segment that holds, or may hold, commits.
pub(super) struct Segment {
    /// How the list names it.
    pub(super) listed: Listed,
    /// Its header: on disk, or about to be written.
    pub(super) header: SegmentHeader,
    /// Its file.
    pub(super) file: Rc<dyn File>,
}

/// The table.
#[derive(Default)]
pub(super) struct SegmentTable {
    segments: Vec<Rc<Segment>>,
}

impl SegmentTable {
    /// Adds a segment and returns its index.
    pub(super) fn push(&mut self, segment: Segment) -> u32 {
        self.segments.push(Rc::new(segment));
        self.segments.len() as u32 - 1
    }

    /// Replaces the file of a segment, for instance by one that can be written.
    pub(super) fn replace_file(&mut self, index: u32, file: Rc<dyn File>) -> Rc<dyn File> {
        let segment = &mut self.segments[index as usize];
        let replaced = Segment { listed: segment.listed.clone(), header: segment.header, file };
        std::mem::replace(segment, Rc::new(replaced)).file.clone()
    }

    /// The segment at `index`.
    pub(super) fn get(&self, index: u32) -> &Rc<Segment> {
        &self.segments[index as usize]
    }

    /// Number on disk of the segment at `index`.
    pub(super) fn number_of(&self, index: u32) -> u32 {
        self.segments[index as usize].listed.number
    }

    /// Index of segment `number` of log `log_id`.
    pub(super) fn index_of(&self, log_id: u64, number: u32) -> Option<u32> {
        // Later segments are asked for more often: an append in parts ends close to its parts.
        let found = self
            .segments
            .iter()
            .rposition(|segment| segment.listed.log_id == log_id && segment.listed.number == number);
        found.map(|index| index as u32)
    }

    /// Number of segments.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Gives up all segments, to close their files.
    pub(super) fn take(&mut self) -> Vec<Rc<Segment>> {
        std::mem::take(&mut self.segments)
    }
}
