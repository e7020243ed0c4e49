//! Options of `thalweg serve`: flags, environment variables, their units, defaults and bounds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use clap::{Args, ValueEnum};

use crate::config::{self, Config};
use crate::limits;

/// Options of `thalweg serve`. Every one is also an environment variable; a flag wins over it.
#[derive(Args, Debug)]
#[command(after_help = "Sizes are bytes, or take a suffix: KiB, MiB, GiB.")]
pub struct Options {
    /// Address of the public listener; port 0 takes a free one
    #[arg(
        long,
        env = "THALWEG_LISTEN",
        hide_env_values = true,
        value_name = "IP:PORT",
        default_value = "127.0.0.1:4437"
    )]
    listen: SocketAddr,

    /// Directory for everything durable; created if missing. A local disk with ext4 or xfs
    #[arg(
        long,
        env = "THALWEG_DATA_DIR",
        hide_env_values = true,
        value_name = "DIR",
        default_value = "data"
    )]
    data_dir: PathBuf,

    /// Number of shards, each on a core of its own if there are enough [default: as many as the data directory has;
    /// for a new one as many as there are cores that the process may use]
    #[arg(long, env = "THALWEG_SHARDS", hide_env_values = true, value_name = "COUNT",
          value_parser = count(1, limits::SHARDS_MAX as u64))]
    shards: Option<usize>,

    /// Cores to pin shards to, in shard order, one for each: 0,2,4-7 [default: chosen from those the process may use]
    #[arg(long, env = "THALWEG_CPUS", hide_env_values = true, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuList>,

    /// Let each shard also listen on the port after the public one plus its number, for clients that know shards
    #[arg(long, env = "THALWEG_SHARD_PORTS", hide_env_values = true, value_parser = BoolishValueParser::new())]
    shard_ports: bool,

    /// When an acknowledged write is on disk: before the answer, or when the kernel pleases
    #[arg(long, env = "THALWEG_SYNC", hide_env_values = true, value_name = "MODE", default_value = "always")]
    sync: SyncMode,

    /// How long a commit of an idle shard waits for company, in microseconds
    #[arg(long, env = "THALWEG_COMMIT_DELAY_US", hide_env_values = true, value_name = "MICROSECONDS",
          default_value_t = 0, value_parser = number(0, limits::COMMIT_DELAY_US_MAX))]
    commit_delay_us: u64,

    /// How long a core that is mostly idle, but in use, looks for something to do before it sleeps, in microseconds; 0: not at all
    #[arg(long, env = "THALWEG_SPIN_US", hide_env_values = true, value_name = "MICROSECONDS",
          default_value_t = 150, value_parser = number(0, limits::SPIN_US_MAX))]
    spin_us: u64,

    /// Size of a segment file, in bytes: a multiple of 4096
    #[arg(long, env = "THALWEG_SEGMENT_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "128MiB", value_parser = segment_bytes)]
    segment_bytes: u64,

    /// Segments that each shard makes ahead of use while it is idle, with their space and zeros in it: more than one serve bursts
    /// of large batches, which are written faster into space that was written before
    #[arg(long, env = "THALWEG_SEGMENTS_AHEAD", hide_env_values = true, value_name = "COUNT",
          default_value_t = limits::SEGMENTS_AHEAD_DEFAULT, value_parser = count(1, limits::SEGMENTS_AHEAD_MAX as u64))]
    segments_ahead: usize,

    /// Recent commits kept in memory, all shards together, in bytes
    #[arg(long, env = "THALWEG_CACHE_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "64MiB", value_parser = cache_bytes)]
    cache_bytes: u64,

    /// Pages that are read again and again kept in memory, to be sent without a copy, all shards together, in bytes; a shard
    /// keeps whole 2 MiB, and none if its part is less
    #[arg(long, env = "THALWEG_HOT_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "64MiB", value_parser = hot_bytes)]
    hot_bytes: u64,

    /// Largest request body, in bytes
    #[arg(long, env = "THALWEG_MAX_BODY_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "32MiB", value_parser = max_body_bytes)]
    max_body_bytes: u64,

    /// Largest snapshot, in bytes
    #[arg(long, env = "THALWEG_MAX_SNAPSHOT_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "64MiB", value_parser = max_snapshot_bytes)]
    max_snapshot_bytes: u64,

    /// Most connections, all shards together
    #[arg(long, env = "THALWEG_MAX_CONNECTIONS", hide_env_values = true, value_name = "COUNT",
          default_value_t = limits::CONNECTIONS_DEFAULT, value_parser = count(1, limits::CONNECTIONS_MAX as u64))]
    max_connections: usize,

    /// How long a long-poll waits for data, in milliseconds
    #[arg(long, env = "THALWEG_LONG_POLL_TIMEOUT_MS", hide_env_values = true, value_name = "MILLISECONDS",
          default_value_t = limits::LONG_POLL_TIMEOUT_MS_DEFAULT, value_parser = number(1, limits::LIVE_MS_MAX))]
    long_poll_timeout_ms: u64,

    /// How long an SSE connection lives, in milliseconds
    #[arg(long, env = "THALWEG_SSE_MAX_MS", hide_env_values = true, value_name = "MILLISECONDS",
          default_value_t = limits::SSE_MAX_MS_DEFAULT, value_parser = number(1, limits::LIVE_MS_MAX))]
    sse_max_ms: u64,

    /// Size of a page of a catch-up read, in bytes
    #[arg(long, env = "THALWEG_READ_PAGE_BYTES", hide_env_values = true, value_name = "BYTES",
          default_value = "1MiB", value_parser = read_page_bytes)]
    read_page_bytes: u64,

    /// Believe the X-Forwarded-Proto header of a proxy in front when building Location headers
    #[arg(long, env = "THALWEG_TRUST_PROXY", hide_env_values = true, value_parser = BoolishValueParser::new())]
    trust_proxy: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SyncMode {
    /// Before the answer
    Always,
    /// When the kernel and the device please: a power cut may take acknowledged writes
    None,
}

/// A list of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuList(pub(super) Vec<usize>);

/// Runs the server.
pub fn main(options: Options) -> ExitCode {
    crate::node::preflight::small_pages_from_the_first();
    match crate::node::serve::serve(options.into_config()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("thalweg: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

impl Options {
    fn into_config(self) -> Config {
        Config {
            listen: self.listen,
            data_dir: self.data_dir,
            shards: self.shards,
            cpus: self.cpus.map(|list| list.0),
            shard_ports: self.shard_ports,
            sync: match self.sync {
                SyncMode::Always => config::Sync::Always,
                SyncMode::None => config::Sync::None,
            },
            commit_delay_us: self.commit_delay_us,
            spin_us: self.spin_us,
            segment_bytes: self.segment_bytes,
            segments_ahead: self.segments_ahead,
            cache_bytes: self.cache_bytes,
            hot_bytes: self.hot_bytes,
            max_body_bytes: self.max_body_bytes,
            max_snapshot_bytes: self.max_snapshot_bytes,
            max_connections: self.max_connections,
            long_poll_timeout_ms: self.long_poll_timeout_ms,
            sse_max_ms: self.sse_max_ms,
            read_page_bytes: self.read_page_bytes,
            trust_proxy: self.trust_proxy,
        }
    }
}

fn count(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::from(least..=most)
}

fn number(least: u64, most: u64) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::from(least..=most)
}

fn segment_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes_in(text, limits::SEGMENT_BYTES_MIN, limits::SEGMENT_BYTES_MAX)?;
    match bytes.is_multiple_of(limits::BLOCK_BYTES as u64) {
        true => Ok(bytes),
        false => Err(format!("{bytes} is not a multiple of {}", limits::BLOCK_BYTES)),
    }
}

fn cache_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 0, limits::CACHE_BYTES_MAX)
}

fn hot_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 0, limits::HOT_BYTES_MAX)
}

fn max_body_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 1, limits::BODY_BYTES_MAX)
}

fn max_snapshot_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 1, limits::SNAPSHOT_BYTES_MAX)
}

fn read_page_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, limits::READ_PAGE_BYTES_MIN, limits::READ_PAGE_BYTES_MAX)
}

/// A number of bytes, perhaps with a suffix, within bounds.
pub(super) fn bytes_in(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: u64 = match &text[digits..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("`{other}` is no unit: write bytes, or KiB, MiB, GiB")),
    };
    let number = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(bytes) if (least..=most).contains(&bytes) => Ok(bytes),
        Some(bytes) => Err(format!("{bytes} is not in {least}..={most}")),
        None => Err("not a number of bytes".to_owned()),
    }
}

/// Cores and ranges of cores, separated by commas.
pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| format!("`{part}` is no core or range of cores"));
        let (first, last) = (number(first)?, number(last)?);
        if last < first || last - first >= limits::SHARDS_MAX {
            return Err(format!("`{part}` is no range of at most {} cores", limits::SHARDS_MAX));
        }
        cores.extend(first..=last);
        if cores.len() > limits::SHARDS_MAX {
            return Err(format!("more than {} cores", limits::SHARDS_MAX));
        }
    }
    Ok(CpuList(cores))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Harness {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        let arguments = ["thalweg"].iter().chain(arguments);
        Harness::try_parse_from(arguments).map(|harness| harness.options.into_config())
    }

    #[test]
    fn defaults_are_those_of_the_limits() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:4437");
        assert_eq!(config.data_dir, PathBuf::from("data"));
        assert_eq!((config.shards, config.cpus, config.sync), (None, None, config::Sync::Always));
        assert_eq!(config.segment_bytes, limits::SEGMENT_BYTES_DEFAULT);
        assert_eq!(config.segments_ahead, limits::SEGMENTS_AHEAD_DEFAULT);
        assert_eq!(config.cache_bytes, limits::CACHE_BYTES_DEFAULT);
        assert_eq!(config.hot_bytes, limits::HOT_BYTES_DEFAULT);
        assert_eq!(config.max_body_bytes, limits::BODY_BYTES_DEFAULT);
        assert_eq!(config.max_snapshot_bytes, limits::SNAPSHOT_BYTES_DEFAULT);
        assert_eq!(config.read_page_bytes, limits::READ_PAGE_BYTES_DEFAULT);
        assert_eq!((config.shard_ports, config.trust_proxy), (false, false));
    }

    #[test]
    fn good_values() {
        let config =
            parse(&["--cpus", "3,0-1", "--segment-bytes", "1MiB", "--sync", "none", "--shard-ports"]);
        let config = config.unwrap();
        assert_eq!(config.cpus, Some(vec![3, 0, 1]));
        assert_eq!((config.segment_bytes, config.shard_ports), (1 << 20, true));
        assert_eq!(config.sync, config::Sync::None);
    }

    #[test]
    fn bad_values_are_refused_with_exit_code_2() {
        let table = [
            ("--listen", "localhost"),
            ("--listen", "127.0.0.1:65536"),
            ("--shards", "0"),
            ("--shards", "257"),
            ("--shards", "two"),
            ("--cpus", ""),
            ("--cpus", "1,,2"),
            ("--cpus", "3-1"),
            ("--cpus", "0-100000000000"),
            ("--sync", "sometimes"),
            ("--commit-delay-us", "100001"),
            ("--segment-bytes", "1048577"),
            ("--segment-bytes", "4096"),
            ("--segment-bytes", "3GiB"),
            ("--segment-bytes", "18446744073709551615GiB"),
            ("--segments-ahead", "0"),
            ("--segments-ahead", "1025"),
            ("--cache-bytes", "1.5GiB"),
            ("--max-body-bytes", "0"),
            ("--max-body-bytes", "32MB"),
            ("--max-snapshot-bytes", "0"),
            ("--max-snapshot-bytes", "2GiB"),
            ("--max-connections", "0"),
            ("--long-poll-timeout-ms", "0"),
            ("--sse-max-ms", "3600001"),
            ("--read-page-bytes", "4095"),
            ("--no-such-flag", "1"),
        ];
        for (flag, value) in table {
            let error = parse(&[flag, value]).expect_err(flag);
            assert_eq!(error.exit_code(), 2, "{flag} {value}");
            assert!(error.to_string().contains(flag), "{error}");
        }
    }
}
