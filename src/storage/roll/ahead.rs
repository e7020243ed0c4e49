//! Segments made further ahead than the next one, while the log is idle (`--segments-ahead`): for bursts that are faster than
//! zeros can be written beside them.
//!
//! A spare is a file with its space and some zeros that is not listed: a crash leaves garbage, which the next start removes. When
//! the next segment is due the oldest one is taken, and gets what it lacks. Spares have their numbers in the order in which they
//! are made and taken, so that they are listed in order. None is made that would leave less free than the next one and settling may
//! need. The last one may lack zeros: the log was not idle for long enough.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use futures_lite::future::or;
use glommio::timer::Timer;

use super::{FULL_RETRY, create, is_no_space, seal_one, zeros_and_pause};
use crate::limits::SEGMENTS_KEPT_FREE;
use crate::storage::device::{File, Mode};
use crate::storage::log::Inner;
use crate::storage::segment_list::Listed;

/// See the module.
pub(super) struct Spare {
    listed: Listed,
    /// Zeros are written up to here.
    zeros_to: u64,
}

/// All of them, oldest first.
pub(super) type Spares = VecDeque<Spare>;

/// A file that is to become the next segment.
pub(super) struct Unlisted {
    pub(super) listed: Listed,
    pub(super) file: Rc<dyn File>,
    /// Zeros are written up to here.
    pub(super) zeros_to: u64,
}

/// Whether the log has had nothing to do for a while, and wants more segments than the next one while that lasts.
pub(super) fn is_time(inner: &Inner) -> bool {
    inner.options.segments_ahead > 1 && !inner.appender.borrow().wants_mark()
}

/// Whether there is something to make now.
pub(super) fn is_wanted(inner: &Inner) -> bool {
    let spares = inner.roller.spares.borrow();
    let last_lacks_zeros = spares.back().is_some_and(|spare| spare.zeros_to < inner.options.segment_bytes);
    is_time(inner) && (last_lacks_zeros || spares.len() + 1 < inner.options.segments_ahead)
}

/// Makes one, or goes on with the last one, as long as the log is idle and its next segment at hand.
pub(super) async fn make(inner: &Inner) {
    match make_or_go_on(inner).await {
        Ok(()) => {}
        Err(error) if is_no_space(&error) => {
            or(inner.roller.signal.wait(), async {
                Timer::new(FULL_RETRY).await;
            })
            .await;
        }
        Err(error) => inner.latch(format!("making a segment ahead: {error}")),
    }
}

async fn make_or_go_on(inner: &Inner) -> io::Result<()> {
    let (roller, bytes) = (&inner.roller, inner.options.segment_bytes);
    let last = roller.spares.borrow_mut().pop_back_if(|spare| spare.zeros_to < bytes);
    let Unlisted { listed, file, mut zeros_to } = match last {
        Some(spare) => open(inner, spare).await?,
        None => {
            if inner.store.available_bytes().await? < (1 + SEGMENTS_KEPT_FREE) * bytes {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            let listed = roller.next_listed(inner.options.log_id);
            let file = create(&*inner.store, &listed, bytes).await?;
            Unlisted { listed, file, zeros_to: 0 }
        }
    };
    while zeros_to < bytes && is_time(inner) && roller.is_ready() && !inner.ending() {
        if !seal_one(inner).await {
            zeros_to = zeros_and_pause(&*file, zeros_to, bytes).await?;
        }
    }
    if zeros_to == bytes {
        // Nothing is left to be written when it is taken.
        file.sync().await?;
    }
    file.close().await;
    roller.spares.borrow_mut().push_back(Spare { listed, zeros_to });
    Ok(())
}

/// The oldest one, if there is one.
pub(super) async fn take(inner: &Inner) -> io::Result<Option<Unlisted>> {
    let oldest = inner.roller.spares.borrow_mut().pop_front();
    match oldest {
        Some(spare) => open(inner, spare).await.map(Some),
        None => Ok(None),
    }
}

async fn open(inner: &Inner, spare: Spare) -> io::Result<Unlisted> {
    let Spare { listed, zeros_to } = spare;
    let file = inner.store.open(&listed.name, Mode::Write).await?;
    Ok(Unlisted { listed, file, zeros_to })
}
