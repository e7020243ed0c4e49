//! Append batches: frames out, acknowledgements in.

use serde_json::Value;

use super::client::{Request, Response, assert_no_white_space};
use super::stream::Stream;

/// The body of a batch.
pub fn frames<B: AsRef<[u8]>>(payloads: &[B]) -> Vec<u8> {
    let mut body = Vec::new();
    for payload in payloads {
        let payload = payload.as_ref();
        body.extend_from_slice(&u32::try_from(payload.len()).expect("a test frame is small").to_be_bytes());
        body.extend_from_slice(payload);
    }
    body
}

impl<'s> Stream<'s> {
    /// A batch with this body.
    pub fn batch_request(&self, body: impl AsRef<[u8]>) -> Request<'s> {
        self.server()
            .request("POST", format!("{}/append-batch", self.path))
            .header("Content-Type", &self.content_type)
            .body(body)
    }

    /// Sends a batch of these frames; the acknowledgements.
    #[track_caller]
    pub fn batch<B: AsRef<[u8]>>(&self, payloads: &[B]) -> Vec<Value> {
        let acknowledgements = acknowledgements(&self.batch_request(frames(payloads)).expect(200));
        assert_eq!(acknowledgements.len(), payloads.len());
        acknowledgements
    }
}

/// The acknowledgements in an answer.
#[track_caller]
pub fn acknowledgements(response: &Response) -> Vec<Value> {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    assert_no_white_space(&response.body);
    match response.json() {
        Value::Array(acknowledgements) => acknowledgements,
        other => panic!("no array: {other}"),
    }
}
