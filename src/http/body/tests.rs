//! Tables of chunked bodies and of attacks on them, every split of each, and random bodies against a slow reading.

use proptest::prelude::*;

use super::super::response::{write_chunk, write_last_chunk};
use super::*;
use crate::protocol::errors::Problem;

const ROOMY: u64 = 1 << 20;

/// What one call makes of the input.
fn decode(input: &[u8], max_bytes: u64) -> Result<(Fed, Vec<u8>), BodyProblem> {
    let mut out = b"<".to_vec();
    let fed = ChunkedDecoder::new(max_bytes).feed(input, &mut out)?;
    assert_eq!(out.remove(0), b'<', "data is appended");
    Ok((fed, out))
}

/// The same input in pieces that end at these places.
fn decode_in_pieces(input: &[u8], cuts: &[usize], max_bytes: u64) -> Result<(Fed, Vec<u8>), BodyProblem> {
    let mut decoder = ChunkedDecoder::new(max_bytes);
    let mut out = Vec::new();
    let mut total = Fed { consumed: 0, done: false };
    let mut start = 0;
    for &end in cuts.iter().chain([&input.len()]) {
        let fed = decoder.feed(&input[start..end], &mut out)?;
        assert!(
            fed.done || fed.consumed == end - start,
            "it stops before the end of its input only when done"
        );
        assert_eq!(fed.done, decoder.is_done());
        total = Fed { consumed: total.consumed + fed.consumed, done: fed.done };
        start = end;
    }
    Ok((total, out))
}

/// The result must not depend on how the input arrives: all at once, byte by byte, or cut in two or three.
fn assert_splits_agree(input: &[u8], max_bytes: u64) {
    let whole = decode(input, max_bytes);
    let bytes: Vec<usize> = (0..input.len()).collect();
    assert_eq!(decode_in_pieces(input, &bytes, max_bytes), whole, "byte by byte: {}", input.escape_ascii());
    for first in 0..=input.len() {
        for second in first..=input.len() {
            let pieces = decode_in_pieces(input, &[first, second], max_bytes);
            assert_eq!(pieces, whole, "cut at {first} and {second}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn bodies() {
    // input, data, bytes behind the body
    let table: [(&str, &str, usize); 17] = [
        ("0\r\n\r\n", "", 0),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", 0),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", 0),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0),
        ("00005\r\nhello\r\n000\r\n\r\n", "hello", 0),
        ("0000000000000000000000005\r\nhello\r\n0\r\n\r\n", "hello", 0),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", 0), // data that looks like framing
        ("5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n", 0),
        ("5;a=b\r\nhello\r\n0;c\r\n\r\n", "hello", 0),
        ("5;a=\"b; c\"\r\nhello\r\n0\r\n\r\n", "hello", 0),
        ("5; \t;;\u{e9}\r\nhello\r\n0\r\n\r\n", "hello", 0),
        ("0\r\nDigest: x\r\n\r\n", "", 0),
        ("1\r\nx\r\n0\r\nA:\r\nContent-Length: 5\r\nB: \t c\r\n\r\n", "x", 0), // trailers mean nothing here
        ("0\r\n\r\nPOST / HTTP/1.1\r\n", "", 17),
        ("1\r\nx\r\n0\r\n\r\n\r\n", "x", 2),
        ("1\r\nx\r\n0\r\nA: b\r\n\r\nGET", "x", 3),
    ];
    for (input, data, behind) in table {
        let expected = Fed { consumed: input.len() - behind, done: true };
        assert_eq!(decode(input.as_bytes(), ROOMY), Ok((expected, data.into())), "{}", input.escape_debug());
        assert_splits_agree(input.as_bytes(), ROOMY);
        // It is complete no earlier than at its last byte.
        let (fed, _) =
            decode(&input.as_bytes()[..expected.consumed - 1], ROOMY).expect("a part is no problem");
        assert_eq!(fed, Fed { consumed: expected.consumed - 1, done: false }, "{}", input.escape_debug());
    }
}

/// Bodies whose end two implementations could see differently, and what becomes of them.
#[test]
fn ambiguous_bodies_are_refused() {
    use BodyProblem as P;
    let table: [(&str, P); 51] = [
        // Sizes.
        ("\r\n", P::ChunkSize),
        ("\n", P::ChunkSize),
        (";a\r\n", P::ChunkSize),
        (" 5\r\n", P::ChunkSize),
        ("5 \r\n", P::ChunkSize),
        ("5 ;a\r\n", P::ChunkSize),
        ("5\t\r\n", P::ChunkSize),
        ("5 5\r\n", P::ChunkSize),
        ("+5\r\n", P::ChunkSize),
        ("-5\r\n", P::ChunkSize),
        ("-0\r\n", P::ChunkSize),
        ("0x5\r\n", P::ChunkSize),
        ("0X5\r\n", P::ChunkSize),
        ("x5\r\n", P::ChunkSize),
        ("5h\r\n", P::ChunkSize),
        ("g\r\n", P::ChunkSize),
        ("5_0\r\n", P::ChunkSize),
        ("5,0\r\n", P::ChunkSize),
        ("5.\r\n", P::ChunkSize),
        ("\"5\"\r\n", P::ChunkSize),
        ("\u{665}\r\n", P::ChunkSize),
        ("5\0\r\n", P::ChunkSize),
        ("\0\r\n", P::ChunkSize),
        ("10000000000000000\r\n", P::ChunkSize), // 2^64
        ("10000000000000005\r\n", P::ChunkSize), // 5, if the digits beyond 64 bits were lost
        ("fffffffffffffffff\r\n", P::ChunkSize),
        // Line ends of a size.
        ("5\nhello\n0\n\n", P::ChunkSize),
        ("5\rhello", P::ChunkSize),
        ("5\r\r\n", P::ChunkSize),
        ("5\n\r\n", P::ChunkSize),
        // Extensions that hide a line's end.
        ("5;a\nhello\r\n", P::ChunkSize),
        ("5;a\rb\r\nhello\r\n", P::ChunkSize),
        ("5;a=\"\r\n\"\r\n", P::ChunkEnd), // no line's end is quoted: the data is `"` CR LF, then nothing fits
        ("5;\0\r\nhello\r\n", P::ChunkSize),
        ("5;\x7f\r\nhello\r\n", P::ChunkSize),
        // Data longer or shorter than its size.
        ("5\r\nhello!\r\n", P::ChunkEnd),
        ("5\r\nhello!\n0\r\n\r\n", P::ChunkEnd),
        ("5\r\nhell\r\n0\r\n\r\n", P::ChunkEnd),
        ("5\r\nhello\n0\r\n\r\n", P::ChunkEnd),
        ("5\r\nhello\r0\r\n\r\n", P::ChunkEnd),
        ("5\r\nhello0\r\n\r\n", P::ChunkEnd),
        ("1\r\nx\r\n\r\n0\r\n\r\n", P::ChunkSize),
        // Trailers.
        ("0\r\n\n", P::Trailer),
        ("0\r\n\rX", P::Trailer),
        ("0\r\n A: b\r\n\r\n", P::Trailer),
        ("0\r\nA : b\r\n\r\n", P::Trailer),
        ("0\r\nA: b\r\n c\r\n\r\n", P::Trailer),
        ("0\r\nA: b\n\r\n", P::Trailer),
        ("0\r\nA: b\rc\r\n\r\n", P::Trailer),
        ("0\r\nA\r\n\r\n", P::Trailer),
        ("0\r\n: b\r\n\r\n", P::Trailer),
    ];
    for (input, expected) in table {
        let input = format!("{input}        ");
        assert_eq!(decode(input.as_bytes(), ROOMY), Err(expected), "{}", input.escape_debug());
        assert_splits_agree(input.as_bytes(), ROOMY);
    }
}

#[test]
fn the_maximum_holds_exactly_and_before_data_is_kept() {
    for max_bytes in [0u64, 1, 9, 10, 11] {
        for chunks in [&[10usize][..], &[5, 5], &[9, 1], &[1; 10]] {
            let mut input = Vec::new();
            for &bytes in chunks {
                write_chunk(&mut input, &vec![b'x'; bytes]);
            }
            write_last_chunk(&mut input);
            if max_bytes < 10 {
                assert_eq!(
                    decode(&input, max_bytes),
                    Err(BodyProblem::TooLarge),
                    "{chunks:?} of {max_bytes}"
                );
            } else {
                let (fed, data) = decode(&input, max_bytes).expect("it fits");
                assert_eq!((fed, data.len()), (Fed { consumed: input.len(), done: true }, 10));
            }
            assert_splits_agree(&input, max_bytes);
        }
    }
    // Sizes that would overflow a sum.
    for size in ["ffffffffffffffff", "fffffffffffffffe", "8000000000000000", "7fffffffffffffff"] {
        let input = format!("2\r\nab\r\n{size}\r\ndata");
        let mut out = Vec::new();
        assert_eq!(ChunkedDecoder::new(ROOMY).feed(input.as_bytes(), &mut out), Err(BodyProblem::TooLarge));
        assert_eq!(out, b"ab", "nothing of the chunk that is too large is kept: {size}");
    }
    let (fed, data) = decode(b"ffffffffffffffff\r\ndata", u64::MAX).expect("the largest chunk of all");
    assert_eq!((fed, &data[..]), (Fed { consumed: 22, done: false }, &b"data"[..]));
}

#[test]
fn lines_extensions_and_trailers_are_bounded() {
    let last = CHUNK_LINE_BYTES_MAX - "0;\r\n".len();
    let of = |extension_bytes: usize| format!("0;{}\r\n\r\n", "e".repeat(extension_bytes));
    assert_eq!(decode(of(last).as_bytes(), ROOMY).map(|(fed, _)| fed.done), Ok(true));
    assert_eq!(decode(of(last + 1).as_bytes(), ROOMY), Err(BodyProblem::ChunkExtension));
    let zeros = |zeros: usize| format!("{}\r\n\r\n", "0".repeat(zeros));
    assert_eq!(decode(zeros(CHUNK_LINE_BYTES_MAX - 2).as_bytes(), ROOMY).map(|(fed, _)| fed.done), Ok(true));
    assert_eq!(decode(zeros(CHUNK_LINE_BYTES_MAX - 1).as_bytes(), ROOMY), Err(BodyProblem::ChunkExtension));

    // Each line is within its limit, all together are not.
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(128));
    let fit = CHUNK_EXTENSION_BYTES_MAX / 128;
    let input = chunk.repeat(fit);
    assert_eq!(decode(input.as_bytes(), ROOMY).map(|(_, data)| data.len()), Ok(fit));
    assert_eq!(fit * 128, CHUNK_EXTENSION_BYTES_MAX, "the limit is reached exactly");
    assert_eq!(decode(format!("{input}1;e").as_bytes(), ROOMY), Err(BodyProblem::ChunkExtension));
    // Extensions are what is counted, not sizes: a body of small chunks is fine.
    let small = "1\r\nx\r\n".repeat(CHUNK_EXTENSION_BYTES_MAX);
    assert_eq!(decode(small.as_bytes(), ROOMY).map(|(_, data)| data.len()), Ok(CHUNK_EXTENSION_BYTES_MAX));

    let trailers = |value_bytes: usize| format!("0\r\nA:{}\r\n\r\n", "v".repeat(value_bytes));
    let last = TRAILER_BYTES_MAX - "A:\r\n\r\n".len();
    assert_eq!(decode(trailers(last).as_bytes(), ROOMY).map(|(fed, _)| fed.done), Ok(true));
    assert_eq!(decode(trailers(last + 1).as_bytes(), ROOMY), Err(BodyProblem::TrailerTooLarge));
    let endless = format!("0\r\n{}", "A: b\r\n".repeat(TRAILER_BYTES_MAX));
    assert_eq!(decode(endless.as_bytes(), ROOMY), Err(BodyProblem::TrailerTooLarge));
}

#[test]
fn a_complete_body_takes_nothing_more() {
    let mut decoder = ChunkedDecoder::new(ROOMY);
    let mut out = Vec::new();
    assert!(!decoder.is_done());
    assert_eq!(decoder.feed(b"", &mut out), Ok(Fed { consumed: 0, done: false }));
    assert_eq!(decoder.feed(b"0\r\n\r\n", &mut out), Ok(Fed { consumed: 5, done: true }));
    assert_eq!(decoder.feed(b"5\r\nhello", &mut out), Ok(Fed { consumed: 0, done: true }));
    assert!(decoder.is_done() && out.is_empty());
}

#[test]
fn every_problem_has_its_status() {
    let table = [
        (BodyProblem::ChunkSize, 400),
        (BodyProblem::ChunkExtension, 400),
        (BodyProblem::ChunkEnd, 400),
        (BodyProblem::Trailer, 400),
        (BodyProblem::TrailerTooLarge, 400),
        (BodyProblem::TooLarge, 413),
        (BodyProblem::Timeout, 408),
    ];
    for (problem, status) in table {
        assert_eq!(Problem::from(problem).status(), status, "{problem:?}");
    }
}

/// Another reading of the same grammar, line by line over the whole input: data and length of the body.
/// `None`: malformed, or cut. Without limits.
fn naive(input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = |at: usize| -> Option<&[u8]> {
        let len = input[at..].windows(2).position(|two| two == b"\r\n")?;
        let line = &input[at..at + len];
        line.iter().all(|&byte| !byte.is_ascii_control() || byte == b'\t').then_some(line)
    };
    let (mut at, mut data) = (0, Vec::new());
    loop {
        let size_line = line(at)?;
        let size_text = std::str::from_utf8(size_line.split(|&byte| byte == b';').next()?).ok()?;
        if size_text.is_empty() || !size_text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(size_text, 16).ok()?;
        at += size_line.len() + 2;
        if size == 0 {
            break;
        }
        data.extend_from_slice(input.get(at..)?.get(..size)?);
        at += size;
        if !input[at..].starts_with(b"\r\n") {
            return None;
        }
        at += 2;
    }
    loop {
        let trailer = line(at)?;
        at += trailer.len() + 2;
        if trailer.is_empty() {
            return Some((data, at));
        }
        let colon = trailer.iter().position(|&byte| byte == b':')?;
        if colon == 0 || !trailer[..colon].iter().all(|&byte| is_token_byte(byte)) {
            return None;
        }
    }
}

fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let extension = "(;[a-z]{0,5}(=[!-~]{0,5})?){0,2}";
    let chunk = (prop::collection::vec(any::<u8>(), 1..40), any::<bool>(), 0..3usize, extension);
    let trailers = prop::collection::vec("[A-Za-z-]{1,8}:[ -~\t]{0,10}", 0..3);
    (prop::collection::vec(chunk, 0..6), trailers, prop::collection::vec(any::<u8>(), 0..8)).prop_map(
        |(chunks, trailers, behind)| {
            let mut input = Vec::new();
            for (data, upper, zeros, extension) in chunks {
                let size = if upper { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
                input.extend_from_slice(format!("{}{size}{extension}\r\n", "0".repeat(zeros)).as_bytes());
                input.extend_from_slice(&data);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n");
            for trailer in trailers {
                input.extend_from_slice(format!("{trailer}\r\n").as_bytes());
            }
            input.extend_from_slice(b"\r\n");
            input.extend_from_slice(&behind);
            input
        },
    )
}

proptest! {
    #[test]
    fn random_bodies_in_random_pieces(input in encoded(), mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let (data, consumed) = naive(&input).expect("what was encoded is well-formed");
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort();
        prop_assert_eq!(decode_in_pieces(&input, &cuts, ROOMY), Ok((Fed { consumed, done: true }, data)));
    }

    #[test]
    fn mutated_bodies_are_read_as_a_slow_reading_does(
        mut input in encoded(),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let interesting = b"\r\n \t;:0159afAFgx+-\0";
        for (index, byte, kind) in mutations {
            let at = index.index(input.len());
            match kind {
                0 => input[at] = interesting[usize::from(byte) % interesting.len()],
                1 => input.insert(at, interesting[usize::from(byte) % interesting.len()]),
                _ if input.len() > 1 => { input.remove(at); }
                _ => {}
            }
        }
        let read = decode(&input, u64::MAX);
        match (naive(&input), read) {
            (Some((data, consumed)), read) => prop_assert_eq!(read, Ok((Fed { consumed, done: true }, data))),
            (None, Ok((fed, _))) => prop_assert!(!fed.done && fed.consumed == input.len(), "{:?}", fed),
            (None, Err(_)) => {}
        }
    }
}
