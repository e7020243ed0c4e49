//! How a run goes, on standard error: one line that is written over every second on a terminal, else a line a second.

use std::io::{IsTerminal, Write};

use super::measure::{Series, Tally, Window};
use super::plan::Plan;
use super::summary::{count, latency_us};

/// Where progress is told.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    is_quiet: bool,
    is_open: bool,
}

impl Progress {
    /// On standard error, or nowhere.
    pub fn new(is_quiet: bool) -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), is_quiet, is_open: false }
    }

    /// Says what is done now.
    pub fn say(&mut self, what: &str) {
        self.end();
        if !self.is_quiet {
            eprintln!("{what}");
        }
    }

    /// A second has passed.
    pub fn second(&mut self, plan: &Plan, window: Window, second: i64, tally: &Tally) {
        if self.is_quiet {
            return;
        }
        let text = line(window, second, tally, plan.main_series());
        let mut stderr = std::io::stderr();
        // Nobody is there to be told if it fails.
        let _ = match self.is_terminal {
            true => write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush()),
            false => writeln!(stderr, "{text}"),
        };
        self.is_open = self.is_terminal;
    }

    /// What follows begins on a line of its own.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            eprintln!();
        }
    }
}

fn line(window: Window, second: i64, tally: &Tally, main: Series) -> String {
    let begun_ns = window.end_of(second - 1).max(window.begin_ns);
    let seconds = (window.end_of(second) - begun_ns) as f64 / 1e9;
    let rate = |number: u64| count(number as f64 / seconds.max(1e-9));
    let at = |quantile| tally.histogram(main).map_or(0, |histogram| histogram.value_at_quantile(quantile));
    let part = match second {
        ..0 => "warm-up".to_owned(),
        0.. => format!("{:>4} s", (window.end_of(second) - window.start_ns).div_ceil(1_000_000_000)),
    };
    format!(
        "{part:>8}  {:>8} requests/s  {:>8} records/s  p50 {:>8}  p99 {:>8}  errors {}",
        rate(tally.operations),
        rate(tally.records),
        latency_us(at(0.5)),
        latency_us(at(0.99)),
        tally.error_count()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rates_of_its_own_second() {
        let window = Window { begin_ns: 2_000_000_000, start_ns: 2_500_000_000, end_ns: 3_750_000_000 };
        let mut tally = Tally { operations: 1000, records: 2000, ..Tally::default() };
        tally.latency(Series::Append, 1_500_000);
        tally.error("x");
        let text = line(window, 1, &tally, Series::Append);
        for part in ["2 s", "4,000 requests/s", "8,000 records/s", "p50  1.50 ms", "errors 1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(line(window, -1, &tally, Series::Append).contains("warm-up     2,000 requests/s"));
    }
}
