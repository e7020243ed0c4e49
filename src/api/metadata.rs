//! `HEAD {stream}` (base protocol 5.5; extension 2.4, 6.5): what is durable of a stream, without its data. Renews nothing.

use crate::http::Status;
use crate::http::service::Step;
use crate::protocol::time;

use super::answer::{end_headers, retained_records};
use super::snapshot::snapshot_headers;
use super::{Api, Named, Request};

impl Api {
    /// Serves `HEAD`.
    pub fn metadata(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let mut answer = self.answer(out, Status::OK, request.manner.about(stream));
        answer.header("Content-Type", &stream.content_type.bytes);
        end_headers(&mut answer, id.lineage, stream.durable);
        retained_records(&mut answer, stream);
        if let Some(snapshot) = stream.snapshot().durable {
            snapshot_headers(&mut answer, id.lineage, snapshot);
        }
        if let Some(lifetime) = stream.lifetime.as_deref() {
            if let Some(ttl_seconds) = lifetime.ttl_seconds {
                answer.header_u64("Stream-TTL", ttl_seconds);
            }
            if let Some(expires_at_ms) = lifetime.expires_at_ms {
                answer.header_with("Stream-Expires-At", |value| time::write_rfc3339(value, expires_at_ms));
            }
        }
        answer.lines("Cache-Control: no-store\r\n");
        answer.no_body();
        Step::Done
    }
}
