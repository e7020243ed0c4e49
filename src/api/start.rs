//! Where a read starts: an offset argument against a stream (decisions 8, 9, 10).

use crate::protocol::errors::{Code, Problem};
use crate::protocol::offset::OffsetArg;
use crate::shard::lineage::Lineages;
use crate::shard::stream::Stream;

/// The byte at which a read starts.
///
/// A token of an earlier life of the name is 410, one that was never issued 400; so is an offset beyond the durable tail,
/// or, on a stream of records, inside a record.
pub fn resolve(stream: &Stream, offset: OffsetArg, lineages: &Lineages) -> Result<u64, Problem> {
    let from = match offset {
        OffsetArg::Start => 0,
        OffsetArg::Now => stream.durable.bytes,
        OffsetArg::Plain(from) => from,
        OffsetArg::Token { lineage, offset } if lineage == stream.lineage => offset,
        OffsetArg::Token { lineage, .. } if lineages.issued(lineage) => {
            let message = "the offset belongs to an earlier stream of this name, or to another stream";
            return Err(Problem::fixed(Code::OffsetGone, message));
        }
        OffsetArg::Token { .. } => {
            let message = "the offset was never returned by this server";
            return Err(Problem::fixed(Code::InvalidOffset, message));
        }
    };
    if from > stream.durable.bytes {
        return Err(Problem::fixed(Code::OffsetBeyondTail, "the offset is beyond the end of the stream"));
    }
    if stream.is_json() && from < stream.durable.bytes && !stream.index.locate(from).is_boundary {
        return Err(Problem::fixed(Code::OffsetNotAligned, "the offset is inside a record"));
    }
    Ok(from)
}
