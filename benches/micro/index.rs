//! The record index and the extent index: insert, lookup, memory.

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg::storage::event::{Lengths, Place};
use thalweg::storage::extents::ExtentIndex;
use thalweg::storage::index::RecordIndex;

use crate::{scattered, sized};

/// Records in the indexes that are searched.
const RECORDS: u64 = 10_000_000;
/// Appends in the extent indexes that are searched.
const APPENDS: u64 = 1_000_000;

/// How the lengths of records vary.
const LENGTHS: &[&str] = &["equal", "varied", "slowly growing", "equal in batches", "varied in batches"];

/// An index of about so many records; the list of their lengths goes to `each`.
fn records(kind: &str, count: u64) -> RecordIndex {
    let mut index = RecordIndex::new();
    let mut numbers = scattered();
    let mut varied = || 200 + (numbers.next().expect("numbers without end") % 113) as u32;
    let batch = count.min(512) as u32;
    while index.count() < count {
        match kind {
            "equal" => index.push(256),
            "varied" => index.push(varied()),
            // As of JSON records with a number in them.
            "slowly growing" => {
                index.push(240 + (index.count() + 1).ilog10() + (index.count() % 100 / 99) as u32)
            }
            "equal in batches" => index.push_many(Lengths::Uniform { len: varied(), count: batch }),
            "varied in batches" => {
                let lengths: Vec<u32> = (0..batch).map(|_| varied()).collect();
                index.push_many(Lengths::Each(&lengths));
            }
            _ => unreachable!("no lengths are {kind}"),
        }
    }
    index
}

/// How the appends of a stream lie in the log.
const LAYOUTS: &[&str] = &["alone", "pipelined by 16", "among 64", "among 10,000", "batches of 128 KiB"];

/// Extents of so many appends.
fn extents(layout: &str, count: u64) -> ExtentIndex {
    let mut index = ExtentIndex::new();
    let mut numbers = scattered();
    let mut position = 4096;
    for append in 0..count {
        let (len, entry) = if layout == "batches of 128 KiB" { (131_072, 131_112) } else { (256, 256 + 36) };
        position += match layout {
            "alone" => 4096,
            // Sixteen in each commit, one behind the other.
            "pipelined by 16" if append % 16 == 0 => 8192 - 15 * entry,
            "pipelined by 16" => entry,
            // Each commit has one of the stream, somewhere in it.
            "among 64" => 64 * entry + numbers.next().expect("numbers without end") % 4096,
            "among 10,000" => 10_000 * entry + numbers.next().expect("numbers without end") % 65_536,
            "batches of 128 KiB" => 135_168,
            _ => unreachable!("no layout is {layout}"),
        };
        let (segment, position) = ((position >> 28) as u32, (position % (1 << 28)) as u32);
        index.push(index.end(), len, Place { segment, position, back: 36 });
    }
    index
}

/// Prints what records and appends cost in memory.
pub fn print_costs() {
    println!("bytes a record            for {} records", sized(RECORDS));
    for kind in LENGTHS {
        let index = records(kind, sized(RECORDS));
        let cost = index.memory_bytes() as f64 / index.count() as f64;
        println!("  {kind:22}  {cost:.4}");
        assert!(cost <= 2.5, "a record costs more than it may: {cost}");
    }
    println!("bytes an append           for {} appends", sized(APPENDS));
    for layout in LAYOUTS {
        let count = sized(APPENDS);
        let cost = extents(layout, count).memory_bytes() as f64 / count as f64;
        println!("  {layout:22}  {cost:.4}");
        assert!(cost <= 8.0, "an append costs more than it may: {cost}");
    }
}

/// Records one by one, as appends bring them; or 512 at once.
#[divan::bench(args = LENGTHS)]
fn insert_records(bencher: Bencher<'_, '_>, kind: &str) {
    let count = sized(100_000).max(1024);
    let index = records(kind, count);
    let lengths: Vec<u32> = index.lengths_from(0).collect();
    assert_eq!(lengths.iter().map(|len| u64::from(*len)).sum::<u64>(), index.end());
    bencher.counter(ItemsCount::new(index.count())).bench_local(|| {
        let mut index = RecordIndex::new();
        match kind {
            "equal in batches" => lengths.chunks(512).for_each(|batch| {
                index.push_many(Lengths::Uniform { len: batch[0], count: batch.len() as u32 });
            }),
            "varied in batches" => {
                lengths.chunks(512).for_each(|batch| index.push_many(Lengths::Each(batch)));
            }
            _ => lengths.iter().for_each(|len| index.push(*len)),
        }
        index.end()
    });
}

/// From ordinals in no order to offsets.
#[divan::bench(args = LENGTHS)]
fn offset_of(bencher: Bencher<'_, '_>, kind: &str) {
    let index = records(kind, sized(RECORDS));
    let ordinals: Vec<u64> = scattered().take(4096).map(|n| n % index.count()).collect();
    for ordinal in &ordinals {
        let next =
            index.offset_of(*ordinal) + u64::from(index.lengths_from(*ordinal).next().expect("a record"));
        assert_eq!(index.offset_of(ordinal + 1), next);
    }
    bencher
        .counter(ItemsCount::new(ordinals.len()))
        .bench_local(|| ordinals.iter().map(|ordinal| index.offset_of(*ordinal)).fold(0, u64::wrapping_add));
}

/// From offsets in no order to records.
#[divan::bench(args = LENGTHS)]
fn locate(bencher: Bencher<'_, '_>, kind: &str) {
    let index = records(kind, sized(RECORDS));
    let offsets: Vec<u64> = scattered().take(4096).map(|n| n % index.end()).collect();
    for offset in &offsets {
        let located = index.locate(*offset);
        assert_eq!(index.offset_of(located.ordinal), located.start);
        assert!(located.start <= *offset && *offset < index.offset_of(located.ordinal + 1));
    }
    bencher.counter(ItemsCount::new(offsets.len())).bench_local(|| {
        offsets.iter().map(|offset| index.locate(*offset).ordinal).fold(0, u64::wrapping_add)
    });
}

/// The extents of appends.
#[divan::bench(args = LAYOUTS)]
fn insert_extents(bencher: Bencher<'_, '_>, layout: &str) {
    let count = sized(100_000);
    let index = extents(layout, count);
    let whole: u64 = index.pieces(0, index.end()).map(|piece| u64::from(piece.len)).sum();
    assert_eq!(whole, index.end());
    bencher.counter(ItemsCount::new(count)).bench_local(|| extents(layout, count).end());
}

/// Where 256 bytes lie, at places in no order.
#[divan::bench(args = LAYOUTS)]
fn find_extents(bencher: Bencher<'_, '_>, layout: &str) {
    let index = extents(layout, sized(APPENDS));
    let offsets: Vec<u64> = scattered().take(4096).map(|n| n % (index.end() - 256)).collect();
    let bytes_at =
        |offset: u64| index.pieces(offset, offset + 256).map(|piece| u64::from(piece.len)).sum::<u64>();
    assert!(offsets.iter().all(|offset| bytes_at(*offset) == 256));
    bencher
        .counter(ItemsCount::new(offsets.len()))
        .bench_local(|| offsets.iter().map(|offset| bytes_at(*offset)).sum::<u64>());
}

/// A page of 1 MiB: all of its extents, in order.
#[divan::bench(args = LAYOUTS)]
fn walk_extents(bencher: Bencher<'_, '_>, layout: &str) {
    let index = extents(layout, sized(APPENDS));
    let (from, to) = (index.end() / 3, index.end() / 3 + (1 << 20).min(index.end() / 3));
    let walk = || {
        index
            .pieces(from, to)
            .fold((0u64, 0u64), |(count, bytes), piece| (count + 1, bytes + u64::from(piece.len)))
    };
    let (count, bytes) = walk();
    assert_eq!(bytes, to - from);
    bencher.counter(ItemsCount::new(count)).bench_local(walk);
}
