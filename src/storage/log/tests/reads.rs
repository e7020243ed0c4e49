//! Reading back: from memory, from disk, in parts, and what damage does.

use super::harness::{Client, open, options, pattern, run};
use crate::storage::event::{Part, Place};
use crate::storage::file_name;
use crate::storage::log::{LogOptions, Piece, ReadError};
use crate::storage::simulated::SimulatedStore;

fn piece(part: &Part, from: u32, len: u32) -> Piece {
    Piece { place: part.place, extent_len: part.len, from, len }
}

async fn filled(cache_bytes: usize) -> (SimulatedStore, Client) {
    let store = SimulatedStore::new();
    let (log, _, _, _) = open(&store, LogOptions { cache_bytes, ..options() }).await;
    let mut client = Client::new(log);
    client.create().await.expect("staged");
    client.create().await.expect("staged");
    for round in 0..60 {
        client.append(1 + round % 2, 20 + round as usize * 37).await.expect("staged");
        if round % 3 == 0 {
            client.settle().await.expect("durable");
        }
    }
    client.append(1, 200_000).await.expect("staged");
    client.append(2, 61_000).await.expect("staged");
    client.settle().await.expect("durable");
    (store, client)
}

/// All parts of stream `lineage`, in order.
fn parts(client: &Client, lineage: u64) -> Vec<Part> {
    let of_stream = format!("Appended {{ lineage: {lineage},");
    let seen = client.staged.iter().filter(|(seen, _)| seen.text.contains(&of_stream));
    seen.flat_map(|(seen, _)| seen.parts.clone()).collect()
}

#[test]
fn a_stream_reads_as_it_was_written_with_any_cache() {
    run(async {
        for cache_bytes in [0, 64 * 1024, 256 * 1024, 64 << 20] {
            let (_, client) = filled(cache_bytes).await;
            for lineage in 1..=2 {
                let parts = parts(&client, lineage);
                let pieces: Vec<Piece> = parts.iter().map(|part| piece(part, 0, part.len)).collect();
                let total: usize = parts.iter().map(|part| part.len as usize).sum();
                let mut out = b"before".to_vec();
                client.log.read(&client.log.hold(pieces.clone()), &mut out).await.expect("readable");
                assert!(out[6..] == pattern(lineage, 0, total), "stream {lineage}, cache {cache_bytes}");
            }
            client.log.stop().await;
        }
    });
}

#[test]
fn every_range_of_a_piece_reads_alike() {
    run(async {
        let (_, client) = filled(0).await;
        for (seen, payload) in &client.staged {
            let Some(part) = seen.parts.first() else { continue };
            let last = part.len - 1;
            for (from, len) in [(0, 1), (last, 1), (last / 2, 1 + last - last / 2), (last / 3, 1 + last / 3)]
            {
                let mut out = Vec::new();
                client
                    .log
                    .read(&client.log.hold(vec![piece(part, from, len)]), &mut out)
                    .await
                    .expect("readable");
                assert!(out == payload[from as usize..(from + len) as usize], "{seen:?} {from} {len}");
            }
        }
        client.log.stop().await;
    });
}

/// An extent may be a part of an entry's payload: what a fork or a trim leaves of it.
#[test]
fn an_extent_inside_a_payload_reads_alike() {
    run(async {
        let (_, client) = filled(0).await;
        for (seen, payload) in &client.staged {
            for part in seen.parts.first().into_iter().filter(|part| part.len > 20) {
                let cut = part.len / 2;
                let Place { segment, position, back } = part.place;
                let place = Place { segment, position: position + cut, back: back + cut };
                let inside = Piece { place, extent_len: part.len - cut - 3, from: 2, len: 5 };
                let mut out = Vec::new();
                client.log.read(&client.log.hold(vec![inside]), &mut out).await.expect("readable");
                assert_eq!(out, payload[cut as usize + 2..][..5], "{seen:?}");
            }
        }
        client.log.stop().await;
    });
}

#[test]
fn recent_bytes_come_from_memory() {
    run(async {
        let (store, client) = filled(64 << 20).await;
        store.make_unreadable(&file_name::segment(1), 0..1 << 30);
        for (seen, payload) in client.staged.iter().filter(|(seen, _)| !seen.parts.is_empty()) {
            if let [part] = seen.parts[..] {
                let cached = client.log.cached(part.place, 0, part.len).expect("in memory");
                assert!(*cached == payload[..]);
            }
            assert!(seen.payload(&client.log).await == *payload);
        }
        client.log.stop().await;
    });
}

#[test]
fn damage_and_device_errors_are_told_apart_and_located() {
    run(async {
        let (store, client) = filled(0).await;
        let part = parts(&client, 1)[0];
        let name = file_name::segment(1);
        let read = async |out: &mut Vec<u8>| {
            client.log.read(&client.log.hold(vec![piece(&part, 0, part.len)]), out).await
        };
        let mut out = b"before".to_vec();
        read(&mut out).await.expect("readable");
        let good = store.bytes(&name);
        let entry = (part.place.position - part.place.back) as usize;
        let end = part.place.position as usize + part.len as usize;
        out.truncate(6);
        for at in entry..end {
            store.edit(&name, |bytes| bytes[at] ^= 0x10);
            let error = read(&mut out).await.expect_err("damaged");
            assert!(
                matches!(error, ReadError::Damaged { position, .. } if position == entry as u64),
                "{at}: {error}"
            );
            assert_eq!(out, b"before", "nothing unverified is handed out");
            store.edit(&name, |bytes| bytes.clone_from(&good));
        }
        store.make_unreadable(&name, part.place.position.into()..part.place.position as u64 + 1);
        let error = read(&mut out).await.expect_err("unreadable");
        assert!(matches!(error, ReadError::Io { .. }), "{error}");
        client.log.stop().await;
    });
}
