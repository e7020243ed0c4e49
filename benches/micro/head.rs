//! Request heads.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use thalweg::http::head::parse;
use thalweg::http::{Framing, Known, Method};

/// As little as HTTP/1.1 allows.
const MINIMAL: &str = "POST /agents/s-17 HTTP/1.1\r\nHost: h\r\nContent-Length: 256\r\n\r\n";

/// What an HTTP library sends for an append.
const CLIENT: &str = "POST /agents/s-17 HTTP/1.1\r\n\
    Host: streams.example.com:4437\r\n\
    Connection: keep-alive\r\n\
    Content-Type: application/octet-stream\r\n\
    Accept: */*\r\n\
    Accept-Language: *\r\n\
    Sec-Fetch-Mode: cors\r\n\
    User-Agent: node\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Content-Length: 256\r\n\
    \r\n";

/// The same with all the headers of an idempotent producer.
const PRODUCER: &str = "POST /agents/s-17 HTTP/1.1\r\n\
    Host: streams.example.com:4437\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 256\r\n\
    Producer-Id: worker-0198f2f0-7b1c\r\n\
    Producer-Epoch: 3\r\n\
    Producer-Seq: 123456\r\n\
    Stream-Seq: 0000000000123456\r\n\
    \r\n";

/// A browser that follows a stream.
const BROWSER: &str = "GET /agents/s-17?offset=0000000000000007_0000000000000009&live=sse HTTP/1.1\r\n\
    Host: streams.example.com:4437\r\n\
    Connection: keep-alive\r\n\
    Content-Length: 256\r\n\
    sec-ch-ua: \"Chromium\";v=\"142\", \"Google Chrome\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n\
    Accept: text/event-stream\r\n\
    Cache-Control: no-cache\r\n\
    DNT: 1\r\n\
    Origin: https://app.example.com\r\n\
    Sec-Fetch-Site: same-site\r\n\
    Sec-Fetch-Mode: cors\r\n\
    Sec-Fetch-Dest: empty\r\n\
    Referer: https://app.example.com/conversations/0198f2f0-7b1c-7000-8000-5f2b6c3d4e5f?panel=activity\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de-DE;q=0.8,de;q=0.7\r\n\
    Cookie: session=eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N; theme=dark\r\n\
    Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.SflKxwRJSMeKKF2QT4fwpM\r\n\
    \r\n";

#[divan::bench(args = ["minimal", "client", "producer", "browser"])]
fn head(bencher: Bencher<'_, '_>, kind: &str) {
    let (text, method) = match kind {
        "minimal" => (MINIMAL, Method::Post),
        "client" => (CLIENT, Method::Post),
        "producer" => (PRODUCER, Method::Post),
        "browser" => (BROWSER, Method::Get),
        _ => unreachable!("no head is called {kind}"),
    };
    // As a connection has it: a body, or the next request, follows.
    let buffer = [text.as_bytes(), b"POST / HTTP/1.1\r\n"].concat();
    let head = parse(&buffer).expect("a good head").expect("a complete head");
    assert_eq!((head.method, head.path, head.head_bytes), (method, &b"/agents/s-17"[..], text.len()));
    assert_eq!(head.framing, Framing::Length(256));
    assert_eq!(head.get(Known::ProducerSeq).is_some(), kind == "producer");
    bencher.counter(BytesCount::new(text.len())).bench_local(|| {
        let head = parse(black_box(&buffer)).expect("seen above").expect("seen above");
        head.head_bytes + head.path.len()
    });
}
