//! What cores say to each other: handed-over connections, the bucket directory, start and stop. Nothing on the read or
//! append path is ever a message.

use std::os::fd::OwnedFd;
use std::sync::mpsc;

use async_channel::{Receiver, Sender};

use super::buckets::Phase;

/// A bucket as one shard's log knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// Bucket id.
    pub bucket: Vec<u8>,
    /// Number of this life of the id.
    pub generation: u64,
}

/// A question for a page of a bucket's streams.
#[derive(Clone, Debug)]
pub struct PageQuestion {
    /// The bucket, in one life of it.
    pub bucket: BucketRecord,
    /// Only stream ids with this prefix.
    pub prefix: Vec<u8>,
    /// Only stream ids after this one.
    pub after: Vec<u8>,
    /// At most so many.
    pub limit: usize,
}

/// A page of one shard's part of a bucket, in byte order of the stream ids. Flat: a page has up to a thousand streams.
#[derive(Clone, Debug, Default)]
pub struct ShardPage {
    ids: Vec<u8>,
    entries: Vec<u8>,
    /// Where the id and the entry of each stream end.
    ends: Vec<(u32, u32)>,
    /// Whether the shard has more after the last one.
    pub more: bool,
}

impl ShardPage {
    /// Adds a stream; `write` appends what the listing says of it.
    pub fn push(&mut self, id: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.ids.extend_from_slice(id);
        write(&mut self.entries);
        // A page has at most a thousand streams, with ids, types and numbers of limited length.
        self.ends.push((self.ids.len() as u32, self.entries.len() as u32));
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Id of each stream, and what the listing says of it.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.ends.len()).map(|index| {
            let (id_start, start) = index.checked_sub(1).map_or((0, 0), |before| self.ends[before]);
            let (id_end, end) = self.ends[index];
            (&self.ids[id_start as usize..id_end as usize], &self.entries[start as usize..end as usize])
        })
    }
}

/// A message to a shard.
pub enum Mail {
    /// A connection whose next request concerns a stream of the receiver.
    Connection {
        /// The socket.
        fd: OwnedFd,
        /// Bytes read from it and not yet consumed, from the start of a request.
        unread: Vec<u8>,
    },
    /// All shards have recovered: start serving with this directory of buckets.
    Begin {
        /// Every bucket of the server.
        buckets: Vec<BucketRecord>,
    },
    /// About a bucket, from its home shard.
    Bucket(BucketMail),
    /// Stop: no new connections, finish requests, end live readers, last commit, return.
    Stop,
}

/// What a bucket's home shard tells and asks the others. Mail from one shard arrives in the order in which it was sent. A
/// question that is dropped unanswered comes from a shard that stops: the asker must not take it for an answer.
pub enum BucketMail {
    /// The bucket is in the log of its home. Creates in it wait until it is known that every shard knows.
    Begins {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered once it is known here.
        done: Sender<()>,
    },
    /// Whether streams can be created in the bucket: it has begun, or stays, or nobody knows.
    Phase {
        /// The bucket.
        bucket: BucketRecord,
        /// The phase that it is in from now on.
        phase: Phase,
    },
    /// Let creates in the bucket wait, and count its streams once everything staged is durable.
    Ends {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered with the count; `None` if it depends on what a failed commit held.
        count: Sender<Option<u64>>,
    },
    /// The end of the bucket is in the log of its home.
    Ended {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered once it is forgotten.
        done: Sender<()>,
    },
    /// How many streams the bucket has here.
    Count {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered with the count.
        count: Sender<u64>,
    },
    /// A page of the bucket's streams here.
    Page {
        /// Which page.
        question: PageQuestion,
        /// Answered with the page.
        page: Sender<ShardPage>,
    },
}

/// What a shard tells the node while it starts and runs.
#[derive(Debug)]
pub enum Report {
    /// The log is replayed; waiting for [`Mail::Begin`].
    Recovered {
        /// Which shard.
        shard: usize,
        /// Streams that exist.
        streams: u64,
        /// Messages in them.
        records: u64,
        /// Buckets that this shard is home to.
        buckets: Vec<BucketRecord>,
        /// Bytes of a torn last commit that were cut, if any.
        torn_bytes: u64,
    },
    /// Accepting connections.
    Serving {
        /// Which shard.
        shard: usize,
    },
    /// The shard cannot go on; the message names the file and what is wrong. `code` is the process's exit code.
    Failed {
        /// Which shard.
        shard: usize,
        /// What happened.
        message: String,
        /// Exit code for the process.
        code: u8,
    },
}

/// The mailboxes of all shards, by shard index. Sending never blocks.
#[derive(Clone)]
pub struct Mailboxes(pub Vec<Sender<Mail>>);

/// Everything a shard is started with.
pub struct ShardStart {
    /// Index of the shard.
    pub shard: usize,
    /// Number of shards.
    pub shards: usize,
    /// Settings.
    pub config: std::sync::Arc<crate::config::Config>,
    /// Directory of the shard's log.
    pub log_dir: std::path::PathBuf,
    /// Id of the shard's log, from the manifest: goes into segment headers.
    pub log_id: u64,
    /// Seed of the placement hash, from the manifest.
    pub placement_seed: u64,
    /// Lineage ids: grants and what has been issued, shared by all shards.
    pub lineages: std::sync::Arc<crate::shard::lineage::Lineages>,
    /// Bound, listening sockets: the public one and, with `--shard-ports`, the shard's own.
    pub listeners: Vec<std::net::TcpListener>,
    /// Everyone's mailbox.
    pub mailboxes: Mailboxes,
    /// This shard's mailbox.
    pub inbox: Receiver<Mail>,
    /// Where to report.
    pub reports: mpsc::Sender<Report>,
}
