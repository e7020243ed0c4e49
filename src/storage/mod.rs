//! (module)

pub mod event;

pub mod buffer;
pub mod device;
pub mod file_name;
pub mod segment_list;
#[cfg(test)]
pub mod simulated;
