//! Speed of the hot pieces, one by one: `cargo bench --bench micro [-- FILTER]`.
//!
//! What a request passes through, without the machine around it. Every bench checks its result once, outside of what is
//! timed. `cargo test` runs each bench once, over small inputs, so none of them rots; so does `-- --test`.
//!
//! A row shows the fastest, slowest, median and mean of many samples, and what that is in bytes or items a second. Where
//! other work shares the machine the fastest is the figure to compare. Inputs are fixed: runs differ by the machine only.
//!
//! | file | piece |
//! |---|---|
//! | `head` | request heads, from bytes to what is asked |
//! | `route` | paths to streams: routing, placement, lookup; queries |
//! | `json` | splitting JSON bodies into records |
//! | `batch` | frames of an append batch, and their acknowledgements |
//! | `index` | record and extent index: insert, lookup, memory |
//! | `commit` | commits with their checksums; reading them and their footers back |
//! | `sse` | server-sent events |
//! | `answer` | heads of answers |

mod answer;
mod batch;
mod commit;
mod head;
mod index;
mod json;
mod route;
mod sse;

fn main() {
    // Filters, and values of options.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has_index = words.is_empty() || words.iter().any(|word| word.contains("index"));
    let is_listing = std::env::args().any(|argument| argument == "--list");
    if cfg!(debug_assertions) && is_timed() {
        eprintln!("warning: built without optimisation, the figures mean nothing");
    }
    if has_index && !is_listing {
        index::print_costs();
    }
    divan::main();
}

/// Whether benches are timed; otherwise each runs once to see that it works.
fn is_timed() -> bool {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    has("--bench") && !has("--test")
}

/// A size to measure with, much smaller where nothing is measured.
fn sized(size: u64) -> u64 {
    if is_timed() { size } else { (size / 1000).max(1) }
}

/// Reproducible numbers without a pattern.
fn scattered() -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 24
    })
}
