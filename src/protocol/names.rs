//! Paths (decisions 1 to 3; extension 1.1): which resource a request is about.
//!
//! Two surfaces. `/{bucket}/{stream}` with its suffix endpoints is native; `/v1/stream/{path}` is the flat surface of
//! the base protocol, with `__ds` reserved below it. A bucket id has at least four bytes, so `v1` never collides.
//!
//! A path without a percent sign is routed where it stands: nothing is copied or allocated. Otherwise it is decoded
//! into the caller's scratch; an escaped slash is refused there, so that a decoded path has the segments that the
//! client wrote.

use super::errors::{Code, Problem};
use super::percent::{self, Plus};
use crate::limits::{BUCKET_ID_BYTES_MAX, BUCKET_ID_BYTES_MIN, FLAT_PATH_BYTES_MAX, STREAM_ID_BYTES_MAX};

/// Where the flat surface begins.
pub const FLAT_PREFIX: &[u8] = b"/v1/stream";
/// The segment that the protocol keeps for its control interfaces.
pub const RESERVED_SEGMENT: &[u8] = b"__ds";
/// The stream id that names the listing of a bucket.
pub const LISTING_SEGMENT: &[u8] = b"streams";

/// The surface a stream was addressed on, and so the form of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `/{bucket}/{stream}`; the key is `bucket/stream`.
    Bucketed {
        /// Bytes of the bucket id at the start of the key.
        bucket_bytes: usize,
    },
    /// `/v1/stream/{path}`; the key is `/path`.
    Flat,
}

/// A stream's full key, decoded and validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// `bucket/stream`, or `/path` on the flat surface.
    pub key: &'a [u8],
    /// Which of the two.
    pub surface: Surface,
}

impl<'a> Address<'a> {
    /// The address that a stored key stands for: the reverse of [`Address::key`].
    pub fn of_key(key: &'a [u8]) -> Self {
        match key.iter().position(|&byte| byte == b'/') {
            Some(0) => Self { key, surface: Surface::Flat },
            Some(bucket_bytes) => Self { key, surface: Surface::Bucketed { bucket_bytes } },
            None => panic!("a key has a slash: {:?}", String::from_utf8_lossy(key)),
        }
    }

    /// The bucket id; `None` on the flat surface.
    pub fn bucket(&self) -> Option<&'a [u8]> {
        match self.surface {
            Surface::Bucketed { bucket_bytes } => Some(&self.key[..bucket_bytes]),
            Surface::Flat => None,
        }
    }

    /// The stream id within its bucket, or the flat path without its leading slash.
    pub fn stream(&self) -> &'a [u8] {
        match self.surface {
            Surface::Bucketed { bucket_bytes } => &self.key[bucket_bytes + 1..],
            Surface::Flat => &self.key[1..],
        }
    }
}

/// An endpoint below a stream of the bucket surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suffix<'a> {
    /// `/append-batch` (extension 4).
    Batch,
    /// `/snapshot`, or `/snapshot/{offset}` with the offset decoded (extension 2).
    Snapshot(Option<&'a [u8]>),
    /// `/bootstrap` (extension 3).
    Bootstrap,
    /// `/attrs` (extension 5).
    Attributes,
    /// `/retention`, or `/retention/{offset}` with the offset decoded (extension 2.2).
    Retention(Option<&'a [u8]>),
}

/// What a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/`.
    Root,
    /// `/{bucket}`.
    Bucket {
        /// Bucket id.
        bucket: &'a [u8],
    },
    /// `/{bucket}/streams`.
    BucketStreams {
        /// Bucket id.
        bucket: &'a [u8],
    },
    /// A stream.
    Stream(Address<'a>),
    /// An endpoint below a stream.
    Suffix {
        /// The stream.
        address: Address<'a>,
        /// The endpoint.
        suffix: Suffix<'a>,
    },
    /// `/v1/stream/__ds` and all below it.
    Reserved {
        /// What follows `__ds`, still percent-encoded: there an escaped slash is a slash (decision 2).
        rest: &'a [u8],
    },
}

/// Routes `path`, which starts with a slash and has no query. `scratch` is used only if the path holds a percent sign.
pub fn route<'a>(path: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Route<'a>, Problem> {
    if path.first() != Some(&b'/') {
        return Err(Problem::fixed(Code::InvalidPath, "the path does not start with a slash"));
    }
    if let Some(rest) = reserved_rest(path) {
        return Ok(Route::Reserved { rest });
    }
    if !path.contains(&b'%') {
        return route_decoded(path);
    }
    scratch.clear();
    for segment in path[1..].split(|&byte| byte == b'/') {
        scratch.push(b'/');
        let start = scratch.len();
        percent::decode(scratch, segment, Plus::Literal).map_err(|percent::Malformed| {
            Problem::fixed(Code::InvalidPath, "the path has a bad percent escape")
        })?;
        if scratch[start..].contains(&b'/') {
            return Err(Problem::fixed(Code::InvalidPath, "an id cannot hold a slash"));
        }
    }
    route_decoded(scratch)
}

/// What follows `/v1/stream/__ds`, if `path` (not decoded) is that or below it.
fn reserved_rest(path: &[u8]) -> Option<&[u8]> {
    let below = path.strip_prefix(FLAT_PREFIX)?.strip_prefix(b"/")?;
    let end = below.iter().position(|&byte| byte == b'/').unwrap_or(below.len());
    let (segment, rest) = below.split_at(end);
    percent::stands_for(segment, Plus::Literal, RESERVED_SEGMENT).then_some(rest)
}

/// Routes a decoded path.
fn route_decoded(path: &[u8]) -> Result<Route<'_>, Problem> {
    if let Some(key) = path.strip_prefix(FLAT_PREFIX)
        && (key.is_empty() || key[0] == b'/')
    {
        return flat(key);
    }
    let bucket_path = &path[1..];
    if bucket_path.is_empty() {
        return Ok(Route::Root);
    }
    let Some(bucket_bytes) = bucket_path.iter().position(|&byte| byte == b'/') else {
        validate_bucket_id(bucket_path)?;
        return Ok(Route::Bucket { bucket: bucket_path });
    };
    let bucket = &bucket_path[..bucket_bytes];
    validate_bucket_id(bucket)?;
    let below = &bucket_path[bucket_bytes + 1..];
    let stream_bytes = below.iter().position(|&byte| byte == b'/').unwrap_or(below.len());
    let (stream, suffix) = below.split_at(stream_bytes);
    if stream == LISTING_SEGMENT && suffix.is_empty() {
        return Ok(Route::BucketStreams { bucket });
    }
    validate_stream_id(bucket, stream)?;
    let key = &bucket_path[..bucket_bytes + 1 + stream_bytes];
    let address = Address { key, surface: Surface::Bucketed { bucket_bytes } };
    if suffix.is_empty() {
        return Ok(Route::Stream(address));
    }
    match parse_suffix(&suffix[1..]) {
        Some(suffix) => Ok(Route::Suffix { address, suffix }),
        None => Err(Problem::fixed(Code::NotFound, "no endpoint below a stream has this name")),
    }
}

/// The flat surface: `key` is what follows `/v1/stream`.
fn flat(key: &[u8]) -> Result<Route<'_>, Problem> {
    if key.len() <= 1 {
        return Err(Problem::fixed(Code::InvalidPath, "the stream path is empty"));
    }
    if key.len() - 1 > FLAT_PATH_BYTES_MAX {
        return Err(Problem::fixed(Code::InvalidStreamId, "the stream path is longer than 1024 bytes"));
    }
    validate_text(key)?;
    Ok(Route::Stream(Address { key, surface: Surface::Flat }))
}

/// `^[a-z0-9_-]{4,64}$`, and not `__ds`.
pub fn validate_bucket_id(bucket: &[u8]) -> Result<(), Problem> {
    let well_formed = (BUCKET_ID_BYTES_MIN..=BUCKET_ID_BYTES_MAX).contains(&bucket.len())
        && bucket.iter().all(|&byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    if !well_formed {
        return Err(Problem::fixed(
            Code::InvalidBucketId,
            "a bucket id is 4 to 64 of the characters a-z, 0-9, _ and -",
        ));
    }
    if bucket == RESERVED_SEGMENT {
        return Err(Problem::fixed(Code::ReservedName, "__ds is reserved"));
    }
    Ok(())
}

/// A decoded stream id of the bucket surface (it holds no slash: it is one segment).
fn validate_stream_id(bucket: &[u8], stream: &[u8]) -> Result<(), Problem> {
    if stream.is_empty() {
        return Err(Problem::fixed(Code::InvalidStreamId, "the stream id is empty"));
    }
    if bucket.len() + 1 + stream.len() > STREAM_ID_BYTES_MAX {
        return Err(Problem::fixed(
            Code::InvalidStreamId,
            "bucket id, slash and stream id are longer than 122 bytes together",
        ));
    }
    if stream == LISTING_SEGMENT || stream == RESERVED_SEGMENT {
        return Err(Problem::fixed(Code::ReservedName, "streams and __ds are reserved as stream ids"));
    }
    validate_text(stream)
}

/// What holds for ids on both surfaces: UTF-8, no NUL, no `..`.
fn validate_text(text: &[u8]) -> Result<(), Problem> {
    let mut previous = 0;
    let mut ascii = true;
    for &byte in text {
        if byte == 0 {
            return Err(Problem::fixed(Code::InvalidStreamId, "a stream id cannot hold NUL"));
        }
        if byte == b'.' && previous == b'.' {
            return Err(Problem::fixed(Code::InvalidStreamId, "a stream id cannot hold two dots in a row"));
        }
        ascii &= byte < 0x80;
        previous = byte;
    }
    if !ascii && std::str::from_utf8(text).is_err() {
        return Err(Problem::fixed(Code::InvalidPath, "the path is not UTF-8"));
    }
    Ok(())
}

/// The endpoint that `text`, what follows `/{bucket}/{stream}/`, names.
fn parse_suffix(text: &[u8]) -> Option<Suffix<'_>> {
    let (name, argument) = match text.iter().position(|&byte| byte == b'/') {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    };
    // Decision 1: offsets are one segment; a further slash belongs to no endpoint.
    if argument.is_some_and(|argument| argument.contains(&b'/')) {
        return None;
    }
    match (name, argument) {
        (b"append-batch", None) => Some(Suffix::Batch),
        (b"snapshot", offset) => Some(Suffix::Snapshot(offset)),
        (b"bootstrap", None) => Some(Suffix::Bootstrap),
        (b"attrs", None) => Some(Suffix::Attributes),
        (b"retention", offset) => Some(Suffix::Retention(offset)),
        _ => None,
    }
}

/// Appends the path of a stream, percent-encoded, on the surface that its address came from.
pub fn write_path(out: &mut Vec<u8>, address: &Address<'_>) {
    match address.surface {
        Surface::Bucketed { .. } => out.push(b'/'),
        Surface::Flat => out.extend_from_slice(FLAT_PREFIX),
    }
    percent::encode_path(out, address.key);
}

/// Appends the absolute URL of a stream for `Location` (decision 2). `scheme` is `http` or `https`; without a `Host`
/// (HTTP/1.0) only the path is written.
pub fn write_location(out: &mut Vec<u8>, scheme: &[u8], host: Option<&[u8]>, address: &Address<'_>) {
    write_origin(out, scheme, host);
    write_path(out, address);
}

/// Appends the absolute URL of a bucket for `Location`. As [`write_location`] otherwise.
pub fn write_bucket_location(out: &mut Vec<u8>, scheme: &[u8], host: Option<&[u8]>, bucket: &[u8]) {
    write_origin(out, scheme, host);
    out.push(b'/');
    percent::encode_path(out, bucket);
}

/// Appends `scheme://host`, or nothing without a host.
fn write_origin(out: &mut Vec<u8>, scheme: &[u8], host: Option<&[u8]>) {
    if let Some(host) = host.filter(|host| !host.is_empty()) {
        out.extend_from_slice(scheme);
        out.extend_from_slice(b"://");
        out.extend_from_slice(host);
    }
}

#[cfg(test)]
mod tests;
