//! Cursors of live reads (base protocol 10.1): the number of the present 20-second interval, so that caches can collapse
//! readers that wait for the same bytes. A client that already has the present cursor gets a later one: otherwise a
//! cache could answer it with the same stale response for ever.

use super::digits;

/// Length of an interval.
pub const INTERVAL_MS: u64 = 20_000;
/// Where interval 0 starts: 2024-10-09T00:00:00Z, in Unix milliseconds.
pub const EPOCH_MS: u64 = 1_728_432_000_000;
/// Longest jitter, in seconds; the shortest is one.
pub const JITTER_SECONDS_MAX: u64 = 3600;
/// Largest cursor that is believed: beyond it, adding jitter could not be told from wrapping in a client.
pub const CURSOR_MAX: u64 = crate::limits::PROTOCOL_INTEGER_MAX;

/// A cursor that a client echoes, already decoded; `None` for what no server gave out.
pub fn parse(text: &[u8]) -> Option<u64> {
    digits::parse_u64(text).filter(|&cursor| cursor <= CURSOR_MAX)
}

/// The cursor for an answer at `now_ms`. If the client has the present interval's cursor, or a later one, the answer is
/// greater than the client's by a jitter of 1 to 3600 seconds, in intervals, drawn from `random`.
pub fn next(now_ms: u64, client: Option<u64>, random: impl FnOnce() -> u64) -> u64 {
    let present = now_ms.saturating_sub(EPOCH_MS) / INTERVAL_MS;
    match client {
        Some(client) if client >= present => {
            let jitter_seconds = 1 + random() % JITTER_SECONDS_MAX;
            client + (jitter_seconds * 1000).div_ceil(INTERVAL_MS)
        }
        _ => present,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_and_jitter() {
        let at = |interval: u64| EPOCH_MS + interval * INTERVAL_MS;
        // (now, the client's cursor, random, the answer)
        let table = [
            (0, None, 0, 0),
            (EPOCH_MS - 1, None, 0, 0),
            (at(1000), None, 0, 1000),
            (at(1000) + 19_999, None, 0, 1000),
            (at(1001), None, 0, 1001),
            (at(1000), Some(999), 0, 1000),
            (at(1000), Some(1000), 0, 1001),
            (at(1000), Some(1000), 19, 1001),
            (at(1000), Some(1000), 20, 1002),
            (at(1000), Some(1000), 3599, 1180),
            (at(1000), Some(1000), 3600, 1001),
            (at(1000), Some(1050), 0, 1051),
        ];
        for (now_ms, client, random, expected) in table {
            assert_eq!(next(now_ms, client, || random), expected, "{now_ms} {client:?} {random}");
        }
    }

    #[test]
    fn the_epoch_is_the_day_of_the_specification() {
        assert_eq!(super::super::time::parse_rfc3339(b"2024-10-09T00:00:00Z"), Some(EPOCH_MS));
    }

    #[test]
    fn echoes_that_are_no_cursors() {
        assert_eq!(parse(b"1000"), Some(1000));
        for text in ["", "abc", "-1", "1.5", "9007199254740992", "99999999999999999999"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn cursors_never_go_back(now_ms: u64, client in 0..=CURSOR_MAX, random: u64) {
            let cursor = next(now_ms, Some(client), || random);
            prop_assert!(cursor >= next(now_ms, None, || random));
            prop_assert!(cursor >= client);
            if client >= next(now_ms, None, || 0) {
                prop_assert!((client + 1..=client + 180).contains(&cursor));
            }
        }
    }
}
