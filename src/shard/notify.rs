//! A flag that one task waits for: set by anyone on the same core, remembered until it is waited for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// See the module.
#[derive(Debug, Default)]
pub struct Notify {
    set: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Notify {
    /// Sets the flag and wakes the waiter.
    pub fn notify(&self) {
        self.set.set(true);
        // Taken out first: a wake may run the waiter at once.
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits until the flag is set, and clears it. One waiter at a time.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.set.take() {
                return Poll::Ready(());
            }
            *self.waiter.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
