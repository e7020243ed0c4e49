//! Not a test of correctness: how fast the log is on a real directory. `THALWEG_LOG_BENCH=<dir> cargo test --release
//! throughput -- --ignored --nocapture`.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, Placement};

use super::harness::{Told, options, pattern};
use crate::storage::codec::meta_bytes_max;
use crate::storage::device::{DirectStore, Store};
use crate::storage::event::{Appended, Event, EventContext, Lengths, Payload, Place};
use crate::storage::log::{Class, Log, LogOptions, Piece, Room, Sync};

const RUN: Duration = Duration::from_secs(3);

fn append(lineage: u64, start: u64, len: u32) -> Event<'static> {
    Event::Appended(Appended {
        lineage,
        start,
        lengths: Lengths::Uniform { len: 256, count: len / 256 },
        producer: None,
        stream_seq: None,
        closed: false,
        payload: Payload::Here(Place::default()),
    })
}

/// One connection: append, wait for the commit, append.
async fn client(
    log: Log,
    lineage: u64,
    payload: Rc<Vec<u8>>,
    until: Instant,
    done: Rc<Cell<u64>>,
    worst: Rc<Cell<Duration>>,
) {
    let mut start = 0;
    while Instant::now() < until {
        let event = append(lineage, start, payload.len() as u32);
        let began = Instant::now();
        while log.room(meta_bytes_max(&event), payload.len(), Class::Append) != Room::Now {
            log.wait_room().await;
        }
        let staged = log.stage(&event, payload.len(), |writer| writer.put(&payload));
        log.wait_durable(staged.ticket).await.expect("durable");
        worst.set(worst.get().max(began.elapsed()));
        start += payload.len() as u64;
        done.set(done.get() + 1);
    }
}

async fn measure(dir: PathBuf, sync: Sync, clients: u64, bytes: usize) {
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("probe"), [1; 4096]).expect("a file");
    let probe = glommio::io::DmaFile::open(dir.join("probe")).await.expect("opens");
    let store: Rc<dyn Store> = Rc::new(DirectStore::new(&dir));
    let options = LogOptions { sync, segment_bytes: 256 << 20, cache_bytes: 64 << 20, ..options() };
    let mut visit = |_: &Event<'_>, _: EventContext| {};
    let (log, _) = Log::open(Rc::clone(&store), options.clone(), &mut visit).await.expect("opens");
    log.start(Rc::new(Told::default()));
    let payload = Rc::new(pattern(1, 0, bytes));
    let (done, worst) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(Duration::ZERO)));
    let before = cpu();
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|index| {
            let task =
                client(log.clone(), index + 1, payload.clone(), began + RUN, done.clone(), worst.clone());
            glommio::spawn_local(task)
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = (cpu() - before).as_secs_f64() * 1e6 / done.get() as f64;
    let commits = log.durable() as f64;
    println!(
        "{sync:?} {clients:3} x {bytes:8} B: {:9.0}/s {:7.1} MB/s {:6.0} commits/s worst {:?} cpu {cpu_us:.1} us each",
        done.get() as f64 / seconds,
        done.get() as f64 * bytes as f64 / seconds / 1e6,
        commits / seconds,
        worst.get(),
    );
    log.stop().await;
    let began = Instant::now();
    let mut pieces = Vec::new();
    let mut visit = |event: &Event<'_>, _: EventContext| {
        if let Event::Appended(append) = event
            && append.lineage == 1
            && let Payload::Here(place) = append.payload
        {
            let len = append.lengths.total_bytes() as u32;
            pieces.push(Piece { place, extent_len: len, from: 0, len });
        }
    };
    let (log, recovered) = Log::open(store, options, &mut visit).await.expect("opens");
    let opened = began.elapsed();
    log.start(Rc::new(Told::default()));
    let began = Instant::now();
    let mut total = 0;
    for page in pieces.chunks((1 << 20) / bytes + 1) {
        let mut out = Vec::new();
        log.read(&log.hold(page.to_vec()), &mut out).await.expect("readable");
        total += out.len();
        if began.elapsed() > RUN {
            break;
        }
    }
    let rate = total as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!(
        "    reopened {} events in {opened:?} ({} of {} segments by footer); one stream read at {rate:.0} MB/s",
        recovered.events, recovered.from_footers, recovered.segments
    );
    log.stop().await;
    probe.close().await.expect("closes");
    std::fs::remove_dir_all(&dir).expect("removed");
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    Duration::from_millis(ticks * 10)
}

#[test]
#[ignore = "measures a device"]
fn throughput() {
    let Some(dir) = std::env::var_os("THALWEG_LOG_BENCH") else { return };
    let builder = LocalExecutorBuilder::new(Placement::Fixed(0))
        .ring_depth(1024)
        .preempt_timer(Duration::from_millis(10));
    builder.make().expect("an executor").run(async {
        let dir = PathBuf::from(dir).join("log-bench");
        for sync in [Sync::Always, Sync::None] {
            for (clients, bytes) in
                [(1, 256), (16, 256), (64, 256), (256, 256), (8, 131_072), (4, 1 << 20), (4, 3 << 20)]
            {
                measure(dir.clone(), sync, clients, bytes).await;
            }
        }
    });
}
