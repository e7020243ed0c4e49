//! Ends a log for good: finds its end like any opening, then seals every segment that lacks a footer.
//!
//! Contract: what [`retire`] returns is immutable from then on, and can be linked into the directories of other logs.
//! It adds footers and trailers where a roll would have, gives back the space between the two, and changes nothing else: a
//! log that was retired opens as before, should nobody come to use the links.

use std::rc::Rc;

use super::{Recovery, io_error, read_list};
use crate::storage::appender::Active;
use crate::storage::device::Store;
use crate::storage::log::{LogOptions, Sync};
use crate::storage::recovered::{OpenError, Retired};
use crate::storage::roll::{self, SealJob};

/// See `Log::retire`.
pub(in crate::storage) async fn retire(store: Rc<dyn Store>, log_id: u64) -> Result<Retired, OpenError> {
    let list = read_list(&*store).await?;
    // Nothing is appended, so nothing but the id and the way files are opened matters.
    let options = LogOptions {
        log_id,
        sync: Sync::Always,
        commit_delay_us: 0,
        segment_bytes: 0,
        segments_ahead: 1,
        cache_bytes: 0,
    };
    let mut recovery = Recovery::new(&*store, &options, list.lineage);
    // A segment that has not begun is of no use to anybody else.
    recovery.open_segments(&list).await?;
    recovery.replay(&mut |_, _| {}).await?;
    let Recovery { mut table, recovered, active, seals, .. } = recovery;
    let last = active.map(|Active { index, footer, .. }| SealJob { segment: index, footer });
    for SealJob { segment, footer } in seals.into_iter().chain(last) {
        let segment = Rc::clone(table.get(segment));
        let name = &segment.listed.name;
        let (pages, trailer) = footer.finish();
        let sealed = roll::seal(&segment, &pages, &trailer).await;
        let unused = sealed.map_err(|source| io_error(&*store, name, "writing its footer", source))?;
        // Most of it, perhaps, and nothing will ever be written there.
        if !unused.is_empty() {
            let given_back = segment.file.deallocate(unused).await;
            given_back
                .map_err(|source| io_error(&*store, name, "giving back what it does not use", source))?;
        }
    }
    let mut retired = Retired {
        segments: Vec::with_capacity(table.len()),
        lineage: recovered.highest_lineage,
        torn: recovered.torn,
    };
    for segment in table.take() {
        retired.segments.push((segment.listed.clone(), segment.header.first_lsn));
        let segment =
            Rc::try_unwrap(segment).ok().expect("nobody else has a segment of a log that is not started");
        segment.file.close().await;
    }
    Ok(retired)
}
