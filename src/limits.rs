//! Every maximum of the server, in one place: name, default, and what a client sees when it is met.
//! Relations between limits are proved at compile time, each with its reason.

/// Bytes of a block: the unit of every read and write of the log (`O_DIRECT` alignment).
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of payload that share one checksum inside an entry, so that a small read verifies little.
pub const CHECKSUM_CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of the largest commit, header and padding included.
pub const COMMIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a segment file (`--segment-bytes`). ext4 keeps up to four extents in the inode, each shorter than 128 MiB, and a
/// segment that is being filled has one more than its space came in: a larger one needs a block of extents, which half of all
/// durable writes would have to write, too (`perf/records/2026-12-01-batch-limits.md`).
pub const SEGMENT_BYTES_DEFAULT: u64 = 128 * 1024 * 1024;
/// Segments that a shard makes ahead of use while it is idle (`--segments-ahead`): the next one, and no more.
pub const SEGMENTS_AHEAD_DEFAULT: usize = 1;
/// Most of them.
pub const SEGMENTS_AHEAD_MAX: usize = 1024;
/// Space that stays free when one is made further ahead than the next, in segments: for the next one, and for what settling writes.
pub const SEGMENTS_KEPT_FREE: u64 = 2;
/// Smallest `--segment-bytes`.
pub const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;
/// Largest `--segment-bytes`: positions in a segment are 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// A commit may take at most this fraction of a segment, so that small segments still roll sensibly.
pub const COMMITS_PER_SEGMENT_MIN: u64 = 16;
/// Commits that wait, sealed, behind the one in flight before writers are held back.
pub const SEALED_COMMITS_MAX: usize = 2;
/// Bytes at the end of the last segment of a full disk that only deletes may use.
pub const CONTROL_RESERVE_BYTES: usize = 256 * 1024;
/// Bytes of one read from disk while pieces are coalesced.
pub const READ_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of payload that a rewrite of segments (settling) holds in memory, per shard: what of a stream lies in so much of the log
/// comes to lie together.
pub const SETTLE_WINDOW_BYTES: u64 = 32 * 1024 * 1024;
/// Entries that it holds in memory, likewise.
pub const SETTLE_WINDOW_ENTRIES: usize = 256 * 1024;
/// Bytes of payload in one rewritten append; a larger record is written in parts.
pub const SETTLED_APPEND_BYTES_MAX: usize = 256 * 1024;
/// Records in one rewritten append.
pub const SETTLED_APPEND_RECORDS_MAX: usize = 64 * 1024;
/// Bytes from which on a commit of rewritten entries is written.
pub const SETTLED_COMMIT_BYTES: usize = 256 * 1024;
/// Gap between two pieces on disk up to which one read fetches both.
pub const READ_GAP_BYTES_MAX: usize = 64 * 1024;
/// Bytes of recent commits kept in memory, all shards together (`--cache-bytes`).
pub const CACHE_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Largest `--cache-bytes`.
pub const CACHE_BYTES_MAX: u64 = 1 << 40;
/// Bytes of pages that are read again and again kept in memory, all shards together (`--hot-bytes`): whole huge pages of 2 MiB
/// for each shard, so none on more than 32 of them.
pub const HOT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Largest `--hot-bytes`: pages that might be kept are searched one by one.
pub const HOT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Bytes of a page from which on it may be kept: below, the copy that keeping saves costs little.
pub const HOT_PAGE_BYTES_MIN: usize = 256 * 1024;

/// Bytes of a request head, request line included: 431.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request target: 414.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Header lines in a request: 431.
pub const HEADERS_MAX: usize = 96;
/// Bytes of a request method: 501.
pub const METHOD_BYTES_MAX: usize = 32;
/// Empty lines that are skipped before a request: 400.
pub const EMPTY_LINES_MAX: usize = 4;
/// Bytes of a request body (`--max-body-bytes`): 413.
pub const BODY_BYTES_DEFAULT: u64 = 32 * 1024 * 1024;
/// Largest `--max-body-bytes`.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of a snapshot (`--max-snapshot-bytes`): 413.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Largest `--max-snapshot-bytes`.
pub const SNAPSHOT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Snapshots of the largest size whose bodies may be in flight, per shard, if `--max-body-bytes` allows for fewer.
pub const SNAPSHOTS_IN_FLIGHT: u64 = 2;
/// Bytes of bodies in flight, as a multiple of `--max-body-bytes`, per shard: 503 with `Retry-After`.
pub const BODIES_IN_FLIGHT: u64 = 16;
/// Bytes of the budget that a chunked body of unknown length takes.
pub const CHUNKED_BUDGET_BYTES: u64 = 1024 * 1024;
/// Bytes by which the buffer of an arriving body first grows.
pub const BODY_READ_BYTES: usize = 256 * 1024;
/// Bytes of one line that gives a chunk's size, extensions included: 400.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes of chunk extensions in one body, all chunks together: 400.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the trailer section after a chunked body: 400.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Connections, all shards together (`--max-connections`): a further one gets 503 and is closed.
pub const CONNECTIONS_DEFAULT: usize = 100_000;
/// Largest `--max-connections`.
pub const CONNECTIONS_MAX: usize = 10_000_000;
/// Time for a request head to arrive, from its first byte: 408.
pub const HEAD_DEADLINE_MS: u64 = 10_000;
/// Time without a byte of a request body: 408.
pub const BODY_DEADLINE_MS: u64 = 30_000;
/// Time that a closing connection is given in all to take its last answer and to stop sending.
pub const CLOSING_DEADLINE_MS: u64 = 3_000;
/// Bytes read and dropped while a connection closes, so that a peer that sends on before it reads sees the last answer.
pub const CLOSING_DRAIN_BYTES_MAX: usize = 2 * BODY_BYTES_DEFAULT as usize;
/// Time before the least rate of a request body counts.
pub const BODY_RATE_GRACE_MS: u64 = 5_000;
/// Least rate of a request body, once its grace is over: 408.
pub const BODY_RATE_BYTES_PER_SECOND_MIN: u64 = 512;
/// Time that a response may make no progress before the connection is closed.
pub const WRITE_DEADLINE_MS: u64 = 30_000;
/// Time that an idle connection is kept between requests.
pub const IDLE_DEADLINE_MS: u64 = 300_000;
/// Bytes of pipelined answers gathered before they are written.
pub const PIPELINE_OUT_BYTES_MAX: usize = 256 * 1024;
/// Requests of one pipeline that are staged together.
pub const PIPELINE_REQUESTS_MAX: usize = 512;

/// Bytes of a bucket id, at least: 400.
pub const BUCKET_ID_BYTES_MIN: usize = 4;
/// Bytes of a bucket id, at most: 400.
pub const BUCKET_ID_BYTES_MAX: usize = 64;
/// Bytes of a stream id, and of `bucket/stream` together: 400.
pub const STREAM_ID_BYTES_MAX: usize = 122;
/// Bytes of a path on the flat surface: 400.
pub const FLAT_PATH_BYTES_MAX: usize = 1024;
/// Bytes of a content type: 400.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Bytes of a producer id: 400.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;
/// Bytes of a `Stream-Seq` value: 400.
pub const STREAM_SEQ_BYTES_MAX: usize = 256;
/// Producers that a stream remembers: a further one gets 429.
pub const PRODUCERS_PER_STREAM_MAX: usize = 4096;
/// Bytes of an encoded attribute object: 400.
pub const ATTRIBUTES_BYTES_MAX: usize = 16 * 1024;
/// Nesting of a JSON value: 400.
pub const JSON_DEPTH_MAX: usize = 128;
/// Largest integer of the protocol's numeric headers, 2^53 - 1: 400.
pub const PROTOCOL_INTEGER_MAX: u64 = (1 << 53) - 1;
/// Largest `Stream-TTL`, in seconds (about 100 years): 400.
pub const TTL_SECONDS_MAX: u64 = 3_153_600_000;

/// Frames of one append batch: 413.
pub const BATCH_FRAMES_MAX: usize = 512;
/// Records of one append (a JSON array): 413. Their lengths lie in one entry of the log.
pub const RECORDS_PER_APPEND_MAX: usize = 1 << 20;
/// Bytes of one append batch: 413.
pub const BATCH_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Streams on one page of a listing, and its default.
pub const LISTING_PAGE_MAX: usize = 1000;
/// Streams that a listing looks at before other work gets a turn.
pub const LISTED_PER_TURN_MAX: usize = 256;

/// Bytes of a page of a catch-up read (`--read-page-bytes`).
pub const READ_PAGE_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Smallest `--read-page-bytes`.
pub const READ_PAGE_BYTES_MIN: u64 = 4096;
/// Largest `--read-page-bytes`.
pub const READ_PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a slice of a long answer (a snapshot, a bootstrap): what it keeps in memory at a time, before framing.
pub const SLICE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages of a slice of a bootstrap: the head of a part may be far larger than the message.
pub const SLICE_MESSAGES_MAX: usize = 4096;
/// Bytes of stream data in one SSE data event, before encoding.
pub const SSE_EVENT_BYTES_MAX: usize = 256 * 1024;
/// Envelopes that an SSE reader is sent at a time: each has a control event, which may be far larger than its record.
pub const SSE_ENVELOPES_MAX: u64 = 1024;
/// Bytes of stream data that a page of envelopes (`record_view=envelope`) is reckoned to hold per record, at least: tiny
/// records, which their envelopes outweigh, get smaller pages.
pub const ENVELOPE_RECORD_BYTES_MIN: u64 = 32;
/// How long a long-poll waits (`--long-poll-timeout-ms`).
pub const LONG_POLL_TIMEOUT_MS_DEFAULT: u64 = 25_000;
/// How long an SSE connection lives (`--sse-max-ms`).
pub const SSE_MAX_MS_DEFAULT: u64 = 55_000;
/// Largest value of the two flags above.
pub const LIVE_MS_MAX: u64 = 3_600_000;
/// Time after which an idle SSE connection gets a comment line.
pub const SSE_KEEPALIVE_MS: u64 = 15_000;
/// Live readers, per shard: 429.
pub const LIVE_READERS_MAX: usize = 200_000;
/// How often the coarse clock of a shard moves, and deadlines of connections are looked at.
pub const COARSE_CLOCK_MS: u64 = 250;
/// Readers woken before other work gets a turn.
pub const WAKES_PER_TURN_MAX: usize = 64;

/// Shards of one process.
pub const SHARDS_MAX: usize = 256;
/// Longest `--commit-delay-us`.
pub const COMMIT_DELAY_US_MAX: u64 = 100_000;
/// Longest `--spin-us`: well within the time for which a core may be kept from everything but sockets and commits.
pub const SPIN_US_MAX: u64 = 250;
/// Lineage ids that a shard is granted at a time.
pub const LINEAGE_GRANT: u64 = 1 << 20;
/// Largest lineage id: sixteen decimal digits.
pub const LINEAGE_MAX: u64 = 9_999_999_999_999_999;
/// Time that a stop waits for requests under way before connections are cut.
pub const STOP_DEADLINE_MS: u64 = 5_000;
/// Time that a stop waits for last commits after that; then the process ends with code 11.
pub const STOP_COMMIT_DEADLINE_MS: u64 = 10_000;
/// Time that a start waits for locked memory that an earlier process of the same user gives back.
pub const LOCKED_MEMORY_DEADLINE_MS: u64 = 5_000;

const _: () = {
    assert!(COMMIT_BYTES_MAX.is_multiple_of(BLOCK_BYTES), "commits are whole blocks");
    assert!(CHECKSUM_CHUNK_BYTES.is_multiple_of(BLOCK_BYTES), "a chunk is read as whole blocks");
    assert!(
        SEGMENT_BYTES_MIN / COMMITS_PER_SEGMENT_MIN >= 16 * BLOCK_BYTES as u64,
        "the smallest segment still has commits that hold a head, a key and some payload"
    );
    // A length takes a byte, and another one for each started factor of 128 that it is larger.
    assert!(
        RECORDS_PER_APPEND_MAX * 2
            + BODY_BYTES_MAX as usize / (1 << 14)
            + BODY_BYTES_MAX as usize / (1 << 21)
            <= COMMIT_BYTES_MAX * 3 / 4,
        "the lengths of the largest array fit into one commit, with room for the rest of the entry"
    );
    assert!(
        SETTLED_COMMIT_BYTES + SETTLED_APPEND_BYTES_MAX + 5 * SETTLED_APPEND_RECORDS_MAX + 64 * 1024
            <= COMMIT_BYTES_MAX,
        "the largest rewritten entry fits into a commit that is not written yet"
    );
    assert!(SEGMENT_BYTES_MAX < u32::MAX as u64, "positions in a segment are 32 bits");
    assert!(HEAD_BYTES_MAX > TARGET_BYTES_MAX + ATTRIBUTES_BYTES_MAX, "attributes travel in a header");
    assert!(TTL_SECONDS_MAX < u64::MAX / 2000, "windows fit in milliseconds with a tenth to spare");
};
