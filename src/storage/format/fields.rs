//! The field tables of the fixed structures, the same as in `storage-format.md`; a test compares them.

use super::{
    COMMIT_HEADER_BYTES, ENTRY_HEADER_BYTES, PAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES,
};

/// One field of a structure on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Position within the structure, in bytes.
    pub at: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Name, as in `storage-format.md`.
    pub name: &'static str,
}

const fn field(at: usize, bytes: usize, name: &'static str) -> Field {
    Field { at, bytes, name }
}

/// Fields of the segment header.
pub const SEGMENT_HEADER_FIELDS: [Field; 14] = [
    field(0, 8, "magic"),
    field(8, 4, "version"),
    field(12, 4, "segment_number"),
    field(16, 8, "log_id"),
    field(24, 8, "epoch"),
    field(32, 8, "first_lsn"),
    field(40, 8, "nonce"),
    field(48, 8, "segment_bytes"),
    field(56, 8, "created_ms"),
    field(64, 8, "origin_log_id"),
    field(72, 8, "last_lsn"),
    field(80, 8, "payload_bytes"),
    field(88, 4004, "reserved"),
    field(4092, 4, "checksum"),
];

/// Fields of the commit header.
pub const COMMIT_HEADER_FIELDS: [Field; 11] = [
    field(0, 8, "magic"),
    field(8, 8, "nonce"),
    field(16, 8, "lsn"),
    field(24, 8, "time_ms"),
    field(32, 4, "body_bytes"),
    field(36, 4, "entry_count"),
    field(40, 4, "blocks"),
    field(44, 4, "flags"),
    field(48, 4, "entries_checksum"),
    field(52, 8, "reserved"),
    field(60, 4, "checksum"),
];

/// Fields of the entry header.
pub const ENTRY_HEADER_FIELDS: [Field; 6] = [
    field(0, 4, "checksum"),
    field(4, 1, "kind"),
    field(5, 1, "flags"),
    field(6, 2, "reserved"),
    field(8, 4, "meta_bytes"),
    field(12, 4, "payload_bytes"),
];

/// Fields of a footer page's header.
pub const PAGE_HEADER_FIELDS: [Field; 11] = [
    field(0, 8, "magic"),
    field(8, 8, "nonce"),
    field(16, 4, "index"),
    field(20, 4, "blocks"),
    field(24, 4, "body_bytes"),
    field(28, 4, "entry_count"),
    field(32, 8, "lsn"),
    field(40, 8, "time_ms"),
    field(48, 4, "position"),
    field(52, 8, "reserved"),
    field(60, 4, "checksum"),
];

/// Fields of the trailer.
pub const TRAILER_FIELDS: [Field; 15] = [
    field(0, 8, "magic"),
    field(8, 4, "version"),
    field(12, 4, "segment_number"),
    field(16, 8, "nonce"),
    field(24, 8, "footer_position"),
    field(32, 8, "footer_bytes"),
    field(40, 8, "first_lsn"),
    field(48, 8, "last_lsn"),
    field(56, 8, "highest_lineage"),
    field(64, 8, "entry_count"),
    field(72, 8, "record_count"),
    field(80, 4, "page_count"),
    field(84, 4, "flags"),
    field(88, 4004, "reserved"),
    field(4092, 4, "checksum"),
];

/// The fields follow each other without a gap and fill `total` bytes.
const fn is_dense(fields: &[Field], total: usize) -> bool {
    let (mut index, mut at) = (0, 0);
    while index < fields.len() {
        if fields[index].at != at {
            return false;
        }
        at += fields[index].bytes;
        index += 1;
    }
    at == total
}

const _: () = {
    assert!(
        is_dense(&SEGMENT_HEADER_FIELDS, SEGMENT_HEADER_BYTES),
        "the segment header is one block, gapless"
    );
    assert!(is_dense(&COMMIT_HEADER_FIELDS, COMMIT_HEADER_BYTES), "the commit header is 64 bytes, gapless");
    assert!(is_dense(&ENTRY_HEADER_FIELDS, ENTRY_HEADER_BYTES), "the entry header is 16 bytes, gapless");
    assert!(is_dense(&PAGE_HEADER_FIELDS, PAGE_HEADER_BYTES), "the page header is 64 bytes, gapless");
    assert!(is_dense(&TRAILER_FIELDS, TRAILER_BYTES), "the trailer is one block, gapless");
};
