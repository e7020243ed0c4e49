//! Round trips, bounds, and refusal of everything that the encoder cannot produce.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::storage::testing::{Owned, any_owned, assert_same};

/// Numbers on disk are indexes plus this, so that one taken for the other shows.
const NUMBERS: u32 = 7;

fn number_of(index: u32) -> u32 {
    index + NUMBERS
}

fn index_of(number: u32) -> Option<u32> {
    number.checked_sub(NUMBERS)
}

fn coding<'a>(coded: &Coded, meta: &'a [u8], payload_bytes: usize) -> Coding<'a> {
    Coding {
        kind: coded.kind as u8,
        flags: coded.flags,
        payload_bytes: payload_bytes as u32,
        segment: 3,
        position: 4096,
        stem: None,
        meta,
    }
}

fn encode_owned(owned: &Owned) -> (Coded, Vec<u8>) {
    let mut out = vec![0xee; 1 << 16];
    let coded = match (owned.event(), owned) {
        (Some(event), _) => {
            let coded = encode(&event, number_of, &mut out);
            let most = meta_bytes_max(&event);
            assert!(coded.meta_bytes <= most, "{} bytes of meta, at most {most} announced", coded.meta_bytes);
            coded
        }
        (None, Owned::Chunk(lineage, _)) => encode_chunk(*lineage, &mut out),
        _ => unreachable!("only a chunk is no event"),
    };
    assert!(
        out[coded.meta_bytes..].iter().all(|byte| *byte == 0xee),
        "nothing is written behind the meta part"
    );
    out.truncate(coded.meta_bytes);
    (coded, out)
}

proptest! {
    #[test]
    fn events_come_back(owned in any_owned()) {
        let (coded, meta) = encode_owned(&owned);
        let mut scratch = DecodeScratch::default();
        let bytes = owned.payload_bytes();
        let back = entry_back_bytes(meta.len(), bytes) as u32;
        let place = Place { segment: 3, position: 4096 + back, back };
        match decode(&coding(&coded, &meta, bytes), &index_of, &mut scratch).expect("it decodes") {
            Entry::Event(read) => assert_same(&owned.event().expect("an event"), &read, place),
            Entry::Chunk { lineage, part } => {
                prop_assert!(matches!(owned, Owned::Chunk(written, _) if written == lineage));
                prop_assert_eq!(part, Part { place, len: bytes as u32 });
            }
        }
    }

    #[test]
    fn a_stem_left_out_makes_no_difference(owned in any_owned()) {
        let (coded, meta) = encode_owned(&owned);
        let Some(stem) = coded.stem else { return Ok(()) };
        let (mut first, mut second) = (DecodeScratch::default(), DecodeScratch::default());
        let whole = coding(&coded, &meta, owned.payload_bytes());
        let without = Coding { stem: Some((stem.lineage, stem.start)), meta: &meta[stem.bytes..], ..whole };
        prop_assert_eq!(decode(&whole, &index_of, &mut first), decode(&without, &index_of, &mut second));
    }

    #[test]
    fn a_time_of_its_own_changes_nothing_but_where_the_payload_lies(owned in any_owned(), time_ms: u64) {
        let (mut coded, mut meta) = encode_owned(&owned);
        let bytes = owned.payload_bytes();
        prop_assert_eq!(own_time_ms(coded.flags, &meta), None);
        meta.resize(coded.meta_bytes + TIME_BYTES, 0);
        add_time(&mut coded, time_ms, &mut meta);
        let mut scratch = DecodeScratch::default();
        let back = entry_back_bytes(meta.len(), bytes) as u32;
        let place = Place { segment: 3, position: 4096 + back, back };
        match decode(&coding(&coded, &meta, bytes), &index_of, &mut scratch).expect("it decodes") {
            Entry::Event(read) => assert_same(&owned.event().expect("an event"), &read, place),
            Entry::Chunk { part, .. } => prop_assert_eq!(part, Part { place, len: bytes as u32 }),
        }
        prop_assert_eq!(own_time_ms(coded.flags, &meta), Some(time_ms));
    }

    #[test]
    fn cut_or_extended_meta_is_refused(owned in any_owned()) {
        let (coded, mut meta) = encode_owned(&owned);
        let mut scratch = DecodeScratch::default();
        for cut in 0..meta.len() {
            let coding = coding(&coded, &meta[..cut], owned.payload_bytes());
            prop_assert!(decode(&coding, &index_of, &mut scratch).is_err(), "cut at {}", cut);
        }
        meta.push(0);
        let coding = coding(&coded, &meta, owned.payload_bytes());
        prop_assert!(decode(&coding, &index_of, &mut scratch).is_err());
    }

    #[test]
    fn noise_never_panics(
        kind: u8,
        flags: u8,
        payload_bytes: u32,
        position: u32,
        stem: Option<(u64, u64)>,
        meta in vec(prop_oneof![0..4u8, any::<u8>()], 0..60),
    ) {
        let mut scratch = DecodeScratch::default();
        let kind = kind % 15;
        let coding = Coding { kind, flags, payload_bytes, segment: 0, position, stem, meta: &meta };
        // Whatever it is: what decodes adds up.
        if let Ok(Entry::Event(Event::Appended(append))) = decode(&coding, &|_| Some(0), &mut scratch)
            && let Payload::Here(_) = append.payload
        {
            prop_assert_eq!(append.lengths.total_bytes(), u64::from(payload_bytes));
        }
    }

    #[test]
    fn varints_are_as_long_as_announced(value: u64, shift in 0..64u32) {
        let value = value >> shift;
        let mut out = [0; VARINT_BYTES_MAX + 4];
        let mut put = Put { out: &mut out, at: 0 };
        put.varint(value);
        let bytes = put.at;
        prop_assert_eq!(bytes, varint_bytes(value));
        // With and without bytes behind it.
        for end in [bytes, out.len()] {
            let mut get = Get { rest: &out[..end] };
            prop_assert_eq!(get.varint(), Ok(value));
            prop_assert_eq!(get.rest.len(), end - bytes);
        }
        prop_assert_eq!(Get { rest: &out[..bytes - 1] }.varint(), Err(DecodeError::Cut));
    }
}

#[test]
fn varints_are_refused_in_longer_forms() {
    let table: [(&[u8], Result<u64, DecodeError>); 9] = [
        (&[0], Ok(0)),
        (&[0x80, 0], Err(DecodeError::Varint)),
        (&[0xff, 0x80, 0], Err(DecodeError::Varint)),
        (&[0x80, 1], Ok(128)),
        (&[0x80, 0x80, 1], Ok(1 << 14)),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(u64::MAX)),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Err(DecodeError::Varint)),
        (&[0xff; 11], Err(DecodeError::Varint)),
        (&[], Err(DecodeError::Cut)),
    ];
    for (bytes, expected) in table {
        assert_eq!(Get { rest: bytes }.varint(), expected, "{bytes:?}");
    }
}

/// Decodes an append with this flags byte, payload and rest of meta, behind lineage 1 and start 2.
fn decode_append(flags: u8, payload_bytes: u32, rest: &[u8]) -> Result<(), DecodeError> {
    let meta = [&[1, 2], rest].concat();
    let coding = Coding { kind: 2, flags, payload_bytes, segment: 0, position: 64, stem: None, meta: &meta };
    decode(&coding, &index_of, &mut DecodeScratch::default()).map(|_| ())
}

#[test]
fn appends_are_refused_by_reason() {
    type Case = (u8, u32, &'static [u8], Result<(), DecodeError>);
    let table: [Case; 18] = [
        (LENGTHS_NONE | APPEND_CLOSED, 0, &[], Ok(())),
        (LENGTHS_NONE, 5, &[], Err(DecodeError::Lengths)),
        (LENGTHS_ONE, 5, &[], Ok(())),
        (LENGTHS_ONE, 0, &[], Err(DecodeError::Lengths)),
        (LENGTHS_UNIFORM, 6, &[2], Ok(())),
        (LENGTHS_UNIFORM, 7, &[2], Err(DecodeError::Lengths)),
        (LENGTHS_UNIFORM, 6, &[1], Err(DecodeError::Lengths)),
        (LENGTHS_UNIFORM, 0, &[2], Err(DecodeError::Lengths)),
        (LENGTHS_EACH, 3, &[2, 1, 2], Ok(())),
        (LENGTHS_EACH, 4, &[2, 1, 2], Err(DecodeError::Lengths)),
        (LENGTHS_EACH, 1, &[2, 0, 1], Err(DecodeError::Lengths)),
        (LENGTHS_EACH, 1, &[1, 1], Err(DecodeError::Lengths)),
        (LENGTHS_EACH, 3, &[0xff, 0xff, 3, 1], Err(DecodeError::Lengths)),
        (1 << 6, 0, &[], Err(DecodeError::UnknownFlags(2, 1 << 6))),
        (LENGTHS_ONE | APPEND_PARTS, 9, &[1, 7, 1, 1, 9], Err(DecodeError::Payload)),
        (LENGTHS_ONE | APPEND_PARTS, 0, &[1, 7, 1, 1, 9], Ok(())),
        // A segment that is gone: whoever needs the part is gone, too.
        (LENGTHS_ONE | APPEND_PARTS, 0, &[1, 6, 1, 1, 9], Ok(())),
        (LENGTHS_ONE | APPEND_PARTS, 0, &[9, 6, 1, 1, 9], Err(DecodeError::Cut)),
    ];
    for (flags, payload_bytes, rest, expected) in table {
        assert_eq!(
            decode_append(flags, payload_bytes, rest),
            expected,
            "{flags:#x} {payload_bytes} {rest:?}"
        );
    }
}

#[test]
fn other_kinds_are_refused_by_reason() {
    let refused = |kind: u8, flags: u8, payload_bytes: u32, meta: &[u8]| {
        let coding = Coding { kind, flags, payload_bytes, segment: 0, position: 64, stem: None, meta };
        decode(&coding, &index_of, &mut DecodeScratch::default()).map(|_| ())
    };
    assert_eq!(refused(3, 0, 0, &[1]), Ok(()));
    assert_eq!(refused(0, 0, 0, &[1]), Err(DecodeError::UnknownKind(0)));
    assert_eq!(refused(13, 0, 0, &[1]), Err(DecodeError::UnknownKind(13)));
    assert_eq!(refused(3, 1, 0, &[1]), Err(DecodeError::UnknownFlags(3, 1)));
    assert_eq!(refused(3, 0, 1, &[1]), Err(DecodeError::Payload));
    assert_eq!(refused(3, 0, 0, &[1, 1]), Err(DecodeError::TooLong));
    assert_eq!(refused(1, 16, 0, &[]), Err(DecodeError::UnknownFlags(1, 16)));
    assert_eq!(refused(5, 0, 0, &[1, 2, b'a']), Err(DecodeError::Cut));
    // An append whose end would not be a number.
    let last = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(refused(2, LENGTHS_ONE, 1, &last), Err(DecodeError::Lengths));
}
