//! The names of the files in a shard's log directory: the only place that formats or parses them.

/// Name of the segment list.
pub const LIST: &str = "segments";
/// Name under which the next segment list is written before it takes its place.
pub const LIST_ASIDE: &str = "segments.new";

const SEGMENT_PREFIX: &str = "segment-";
const SEGMENT_SUFFIX: &str = ".log";
const SEGMENT_DIGITS: usize = 10;
/// Between the number and the id of the log, where that is another one.
const INHERITED: &str = "-of-";

/// Name of segment `number`: `segment-0000000001.log`.
pub fn segment(number: u32) -> String {
    format!("{SEGMENT_PREFIX}{number:0width$}{SEGMENT_SUFFIX}", width = SEGMENT_DIGITS)
}

/// Name of segment `number` of another log, linked into this one: `segment-0000000001-of-7.log`.
pub fn inherited_segment(number: u32, log_id: u64) -> String {
    format!("{SEGMENT_PREFIX}{number:0width$}{INHERITED}{log_id}{SEGMENT_SUFFIX}", width = SEGMENT_DIGITS)
}

/// Whether `name` is a segment's, own or inherited (listed or not).
pub fn is_segment(name: &str) -> bool {
    let Some(middle) = name.strip_prefix(SEGMENT_PREFIX).and_then(|rest| rest.strip_suffix(SEGMENT_SUFFIX))
    else {
        return false;
    };
    let (number, log_id) = match middle.split_once(INHERITED) {
        Some((number, log_id)) => (number, Some(log_id)),
        None => (middle, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number.len() == SEGMENT_DIGITS && digits(number) && log_id.is_none_or(digits)
}

/// Whether `name` is that of a segment which the log of its directory wrote itself.
pub fn is_own_segment(name: &str) -> bool {
    is_segment(name) && !name.contains(INHERITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised() {
        assert_eq!(segment(1), "segment-0000000001.log");
        assert_eq!(inherited_segment(12, 7), "segment-0000000012-of-7.log");
        for name in [segment(1), segment(u32::MAX), inherited_segment(3, u64::MAX)] {
            assert!(is_segment(&name), "{name}");
        }
        assert!(is_own_segment(&segment(1)) && !is_own_segment(&inherited_segment(1, 7)));
        assert!(!is_own_segment(LIST));
        for name in
            ["segments", "segments.new", "segment-1.log", "segment-00000000x1.log", "segment-0000000001.log~"]
        {
            assert!(!is_segment(name), "{name}");
        }
        for name in ["segment-0000000001-of-.log", "segment-0000000001-of-x.log", ".DS_Store", ""] {
            assert!(!is_segment(name), "{name}");
        }
    }
}
