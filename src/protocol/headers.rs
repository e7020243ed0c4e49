//! Values of the protocol's request headers (base protocol 4.1, 5.1, 5.2, 5.2.1, 9; decision 6). Values arrive trimmed of
//! surrounding white space; a header that is absent is `None`.

use super::digits;
use super::errors::{Code, Problem};
use super::expiry::Expiry;
use super::producer::Producer;
use super::time;
use crate::limits::{
    CONTENT_TYPE_BYTES_MAX, PRODUCER_ID_BYTES_MAX, PROTOCOL_INTEGER_MAX, STREAM_SEQ_BYTES_MAX,
    TTL_SECONDS_MAX,
};

/// The content type of a stream that was created without one (base protocol 5.1).
pub const DEFAULT_CONTENT_TYPE: &[u8] = b"application/octet-stream";

/// Whether `Stream-Closed` says so: only `true`, in any case, counts; anything else is as if absent.
pub fn is_true(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}

/// `Stream-TTL`: seconds, a decimal integer without sign or leading zeros.
pub fn parse_ttl(value: &[u8]) -> Result<u64, Problem> {
    match digits::parse_canonical_u64(value) {
        Some(seconds) if seconds <= TTL_SECONDS_MAX => Ok(seconds),
        Some(_) => Err(Problem::fixed(Code::InvalidTtl, "Stream-TTL is longer than 100 years")),
        None => Err(Problem::fixed(
            Code::InvalidTtl,
            "Stream-TTL is an integer of seconds, without sign, leading zeros, point or exponent",
        )),
    }
}

/// `Stream-Expires-At`: an RFC 3339 timestamp, as Unix milliseconds.
pub fn parse_expires_at(value: &[u8]) -> Result<u64, Problem> {
    time::parse_rfc3339(value)
        .ok_or(Problem::fixed(Code::InvalidExpiresAt, "Stream-Expires-At is not an RFC 3339 timestamp"))
}

/// `Stream-TTL` and `Stream-Expires-At` of a create: at most one of them.
pub fn parse_expiry(ttl: Option<&[u8]>, expires_at: Option<&[u8]>) -> Result<Expiry, Problem> {
    match (ttl, expires_at) {
        (None, None) => Ok(Expiry::Never),
        (Some(ttl), None) => Ok(Expiry::Sliding { ttl_seconds: parse_ttl(ttl)? }),
        (None, Some(at)) => Ok(Expiry::Absolute { at_ms: parse_expires_at(at)? }),
        (Some(_), Some(_)) => Err(Problem::fixed(
            Code::ConflictingExpiry,
            "Stream-TTL and Stream-Expires-At do not go together",
        )),
    }
}

/// `Producer-Id`, `Producer-Epoch` and `Producer-Seq`: all three or none.
pub fn parse_producer<'a>(
    id: Option<&'a [u8]>,
    epoch: Option<&[u8]>,
    seq: Option<&[u8]>,
) -> Result<Option<Producer<'a>>, Problem> {
    let (id, epoch, seq) = match (id, epoch, seq) {
        (None, None, None) => return Ok(None),
        (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
        _ => {
            return Err(Problem::fixed(
                Code::InvalidProducer,
                "Producer-Id, Producer-Epoch and Producer-Seq go together",
            ));
        }
    };
    if id.is_empty() {
        return Err(Problem::fixed(Code::InvalidProducer, "Producer-Id is empty"));
    }
    if id.len() > PRODUCER_ID_BYTES_MAX {
        return Err(Problem::fixed(Code::InvalidProducer, "Producer-Id is longer than 256 bytes"));
    }
    Ok(Some(Producer {
        id,
        epoch: producer_integer(epoch, "Producer-Epoch is not an integer from 0 to 2^53 - 1")?,
        seq: producer_integer(seq, "Producer-Seq is not an integer from 0 to 2^53 - 1")?,
    }))
}

/// A non-negative integer that JavaScript can hold.
fn producer_integer(value: &[u8], message: &'static str) -> Result<u64, Problem> {
    digits::parse_u64(value)
        .filter(|&n| n <= PROTOCOL_INTEGER_MAX)
        .ok_or(Problem::fixed(Code::InvalidProducer, message))
}

/// `Stream-Seq`: an opaque string, compared byte by byte; not empty.
pub fn parse_stream_seq(value: &[u8]) -> Result<&[u8], Problem> {
    if value.is_empty() || value.len() > STREAM_SEQ_BYTES_MAX {
        return Err(Problem::fixed(Code::InvalidStreamSeq, "Stream-Seq has 1 to 256 bytes"));
    }
    Ok(value)
}

/// Whether a stream whose last `Stream-Seq` was `last` takes `next`: only a greater one (byte-wise).
pub fn stream_seq_grows(last: Option<&[u8]>, next: &[u8]) -> bool {
    last.is_none_or(|last| next > last)
}

/// The `type/subtype` of a content type, without parameters.
pub fn media_type(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';').unwrap_or(content_type.len());
    content_type[..end].trim_ascii()
}

/// Whether two content types name the same media type: case and parameters do not count (decision 6).
pub fn media_type_eq(a: &[u8], b: &[u8]) -> bool {
    media_type(a).eq_ignore_ascii_case(media_type(b))
}

/// Whether a content type makes a stream of JSON records.
pub fn is_json(content_type: &[u8]) -> bool {
    media_type(content_type).eq_ignore_ascii_case(b"application/json")
}

/// Whether a content type is text: SSE then carries it as it is.
pub fn is_text(content_type: &[u8]) -> bool {
    content_type.len() >= 5 && content_type[..5].eq_ignore_ascii_case(b"text/")
}

/// The content type of a create: what the client sent, or the default for none or an empty one. It is stored and echoed
/// as sent, so it must be a header value: `type/subtype`, parameters of visible characters, at most 256 bytes.
pub fn parse_content_type(value: Option<&[u8]>) -> Result<&[u8], Problem> {
    let value = match value {
        None | Some(b"") => return Ok(DEFAULT_CONTENT_TYPE),
        Some(value) => value,
    };
    if value.len() > CONTENT_TYPE_BYTES_MAX {
        return Err(Problem::fixed(Code::InvalidContentType, "Content-Type is longer than 256 bytes"));
    }
    let mut halves = media_type(value).split(|&byte| byte == b'/');
    let is_media_type =
        halves.next().is_some_and(is_token) && halves.next().is_some_and(is_token) && halves.next().is_none();
    let is_visible = value.iter().all(|&byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
    if is_media_type && is_visible {
        Ok(value)
    } else {
        Err(Problem::fixed(Code::InvalidContentType, "Content-Type is not a media type"))
    }
}

/// A token of RFC 9110 5.6.2.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether a plain read of a JSON stream is to be answered in NDJSON (decision 12): `Accept` names
/// `application/x-ndjson`, and does not like `application/json` as well or better. Wildcards do not count.
pub fn wants_ndjson(accept: Option<&[u8]>) -> bool {
    let Some(accept) = accept else { return false };
    let (mut ndjson, mut json) = (0, 0);
    for range in accept.split(|&byte| byte == b',') {
        let weight = match media_type(range) {
            name if name.eq_ignore_ascii_case(b"application/x-ndjson") => &mut ndjson,
            name if name.eq_ignore_ascii_case(b"application/json") => &mut json,
            _ => continue,
        };
        *weight = quality(range).max(*weight);
    }
    ndjson > json
}

/// The weight of a media range in thousandths: RFC 9110 12.4.2. A malformed one counts as 0.
fn quality(range: &[u8]) -> u32 {
    let weight = range.split(|&byte| byte == b';').skip(1).find_map(|parameter| {
        let parameter = parameter.trim_ascii();
        parameter.strip_prefix(b"q=").or(parameter.strip_prefix(b"Q="))
    });
    let Some(weight) = weight else { return 1000 };
    let (whole, fraction) = match weight {
        [b'0', fraction @ ..] => (0, fraction),
        [b'1', fraction @ ..] => (1000, fraction),
        _ => return 0,
    };
    let digits = match fraction {
        [] => &[],
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return 0,
    };
    let thousandths =
        digits.iter().zip([100, 10, 1]).map(|(&digit, unit)| u32::from(digit - b'0') * unit).sum::<u32>();
    (whole + thousandths).min(1000)
}

#[cfg(test)]
mod tests;
