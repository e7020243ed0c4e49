//! A catch-up read: page after page of a stream, until it is up to date.

use super::response::Head;
use super::target::{Names, Target};

/// Reads streams, one after the other.
#[derive(Debug)]
pub struct Walk {
    host: String,
    names: Names,
    request: Vec<u8>,
    stream: u32,
    offset: Vec<u8>,
    is_complete: bool,
    problem: Option<String>,
}

impl Walk {
    /// For the streams of a run. Begin with [`Walk::begin`].
    pub fn new(target: &Target, names: &Names) -> Self {
        Self {
            host: target.host().to_owned(),
            names: names.clone(),
            request: Vec::new(),
            stream: 0,
            offset: Vec::new(),
            is_complete: true,
            problem: None,
        }
    }

    /// Turns to the beginning of a stream.
    pub fn begin(&mut self, stream: u32) {
        self.stream = stream;
        self.offset.clear();
        self.offset.extend_from_slice(b"-1");
        self.is_complete = false;
    }

    /// Leaves the stream where it is: the next one begins.
    pub fn give_up(&mut self) {
        self.is_complete = true;
    }

    /// The stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Whether the last answer reached the end.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Path of the stream.
    pub fn path(&self) -> String {
        self.names.path(self.stream)
    }

    /// The request of the next page; `more` goes behind the offset in the query.
    pub fn request(&mut self, more: &[u8]) -> &[u8] {
        self.request.clear();
        let path = self.names.path(self.stream);
        let parts: [&[u8]; 8] = [
            b"GET ",
            path.as_bytes(),
            b"?offset=",
            &self.offset,
            more,
            b" HTTP/1.1\r\nHost: ",
            self.host.as_bytes(),
            b"\r\n\r\n",
        ];
        parts.into_iter().for_each(|part| self.request.extend_from_slice(part));
        &self.request
    }

    /// Takes the head of an answer, if it is a page; whether it is. What it lacks is told by [`Walk::take_problem`].
    pub fn head(&mut self, head: &Head<'_>) -> bool {
        let is_page = head.status == 200;
        if is_page {
            self.problem = self.turn_page(head).err();
        }
        is_page
    }

    /// What was wrong with the head of the last page.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Goes to where the next page begins.
    fn turn_page(&mut self, head: &Head<'_>) -> Result<(), String> {
        let is_complete = head.up_to_date || head.closed;
        match head.next_offset {
            Some(next) if next == self.offset.as_slice() && !is_complete => Err(format!(
                "reading {}: neither Stream-Up-To-Date nor a new Stream-Next-Offset",
                self.path()
            )),
            Some(next) => {
                self.offset.clear();
                self.offset.extend_from_slice(next);
                self.is_complete = is_complete;
                Ok(())
            }
            None => Err(format!("reading {}: an answer without Stream-Next-Offset", self.path())),
        }
    }
}
