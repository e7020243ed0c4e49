//! A reader that follows a stream until the server is gone, and what it saw.

use std::net::{SocketAddr, TcpStream};

use crate::common::stream::split_array;
use crate::common::{Connection, JSON, Request};
use crate::model::Model;
use crate::writer::position;

/// What a reader saw of a stream.
pub struct Seen {
    /// Which shared stream.
    pub stream: usize,
    /// Position of the first byte.
    pub from: u64,
    /// Canonical bytes.
    pub bytes: Vec<u8>,
}

/// Follows a stream by long-polls.
pub fn follow(address: SocketAddr, stream: usize, model: &Model) -> Seen {
    let mut seen = Seen { stream, from: model.content.len() as u64, bytes: Vec::new() };
    let Ok(socket) = TcpStream::connect(address) else { return seen };
    let mut connection = Connection::new(socket, false);
    let mut offset = seen.from.to_string();
    loop {
        let poll = Request::new("GET", format!("{}?live=long-poll&offset={offset}", model.path));
        if connection.try_write(&poll.bytes()).is_err() {
            return seen;
        }
        let Ok(Some(answer)) = connection.read_response_or_cut("GET") else { return seen };
        let before = seen.from + seen.bytes.len() as u64;
        match answer.status {
            204 => assert_eq!(position(&answer.next_offset()), before),
            200 => {
                seen.bytes.extend(canonical(&answer.body, model.content_type));
                assert_eq!(position(&answer.next_offset()), seen.from + seen.bytes.len() as u64);
            }
            status => panic!("a long-poll answered {status}"),
        }
        offset = answer.next_offset();
    }
}

/// The stream's bytes in a page.
pub fn canonical(page: &[u8], content_type: &str) -> Vec<u8> {
    if content_type != JSON {
        return page.to_vec();
    }
    split_array(page).into_iter().flat_map(|record| (record + ",").into_bytes()).collect()
}
