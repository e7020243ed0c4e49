//! What cores say to each other: handed-over connections, the bucket directory, start and stop. Nothing on the read or
//! append path is ever a message.

use std::os::fd::OwnedFd;
use std::sync::mpsc;

use async_channel::{Receiver, Sender};

/// A bucket as one shard's log knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// Bucket id.
    pub bucket: Vec<u8>,
    /// Number of this life of the id.
    pub generation: u64,
}

/// One stream of a listing page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStream {
    /// Stream id within its bucket.
    pub stream: Vec<u8>,
    /// Whether it is closed.
    pub closed: bool,
    /// Content type.
    pub content_type: Vec<u8>,
    /// Durable end, in bytes.
    pub tail_offset: u64,
    /// Creation time, Unix milliseconds.
    pub created_at_ms: u64,
    /// Time of the last append, Unix milliseconds.
    pub last_write_at_ms: u64,
}

/// A page of one shard's part of a bucket.
#[derive(Clone, Debug, Default)]
pub struct ShardPage {
    /// Streams in byte order of their ids.
    pub streams: Vec<ListedStream>,
    /// Whether the shard has more after the last one.
    pub more: bool,
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
    /// Sent by a bucket's home shard: the bucket exists from now on.
    BucketAdded {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered once it is known.
        done: Sender<()>,
    },
    /// Refuse creates in the bucket and count its streams (staged, live and soft-deleted).
    BucketFreeze {
        /// Bucket id.
        bucket: Vec<u8>,
        /// Answered with the count.
        count: Sender<u64>,
    },
    /// The delete was refused: creates are welcome again.
    BucketUnfreeze {
        /// Bucket id.
        bucket: Vec<u8>,
    },
    /// The bucket is gone.
    BucketRemoved {
        /// The bucket.
        bucket: BucketRecord,
        /// Answered once it is forgotten.
        done: Sender<()>,
    },
    /// How many live streams the bucket has here.
    BucketCount {
        /// Bucket id.
        bucket: Vec<u8>,
        /// Answered with the count.
        count: Sender<u64>,
    },
    /// A page of the bucket's streams here.
    BucketPage {
        /// Bucket id.
        bucket: Vec<u8>,
        /// Only stream ids with this prefix.
        prefix: Vec<u8>,
        /// Only stream ids after this one.
        after: Vec<u8>,
        /// At most so many.
        limit: usize,
        /// Answered with the page.
        page: Sender<ShardPage>,
    },
    /// Stop: no new connections, finish requests, end live readers, last commit, return.
    Stop,
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
