//! The durable list of a shard's segments: the only truth about which files count.
//!
//! A small text file, checked by a CRC-32C over all its lines but the last, replaced as a whole: written aside, synced,
//! renamed, directory synced. A file of the directory that it does not name is garbage.
//!
//! ```text
//! thalweg-segments 1
//! lineage 4711
//! segment 1 of 7 segment-0000000001.log
//! segment 2 of 7 segment-0000000002.log
//! checksum 1f2e3d4c
//! ```
//!
//! Segments stand in the order in which they are replayed. `of` names the log that wrote them: after re-sharding, the
//! segments of the old logs come first, in the order of their first sequence numbers. A segment that was rewritten (settled)
//! stands where those stood whose place it took. `hashes`, where it stands, says whose streams the segment counts for, by the
//! upper half of their placement hashes: first one, and the one after the last.

use std::fmt::Write;
use std::io;

use crate::storage::device::Store;
use crate::storage::event::HashRange;
use crate::storage::file_name;

/// Version of the list's format that this code writes, and the newest that it reads.
const VERSION: u32 = 1;
const TITLE: &str = "thalweg-segments";

/// One segment that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Number of the segment in the log that wrote it.
    pub number: u32,
    /// Id of that log.
    pub log_id: u64,
    /// Name of its file.
    pub name: String,
    /// Whose streams it counts for. A file may be listed several times, for ranges that do not overlap.
    pub hashes: HashRange,
}

impl Listed {
    /// Segment `number` of log `log_id`, in that log's own directory.
    pub fn own(number: u32, log_id: u64) -> Listed {
        Listed { number, log_id, name: file_name::segment(number), hashes: HashRange::ALL }
    }

    /// Segment `number` of log `log_id`, linked into the directory of another log.
    pub fn inherited(number: u32, log_id: u64, hashes: HashRange) -> Listed {
        Listed { number, log_id, name: file_name::inherited_segment(number, log_id), hashes }
    }
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentList {
    /// Segments in the order of replay.
    pub segments: Vec<Listed>,
    /// Highest lineage id known when the list was written; ids continue after it.
    pub lineage: u64,
}

/// First sequence numbers of the segments that go on where one of log `log_id` ends that counts for `hashes`: for each part of
/// the placements the next one of `later` (log, hashes, first sequence number; in the order of the list), if there is one. Logs
/// interleave, and shards that inherited the same log may each have rewritten their own part: so the next one may be several.
pub fn first_lsns_behind(
    log_id: u64,
    hashes: HashRange,
    later: impl Iterator<Item = (u64, HashRange, u64)>,
) -> Vec<u64> {
    let mut open = vec![hashes];
    let mut found = Vec::new();
    for (_, range, first_lsn) in later.filter(|(other, ..)| *other == log_id) {
        let mut rest = Vec::with_capacity(open.len() + 1);
        for part in &open {
            let Some(both) = part.intersection(range) else {
                rest.push(*part);
                continue;
            };
            found.push(first_lsn);
            rest.extend(part.intersection(HashRange { start: 0, end: both.start }));
            rest.extend(part.intersection(HashRange { start: both.end, ..HashRange::ALL }));
        }
        open = rest;
        if open.is_empty() {
            break;
        }
    }
    found.dedup();
    found
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The list's path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It was written by a newer version of this program.
    #[error("{path} has format version {found}; this program reads up to {VERSION}")]
    Newer {
        /// The list's path.
        path: String,
        /// Its version.
        found: u32,
    },
    /// It is not what was written.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The list's path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl SegmentList {
    /// Reads the list of `store`; `None` if there is none yet.
    pub async fn read(store: &dyn Store) -> Result<Option<SegmentList>, ListError> {
        let path = store.path_of(file_name::LIST);
        match store.read_whole(file_name::LIST).await {
            Ok(Some(bytes)) => SegmentList::parse(&bytes, &path).map(Some),
            Ok(None) => Ok(None),
            Err(source) => Err(ListError::Io { path, source }),
        }
    }

    /// Makes this the list of `store`. On return it is durable; on an error either list may be in force.
    pub async fn write(&self, store: &dyn Store) -> io::Result<()> {
        store.write_whole(file_name::LIST_ASIDE, self.encode()).await?;
        store.rename(file_name::LIST_ASIDE, file_name::LIST).await?;
        store.sync_dir().await
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{TITLE} {VERSION}\nlineage {}\n", self.lineage);
        for segment in &self.segments {
            let Listed { number, log_id, name, hashes } = segment;
            // Writing to a string cannot fail.
            let _ = write!(text, "segment {number} of {log_id} {name}");
            if *hashes != HashRange::ALL {
                let _ = write!(text, " hashes {} {}", hashes.start, hashes.end);
            }
            text.push('\n');
        }
        let checksum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "checksum {checksum:08x}");
        text.into_bytes()
    }

    /// Parses the bytes of the file at `path`.
    pub fn parse(bytes: &[u8], path: &str) -> Result<SegmentList, ListError> {
        let damaged = |why: String| ListError::Damaged { path: path.to_string(), why };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("not a text".into()))?;
        let title = text.lines().next().unwrap_or_default();
        let version = title.strip_prefix(TITLE).and_then(|rest| rest.trim().parse::<u32>().ok());
        // The version comes before the checksum: a newer format may check itself differently.
        match version {
            Some(found) if found > VERSION => return Err(ListError::Newer { path: path.to_string(), found }),
            Some(VERSION) => {}
            _ => return Err(damaged(format!("its first line is {title:?}"))),
        }
        let start = text.rfind("checksum ").ok_or_else(|| damaged("it has no checksum".into()))?;
        let expected = format!("checksum {:08x}\n", crc32c::crc32c(&bytes[..start]));
        if text[start..] != expected {
            return Err(damaged("its checksum does not match".into()));
        }
        let mut list = SegmentList::default();
        for line in text[..start].lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            let parsed = match words[..] {
                ["lineage", lineage] => lineage.parse().map(|lineage| list.lineage = lineage).is_ok(),
                ["segment", number, "of", log_id, name, ref hashes @ ..] if file_name::is_segment(name) => {
                    match (number.parse(), log_id.parse(), parse_hashes(hashes)) {
                        (Ok(number), Ok(log_id), Some(hashes)) => {
                            list.segments.push(Listed { number, log_id, name: name.to_string(), hashes });
                            true
                        }
                        _ => false,
                    }
                }
                _ => false,
            };
            if !parsed {
                return Err(damaged(format!("line {line:?} is not understood")));
            }
        }
        Ok(list)
    }
}

fn parse_hashes(words: &[&str]) -> Option<HashRange> {
    match words {
        [] => Some(HashRange::ALL),
        ["hashes", start, end] => {
            let range = HashRange { start: start.parse().ok()?, end: end.parse().ok()? };
            (range.start < range.end && range.end <= HashRange::ALL.end).then_some(range)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> SegmentList {
        SegmentList {
            segments: vec![
                Listed::inherited(9, 3, HashRange::ALL),
                Listed::inherited(9, 4, HashRange { start: 5, end: 1 << 31 }),
                Listed::own(1, 7),
                Listed::own(2, 7),
            ],
            lineage: 4711,
        }
    }

    #[test]
    fn a_list_survives_its_encoding() {
        for list in [example(), SegmentList::default()] {
            assert_eq!(SegmentList::parse(&list.encode(), "list").expect("valid"), list);
        }
    }

    #[test]
    fn the_encoding_is_fixed() {
        let text = String::from_utf8(example().encode()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["thalweg-segments 1", "lineage 4711"]);
        assert_eq!(lines[2], "segment 9 of 3 segment-0000000009-of-3.log");
        assert_eq!(lines[3], "segment 9 of 4 segment-0000000009-of-4.log hashes 5 2147483648");
        assert_eq!(lines[5], "segment 2 of 7 segment-0000000002.log");
        assert!(lines[6].starts_with("checksum "), "{lines:?}");
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let bytes = example().encode();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 0x01;
            assert!(SegmentList::parse(&changed, "list").is_err(), "byte {index} changed");
            assert!(SegmentList::parse(&bytes[..index], "list").is_err(), "cut after {index} bytes");
        }
    }

    #[test]
    fn the_next_segment_is_found_for_every_part_of_the_placements() {
        let range = |start, end| HashRange { start, end };
        let later = [
            (8, range(0, 9), 50),
            (7, range(0, 4), 11),
            (7, range(0, 6), 20),
            (7, range(6, 8), 11),
            (7, HashRange::ALL, 99),
        ];
        let behind = |log_id, hashes| first_lsns_behind(log_id, hashes, later.into_iter());
        assert_eq!(behind(8, range(3, 9)), [50]);
        assert_eq!(behind(8, range(9, 12)), [0; 0], "nothing of it goes on there");
        assert_eq!(behind(9, HashRange::ALL), [0; 0]);
        assert_eq!(behind(7, range(0, 4)), [11]);
        assert_eq!(behind(7, range(6, 7)), [11]);
        assert_eq!(behind(7, range(3, 7)), [11, 20, 11]);
        assert_eq!(behind(7, range(3, 10)), [11, 20, 11, 99]);
    }

    #[test]
    fn a_newer_list_is_refused_as_such() {
        let error = SegmentList::parse(b"thalweg-segments 2\nwhatever\n", "list").expect_err("newer");
        assert!(matches!(error, ListError::Newer { found: 2, .. }), "{error}");
    }
}
