//! (module)

pub mod event;
pub mod extents;
pub mod index;
mod packed;
pub mod producers;
mod varint;
