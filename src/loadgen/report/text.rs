//! Numbers and words for people: thousands separators, units, ratios, and text that can do no harm in a page.
//!
//! Contract: pure functions from values to text. Only [`escape`] returns markup; everything else returns plain text
//! that is still to be escaped. What is not a finite number reads as a dash, so no page ever shows `NaN`.

/// What stands for a figure that there is none of.
pub(super) const NONE: &str = "–";
/// Between a number and its unit: they stay on one line.
const SPACE: char = '\u{a0}';

/// Text as the content of an element or of a quoted attribute. Control characters, which a page may not contain,
/// show as replacement characters; so do those that turn the direction of the text around them.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}')
            }
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A whole number with thousands separators.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure of at least three significant digits: `61,204`, `14.2`, `0.93`.
pub(super) fn figure(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return NONE.to_owned();
    }
    // The bounds are where rounding would add a digit.
    match value {
        0.0 => "0".to_owned(),
        _ if value < 0.0005 => "<0.001".to_owned(),
        _ if value < 0.0995 => format!("{value:.3}"),
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        // Saturates: a figure beyond u64 is no measurement.
        _ => grouped(value.round() as u64),
    }
}

/// A latency: `812 µs`, `2.31 ms`, `30.0 s`.
pub(super) fn latency(latency_us: u64) -> String {
    if latency_us < 1000 { format!("{latency_us}{SPACE}µs") } else { latency_mean(latency_us as f64) }
}

/// A latency that is no whole number of microseconds.
pub(super) fn latency_mean(latency_us: f64) -> String {
    let (value, unit) = match latency_us {
        _ if latency_us < 999.5 => (latency_us, "µs"),
        _ if latency_us < 999_500.0 => (latency_us / 1e3, "ms"),
        _ => (latency_us / 1e6, "s"),
    };
    format!("{}{SPACE}{unit}", figure(value))
}

/// A number of bytes in decimal units: `256 B`, `15.7 MB`.
pub(super) fn bytes(count: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let number =
        if unit == 0 && value.fract() == 0.0 && value >= 0.0 { grouped(value as u64) } else { figure(value) };
    format!("{number}{SPACE}{}", UNITS[unit])
}

/// Memory, in binary units as the system counts it: `312 MiB`.
pub(super) fn memory(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 999.5 {
        format!("{}{SPACE}MiB", figure(mebibytes))
    } else {
        format!("{}{SPACE}GiB", figure(mebibytes / 1024.0))
    }
}

/// How often `first` goes into `value`: `1.43×`. Nothing to compare with, no ratio.
pub(super) fn ratio(value: f64, first: f64) -> Option<String> {
    let ratio = value / first;
    (ratio.is_finite() && ratio >= 0.0).then(|| format!("{}×", figure(ratio)))
}

/// A share of a whole as percent: `93 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let number = match percent {
        0.995..9.95 => format!("{percent:.1}"),
        9.95..1e6 => format!("{percent:.0}"),
        _ => figure(percent),
    };
    format!("{number}{SPACE}%")
}

/// A number with its noun: `1 error`, `3 errors`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{}{SPACE}{noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Labels that fit into `room_px` at a font of `size_px`. What all of them begin with goes first, because it tells
/// none apart; then the end.
pub(super) fn short_labels(labels: &[&str], room_px: f64, size_px: f64) -> Vec<String> {
    let common = common_words(labels);
    let fits = |text: &str| width_px(text, size_px) <= room_px;
    let shorten = |label: &&str| {
        if fits(label) {
            return (*label).to_owned();
        }
        let whole = if common > 0 { format!("…{}", &label[common..]) } else { (*label).to_owned() };
        if fits(&whole) {
            return whole;
        }
        let ends = whole.char_indices().map(|(at, _)| at).rev();
        let cut = |end: usize| format!("{}…", whole[..end].trim_end());
        ends.map(cut).find(|text| fits(text)).unwrap_or_default()
    };
    labels.iter().map(shorten).collect()
}

/// Bytes of the words that all labels begin with, if there are several labels and each has more to say.
fn common_words(labels: &[&str]) -> usize {
    let [first, others @ ..] = labels else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let is_common = |end: usize| {
        labels
            .iter()
            .all(|label| label.get(..end).is_some_and(|start| start == &first[..end] && label.len() > end))
    };
    let ends = first.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, c)| at + c.len_utf8());
    ends.take_while(|end| is_common(*end)).last().unwrap_or(0)
}

/// About how wide a text is in a wide sans-serif font of that size. Rather too much than too little: it is what
/// keeps texts apart.
pub(super) fn width_px(text: &str, size_px: f64) -> f64 {
    let ems = |c: char| match c {
        '.' | ',' | ' ' | SPACE | 'i' | 'l' | 'j' | '\'' | '|' | ':' => 0.36,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '—' => 0.98,
        // Ideographs, emoji and other wide characters.
        '\u{1100}'.. => 1.05,
        c if c.is_uppercase() => 0.74,
        _ => 0.63,
    };
    text.chars().map(ems).sum::<f64>() * size_px
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        let cases = [
            ("a<b>&\"'c", "a&lt;b&gt;&amp;&quot;&#39;c"),
            ("</script><script>", "&lt;/script&gt;&lt;script&gt;"),
            ("&lt;", "&amp;lt;"),
            ("a\u{0}\u{1b}[1m\u{7f}\u{85}b\tc\nd", "a\u{fffd}\u{fffd}[1m\u{fffd}\u{fffd}b\tc\nd"),
            ("a\u{202e}b\u{2066}\u{ffff}", "a\u{fffd}b\u{fffd}\u{fffd}"),
            ("größer 追記 🚀", "größer 追記 🚀"),
        ];
        for (text, escaped) in cases {
            assert_eq!(escape(text), escaped, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (61_204, "61,204"),
            (123_456, "123,456"),
            (1_000_000, "1,000,000"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.0001, "<0.001"),
            (0.0034, "0.003"),
            (0.0994, "0.099"),
            (0.0996, "0.10"),
            (0.934, "0.93"),
            (1.0, "1.00"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (14.23, "14.2"),
            (99.94, "99.9"),
            (99.96, "100"),
            (999.6, "1,000"),
            (61_204.4, "61,204"),
            (1e300, "18,446,744,073,709,551,615"),
            (-1.0, NONE),
            (f64::NAN, NONE),
            (f64::INFINITY, NONE),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text, "{value}");
        }
    }

    #[test]
    fn units_follow_the_size() {
        let spaced = |text: &str| text.replace(' ', "\u{a0}");
        let latencies = [
            (0, "0 µs"),
            (3, "3 µs"),
            (999, "999 µs"),
            (1000, "1.00 ms"),
            (2314, "2.31 ms"),
            (12_345, "12.3 ms"),
            (123_456, "123 ms"),
            (999_499, "999 ms"),
            (999_500, "1.00 s"),
            (30_000_000, "30.0 s"),
            (5_000_000_000, "5,000 s"),
        ];
        for (latency_us, text) in latencies {
            assert_eq!(latency(latency_us), spaced(text));
        }
        for (latency_us, text) in [(12.34, "12.3 µs"), (999.6, "1.00 ms"), (0.0, "0 µs"), (f64::NAN, "– s")]
        {
            assert_eq!(latency_mean(latency_us), spaced(text));
        }
        let sizes =
            [(0.0, "0 B"), (256.0, "256 B"), (0.5, "0.50 B"), (999.5, "1.00 kB"), (15_668_224.0, "15.7 MB")];
        for (count, text) in sizes {
            assert_eq!(bytes(count), spaced(text));
        }
        assert_eq!(bytes(f64::INFINITY), spaced("– PB"));
        for (count, text) in [(0, "0 MiB"), (327_155_712, "312 MiB"), (1 << 31, "2.00 GiB")] {
            assert_eq!(memory(count), spaced(text));
        }
        for (share, text) in [
            (0.0, "0 %"),
            (0.934, "93 %"),
            (0.0611, "6.1 %"),
            (0.00996, "1.0 %"),
            (0.00012, "0.012 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(share), spaced(text));
        }
        assert_eq!(percent(f64::NAN), spaced("– %"));
        assert_eq!(
            (counted(1, "error"), counted(1200, "error")),
            (spaced("1 error"), spaced("1,200 errors"))
        );
    }

    #[test]
    fn ratios_need_something_to_compare_with() {
        assert_eq!(ratio(143.0, 100.0).as_deref(), Some("1.43×"));
        assert_eq!(ratio(0.0, 100.0).as_deref(), Some("0×"));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(0.0, 0.0), None);
        assert_eq!(ratio(-1.0, 1.0), None);
        assert_eq!(ratio(f64::NAN, 1.0), None);
        assert_eq!(ratio(1.0, f64::NAN), None);
    }

    #[test]
    fn long_labels_keep_what_tells_them_apart() {
        let cases: [(&[&str], &[&str]); 10] = [
            (&["append c64"], &["append c64"]),
            (&["appends over 64 connections"], &["appends o…"]),
            (&["appends c64 ours", "appends c64 peer"], &["…ours", "…peer"]),
            (&["appends c64 one of all ours", "appends c64 peer"], &["…one of a…", "…peer"]),
            (&["short", "much longer than that"], &["short", "much long…"]),
            (&["the very same label", "the very same label"], &["…label", "…label"]),
            (&["größere Läufe eins zwei", "größere Läufe drei vier"], &["…eins zwei", "…drei vier"]),
            (&["what all begin with ", "what all begin with too"], &["…with ", "…with too"]),
            (&["追記追記追記追記追記追記"], &["追記追記追…"]),
            (&[], &[]),
        ];
        for (labels, short) in cases {
            let got = short_labels(labels, 80.0, 12.0);
            assert_eq!(got, short);
            assert!(got.iter().all(|label| width_px(label, 12.0) <= 80.0), "{got:?}");
        }
    }
}
