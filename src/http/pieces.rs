//! A long body in pieces: it grows without being moved, and goes piece by piece.

use super::turn::TURN_BYTES;

/// Bytes of a full piece: what is done with one is done in one turn.
pub const PIECE_BYTES: usize = TURN_BYTES;

/// The bytes of a body, in order. All pieces but the last one are full; none is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    /// A body that is in memory in one piece already.
    pub fn of(bytes: &[u8]) -> Pieces {
        Pieces(bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect())
    }

    /// Bytes of the body.
    pub fn len(&self) -> usize {
        let full = self.0.len().saturating_sub(1) * PIECE_BYTES;
        full + self.0.last().map_or(0, Vec::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// The pieces, in order: each can be dropped when it has served.
    pub fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        self.0.into_iter()
    }

    /// Lets `append` add bytes to the last piece, at most as many as it is told.
    pub fn grow<T>(&mut self, append: impl FnOnce(&mut Vec<u8>, usize) -> T) -> T {
        if self.0.last().is_none_or(|last| last.len() == PIECE_BYTES) {
            self.0.push(Vec::new());
        }
        let last = self.0.last_mut().expect("pushed above");
        let room = PIECE_BYTES - last.len();
        let result = append(last, room);
        assert!(last.len() <= PIECE_BYTES, "a piece has {} of {PIECE_BYTES} bytes", last.len());
        if last.is_empty() {
            self.0.pop();
        }
        result
    }

    /// Adds bytes.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = self.grow(|piece, room| {
                let (now, later) = bytes.split_at(room.min(bytes.len()));
                piece.extend_from_slice(now);
                later
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_body() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        for len in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, bytes.len()] {
            for step in [1 << 10, PIECE_BYTES - 1, PIECE_BYTES, 5 * PIECE_BYTES] {
                let mut pieces = Pieces::default();
                bytes[..len].chunks(step).for_each(|chunk| pieces.extend(chunk));
                assert_eq!((pieces.len(), pieces.is_empty()), (len, len == 0));
                assert!(pieces == Pieces::of(&bytes[..len]), "{len} bytes by {step}");
                assert!(pieces.iter().all(|piece| !piece.is_empty()), "{len} bytes by {step}");
                assert!(pieces.into_pieces().collect::<Vec<_>>().concat() == bytes[..len], "{len} by {step}");
            }
        }
    }
}
