//! Pages that are read again and again: when they are kept, and that nobody can tell.

use super::bench::{Answer, Bench, config, run};
use super::*;
use crate::config::Config;
use crate::limits::HOT_PAGE_BYTES_MIN;

const MIB: u64 = 1 << 20;

fn keeping(hot_bytes: u64, cache_bytes: u64) -> Config {
    Config { hot_bytes, cache_bytes, ..config() }
}

/// Bytes of a page, different for every `seed`.
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((at / 7 + at * seed) % 25) as u8).collect()
}

/// Closes a stream: its last page will stay what it is.
async fn close(bench: &Bench, name: &str, content_type: &str) {
    let headers = [("Content-Type", content_type), ("Stream-Closed", "true")];
    bench.send("POST", &format!("/test/{name}"), &headers, "").await.expect(204);
}

/// Reads; whether the body was lent, and the answer.
async fn read(bench: &Bench, target: &str, headers: &[(&str, &str)]) -> (bool, Answer) {
    let started = bench.start("GET", target, headers, "");
    (started.is_lent(), started.answer().await.expect(200))
}

/// An answer without its date.
fn undated(answer: &Answer) -> (String, &[u8]) {
    let lines = answer.head.split("\r\n").filter(|line| !line.starts_with("Date: "));
    (lines.collect::<Vec<_>>().join("\n"), &answer.body)
}

#[test]
fn a_page_is_lent_from_the_third_time_on_and_says_the_same() {
    run(async {
        for cache_bytes in [0, 16 * MIB] {
            let bench = Bench::new(keeping(16 * MIB, cache_bytes)).await;
            bench.create("text", TEXT, &[]).await;
            bench.append("text", TEXT, pattern(300_000, 1)).await.expect(204);
            bench.create("json", JSON, &[]).await;
            bench.append("json", JSON, super::records(1000, 500)).await.expect(204);
            close(&bench, "text", TEXT).await;
            close(&bench, "json", JSON).await;
            let lines = [("Accept", "application/x-ndjson")];
            let views: [(&str, &[(&str, &str)]); 4] =
                [("text", &[]), ("json", &[]), ("json", &lines), ("json?record=0", &[])];
            for (name, headers) in views {
                let target = format!("/test/{name}");
                let (is_lent, first) = read(&bench, &target, headers).await;
                // The lines of a record-aware read are those of the one before it.
                assert_eq!(is_lent, name.contains("record="), "{name}: read for the first time");
                read(&bench, &target, headers).await;
                for _ in 0..2 {
                    let (is_lent, again) = read(&bench, &target, headers).await;
                    assert!(is_lent, "{name} {headers:?} {cache_bytes}");
                    assert!(undated(&again) == undated(&first), "{name}: {first:?}, then {again:?}");
                }
            }
        }
    });
}

#[test]
fn a_kept_page_says_what_is_so_now() {
    run(async {
        let bench = Bench::new(Config { read_page_bytes: MIB, ..keeping(16 * MIB, 0) }).await;
        bench.create("s", TEXT, &[]).await;
        let content = pattern(MIB as usize, 3);
        bench.append("s", TEXT, &content).await.expect(204);
        for _ in 0..4 {
            let (is_lent, answer) = read(&bench, "/test/s", &[]).await;
            assert_eq!(
                (is_lent, answer.header("Stream-Up-To-Date")),
                (false, Some("true")),
                "it may still grow"
            );
        }
        bench.append("s", TEXT, "more").await.expect(204);
        for expected in [false, false, true] {
            let (is_lent, answer) = read(&bench, "/test/s", &[]).await;
            assert!(is_lent == expected && answer.body == content);
            assert_eq!(answer.header("Stream-Up-To-Date"), None, "there is more by now");
        }
        bench.send("DELETE", "/test/s", &[], "").await.expect(204);
        bench.create("s", TEXT, &[]).await;
        let other = pattern(MIB as usize, 5);
        bench.append("s", TEXT, &other).await.expect(204);
        bench.append("s", TEXT, "more").await.expect(204);
        let (is_lent, answer) = read(&bench, "/test/s", &[]).await;
        assert!(!is_lent && answer.body == other, "another stream of the same name");
    });
}

#[test]
fn small_pages_and_envelopes_are_not_kept() {
    run(async {
        let bench = Bench::new(keeping(16 * MIB, 16 * MIB)).await;
        bench.create("small", TEXT, &[]).await;
        bench.append("small", TEXT, pattern(HOT_PAGE_BYTES_MIN - 1, 1)).await.expect(204);
        bench.create("json", JSON, &[]).await;
        bench.append("json", JSON, super::records(1000, 500)).await.expect(204);
        close(&bench, "small", TEXT).await;
        close(&bench, "json", JSON).await;
        for target in ["/test/small", "/test/json?record=0&record_view=envelope"] {
            for _ in 0..4 {
                assert!(!read(&bench, target, &[]).await.0, "{target}");
            }
        }
    });
}

/// Reads pages of a mebibyte, each of them once; which were lent.
async fn scan(bench: &Bench, pages: std::ops::Range<u64>) -> Vec<bool> {
    let mut lent = Vec::new();
    let start = bench.send("GET", "/test/s?offset=-1&max_bytes=1", &[], "").await.expect(200);
    let lineage = start
        .header("Stream-Next-Offset")
        .expect("an offset")
        .split('_')
        .next()
        .expect("a lineage")
        .to_owned();
    for page in pages {
        let target = format!("/test/s?offset={lineage}_{:016}", page * MIB);
        let (is_lent, answer) = read(bench, &target, &[]).await;
        assert!(answer.body == pattern(MIB as usize, page as usize), "page {page}");
        lent.push(is_lent);
    }
    lent
}

#[test]
fn more_pages_than_fit_are_not_kept_in_turn_and_the_oldest_go_first() {
    run(async {
        // Two huge pages: four pages of a mebibyte.
        let bench = Bench::new(keeping(4 * MIB, 0)).await;
        bench.create("s", TEXT, &[]).await;
        for page in 0..8 {
            bench.append("s", TEXT, pattern(MIB as usize, page)).await.expect(204);
        }
        close(&bench, "s", TEXT).await;
        for _ in 0..3 {
            assert_eq!(scan(&bench, 0..8).await, [false; 8], "a scan of more than fits leaves nothing");
        }
        for is_lent in [false, false, true] {
            assert_eq!(scan(&bench, 0..4).await, [is_lent; 4]);
        }
        for is_lent in [false, false, true] {
            assert_eq!(scan(&bench, 4..6).await, [is_lent; 2]);
        }
        assert_eq!(scan(&bench, 2..6).await, [true; 4], "the newer ones are still there");
        assert_eq!(scan(&bench, 0..2).await, [false; 2], "the oldest have gone");
    });
}

#[test]
fn what_keeping_wastes_counts_too() {
    run(async {
        // Two huge pages, and three pages of which each takes one of them.
        let page_bytes = MIB + MIB / 4;
        let bench = Bench::new(Config { read_page_bytes: page_bytes, ..keeping(4 * MIB, 0) }).await;
        for name in ["a", "b", "c"] {
            bench.create(name, TEXT, &[]).await;
            bench.append(name, TEXT, pattern(page_bytes as usize, 1)).await.expect(204);
            close(&bench, name, TEXT).await;
        }
        for _ in 0..4 {
            for name in ["a", "b", "c"] {
                assert!(!read(&bench, &format!("/test/{name}"), &[]).await.0, "{name}: three do not fit");
            }
        }
        for is_lent in [false, false, true] {
            assert_eq!(read(&bench, "/test/a", &[]).await.0, is_lent);
        }
    });
}

#[test]
fn nothing_is_kept_in_less_than_a_huge_page() {
    run(async {
        for hot_bytes in [0, 2 * MIB - 1] {
            let bench = Bench::new(keeping(hot_bytes, 0)).await;
            bench.create("s", TEXT, &[]).await;
            bench.append("s", TEXT, pattern(MIB as usize, 0)).await.expect(204);
            close(&bench, "s", TEXT).await;
            for _ in 0..4 {
                assert_eq!(scan(&bench, 0..1).await, [false]);
            }
        }
    });
}
