//! Stop signals. They are blocked in the whole process before any thread starts, so that no shard is ever interrupted;
//! one thread takes them.

use std::io;
use std::mem;

/// Signals that ask the server to stop.
const STOP_SIGNALS: [(libc::c_int, &str); 2] = [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT")];

/// Blocks the stop signals in the calling thread and all threads it starts from now on.
pub fn block() {
    let set = stop_set();
    // SAFETY: `set` is initialised; a null pointer asks for no old mask.
    let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    assert_eq!(result, 0, "blocking two ordinary signals cannot fail");
}

/// Starts the thread that takes stop signals: the first is told to `first`, by name; the second ends the process at once
/// with 128 plus its number, as a shell would report it. All that was acknowledged is on disk by then.
pub fn watch(first: impl FnOnce(&'static str) + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
        let (_, name) = take();
        first(name);
        let (number, name) = take();
        eprintln!("thalweg: second {name}: exit at once");
        std::process::exit(128 + number);
    })?;
    drop(thread); // it ends with the process
    Ok(())
}

/// Waits for a stop signal.
fn take() -> (libc::c_int, &'static str) {
    let set = stop_set();
    loop {
        let mut number = 0;
        // SAFETY: both pointers are valid for the call; the signals of the set are blocked in every thread.
        let result = unsafe { libc::sigwait(&set, &mut number) };
        if let (0, Some(signal)) = (result, STOP_SIGNALS.iter().find(|signal| signal.0 == number)) {
            return *signal;
        }
    }
}

fn stop_set() -> libc::sigset_t {
    // SAFETY: `sigemptyset` initialises the set, `sigaddset` takes valid signal numbers.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        for (number, _) in STOP_SIGNALS {
            libc::sigaddset(&mut set, number);
        }
        set
    }
}
