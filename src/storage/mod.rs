
pub mod codec;
pub mod commit;
pub mod event;
pub mod extents;
pub mod footer;
pub mod format;
pub mod index;
mod packed;
pub mod producers;
pub mod scan;
mod varint;

// The engine: files, memory, and the log on top of the format.
mod appender;
pub mod buffer;
pub mod cache;
mod commit_loop;
pub mod device;
pub mod file_name;
pub mod log;
mod reader;
mod recovery;
mod roll;
pub mod segment_list;
mod segment_table;
#[cfg(test)]
pub mod simulated;
mod waiters;
