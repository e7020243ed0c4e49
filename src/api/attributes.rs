//! `{stream}/attrs`: the attributes of a stream, which its application owns (extension 5). They touch nothing else: no
//! offset, no entity tag, no time to live; and they change after the stream is closed, too.

use crate::http::service::{Step, Wait};
use crate::http::{Known, Status};
use crate::limits::ATTRIBUTES_BYTES_MAX;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::{attributes, headers};
use crate::shard::table::Target;
use crate::storage::codec::meta_bytes_max;
use crate::storage::event::Event;
use crate::storage::log::{Class, Room};

use super::{Api, Named, Request};

impl Api {
    /// Serves `GET {stream}/attrs`.
    pub fn read_attributes(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let mut answer = self.answer(out, Status::OK, request.manner.about(stream));
        answer.lines("Content-Type: application/json\r\nCache-Control: no-store\r\n");
        match stream.attributes().durable {
            b"" => answer.body(b"{}"),
            attributes => answer.body(attributes),
        }
        Step::Done
    }

    /// Serves `PUT {stream}/attrs`.
    pub fn replace_attributes(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let wanted = content_type(request).and_then(|()| attributes::normalise(request.body));
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let is_same = {
            let table = self.shard.table.borrow();
            table.get(id).expect("found above").attributes().staged == wanted
        };
        if !is_same {
            let event = Event::AttributesSet { lineage: id.lineage, attributes: &wanted };
            match self.shard.room(meta_bytes_max(&event), 0, Class::Append) {
                Room::Now => {}
                Room::Later => return Step::Again(Wait::Room),
                Room::Refused(refusal) => return self.fail(request, out, &self.refusal(refusal)),
            }
            self.shard.stage(&event, Target::Known(id));
        }
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        self.answer(out, Status::NO_CONTENT, request.manner).no_body();
        Step::After(stream.last_ticket)
    }

    /// Why attributes of so many bytes are not worth reading (extension 5.4: 400, not 413).
    pub fn refuse_long_attributes(&self, request: &Request<'_>) -> Problem {
        content_type(request).err().unwrap_or(attributes::TOO_LARGE)
    }
}

/// Whether the body of a replacement is longer than any can be.
pub fn is_too_long(body_bytes: u64) -> bool {
    body_bytes > ATTRIBUTES_BYTES_MAX as u64
}

/// Attributes are JSON, and the request must say so.
fn content_type(request: &Request<'_>) -> Result<(), Problem> {
    match request.head.get(Known::ContentType) {
        Some(content_type) if headers::is_json(content_type) => Ok(()),
        Some(_) => Err(Problem::fixed(
            Code::InvalidContentType,
            "attributes are sent as Content-Type: application/json",
        )),
        None => {
            Err(Problem::fixed(Code::ContentTypeRequired, "attributes need Content-Type: application/json"))
        }
    }
}
