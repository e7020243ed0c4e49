//! Server-sent events as they arrive: a parser that takes bytes in pieces of any size and hands on whole events.
//!
//! Contract: lines end in LF or CRLF; comments and unknown fields are ignored; `data` lines of one event are joined with
//! LF. Memory is kept between events, so that a steady flow allocates nothing.

/// What is being read.
#[derive(Debug, Default)]
pub struct Events {
    /// A line that is not complete.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// Takes bytes and hands on every event that they complete: its name, and its data.
    pub fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8], &[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.line.is_empty() {
                self.take(line, &mut event);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take(&whole, &mut event);
                whole.clear();
                self.line = whole;
            }
        }
        self.line.extend_from_slice(bytes);
    }

    /// Forgets what is not complete: the connection is gone.
    pub fn reset(&mut self) {
        self.line.clear();
        self.clear();
    }

    fn clear(&mut self) {
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }

    fn take(&mut self, line: &[u8], event: &mut impl FnMut(&[u8], &[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                event(&self.name, &self.data);
            }
            return self.clear();
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or(b"");
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            _ => {}
        }
    }
}

/// The offset in the data of a control event.
pub fn next_offset(data: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"\"streamNextOffset\":\"";
    if let Some(at) = data.windows(NAME.len()).position(|window| window == NAME) {
        let value = &data[at + NAME.len()..];
        let end = value.iter().position(|byte| *byte == b'"')?;
        return Some(value[..end].to_vec());
    }
    let value: serde_json::Value = serde_json::from_slice(data).ok()?;
    Some(value["streamNextOffset"].as_str()?.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str, piece_bytes: usize) -> Vec<(String, String)> {
        let (mut events, mut found) = (Events::default(), Vec::new());
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for piece in text.as_bytes().chunks(piece_bytes) {
            events.feed(piece, |name, data| found.push((text_of(name), text_of(data))));
        }
        found
    }

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let text = ": hello\n\nevent: data\ndata:one\ndata: two\r\ndata:  three\r\n\r\nid: 7\nevent: control\n\
                    data:{\"a\":1}\n\nevent: empty\n\ndata\n\nevent: data\ndata:cut";
        let expected = [("data", "one\ntwo\n three"), ("control", "{\"a\":1}"), ("", "")];
        let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
        for piece_bytes in 1..=text.len() {
            assert_eq!(events(text, piece_bytes), expected, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn what_was_cut_is_forgotten_with_its_connection() {
        let (mut events, mut found) = (Events::default(), 0);
        events.feed(b"event: data\ndata:a\ndata:b", |_, _| found += 1);
        events.reset();
        events.feed(b"data:c\n\n", |name, data| {
            assert_eq!((name, data), (b"".as_slice(), b"c".as_slice()));
            found += 1;
        });
        assert_eq!(found, 1);
    }

    #[test]
    fn offsets_are_found_in_any_words() {
        for data in [r#"{"streamNextOffset":"1_2","upToDate":true}"#, r#"{ "streamNextOffset" : "1_2" }"#] {
            assert_eq!(next_offset(data.as_bytes()).as_deref(), Some(b"1_2".as_slice()));
        }
        assert_eq!(next_offset(b"{}"), None);
        assert_eq!(next_offset(b"x"), None);
    }
}
