//! The server under load: its address, and how it names streams.

use std::net::{SocketAddr, ToSocketAddrs};

/// How a server addresses streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Buckets that must be made first: `/{bucket}/{stream}`
    Thalweg,
    /// Any server of the base protocol: `/v1/stream/{path}`
    Durable,
    /// Buckets that need not be made: `/{bucket}/{stream}`
    Ursula,
}

impl Style {
    /// Its name, as an option has it.
    pub fn name(self) -> &'static str {
        match self {
            Style::Thalweg => "thalweg",
            Style::Durable => "durable",
            Style::Ursula => "ursula",
        }
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    /// Its address.
    pub address: SocketAddr,
    /// How it names streams.
    pub style: Style,
}

impl Target {
    /// From `http://host:port`, `host:port` or `host`. The error says what is wrong with it.
    pub fn parse(url: &str, style: Style) -> Result<Self, String> {
        if url.starts_with("https://") {
            return Err(format!(
                "--target {url}: only http:// is spoken here (end TLS in front of the server)"
            ));
        }
        let host = url.strip_prefix("http://").unwrap_or(url);
        let host = host.strip_suffix('/').unwrap_or(host);
        let is_authority = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        if !is_authority {
            return Err(format!("--target {url}: expected http://HOST:PORT, without a path"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let with_port = if has_port { host.to_owned() } else { format!("{host}:80") };
        let mut addresses = with_port
            .to_socket_addrs()
            .map_err(|error| format!("--target {url}: cannot find the host: {error}"))?;
        let address = addresses.next().ok_or_else(|| format!("--target {url}: the host has no address"))?;
        Ok(Self { host: host.to_owned(), address, style })
    }

    /// Value of the `Host` header.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The server as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// The address of a shard's own port: the public one, plus one, plus the shard.
    pub fn shard_address(&self, shard: usize) -> Result<SocketAddr, String> {
        let port = usize::from(self.address.port()) + 1 + shard;
        let port = u16::try_from(port).map_err(|_| format!("shard {shard} would have port {port}"))?;
        Ok(SocketAddr::new(self.address.ip(), port))
    }
}

/// Digits of a stream in its name.
const STREAM_DIGITS: usize = 7;

/// Streams that names can tell apart.
pub const STREAMS_MAX: usize = 10_000_000;

/// The names of a run's streams: `{prefix}s{seven digits}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    bucket: String,
    prefix: String,
}

impl Names {
    /// Names below the bucket (or path) `run`.
    pub fn new(style: Style, run: &str) -> Self {
        let bucket = format!("/{run}");
        let prefix = match style {
            Style::Thalweg | Style::Ursula => format!("{bucket}/s"),
            Style::Durable => format!("/v1/stream{bucket}/s"),
        };
        Self { bucket, prefix }
    }

    /// Path of the bucket, for styles that have some.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Path of a stream.
    pub fn path(&self, stream: u32) -> String {
        let mut path = format!("{}0000000", self.prefix).into_bytes();
        Self::write_digits(&mut path[self.prefix.len()..], stream);
        String::from_utf8(path).expect("digits are text")
    }

    /// Where the digits begin in a path.
    pub fn digits_at(&self) -> usize {
        self.prefix.len()
    }

    /// Writes a stream's digits in place.
    #[inline]
    pub fn write_digits(place: &mut [u8], stream: u32) {
        let mut rest = stream;
        for digit in place[..STREAM_DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        assert!(rest == 0, "stream {stream} has more than {STREAM_DIGITS} digits");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for url in ["http://127.0.0.1:4437", "127.0.0.1:4437", "http://127.0.0.1:4437/"] {
            let target = Target::parse(url, Style::Thalweg).unwrap();
            assert_eq!((target.host(), target.address.port()), ("127.0.0.1:4437", 4437));
            assert_eq!(target.shard_address(2).unwrap().port(), 4440);
            assert_eq!(target.url(), "http://127.0.0.1:4437");
        }
        assert_eq!(Target::parse("127.0.0.1", Style::Durable).unwrap().address.port(), 80);
        assert_eq!(Target::parse("[::1]:99", Style::Durable).unwrap().address.port(), 99);
        assert!(Target::parse("127.0.0.1:65535", Style::Thalweg).unwrap().shard_address(0).is_err());
    }

    #[test]
    fn bad_addresses_are_refused_by_name() {
        let table = [
            ("https://localhost", "only http://"),
            ("http://localhost/path", "without a path"),
            ("", "expected http://"),
            ("no such host", "expected http://"),
        ];
        for (url, part) in table {
            let error = Target::parse(url, Style::Thalweg).unwrap_err();
            assert!(error.contains(part) && error.contains("--target"), "{error}");
        }
    }

    #[test]
    fn streams_have_names_of_one_width() {
        let names = Names::new(Style::Durable, "run-1");
        assert_eq!(names.path(0), "/v1/stream/run-1/s0000000");
        assert_eq!(names.path(9_999_999), "/v1/stream/run-1/s9999999");
        assert_eq!(&names.path(123)[names.digits_at()..], "0000123");
        let names = Names::new(Style::Ursula, "run-1");
        assert_eq!((names.bucket(), names.path(42).as_str()), ("/run-1", "/run-1/s0000042"));
    }
}
