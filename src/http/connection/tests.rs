//! A connection over a real socket, with a service that does as it is told.

mod fake;

use futures_lite::io::{AsyncReadExt, AsyncWriteExt};

use fake::{BUDGET_BYTES, Bench, Event, answer, lent_body, run, turn, until};

use super::*;
use crate::http::buffer::SMALL_BYTES;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn chunked(path: &str, chunks: &[&str]) -> String {
    let mut text = format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in chunks {
        text.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    }
    text + "0\r\n\r\n"
}

#[test]
fn answers_leave_in_order_and_once_they_are_durable() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send(post("/after/2", "a") + &post("/after/1", "b") + &post("/done", "c")).await;
        until(|| bench.calls().len() == 3).await;
        assert_eq!(bench.calls(), ["Post /after/2 a", "Post /after/1 b", "Post /done c"]);
        bench.fake.publish(1);
        bench.fake.publish(2);
        bench.expect(answer("/after/2") + &answer("/after/1") + &answer("/done")).await;
        // What is durable already waits for nothing.
        bench.send(post("/after/2", "d")).await;
        bench.expect(answer("/after/2")).await;
    });
}

#[test]
fn a_read_behind_a_write_of_its_pipeline_comes_after_it() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send(post("/after/1", "a") + &get("/done") + &post("/after/2", "b")).await;
        until(|| !bench.calls().is_empty() && bench.shared.connections.phases() == [Phase::Working]).await;
        assert_eq!(bench.calls(), ["Post /after/1 a"], "the read waits for what it must see");
        bench.fake.publish(1);
        until(|| bench.calls().len() == 3).await;
        bench.fake.publish(2);
        bench.expect(answer("/after/1") + &answer("/done") + &answer("/after/2")).await;
    });
}

#[test]
fn a_failed_commit_replaces_what_depended_on_it_and_ends_the_connection() {
    run(async {
        let mut bench = Bench::new().await;
        bench
            .send(post("/done", "a") + &post("/after/1", "b") + &post("/after/2", "c") + &post("/done", "d"))
            .await;
        until(|| bench.calls().len() == 4).await;
        bench.fake.durable.set(1);
        bench.fake.fail();
        let expected = answer("/done") + &answer("/after/1") + &answer("failed") + &answer("/done");
        assert_eq!(bench.rest().await, expected);
        bench.ended().await;
    });
}

#[test]
fn a_connection_moves_with_every_byte_that_is_not_served() {
    run(async {
        let moved = get("/shard/3") + &post("/after/9", "later") + "GET /unfin";
        for first in ["".to_owned(), post("/after/1", "first"), post("/done", "first")] {
            let mut bench = Bench::new().await;
            bench.send(first.clone() + &moved).await;
            bench.fake.publish(1);
            until(|| bench.shared.connections.count() == 0).await;
            let (shard, fd, unread) = bench.fake.handed.borrow_mut().pop().expect("handed over");
            assert_eq!((shard, String::from_utf8(unread).unwrap()), (3, moved.clone()));
            // The socket lives on: what it still holds and what comes later is for the new owner.
            if let Some(path) = first.split(' ').nth(1) {
                bench.expect(answer(path)).await;
            }
            bench.send("ished").await;
            let owner = std::net::TcpStream::from(fd);
            owner.set_nonblocking(false).expect("a socket can be made blocking");
            let mut rest = [0; 5];
            std::io::Read::read_exact(&mut &owner, &mut rest).expect("the bytes come");
            assert_eq!(&rest, b"ished");
        }
    });
}

#[test]
fn a_request_moves_before_its_body_is_read() {
    run(async {
        for text in [
            "POST /shard/5 HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
            "POST /shard/5 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha",
        ] {
            let mut bench = Bench::new().await;
            bench.send(text).await;
            until(|| !bench.fake.handed.borrow().is_empty()).await;
            let (shard, _fd, unread) = bench.fake.handed.borrow_mut().pop().expect("handed over");
            assert_eq!((shard, String::from_utf8(unread).unwrap()), (5, text.to_owned()));
            assert_eq!(bench.calls(), [] as [String; 0]);
            bench.ended().await;
        }
    });
}

#[test]
fn a_request_without_room_is_served_once_there_is_some() {
    run(async {
        for request in [post("/room", "body"), chunked("/room", &["bo", "dy"])] {
            let mut bench = Bench::new().await;
            bench.send(request.clone() + &post("/done", "next")).await;
            until(|| bench.calls() == ["Post /room body waits"]).await;
            bench.fake.has_room.set(true);
            bench.fake.announce_room();
            bench.expect(answer("/room") + &answer("/done")).await;
            assert_eq!(bench.calls()[1..], ["Post /room body", "Post /done next"]);
        }
    });
}

/// Room that is announced while earlier answers are flushed is not announced again.
#[test]
fn room_that_came_during_a_flush_is_seen() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send(post("/after/1", "a") + &post("/room", "b")).await;
        until(|| bench.calls().len() == 2 && bench.shared.connections.phases() == [Phase::Working]).await;
        bench.fake.has_room.set(true);
        bench.fake.announce_room();
        bench.fake.publish(1);
        bench.expect(answer("/after/1") + &answer("/room")).await;
    });
}

#[test]
fn bodies_arrive_in_any_pieces() {
    run(async {
        let big = "x".repeat(3 * SMALL_BYTES);
        let requests = [
            post("/done", "body"),
            chunked("/done", &["b", "od", "y"]),
            post("/done", &big),
            post("/pieces", "body"),
            post("/pieces", &big),
            chunked("/pieces", &["b", "od", "y"]),
        ];
        for request in &requests {
            let path = if request.contains("/pieces") { "/pieces" } else { "/done" };
            let mut bench = Bench::new().await;
            let bytes = request.as_bytes();
            let head_bytes = request.find("\r\n\r\n").expect("a head") + 4;
            for cut in [1, 7, head_bytes - 2, head_bytes, head_bytes + 1, bytes.len() - 1] {
                let looks = bench.fake.looks.get();
                bench.send(&bytes[..cut]).await;
                until(|| bench.fake.looks.get() > looks).await;
                bench.send(&bytes[cut..]).await;
                bench.expect(answer(path)).await;
            }
            let body =
                if request.len() > SMALL_BYTES { format!("{} bytes", big.len()) } else { "body".to_owned() };
            assert_eq!(bench.calls(), vec![format!("Post {path} {body}"); 6]);
            assert_eq!(bench.fake.budget_bytes.get(), BUDGET_BYTES, "the budget is whole again");
        }
    });
}

/// Longer than a piece, and with a request behind it that came in the same read.
#[test]
fn a_long_body_arrives_in_pieces() {
    run(async {
        let long = "x".repeat(crate::http::pieces::PIECE_BYTES + 100_000);
        let halves = [&long[..700_000], &long[700_000..]];
        for request in [post("/pieces", &long), chunked("/pieces", &halves)] {
            let mut bench = Bench::new().await;
            bench.fake.max_bytes.set(long.len() as u64);
            let (first, second) = request.split_at(5000);
            let looks = bench.fake.looks.get();
            bench.send(first).await;
            until(|| bench.fake.looks.get() > looks).await;
            bench.send(second.to_owned() + &post("/done", "next")).await;
            bench.expect(answer("/pieces") + &answer("/done")).await;
            assert_eq!(
                bench.calls(),
                [format!("Post /pieces {} bytes", long.len()), "Post /done next".into()]
            );
            assert_eq!(bench.fake.budget_bytes.get(), BUDGET_BYTES, "the budget is whole again");
        }
    });
}

#[test]
fn a_refusal_waits_for_what_it_relies_on() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send("POST /refused/after/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf").await;
        until(|| bench.shared.connections.phases() == [Phase::Working]).await;
        bench.fake.publish(1);
        assert_eq!(bench.rest().await, answer("refused"));
        bench.ended().await;
    });
}

#[test]
fn a_body_that_is_expected_is_asked_for() {
    run(async {
        let mut bench = Bench::new().await;
        let head = "POST /done HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
        bench.send(head).await;
        bench.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
        bench.send("body").await;
        bench.expect(answer("/done")).await;
        // A body that comes unasked is not asked for.
        bench.send(format!("{head}body")).await;
        bench.expect(answer("/done")).await;
        bench.send(head.replace("/done", "/refused")).await;
        assert_eq!(bench.rest().await, answer("refused"), "no body is asked for that is not wanted");
        bench.ended().await;
    });
}

#[test]
fn the_end_of_input_within_a_request_ends_the_connection() {
    run(async {
        for text in [
            "GET /done",
            "POST /done HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
            "POST /done HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        ] {
            let mut bench = Bench::new().await;
            bench.send(post("/done", "x") + text).await;
            bench.client.shutdown(std::net::Shutdown::Write).await.expect("open");
            assert_eq!(bench.rest().await, answer("/done"), "{text:?}");
            bench.ended().await;
        }
    });
}

#[test]
fn a_body_beyond_the_budget_is_refused_and_gives_back_what_it_took() {
    run(async {
        let unknown = "POST /done HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let beyond = limits::CHUNKED_BUDGET_BYTES as usize + 50_000;
        let growing = format!("{unknown}{beyond:x}\r\n{}", "x".repeat(beyond));
        let known = "POST /done HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n";
        let table = [
            (known.to_owned(), 99),
            (unknown.to_owned(), limits::CHUNKED_BUDGET_BYTES - 1),
            (growing, limits::CHUNKED_BUDGET_BYTES + 100),
        ];
        for (request, budget_bytes) in table {
            let mut bench = Bench::new().await;
            bench.fake.budget_bytes.set(budget_bytes);
            bench.send(&request).await;
            assert_eq!(bench.rest().await, answer("over budget"));
            bench.client.shutdown(std::net::Shutdown::Write).await.expect("open");
            until(|| bench.shared.connections.count() == 0).await;
            assert_eq!(bench.fake.budget_bytes.get(), budget_bytes);
        }
    });
}

#[test]
fn a_body_holds_its_budget_until_it_is_served() {
    run(async {
        for (path, request) in [("/room", chunked("/room", &["body"])), ("/later", post("/later", "body"))] {
            let mut bench = Bench::new().await;
            let (head, tail) = request.split_at(request.len() - 3);
            let looks = bench.fake.looks.get();
            bench.send(head).await;
            until(|| bench.fake.looks.get() > looks && bench.fake.budget_bytes.get() < BUDGET_BYTES).await;
            bench.send(tail).await;
            until(|| !bench.calls().is_empty()).await;
            assert!(bench.fake.budget_bytes.get() < BUDGET_BYTES, "{path} still holds the body");
            bench.fake.has_room.set(true);
            bench.fake.announce_room();
            bench.fake.push(Event::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n/later", Fill::End));
            bench.expect(answer(path)).await;
            until(|| bench.fake.budget_bytes.get() == BUDGET_BYTES).await;
        }
    });
}

#[test]
fn a_head_has_ten_seconds_however_it_trickles() {
    run(async {
        let mut bench = Bench::new().await;
        let looks = bench.fake.looks.get();
        bench.send("G").await;
        bench.until_phase(Phase::Head, looks).await;
        for byte in ["E", "T"] {
            bench.fake.now_ms.set(bench.fake.now_ms.get() + limits::HEAD_DEADLINE_MS / 2);
            bench.shared.connections.sweep(bench.fake.now_ms.get());
            let looks = bench.fake.looks.get();
            bench.send(byte).await;
            bench.until_phase(Phase::Head, looks).await;
        }
        bench.shared.connections.sweep(bench.fake.now_ms.get());
        bench.fake.now_ms.set(bench.fake.now_ms.get() + 1);
        bench.shared.connections.sweep(bench.fake.now_ms.get());
        let answer = bench.rest().await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        bench.ended().await;
    });
}

#[test]
fn waits_that_expire_end_as_they_should() {
    run(async {
        let half_body = "POST /done HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf";
        let table = [
            ("", Phase::Idle, limits::IDLE_DEADLINE_MS, ""),
            ("GET /", Phase::Head, limits::HEAD_DEADLINE_MS, "HTTP/1.1 408 "),
            (half_body, Phase::Body, limits::BODY_DEADLINE_MS, "HTTP/1.1 408 "),
        ];
        for (text, phase, deadline_ms, expected) in table {
            let mut bench = Bench::new().await;
            bench.send(text).await;
            until(|| bench.shared.connections.phases() == [phase]).await;
            bench.shared.connections.sweep(bench.fake.now_ms.get() + deadline_ms + 1);
            let answer = bench.rest().await;
            assert!(
                answer.starts_with(expected) && answer.is_empty() == expected.is_empty(),
                "{text:?}: {answer}"
            );
            bench.ended().await;
        }
    });
}

#[test]
fn work_has_no_deadline_whatever_came_before_it() {
    run(async {
        let far = u64::MAX / 2;
        for request in [post("/room", "body"), chunked("/room", &["body"])] {
            let mut bench = Bench::new().await;
            let (head, tail) = request.split_at(request.len() - 1);
            bench.send(head).await;
            until(|| bench.shared.connections.phases() == [Phase::Body]).await;
            bench.send(tail).await;
            until(|| bench.calls().len() == 1).await;
            bench.shared.connections.sweep(far);
            bench.fake.has_room.set(true);
            bench.fake.announce_room();
            bench.expect(answer("/room")).await;
            bench.send(post("/done", "")).await;
            bench.expect(answer("/done")).await;
        }
    });
}

#[test]
fn requests_behind_a_slow_answer_wait_for_it() {
    run(async {
        for path in ["/later", "/live"] {
            let mut bench = Bench::new().await;
            bench.send(post("/done", "a") + &get(path) + &post("/done", "b")).await;
            bench.expect(answer("/done")).await;
            until(|| bench.calls().len() == 2).await;
            bench.send(post("/done", "c")).await;
            bench.fake.push(Event::Bytes(b"one ", Fill::More));
            bench.expect("one ").await;
            bench.fake.push(Event::Bytes(b"two ", Fill::End));
            bench.expect("two ".to_owned() + &answer("/done") + &answer("/done")).await;
            assert_eq!(bench.calls()[2..], ["Post /done b", "Post /done c"]);
            bench.send(get(path)).await;
            bench.fake.push(Event::Bytes(b"three", Fill::Close));
            assert_eq!(bench.rest().await, "three");
            bench.ended().await;
            assert_eq!(bench.fake.sources.get(), 0);
        }
    });
}

#[test]
fn lent_bytes_leave_whole_and_in_order_however_slowly_they_are_taken() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send(post("/after/1", "a") + &get("/lent") + &get("/lent") + &post("/done", "b")).await;
        until(|| !bench.calls().is_empty() && bench.shared.connections.phases() == [Phase::Working]).await;
        assert_eq!(bench.calls(), ["Post /after/1 a"], "the read waits for what it must see");
        let looks = bench.fake.looks.get();
        bench.fake.publish(1);
        bench.expect(answer("/after/1")).await;
        bench.until_phase(Phase::Writing, looks).await;
        let body = lent_body();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        for _ in 0..2 {
            bench.expect(&head).await;
            let mut got = vec![0; body.len()];
            bench.client.read_exact(&mut got).await.expect("as many bytes come");
            assert!(got == body, "the body is as it was lent");
        }
        bench.expect(answer("/done")).await;
        bench.send("GET /lent HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let mut rest = Vec::new();
        bench.client.read_to_end(&mut rest).await.expect("the server closes");
        assert!(rest[..head.len()] == *head.as_bytes() && rest[head.len()..] == body);
        bench.ended().await;
    });
}

#[test]
fn a_live_answer_ends_with_its_peer_and_another_one_does_not() {
    run(async {
        for (path, ends) in [("/live", true), ("/later", false)] {
            let mut bench = Bench::new().await;
            bench.send(get(path)).await;
            until(|| bench.fake.sources.get() == 1).await;
            bench.client.shutdown(std::net::Shutdown::Write).await.expect("open");
            if !ends {
                bench.fake.push(Event::Bytes(b"whole", Fill::End));
                assert_eq!(bench.rest().await, "whole");
            }
            bench.ended().await;
            assert_eq!(bench.fake.sources.get(), 0);
        }
    });
}

#[test]
fn a_live_reader_that_sends_without_end_is_not_hoarded_for() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send(get("/live")).await;
        until(|| bench.fake.sources.get() == 1).await;
        let many = post("/done", &"x".repeat(1000)).repeat(2 * limits::HEAD_BYTES_MAX / 1000);
        bench.send(&many).await;
        bench.fake.push(Event::Bytes(b"live", Fill::End));
        bench.expect("live").await;
        let count = many.matches("POST").count();
        bench.expect(answer("/done").repeat(count)).await;
    });
}

#[test]
fn what_closes_a_connection_is_its_last_answer() {
    run(async {
        let close = "POST /done HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        let old = "GET /done HTTP/1.0\r\n\r\n";
        for first in [close, old] {
            let mut bench = Bench::new().await;
            bench.send(first.to_owned() + &get("/done")).await;
            assert_eq!(bench.rest().await, answer("/done"), "{first:?}");
            assert_eq!(bench.calls().len(), 1);
            bench.ended().await;
        }
        let mut bench = Bench::new().await;
        bench.send(get("/done") + "no http at all\r\n\r\n" + &get("/done")).await;
        let answers = bench.rest().await;
        assert!(answers.starts_with(&(answer("/done") + "HTTP/1.1 400 ")), "{answers}");
        assert_eq!(bench.calls().len(), 1);
    });
}

/// A closing connection reads on for a moment; a peer that trickles cannot make it longer.
#[test]
fn a_closing_connection_is_cut_in_time() {
    run(async {
        let mut bench = Bench::new().await;
        bench.send("no http\r\n\r\n").await;
        assert!(bench.rest().await.starts_with("HTTP/1.1 400 "));
        until(|| bench.shared.connections.phases() == [Phase::Closing]).await;
        for _ in 0..2 {
            bench.fake.now_ms.set(bench.fake.now_ms.get() + limits::CLOSING_DEADLINE_MS / 2 + 1);
            let _ = bench.client.write_all(b"x").await;
            for _ in 0..50 {
                turn().await;
            }
        }
        bench.shared.connections.sweep(bench.fake.now_ms.get());
        until(|| bench.shared.connections.count() == 0).await;
    });
}

#[test]
fn a_stop_ends_connections_between_requests_and_after_the_one_at_hand() {
    run(async {
        let mut idle = Bench::new().await;
        idle.send(post("/done", "a")).await;
        idle.expect(answer("/done")).await;
        until(|| idle.shared.connections.phases() == [Phase::Idle]).await;
        idle.fake.stopping.set(true);
        idle.shared.connections.end_idle();
        assert_eq!(idle.rest().await, "");
        idle.ended().await;

        let mut busy = Bench::new().await;
        busy.send(post("/after/1", "a") + &post("/done", "b")).await;
        until(|| busy.calls().len() == 2).await;
        busy.fake.stopping.set(true);
        busy.shared.connections.end_idle();
        busy.fake.publish(1);
        // It may have begun to wait for the next request before it was told to stop: the stop looks again and again.
        until(|| {
            busy.shared.connections.end_idle();
            busy.shared.connections.count() == 0
        })
        .await;
        assert_eq!(busy.rest().await, answer("/after/1") + &answer("/done"));
        busy.ended().await;

        let mut stuck = Bench::new().await;
        stuck.send("GET /unfinished").await;
        until(|| stuck.shared.connections.phases() == [Phase::Head]).await;
        stuck.shared.connections.cut(1);
        let _ = stuck.rest().await;
        stuck.ended().await;
    });
}

#[test]
fn a_long_pipeline_is_served_in_order_without_hoarding_answers() {
    run(async {
        let mut bench = Bench::new().await;
        let count = 3 * limits::PIPELINE_REQUESTS_MAX;
        let requests: String = (0..count).map(|n| post("/done", &n.to_string())).collect();
        bench.send(&requests).await;
        bench.expect(answer("/done").repeat(count)).await;
        let expected: Vec<String> = (0..count).map(|n| format!("Post /done {n}")).collect();
        assert_eq!(bench.calls(), expected);
    });
}
