//! The bucket directory as one shard knows it, and the streams of each bucket that live here, in order of their ids.
//!
//! A bucket's home shard (by the hash of its id) logs it; every shard knows every bucket. Creating a stream looks here
//! and nowhere else. While a delete is under way the bucket is frozen: creates in it wait for the verdict.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::mail::{BucketRecord, ListedStream, ShardPage};
use super::table::StreamId;

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    /// Number of this life of the id.
    pub generation: u64,
    /// Whether a delete is under way.
    pub frozen: bool,
    streams: BTreeMap<Box<[u8]>, StreamId>,
}

/// All buckets.
#[derive(Debug, Default)]
pub struct Buckets {
    by_id: HashMap<Box<[u8]>, Bucket>,
}

impl Buckets {
    /// The bucket of an id.
    pub fn get(&self, bucket: &[u8]) -> Option<&Bucket> {
        self.by_id.get(bucket)
    }

    /// A bucket begins.
    pub fn add(&mut self, record: &BucketRecord) {
        let bucket = Bucket { generation: record.generation, frozen: false, streams: BTreeMap::new() };
        let before = self.by_id.insert(record.bucket.as_slice().into(), bucket);
        assert!(before.is_none(), "bucket {} exists twice", record.bucket.escape_ascii());
    }

    /// A bucket ends.
    pub fn remove(&mut self, record: &BucketRecord) {
        let removed = self.by_id.remove(record.bucket.as_slice()).expect("a bucket that ends exists");
        assert_eq!(removed.generation, record.generation, "another life of the bucket ends");
        assert!(removed.streams.is_empty(), "a bucket that ends holds {} streams", removed.streams.len());
    }

    /// Freezes or unfreezes a bucket, if it exists.
    pub fn set_frozen(&mut self, bucket: &[u8], frozen: bool) {
        if let Some(bucket) = self.by_id.get_mut(bucket) {
            bucket.frozen = frozen;
        }
    }

    /// A stream begins. `key` is `bucket/stream`.
    pub fn enter(&mut self, key: &[u8], id: StreamId) {
        let (bucket, stream) = split(key);
        if let Some(bucket) = self.by_id.get_mut(bucket) {
            let before = bucket.streams.insert(stream.into(), id);
            assert!(before.is_none(), "stream {} is listed twice", key.escape_ascii());
        }
    }

    /// A stream is gone.
    pub fn leave(&mut self, key: &[u8]) {
        let (bucket, stream) = split(key);
        if let Some(bucket) = self.by_id.get_mut(bucket) {
            bucket.streams.remove(stream);
        }
    }

    /// Streams of a bucket here, those whose create or delete is not durable yet included.
    pub fn count(&self, bucket: &[u8]) -> u64 {
        self.by_id.get(bucket).map_or(0, |bucket| bucket.streams.len() as u64)
    }

    /// Streams of a bucket here that `counts` says count.
    pub fn count_where(&self, bucket: &[u8], counts: impl Fn(StreamId) -> bool) -> u64 {
        let bucket = self.by_id.get(bucket);
        bucket.map_or(0, |bucket| bucket.streams.values().filter(|id| counts(**id)).count() as u64)
    }

    /// A page of a bucket's streams here: `describe` leaves out those that are not to be listed.
    pub fn page(
        &self,
        bucket: &[u8],
        prefix: &[u8],
        after: &[u8],
        limit: usize,
        describe: impl Fn(StreamId, &[u8]) -> Option<ListedStream>,
    ) -> ShardPage {
        let mut page = ShardPage::default();
        let Some(bucket) = self.by_id.get(bucket) else { return page };
        let from = if !after.is_empty() && after >= prefix {
            Bound::Excluded(after)
        } else {
            Bound::Included(prefix)
        };
        for (stream, id) in bucket.streams.range::<[u8], _>((from, Bound::Unbounded)) {
            if !stream.starts_with(prefix) {
                break;
            }
            let Some(listed) = describe(*id, stream) else { continue };
            if page.streams.len() == limit {
                page.more = true;
                break;
            }
            page.streams.push(listed);
        }
        page
    }

    /// Every bucket.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Bucket)> {
        self.by_id.iter().map(|(id, bucket)| (&**id, bucket))
    }
}

/// `bucket/stream` in two. A stream id has no slash.
fn split(key: &[u8]) -> (&[u8], &[u8]) {
    let slash = key.iter().position(|byte| *byte == b'/').expect("a key has a slash");
    (&key[..slash], &key[slash + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(_: StreamId, stream: &[u8]) -> Option<ListedStream> {
        (stream != b"hidden").then(|| ListedStream {
            stream: stream.to_vec(),
            closed: false,
            content_type: Vec::new(),
            tail_offset: 0,
            created_at_ms: 0,
            last_write_at_ms: 0,
        })
    }

    #[test]
    fn pages_are_sorted_bounded_and_resume_after_a_cursor() {
        let mut buckets = Buckets::default();
        buckets.add(&BucketRecord { bucket: b"logs".to_vec(), generation: 1 });
        for (lineage, id) in ["b", "a", "user-2", "user-1", "hidden", "user-10", "v"].iter().enumerate() {
            buckets.enter(format!("logs/{id}").as_bytes(), StreamId { slot: 0, lineage: lineage as u64 });
        }
        // (prefix, after, limit) -> ids, more
        let table: [(&str, &str, usize, &[&str], bool); 7] = [
            ("", "", 9, &["a", "b", "user-1", "user-10", "user-2", "v"], false),
            ("", "", 2, &["a", "b"], true),
            ("", "b", 2, &["user-1", "user-10"], true),
            ("user-", "", 9, &["user-1", "user-10", "user-2"], false),
            ("user-", "user-1", 1, &["user-10"], true),
            ("user-", "a", 9, &["user-1", "user-10", "user-2"], false),
            ("user-", "v", 9, &[], false),
        ];
        for (prefix, after, limit, expected, more) in table {
            let page = buckets.page(b"logs", prefix.as_bytes(), after.as_bytes(), limit, listed);
            let ids: Vec<&str> =
                page.streams.iter().map(|stream| std::str::from_utf8(&stream.stream).unwrap()).collect();
            assert_eq!((ids.as_slice(), page.more), (expected, more), "{prefix:?} after {after:?}");
        }
        buckets.leave(b"logs/a");
        assert_eq!(buckets.count(b"logs"), 6);
        assert_eq!(buckets.count_where(b"logs", |id| id.lineage < 3), 2, "a is gone, b and user-2 are left");
        assert_eq!(buckets.count_where(b"none", |_| true), 0);
    }
}
