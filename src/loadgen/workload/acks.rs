//! The answer to an append batch: a JSON array with an acknowledgement for each frame, in order.
//!
//! Almost always all frames were appended, so that is looked for first, without a JSON parser: one pass that jumps over the
//! parts of an acknowledgement whose length is known.

use serde_json::Value;

/// How an acknowledgement of an appended frame begins.
const GOOD: &[u8] = b"{\"status\":204,\"stream_next_offset\":";

/// Whether the answer is plainly `frames` acknowledgements of appended frames. `false` does not mean that it is not.
pub fn are_all_good(answer: &[u8], frames: u64) -> bool {
    let Some(mut rest) = answer.strip_prefix(b"[") else { return answer.is_empty() };
    for frame in 0..frames {
        let Some(after) = rest.strip_prefix(GOOD) else { return false };
        // Numbers and further numeric members: no brace but the one that ends it.
        let Some(end) = after.iter().position(|byte| *byte == b'}') else { return false };
        let separator: &[u8] = if frame + 1 < frames { b"," } else { b"]" };
        match after[end + 1..].strip_prefix(separator) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    rest.is_empty()
}

/// The frames that were not appended, with the name of the error. The error says why the answer makes no sense.
pub fn refused(answer: &[u8], frames: u64) -> Result<Vec<(u64, String)>, String> {
    let acks: Vec<Value> =
        serde_json::from_slice(answer).map_err(|error| format!("the answer is no JSON array: {error}"))?;
    if acks.len() as u64 != frames {
        return Err(format!("{} for {frames} frames", acks.len()));
    }
    let mut refused = Vec::new();
    for (frame, ack) in (0..).zip(&acks) {
        let status = ack["status"].as_u64().ok_or_else(|| format!("no status in {ack}"))?;
        if !matches!(status, 200 | 204) {
            let code = ack["error_code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
            refused.push((frame, format!("frame: {status}{code}")));
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"[{"status":204,"stream_next_offset":4},{"status":204,"stream_next_offset":6}]"#;
    const RECORDS: &str =
        r#"[{"status":204,"stream_next_offset":3,"stream_record_start":0,"stream_record_next":1}]"#;

    #[test]
    fn good_answers_are_known_at_once() {
        assert!(are_all_good(PLAIN.as_bytes(), 2));
        assert!(are_all_good(RECORDS.as_bytes(), 1));
        assert!(are_all_good(b"", 2), "a 204 has no body and acknowledges all");
        for (answer, frames) in [(PLAIN, 1), (PLAIN, 3), (RECORDS, 2), (&PLAIN[1..], 2), ("[", 1), ("[]", 1)]
        {
            assert!(!are_all_good(answer.as_bytes(), frames), "{answer} for {frames}");
        }
        assert!(!are_all_good(PLAIN.replace("204", "409").as_bytes(), 2));
        assert!(!are_all_good(&PLAIN.as_bytes()[..PLAIN.len() - 1], 2));
    }

    #[test]
    fn other_words_mean_the_same() {
        let spaced = PLAIN.replace(':', " : ").replace(',', ", ");
        assert!(!are_all_good(spaced.as_bytes(), 2));
        assert_eq!(refused(spaced.as_bytes(), 2), Ok(vec![]));
    }

    #[test]
    fn refused_frames_are_named() {
        let answer =
            br#"[{"status":400,"error_code":"INVALID_JSON","error":"{"},{"status":204},{"status":503}]"#;
        let expected = vec![(0, "frame: 400 INVALID_JSON".to_owned()), (2, "frame: 503".to_owned())];
        assert_eq!(refused(answer, 3), Ok(expected));
        assert!(refused(answer, 2).unwrap_err().contains("3 for 2 frames"));
        assert!(refused(b"[1]", 1).unwrap_err().contains("no status"));
        assert!(refused(b"{}", 1).unwrap_err().contains("no JSON array"));
    }
}
