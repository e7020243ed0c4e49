//! `DELETE {stream}` (base protocol 5.4; decision 25): durable before its 204.

use crate::http::Status;
use crate::http::service::{Step, Wait};
use crate::shard::DELETE_META_BYTES;
use crate::storage::log::{Class, Room};

use super::{Api, Named, Request};

impl Api {
    /// Serves a delete.
    pub fn delete(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        match self.shard.room(DELETE_META_BYTES, 0, Class::Control) {
            Room::Now => {}
            Room::Later => return Step::Again(Wait::Room),
            Room::Refused(refusal) => return self.fail(request, out, &self.refusal(refusal)),
        }
        let ticket = self.shard.delete(id).expect("room was found above");
        let mut answer = self.answer(out, Status::NO_CONTENT, request.manner);
        answer.lines("Cache-Control: no-store\r\n");
        answer.no_body();
        Step::After(ticket)
    }
}
