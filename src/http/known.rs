//! The headers that the server reads, by name: one multiplication finds the only candidate, one comparison settles it.

/// Whether a header may come more than once in a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Its values would contradict each other: a second line is refused.
    One,
    /// Its value is a list, which may be spread over lines, or it is nothing that decides anything here.
    Many,
}

macro_rules! known {
    ($($(#[$doc:meta])* $variant:ident $name:literal $lines:ident,)*) => {
        /// A header that the server reads. All others are skipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known { $($(#[$doc])* $variant,)* }

        impl Known {
            /// Every known header, in the order of its number.
            pub const ALL: &[Known] = &[$(Known::$variant,)*];

            /// Names in lower case, by number.
            const NAMES: [&str; COUNT] = [$($name,)*];
            const LINES: [Lines; COUNT] = [$(Lines::$lines,)*];
            const REPEATED: [&str; COUNT] =
                [$(concat!("the header ", $name, " appears more than once"),)*];
        }

        /// How many headers are known.
        pub(super) const COUNT: usize = [$($name,)*].len();
    };
}

known! {
    /// Media type of the body, or of the stream to create.
    ContentType "content-type" One,
    /// Length of the body: [`super::head::Framing::Length`].
    ContentLength "content-length" One,
    /// Chunked body: [`super::head::Framing::Chunked`].
    TransferEncoding "transfer-encoding" One,
    /// Whether the connection persists.
    Connection "connection" Many,
    /// `100-continue`.
    Expect "expect" One,
    /// Authority that the client addressed.
    Host "host" One,
    /// Origin of a browser's page.
    Origin "origin" One,
    /// Representations that the client takes.
    Accept "accept" Many,
    /// Validators of stored responses.
    IfNoneMatch "if-none-match" Many,
    /// Offset that a browser's `EventSource` saw last.
    LastEventId "last-event-id" One,
    /// Scheme that a proxy was addressed with; ignored unless proxies are trusted, hence no reason to refuse.
    XForwardedProto "x-forwarded-proto" Many,
    /// Sliding window of a stream's life, in seconds.
    StreamTtl "stream-ttl" One,
    /// Instant at which a stream ends.
    StreamExpiresAt "stream-expires-at" One,
    /// Closure of a stream.
    StreamClosed "stream-closed" One,
    /// Writer's sequence.
    StreamSeq "stream-seq" One,
    /// Attributes of a stream to create.
    StreamAttrs "stream-attrs" One,
    /// Record tail that an append expects.
    StreamRecordMatch "stream-record-match" One,
    /// Digest of the snapshot that a publication replaces.
    StreamSnapshotMatch "stream-snapshot-match" One,
    /// Source of a fork.
    StreamForkedFrom "stream-forked-from" One,
    /// Offset of a fork in its source.
    StreamForkOffset "stream-fork-offset" One,
    /// Offset of a fork inside a record of its source.
    StreamForkSubOffset "stream-fork-sub-offset" One,
    /// Idempotent producer.
    ProducerId "producer-id" One,
    /// Epoch of that producer.
    ProducerEpoch "producer-epoch" One,
    /// Sequence in that epoch.
    ProducerSeq "producer-seq" One,
    /// Credentials.
    Authorization "authorization" One,
    /// Method that a browser asks to use.
    AccessControlRequestMethod "access-control-request-method" Many,
    /// Headers that a browser asks to send.
    AccessControlRequestHeaders "access-control-request-headers" Many,
}

const BYTES_MIN: usize = 4;
const SLOT_BITS: u32 = 6;
const EMPTY: u8 = u8::MAX;
/// Found by trial: the smallest table of a power of two in which no two names share a slot.
const MULTIPLIER: u64 = 0xb401_ba85_70c1_dca1;

/// Number of the only header that can have a name of this slot.
const SLOTS: [u8; 1 << SLOT_BITS] = {
    let mut slots = [EMPTY; 1 << SLOT_BITS];
    let mut number = 0;
    while number < COUNT {
        let name = Known::NAMES[number].as_bytes();
        assert!(name.len() >= BYTES_MIN, "a slot is computed from four bytes at each end");
        let mut at = 0;
        while at < name.len() {
            // Setting bit 5 then maps exactly a token's letter, in either case, or its digit or hyphen to this byte.
            assert!(matches!(name[at], b'a'..=b'z' | b'0'..=b'9' | b'-'), "names are lower-case words");
            at += 1;
        }
        let slot = slot(name);
        assert!(slots[slot] == EMPTY, "two names share a slot: try another multiplier");
        slots[slot] = number as u8;
        number += 1;
    }
    slots
};

const _: () = assert!(COUNT <= 32, "sets of headers are 32 bits");

/// Slot of a name of four bytes or more, from its first and last four bytes in lower case and its length.
#[inline]
const fn slot(name: &[u8]) -> usize {
    let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) else {
        return 0;
    };
    let ends = (u32::from_le_bytes(*first) as u64) << 32 | u32::from_le_bytes(*last) as u64;
    let key = (ends | 0x2020_2020_2020_2020).wrapping_add(name.len() as u64);
    (key.wrapping_mul(MULTIPLIER) >> (u64::BITS - SLOT_BITS)) as usize
}

impl Known {
    /// The header of a name in any case, if the server reads it. The name must be a token (RFC 9110, 5.6.2).
    #[inline]
    pub fn find(name: &[u8]) -> Option<Known> {
        let number = SLOTS[slot(name)];
        let known = *Known::ALL.get(usize::from(number))?;
        same(name, known.name().as_bytes()).then_some(known)
    }

    /// Its name in lower case.
    #[inline]
    pub const fn name(self) -> &'static str {
        Known::NAMES[self as usize]
    }

    /// Whether it may come on several lines.
    #[inline]
    pub const fn is_list(self) -> bool {
        matches!(Known::LINES[self as usize], Lines::Many)
    }

    /// Says that it came twice and may not.
    pub(super) const fn repeated(self) -> &'static str {
        Known::REPEATED[self as usize]
    }
}

/// Whether a token equals a known name, without regard to case.
#[inline]
fn same(token: &[u8], name: &[u8]) -> bool {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    if token.len() != name.len() {
        return false;
    }
    let (token_words, _) = token.as_chunks::<8>();
    let (name_words, _) = name.as_chunks::<8>();
    for (a, b) in token_words.iter().zip(name_words) {
        if u64::from_le_bytes(*a) | LOWER != u64::from_le_bytes(*b) {
            return false;
        }
    }
    // What is left lies in the last eight bytes; they may overlap the words above. Short names are two overlapping
    // halves.
    match (token.last_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(a), Some(b)) => u64::from_le_bytes(*a) | LOWER == u64::from_le_bytes(*b),
        _ => match (token.first_chunk::<4>(), name.first_chunk::<4>(), token.last_chunk(), name.last_chunk())
        {
            (Some(a), Some(b), Some(c), Some(d)) => {
                u32::from_le_bytes(*a) | LOWER as u32 == u32::from_le_bytes(*b)
                    && u32::from_le_bytes(*c) | LOWER as u32 == u32::from_le_bytes(*d)
            }
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of a token, RFC 9110, 5.6.2.
    fn is_token(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
    }

    fn naive(name: &[u8]) -> Option<Known> {
        Known::ALL.iter().copied().find(|known| known.name().as_bytes().eq_ignore_ascii_case(name))
    }

    #[test]
    fn every_name_is_found_in_every_case() {
        for &known in Known::ALL {
            let lower = known.name().as_bytes();
            assert_eq!(Known::find(lower), Some(known));
            assert_eq!(Known::find(&lower.to_ascii_uppercase()), Some(known));
            for at in 0..lower.len() {
                let mut mixed = lower.to_vec();
                mixed[at] = mixed[at].to_ascii_uppercase();
                assert_eq!(Known::find(&mixed), Some(known), "{}", String::from_utf8_lossy(&mixed));
            }
        }
    }

    #[test]
    fn a_name_with_one_byte_changed_removed_or_added_is_not_found() {
        for &known in Known::ALL {
            let name = known.name().as_bytes();
            for at in 0..name.len() {
                for byte in (0..=255).filter(|&byte| is_token(byte)) {
                    let mut changed = name.to_vec();
                    changed[at] = byte;
                    assert_eq!(
                        Known::find(&changed),
                        naive(&changed),
                        "{}",
                        String::from_utf8_lossy(&changed)
                    );
                    let mut longer = name.to_vec();
                    longer.insert(at, byte);
                    assert_eq!(Known::find(&longer), naive(&longer), "{}", String::from_utf8_lossy(&longer));
                }
                let mut shorter = name.to_vec();
                shorter.remove(at);
                assert_eq!(Known::find(&shorter), naive(&shorter), "{}", String::from_utf8_lossy(&shorter));
                assert_eq!(Known::find(&name[..at]), naive(&name[..at]));
            }
        }
        assert_eq!(Known::find(b""), None);
    }

    /// Longer names with the words that are compared first and last, of the same slot: only the length differs.
    #[test]
    fn a_longer_name_of_the_same_slot_is_not_found() {
        let mut met = 0;
        for &known in Known::ALL {
            let name = known.name().as_bytes();
            let (head, tail) = (&name[..name.len() / 8 * 8], &name[name.len().saturating_sub(8)..]);
            for filler in (1..60).flat_map(|bytes| (b'a'..=b'z').map(move |letter| vec![letter; bytes])) {
                let longer = [head, &filler, tail].concat();
                met += usize::from(longer.len() != name.len() && slot(&longer) == slot(name));
                assert_eq!(Known::find(&longer), naive(&longer), "{}", String::from_utf8_lossy(&longer));
            }
        }
        assert!(met > 100, "only {met} names shared a slot");
    }

    #[test]
    fn numbers_are_dense_and_lists_are_few() {
        for (number, &known) in Known::ALL.iter().enumerate() {
            assert_eq!(known as usize, number);
        }
        let lists: Vec<&str> =
            Known::ALL.iter().filter(|known| known.is_list()).map(|known| known.name()).collect();
        assert_eq!(
            lists,
            [
                "connection",
                "accept",
                "if-none-match",
                "x-forwarded-proto",
                "access-control-request-method",
                "access-control-request-headers"
            ]
        );
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_search(name in "[A-Za-z0-9!#$%&'*+.^_`|~-]{0,40}") {
            prop_assert_eq!(Known::find(name.as_bytes()), naive(name.as_bytes()));
        }
    }
}
