//! The chunks of a log, and whether each event that names some finds them.

use std::collections::{HashMap, HashSet};

use super::super::event::{Event, Part};
use super::streams::{Problem, Unless, parts};

/// All chunks so far.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Log, segment number and position to what is known of the chunk.
    by_place: HashMap<(u64, u32, u32), Chunk>,
    /// Segments that were walked, by log and number.
    segments: HashSet<(u64, u32)>,
}

#[derive(Debug)]
struct Chunk {
    len: u32,
    /// An entry names it.
    is_named: bool,
    /// An entry that counts names it: no other may.
    is_taken: bool,
}

impl Chunks {
    /// A segment begins.
    pub(super) fn begin(&mut self, log_id: u64, number: u32) {
        self.segments.insert((log_id, number));
    }

    /// A chunk. Of a file that is listed twice it comes twice, for other streams each time.
    pub(super) fn add(&mut self, log_id: u64, number: u32, part: &Part) {
        let chunk = Chunk { len: part.len, is_named: false, is_taken: false };
        let known = self.by_place.entry((log_id, number, part.place.position)).or_insert(chunk);
        known.is_taken = false;
    }

    /// The chunks that an event names; says what is wrong with that, if the event counts. Nothing of a segment
    /// that was rewritten is needed, so what names a chunk in one ends further on. `snapshots` is how
    /// many the stream has had, this one included.
    pub(super) fn take(
        &mut self,
        log_id: u64,
        event: &Event<'_>,
        counts: bool,
        snapshots: u64,
    ) -> Option<Problem> {
        let (mut end, is_snapshot) = match event {
            Event::Appended(append) => (append.start, false),
            _ => (0, true),
        };
        let lineage = event.lineage()?;
        let mut problem = None;
        for Part { place, len } in parts(event) {
            end += u64::from(*len);
            let is_walked = self.segments.contains(&(log_id, place.segment));
            let found = match self.by_place.get_mut(&(log_id, place.segment, place.position)) {
                Some(chunk) => {
                    chunk.is_named = true;
                    if !counts {
                        continue;
                    }
                    let was_taken = std::mem::replace(&mut chunk.is_taken, true);
                    let (position, segment) = (place.position, place.segment);
                    if chunk.len != *len {
                        Problem::certain(format!("names {len} bytes of a chunk that has {}", chunk.len))
                    } else if was_taken {
                        Problem::certain(format!("names the chunk at {position} of segment {segment} again"))
                    } else {
                        continue;
                    }
                }
                None if !counts => continue,
                None => {
                    let (position, segment) = (place.position, place.segment);
                    let what = format!("names a chunk at {position} of segment {segment} that is not there");
                    match (is_walked, is_snapshot) {
                        (true, _) => Problem::certain(what),
                        (false, true) => {
                            Problem { what, unless: Some(Unless::Superseded { lineage, number: snapshots }) }
                        }
                        (false, false) => Problem { what, unless: Some(Unless::Trimmed { lineage, end }) },
                    }
                }
            };
            problem = match problem {
                // The last piece is the one that must be gone for all of them to be.
                Some(Problem { unless: None, .. }) => problem,
                _ => Some(found),
            };
        }
        problem
    }

    /// Number and bytes of the chunks that nothing names, if there are any.
    pub(super) fn unpublished(&self) -> Option<(usize, u64)> {
        let lens: Vec<u32> =
            self.by_place.values().filter(|chunk| !chunk.is_named).map(|chunk| chunk.len).collect();
        (!lens.is_empty()).then(|| (lens.len(), lens.iter().map(|len| u64::from(*len)).sum()))
    }
}
