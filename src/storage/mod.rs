
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
