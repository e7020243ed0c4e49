//! Cuts what a server returns of a stream back into the records that were written.
//!
//! Contract: bytes may come in pieces of any size. Plain streams are cut by counting. JSON streams are cut at braces, and
//! white space outside of strings is dropped, because a server may put values into its own words; records of a run have no
//! nested objects and no escapes. Several arrays may follow each other (pages, events).

use super::record::Layout;

/// Cuts one stream.
#[derive(Debug)]
pub struct Splitter {
    is_json: bool,
    payload_bytes: usize,
    partial: Vec<u8>,
    /// Within a string of a JSON record.
    in_string: bool,
}

impl Splitter {
    /// For streams of such records.
    pub fn new(layout: &Layout) -> Self {
        let payload_bytes = layout.payload_bytes();
        Self { is_json: layout.is_json(), payload_bytes, partial: Vec::new(), in_string: false }
    }

    /// Takes bytes and hands on every record that they complete. Bytes between records that should not be there are an
    /// error.
    pub fn feed(&mut self, bytes: &[u8], mut record: impl FnMut(&[u8])) -> Result<(), String> {
        if self.is_json {
            return self.feed_json(bytes, &mut record);
        }
        self.feed_plain(bytes, &mut record);
        Ok(())
    }

    /// Nothing more comes: whether the last record was whole.
    pub fn finish(&mut self) -> Result<(), String> {
        let left = self.partial.len();
        self.partial.clear();
        self.in_string = false;
        if left == 0 { Ok(()) } else { Err(format!("{left} bytes of a record at the end")) }
    }

    fn feed_plain(&mut self, mut bytes: &[u8], record: &mut impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            let missing = (self.payload_bytes - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < self.payload_bytes {
                return;
            }
            record(&self.partial);
            self.partial.clear();
        }
        let mut records = bytes.chunks_exact(self.payload_bytes);
        records.by_ref().for_each(record);
        self.partial.extend_from_slice(records.remainder());
    }

    fn feed_json(&mut self, mut bytes: &[u8], record: &mut impl FnMut(&[u8])) -> Result<(), String> {
        while let Some(&byte) = bytes.first() {
            if self.partial.is_empty() {
                // The common case: a record as it was written, whole.
                if let Some(candidate) = bytes.get(..self.payload_bytes)
                    && byte == b'{'
                    && candidate.iter().position(|&byte| byte == b'}') == Some(self.payload_bytes - 1)
                    && !candidate.iter().any(u8::is_ascii_whitespace)
                {
                    record(candidate);
                    bytes = &bytes[self.payload_bytes..];
                    continue;
                }
                match byte {
                    b'{' => self.partial.push(byte),
                    b'[' | b']' | b',' => {}
                    _ if byte.is_ascii_whitespace() => {}
                    _ => return Err(format!("{:?} between records", byte as char)),
                }
            } else {
                self.in_string ^= byte == b'"';
                if self.in_string || !byte.is_ascii_whitespace() {
                    self.partial.push(byte);
                }
                if byte == b'}' && !self.in_string {
                    record(&self.partial);
                    self.partial.clear();
                }
            }
            bytes = &bytes[1..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Id;
    use super::*;

    fn records(layout: &Layout, count: u64) -> Vec<Vec<u8>> {
        let record = |number| {
            let mut out = Vec::new();
            layout.write(&mut out, Id { connection: 1, number, due_ns: 0 });
            out
        };
        (0..count).map(record).collect()
    }

    fn split(layout: &Layout, bytes: &[u8], piece_bytes: usize) -> Result<Vec<Vec<u8>>, String> {
        let (mut splitter, mut found) = (Splitter::new(layout), Vec::new());
        for piece in bytes.chunks(piece_bytes) {
            splitter.feed(piece, |record| found.push(record.to_vec()))?;
        }
        splitter.finish()?;
        Ok(found)
    }

    #[test]
    fn plain_streams_are_cut_by_counting() {
        let layout = Layout::new(1, 20, false, false, 1);
        let records = records(&layout, 5);
        let bytes = records.concat();
        for piece_bytes in 1..=bytes.len() {
            assert_eq!(split(&layout, &bytes, piece_bytes).unwrap(), records);
        }
        assert!(split(&layout, &bytes[1..], 7).unwrap_err().contains("19 bytes"));
    }

    #[test]
    fn json_streams_are_cut_at_braces_in_any_words() {
        let layout = Layout::new(1, 50, true, false, 1);
        let records = records(&layout, 4);
        let pages = [&records[..1], &records[1..]];
        let compact: Vec<u8> =
            pages.iter().flat_map(|page| [b"[".to_vec(), page.join(&b','), b"]".to_vec()].concat()).collect();
        let spaced = String::from_utf8(compact.clone()).unwrap();
        let spaced = spaced.replace(':', " : ").replace(',', ",\n ").replace('{', "{ ").replace('}', "\t}");
        for text in [compact.as_slice(), spaced.as_bytes()] {
            for piece_bytes in 1..=text.len() {
                assert_eq!(split(&layout, text, piece_bytes).unwrap(), records, "pieces of {piece_bytes}");
            }
        }
        assert!(split(&layout, b"[1]", 3).unwrap_err().contains("'1'"));
        assert!(split(&layout, &compact[..30], 3).is_err());
    }
}
