//! Finding the bytes that end a run of plain bytes in a string, sixteen bytes at a time: the inner loop of the splitter.
//!
//! Strings of 5 to 20 bytes are what JSON is made of, so what counts is to find the end of a short string without a
//! branch per byte. With SSE2 (every x86-64 has it) that is one load, three comparisons and one bit scan; elsewhere two
//! words of eight bytes do the same in arithmetic.
//!
//! A set of bytes in a chunk is a number with a bit for each: bit n stands for byte n. The lowest bit that is set is
//! always right; those above it may be set for bytes that do not belong (where words are used), never the other way.

/// Bytes of a chunk.
pub(super) const BYTES: usize = 16;

/// Whether a byte ends text: a quote, a backslash, a control character.
#[inline(always)]
pub(super) fn is_delimiter(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Whether a byte stops the scan of a string: a delimiter, or anything beyond ASCII.
#[inline(always)]
pub(super) fn is_stop(byte: u8) -> bool {
    is_delimiter(byte) || byte >= 0x80
}

/// The stops in a chunk.
#[inline(always)]
pub(super) fn stops(chunk: &[u8; BYTES]) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return sse2::stops(chunk);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    return words::stops(chunk);
}

/// The delimiters in a chunk.
#[inline(always)]
pub(super) fn delimiters(chunk: &[u8; BYTES]) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return sse2::delimiters(chunk);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    return words::delimiters(chunk);
}

/// Whether four chunks hold no stop.
#[inline(always)]
pub(super) fn is_plain(chunks: &[u8; 4 * BYTES]) -> bool {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return sse2::is_plain(chunks);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    return words::is_plain(chunks);
}

/// All sixteen bytes at once.
///
/// Why `unsafe`: calling a `target_feature` function from one without the feature is; the processor must have it. This
/// module exists only if the whole build may use SSE2, which makes it a requirement of the program as such. Measured:
/// records of 230 bytes with strings of 2 to 60 split half as fast again as in words.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set_epi64x, _mm_set1_epi8,
    };

    use super::BYTES;

    #[inline(always)]
    pub(super) fn stops(chunk: &[u8; BYTES]) -> u32 {
        // SAFETY: see the module: the processor has SSE2.
        unsafe { bits(stops_of(load(chunk))) }
    }

    #[inline(always)]
    pub(super) fn delimiters(chunk: &[u8; BYTES]) -> u32 {
        // SAFETY: see the module: the processor has SSE2.
        unsafe { bits(delimiters_of(load(chunk))) }
    }

    #[inline(always)]
    pub(super) fn is_plain(chunks: &[u8; 4 * BYTES]) -> bool {
        let (chunks, _) = chunks.as_chunks();
        // SAFETY: see the module: the processor has SSE2.
        unsafe {
            let [a, b, c, d] = [0, 1, 2, 3].map(|at: usize| stops_of(load(&chunks[at])));
            bits(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))) == 0
        }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn load(chunk: &[u8; BYTES]) -> __m128i {
        let both = u128::from_le_bytes(*chunk);
        _mm_set_epi64x((both >> 64) as i64, both as i64)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn bits(bytes: __m128i) -> u32 {
        _mm_movemask_epi8(bytes).cast_unsigned()
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn quotes_and_backslashes(bytes: __m128i) -> __m128i {
        let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        _mm_or_si128(quotes, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8)))
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn stops_of(bytes: __m128i) -> __m128i {
        // With a sign, bytes beyond ASCII are less than any other.
        _mm_or_si128(quotes_and_backslashes(bytes), _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)))
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn delimiters_of(bytes: __m128i) -> __m128i {
        // There is no "less than" without a sign: a byte is a control character if the lesser of it and 0x1f is itself.
        let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        _mm_or_si128(quotes_and_backslashes(bytes), controls)
    }
}

/// Two words, one after the other.
#[cfg_attr(all(target_arch = "x86_64", target_feature = "sse2"), allow(dead_code))]
mod words {
    use super::BYTES;

    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;

    #[inline(always)]
    pub(super) fn stops(chunk: &[u8; BYTES]) -> u32 {
        bits(words(chunk).map(|word| (delimiters_of(word) | word) & HIGHS))
    }

    #[inline(always)]
    pub(super) fn delimiters(chunk: &[u8; BYTES]) -> u32 {
        bits(words(chunk).map(|word| delimiters_of(word) & !word & HIGHS))
    }

    #[inline(always)]
    pub(super) fn is_plain(chunks: &[u8; 4 * BYTES]) -> bool {
        let (chunks, _) = chunks.as_chunks();
        chunks.iter().all(|chunk| stops(chunk) == 0)
    }

    /// The two halves of a chunk, the first byte of each lowest.
    #[inline(always)]
    fn words(chunk: &[u8; BYTES]) -> [u64; 2] {
        let both = u128::from_le_bytes(*chunk);
        [both as u64, (both >> 64) as u64]
    }

    /// The high bits of the bytes of two words, gathered.
    #[inline(always)]
    fn bits(words: [u64; 2]) -> u32 {
        // Each high bit is moved to a place of its own in the top byte.
        let [low, high] = words.map(|word| ((word >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32);
        low | high << 8
    }

    /// The high bit of each byte tells whether that byte of the word is a delimiter; it means nothing where the byte is
    /// beyond ASCII. A borrow can set the bit of a byte behind a delimiter, never of one before it, so the lowest bit that
    /// is set is exact: `x - 0x20` borrows where `x < 0x20`; `x ^ '"'` is zero, and so less than 1, where `x` is a quote.
    #[inline(always)]
    fn delimiters_of(word: u64) -> u64 {
        let quotes = word ^ (ONES * b'"' as u64);
        let backslashes = word ^ (ONES * b'\\' as u64);
        word.wrapping_sub(ONES * 0x20) | quotes.wrapping_sub(ONES) | backslashes.wrapping_sub(ONES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(chunk: &[u8], belongs: fn(u8) -> bool) -> u32 {
        chunk.iter().position(|&byte| belongs(byte)).map_or(32, |place| place as u32)
    }

    /// What must hold for any chunk.
    fn check(chunk: &[u8; BYTES]) {
        for (name, found, words, belongs) in [
            ("stops", stops(chunk), words::stops(chunk), is_stop as fn(u8) -> bool),
            ("delimiters", delimiters(chunk), words::delimiters(chunk), is_delimiter),
        ] {
            for found in [found, words] {
                assert_eq!(found.trailing_zeros(), naive(chunk, belongs), "{name} of {chunk:x?}: {found:b}");
                for (place, &byte) in chunk.iter().enumerate() {
                    assert!(found & 1 << place != 0 || !belongs(byte), "{name} of {chunk:x?}: {found:b}");
                }
            }
        }
        for at in 0..4 {
            let mut four = [b'x'; 4 * BYTES];
            four[at * BYTES..][..BYTES].copy_from_slice(chunk);
            let expected = !chunk.iter().any(|&byte| is_stop(byte));
            assert_eq!((is_plain(&four), words::is_plain(&four)), (expected, expected), "{chunk:x?} at {at}");
        }
    }

    /// Every byte at every place, alone and before another stop, among bytes of several kinds.
    #[test]
    fn every_byte_at_every_place() {
        for filler in [b'x', 0x20, 0x21, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
            for at in 0..BYTES {
                for byte in 0..=255 {
                    let mut chunk = [filler; BYTES];
                    chunk[at] = byte;
                    check(&chunk);
                    chunk[BYTES - 1] = b'"';
                    check(&chunk);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_chunk(chunk: [u8; BYTES], plain in proptest::array::uniform16(0x1eu8..0x24)) {
            check(&chunk);
            check(&plain);
        }
    }
}
