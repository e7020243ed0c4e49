//! Bytes on disk: the log of a shard, its format, and the devices under it.
//!
//! Everything here is described in `storage-format.md` at the root of the repository; the code carries
//! constants and a test compares the two. The layer knows no stream semantics: it stores [`event`]s and hands
//! them back in order.
//!
//! - [`event`]: what the log records.
//! - [`mod@format`]: the fixed structures (segment header, commit header, entry header, footer page, trailer),
//!   checksums.
//! - [`codec`]: an event to the bytes of an entry's meta part, and back.
//! - [`commit`]: builds a commit in place, payload checksummed while it is copied.
//! - [`scan`]: reads commits back, every bit verified, with a closed set of reasons to stop.
//! - [`footer`]: the compact copy of a sealed segment's entries that recovery reads instead of the data.
//! - [`inspect`]: walks logs offline, for `thalweg inspect` and `thalweg verify`.

pub mod codec;
pub mod commit;
pub mod event;
pub mod footer;
pub mod format;
pub mod inspect;
pub mod scan;

// The engine: files, memory, and the log on top of the format.
mod appender;
pub mod buffer;
pub mod cache;
mod commit_loop;
pub mod device;
pub mod file_name;
pub mod log;
mod reader;
mod recovered;
mod recovery;
pub mod ring;
mod roll;
pub mod segment_list;
mod segment_table;
pub mod settle;
#[cfg(test)]
pub mod simulated;
mod waiters;

// The indexes of a stream.
pub mod extents;
pub mod index;
mod packed;
pub mod producers;
mod varint;

#[cfg(test)]
pub(crate) mod testing;
