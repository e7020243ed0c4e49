//! Streams that are made, written, closed and deleted, one step after the other: after a crash each is where its last
//! acknowledgement left it, or one step further.

use std::net::{SocketAddr, TcpStream};

use crate::common::{Connection, Random, Request, Server, TEXT};

/// Steps of a stream's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Created,
    Written,
    Closed,
    Deleted,
}

const STEPS: [Step; 4] = [Step::Created, Step::Written, Step::Closed, Step::Deleted];
const TEXT_WRITTEN: &str = "written";
/// Streams whose state is checked after each restart: the latest.
const CHECKED: usize = 200;

/// One stream.
struct Life {
    path: String,
    /// The last acknowledged step.
    done: Option<Step>,
    /// The step that was sent last.
    sent: Step,
}

/// All of them.
pub struct Lifecycle {
    lives: Vec<Life>,
    made: u64,
}

impl Lifecycle {
    /// None yet.
    pub fn new() -> Lifecycle {
        Lifecycle { lives: Vec::new(), made: 0 }
    }

    /// Goes through lives until the server is gone.
    pub fn run(&mut self, address: SocketAddr, random: &mut Random) {
        let Ok(socket) = TcpStream::connect(address) else { return };
        let mut connection = Connection::new(socket, false);
        loop {
            self.made += 1;
            let path = format!("/test/life-{}", self.made);
            self.lives.push(Life { path: path.clone(), done: None, sent: Step::Created });
            let last = random.below(STEPS.len() as u64) as usize;
            for step in &STEPS[..=last] {
                let life = self.lives.last_mut().expect("one was just added");
                life.sent = *step;
                let request = request(*step, &path);
                if connection.try_write(&request.bytes()).is_err() {
                    return;
                }
                let Ok(Some(answer)) = connection.read_response_or_cut(&request.method) else { return };
                assert!(answer.status / 100 == 2, "{step:?} of {path}: {answer:?}");
                life.done = Some(*step);
            }
        }
    }

    /// Checks the latest lives.
    pub fn verify(&mut self, server: &Server) {
        let first = self.lives.len().saturating_sub(CHECKED);
        let mut connection = server.connect();
        for life in &mut self.lives[first..] {
            let read = connection.send(&Request::new("GET", format!("{}?offset=-1", life.path)));
            let closed = read.header("stream-closed").is_some();
            let found = match (read.status, read.body.as_slice(), closed) {
                (404, _, _) if life.done.is_none() => None,
                (404, _, _) => Some(Step::Deleted),
                (200, b"", false) => Some(Step::Created),
                (200, body, false) if body == TEXT_WRITTEN.as_bytes() => Some(Step::Written),
                (200, body, true) if body == TEXT_WRITTEN.as_bytes() => Some(Step::Closed),
                _ => panic!("{}: {read:?}", life.path),
            };
            let fits = found == life.done || found == Some(life.sent);
            assert!(fits, "{}: {found:?} after {:?}, {:?} was sent", life.path, life.done, life.sent);
            // Whatever it is now it has to stay.
            life.done = found;
            life.sent = found.unwrap_or(Step::Deleted);
        }
    }
}

fn request(step: Step, path: &str) -> Request<'static> {
    match step {
        Step::Created => Request::new("PUT", path).header("Content-Type", TEXT),
        Step::Written => Request::new("POST", path).header("Content-Type", TEXT).body(TEXT_WRITTEN),
        Step::Closed => Request::new("POST", path).header("Stream-Closed", "true"),
        Step::Deleted => Request::new("DELETE", path),
    }
}
