//! Tables of paths and what they are about.

use super::*;
use proptest::prelude::*;

/// A route, owned, so that tables are short: what [`describe`] makes of it.
fn describe(route: &Route<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let address = |address: &Address<'_>| match address.bucket() {
        Some(bucket) => format!("bucket {} stream {}", text(bucket), text(address.stream())),
        None => format!("flat {}", text(address.stream())),
    };
    match route {
        Route::Root => "root".into(),
        Route::Bucket { bucket } => format!("bucket {}", text(bucket)),
        Route::BucketStreams { bucket } => format!("listing {}", text(bucket)),
        Route::Stream(stream) => address(stream),
        Route::Suffix { address: stream, suffix } => match suffix {
            Suffix::Batch => format!("{} batch", address(stream)),
            Suffix::Bootstrap => format!("{} bootstrap", address(stream)),
            Suffix::Attributes => format!("{} attrs", address(stream)),
            Suffix::Snapshot(offset) => format!("{} snapshot {:?}", address(stream), offset.map(text)),
            Suffix::Retention(offset) => format!("{} retention {:?}", address(stream), offset.map(text)),
        },
        Route::Reserved { rest } => format!("reserved {}", text(rest)),
    }
}

fn routed(path: &[u8]) -> Result<String, Code> {
    let mut scratch = Vec::new();
    route(path, &mut scratch).map(|route| describe(&route)).map_err(|problem| problem.code)
}

#[test]
fn paths_and_their_resources() {
    let table = [
        ("/", "root"),
        ("/agents", "bucket agents"),
        ("/a-_9", "bucket a-_9"),
        ("/agents/streams", "listing agents"),
        ("/agents/s", "bucket agents stream s"),
        ("/agents/session 1", "bucket agents stream session 1"),
        ("/agents/session%201", "bucket agents stream session 1"),
        ("/agents/%E2%82%AC", "bucket agents stream \u{20ac}"),
        ("/%61gents/s", "bucket agents stream s"),
        ("/agents/a.b.c", "bucket agents stream a.b.c"),
        ("/agents/.", "bucket agents stream ."),
        ("/agents/a+b", "bucket agents stream a+b"),
        ("/agents/s/append-batch", "bucket agents stream s batch"),
        ("/agents/s/bootstrap", "bucket agents stream s bootstrap"),
        ("/agents/s/attrs", "bucket agents stream s attrs"),
        ("/agents/s/snapshot", "bucket agents stream s snapshot None"),
        ("/agents/s/snapshot/", "bucket agents stream s snapshot Some(\"\")"),
        ("/agents/s/snapshot/12", "bucket agents stream s snapshot Some(\"12\")"),
        ("/agents/s/snapshot/1%5F2", "bucket agents stream s snapshot Some(\"1_2\")"),
        ("/agents/s/retention", "bucket agents stream s retention None"),
        ("/agents/s/retention/now", "bucket agents stream s retention Some(\"now\")"),
        // A suffix name is a fine stream id, and `v1` only opens the flat surface with `stream` after it.
        ("/agents/append-batch", "bucket agents stream append-batch"),
        ("/agents/v1", "bucket agents stream v1"),
        ("/v1/stream/a", "flat a"),
        ("/v1/stream/a/b//c/", "flat a/b//c/"),
        ("/v1/stream/streams", "flat streams"),
        ("/v1/stream/a/append-batch", "flat a/append-batch"),
        ("/v1/stream/a/__ds", "flat a/__ds"),
        ("/v1/stream/__dsx", "flat __dsx"),
        ("/v1/stream/a%20b", "flat a b"),
        ("/%76%31/stream/a", "flat a"),
        ("/v1/stream/__ds", "reserved "),
        ("/v1/stream/__ds/", "reserved /"),
        ("/v1/stream/__ds/jwks.json", "reserved /jwks.json"),
        ("/v1/stream/__ds/subscriptions/x/streams/a%2Fb", "reserved /subscriptions/x/streams/a%2Fb"),
        ("/v1/stream/%5f_ds/x", "reserved /x"),
    ];
    for (path, expected) in table {
        assert_eq!(routed(path.as_bytes()).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn paths_that_are_refused() {
    let table: &[(&[u8], Code)] = &[
        (b"", Code::InvalidPath),
        (b"agents", Code::InvalidPath),
        (b"/v1", Code::InvalidBucketId),
        (b"/v1/strea", Code::InvalidBucketId),
        (b"/v1/streams/x", Code::InvalidBucketId),
        (b"/abc", Code::InvalidBucketId),
        (b"/Agents", Code::InvalidBucketId),
        (b"/agents.x", Code::InvalidBucketId),
        (b"/agen%20ts", Code::InvalidBucketId),
        (b"//agents/s", Code::InvalidBucketId),
        (b"/__ds", Code::ReservedName),
        (b"/__ds/x", Code::ReservedName),
        (b"/%5F%5Fds/x", Code::ReservedName),
        (b"/agents/", Code::InvalidStreamId),
        (b"/agents//append-batch", Code::InvalidStreamId),
        (b"/agents/__ds", Code::ReservedName),
        (b"/agents/__ds/x", Code::ReservedName),
        (b"/agents/streams/attrs", Code::ReservedName),
        (b"/agents/streams/", Code::ReservedName),
        (b"/agents/..", Code::InvalidStreamId),
        (b"/agents/a..b", Code::InvalidStreamId),
        (b"/agents/%2e%2e", Code::InvalidStreamId),
        (b"/agents/a%2Fb", Code::InvalidPath),
        (b"/agents/a%2fb/attrs", Code::InvalidPath),
        (b"/agents/a%00b", Code::InvalidStreamId),
        (b"/agents/\xff", Code::InvalidPath),
        (b"/agents/%C3", Code::InvalidPath),
        (b"/agents/%ED%A0%80", Code::InvalidPath),
        (b"/agents/%", Code::InvalidPath),
        (b"/agents/%4", Code::InvalidPath),
        (b"/agents/%zz", Code::InvalidPath),
        (b"/agents/s/nothing", Code::NotFound),
        (b"/agents/s/", Code::NotFound),
        (b"/agents/s/attrs/", Code::NotFound),
        (b"/agents/s/append-batch/1", Code::NotFound),
        (b"/agents/s/snapshot/1/2", Code::NotFound),
        (b"/agents/s/t/append-batch", Code::NotFound),
        (b"/v1/stream", Code::InvalidPath),
        (b"/v1/stream/", Code::InvalidPath),
        (b"/v1/stream/a%2Fb", Code::InvalidPath),
        (b"/v1/stream/a/../b", Code::InvalidStreamId),
        (b"/v1/stream/a%00", Code::InvalidStreamId),
        (b"/v1/stream/%C3%28", Code::InvalidPath),
    ];
    for (path, code) in table {
        assert_eq!(routed(path), Err(*code), "{}", String::from_utf8_lossy(path));
    }
}

#[test]
fn lengths_at_their_limits() {
    let path = |bucket: usize, stream: usize| format!("/{}/{}", "b".repeat(bucket), "s".repeat(stream));
    assert!(routed(format!("/{}", "b".repeat(64)).as_bytes()).is_ok());
    assert_eq!(routed(format!("/{}", "b".repeat(65)).as_bytes()), Err(Code::InvalidBucketId));
    assert!(routed(path(4, 117).as_bytes()).is_ok());
    assert_eq!(routed(path(4, 118).as_bytes()), Err(Code::InvalidStreamId));
    assert_eq!(routed(path(4, 123).as_bytes()), Err(Code::InvalidStreamId));
    // Bytes count after decoding.
    assert!(routed(format!("/bbbb/{}", "%73".repeat(117)).as_bytes()).is_ok());
    assert_eq!(routed(format!("/bbbb/{}", "%C3%A9".repeat(59)).as_bytes()), Err(Code::InvalidStreamId));
    assert!(routed(format!("/v1/stream/{}", "s".repeat(1024)).as_bytes()).is_ok());
    assert_eq!(routed(format!("/v1/stream/{}", "s".repeat(1025)).as_bytes()), Err(Code::InvalidStreamId));
}

#[test]
fn a_plain_path_is_not_copied() {
    let path = b"/agents/session-1/append-batch".to_vec();
    let mut scratch = Vec::new();
    let Ok(Route::Suffix { address, .. }) = route(&path, &mut scratch) else { panic!("a suffix") };
    assert_eq!(address.key.as_ptr(), path[1..].as_ptr());
    assert_eq!(scratch.capacity(), 0);
}

#[test]
fn locations() {
    let location = |key: &[u8], host: Option<&str>| {
        let mut out = Vec::new();
        write_location(&mut out, b"https", host.map(str::as_bytes), &Address::of_key(key));
        String::from_utf8(out).unwrap()
    };
    assert_eq!(location(b"agents/a b", Some("h:1")), "https://h:1/agents/a%20b");
    assert_eq!(location("/x/\u{e9}?".as_bytes(), Some("h")), "https://h/v1/stream/x/%C3%A9%3F");
    assert_eq!(location(b"/x", None), "/v1/stream/x");
    let mut out = Vec::new();
    write_bucket_location(&mut out, b"http", Some(b"h"), b"agents");
    assert_eq!(out, b"http://h/agents");
}

proptest! {
    /// Any stream that has an address is found again at the path that is written for it.
    #[test]
    fn written_paths_lead_back(stream in "[^/\0]{1,40}", flat: bool) {
        let key = if flat { format!("/{stream}/x") } else { format!("agents/{stream}") };
        let address = Address::of_key(key.as_bytes());
        let mut path = Vec::new();
        write_path(&mut path, &address);
        let mut scratch = Vec::new();
        match route(&path, &mut scratch) {
            Ok(Route::Stream(found)) => prop_assert_eq!(found, address),
            Err(problem) => prop_assert!(
                stream.contains("..") || key.len() > STREAM_ID_BYTES_MAX || stream == "streams" || stream == "__ds",
                "{problem}"
            ),
            Ok(Route::BucketStreams { .. }) => prop_assert_eq!(stream, "streams"),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_bytes_are_routed_without_panic(path in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut scratch = Vec::new();
        let _ = route(&path, &mut scratch);
        let _ = routed(&[&b"/v1/stream/"[..], &path].concat());
        let _ = routed(&[&b"/agents/"[..], &path].concat());
    }
}
