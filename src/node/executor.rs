//! A shard's thread: the executor that it runs on, made so that none of its own surprises reach the user.
//!
//! - The executor is made on its thread, pinned first, so that its memory is local to the core.
//! - The kernel gives back the locked memory of a process that ended a moment ago with some delay: a lack of it is waited
//!   out for [`crate::limits::LOCKED_MEMORY_DEADLINE_MS`].
//! - The first file that an executor opens teaches it how to talk to the device: that must be a written one, read only.
//! - Its first sleep registers a memory barrier, which takes tens of milliseconds: done before any request.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use glommio::io::DmaFile;
use glommio::timer::Timer;
use glommio::{GlommioError, Latency, LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement, Shares};

use crate::node::core;
use crate::node::exit::{Exit, Failure};
use crate::node::nudge::Nudge;
use crate::node::preflight;
use crate::shard::mail::ShardStart;

/// Longest time that completions, other cores' messages and timers wait for a shard that has always something to run.
const PREEMPT_TIMER: Duration = Duration::from_micros(500);
/// The same until the shard's own task queue exists. Long, because an executor whose timer expires before its very first
/// task has run goes to sleep on it (see `node::nudge`), and there is no task yet that could be nudged.
const FIRST_PREEMPT_TIMER: Duration = Duration::from_millis(100);

/// How an executor is made.
#[derive(Clone, Debug)]
pub struct ExecutorPlan {
    /// Core to pin the thread to.
    pub core: Option<usize>,
    /// Entries of each ring.
    pub ring_depth: usize,
    /// The prewritten file that is opened first.
    pub probe: PathBuf,
    /// Keeps the executor from sleeping on work.
    pub nudge: Arc<Nudge>,
}

/// What a shard's thread tells, once each, in this order.
#[derive(Debug)]
pub enum Notice {
    /// The executor runs.
    Up,
    /// The thread is about to end: normally, for a reason, or (`None`) in a panic.
    Ended(Option<Result<(), Failure>>),
}

/// Tells the end of a thread even when it panics.
struct EndNotice<F: Fn(Notice)> {
    tell: F,
    outcome: Option<Result<(), Failure>>,
}

impl<F: Fn(Notice)> Drop for EndNotice<F> {
    fn drop(&mut self) {
        (self.tell)(Notice::Ended(self.outcome.take()));
    }
}

/// Starts a shard on a thread of its own. `tell` is called on that thread.
pub fn spawn(
    start: ShardStart,
    plan: ExecutorPlan,
    tell: impl Fn(Notice) + Clone + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = format!("shard-{}", start.shard);
    thread::Builder::new().name(name).spawn(move || {
        let mut notice = EndNotice { tell: tell.clone(), outcome: None };
        let shard = start.shard;
        let nudge = plan.nudge.clone();
        notice.outcome = Some(match make(plan.core, plan.ring_depth, FIRST_PREEMPT_TIMER) {
            Ok(executor) => executor.run(async move {
                plan.nudge.answer();
                let queue = glommio::executor().create_task_queue(
                    Shares::Static(1000),
                    Latency::Matters(PREEMPT_TIMER),
                    "shard",
                );
                match glommio::spawn_local_into(serve(start, plan.probe, plan.nudge, tell), queue) {
                    Ok(task) => task.await,
                    Err(error) => Err(Failure::new(Exit::Failed, format!("shard {shard}: {error}"))),
                }
            }),
            Err(error) => Err(not_made(shard, &plan, &error)),
        });
        nudge.end();
    })
}

/// Runs `work` on an executor of its own and returns what it returns: for work on files before the shards start.
pub fn run_aside<T: Send, F: Future<Output = T>>(
    name: &str,
    probe: &Path,
    work: impl FnOnce() -> F + Send,
) -> Result<T, Failure> {
    /// So long that it never expires: nothing else waits for a turn, and a task that gives way when there is nobody to
    /// give way to may be slept on (see `node::nudge`).
    const PREEMPT_TIMER: Duration = Duration::from_secs(24 * 3600);
    const RING_DEPTH: usize = 128;
    let failed = |why: String| Failure::new(Exit::Failed, format!("{name}: {why}"));
    let run = || {
        let made = make(None, RING_DEPTH, PREEMPT_TIMER);
        let executor = made.map_err(|error| failed(format!("no executor: {error}")))?;
        executor.run(async {
            open_probe(probe).await?;
            let result = work().await;
            // So that closes which were only queued reach the kernel.
            Timer::new(Duration::from_millis(1)).await;
            Ok(result)
        })
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| failed(format!("no thread: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("ended in a panic".to_owned())))
    })
}

/// What runs in the shard's task queue, from the first file to the last close.
async fn serve(
    start: ShardStart,
    probe: PathBuf,
    nudge: Arc<Nudge>,
    tell: impl Fn(Notice),
) -> Result<(), Failure> {
    open_probe(&probe).await?;
    Timer::new(Duration::from_millis(1)).await;
    tell(Notice::Up);
    let outcome = core::run(start, nudge).await;
    // One more turn of the loop, so that closes which were only queued reach the kernel.
    Timer::new(Duration::from_millis(1)).await;
    outcome
}

/// Makes the executor; waits for locked memory that is being given back.
fn make(core: Option<usize>, ring_depth: usize, preempt_timer: Duration) -> io::Result<LocalExecutor> {
    preflight::patiently(|| {
        let placement = core.map_or(Placement::Unbound, Placement::Fixed);
        let made = LocalExecutorBuilder::new(placement)
            .preempt_timer(preempt_timer)
            .ring_depth(ring_depth)
            .io_memory(preflight::IO_MEMORY_BYTES)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
            .make();
        // The executor's error type loses the number of the system's error on its own way to `io::Error`.
        made.map_err(|error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(error.to_string()),
        })
    })
}

async fn open_probe(probe: &Path) -> Result<(), Failure> {
    let refused = |error: GlommioError<()>| {
        Failure::new(Exit::DataDir, format!("{} cannot be opened: {error}", probe.display()))
    };
    let file = DmaFile::open(probe).await.map_err(refused)?;
    file.close().await.map_err(refused)
}

fn not_made(shard: usize, plan: &ExecutorPlan, error: &io::Error) -> Failure {
    if error.raw_os_error() == Some(libc::ENOMEM) {
        return preflight::no_locked_memory(shard);
    }
    let core = plan.core.map_or(String::new(), |core| format!(" on core {core}"));
    Failure::new(Exit::Failed, format!("shard {shard} cannot start{core}: {error}"))
}
