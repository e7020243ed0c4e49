//! Integers and byte strings in meta parts and footer records: a writer over a slice, a strict reader.

use super::DecodeError;

/// Most bytes of a varint.
pub const VARINT_BYTES_MAX: usize = 10;

/// Bytes of `value` as a varint.
#[inline]
pub const fn varint_bytes(value: u64) -> usize {
    // 64 - leading zeros, in groups of seven, at least one group.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Writes into a slice that is long enough.
pub(crate) struct Put<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) at: usize,
}

impl Put<'_> {
    #[inline]
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out[self.at] = value as u8 | 0x80;
            self.at += 1;
            value >>= 7;
        }
        self.out[self.at] = value as u8;
        self.at += 1;
    }

    #[inline]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }
}

/// Reads from the front of a slice.
pub(crate) struct Get<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Get<'a> {
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Cut)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first))
            }
            [first, second @ 1..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(first & 0x7f) | u64::from(*second) << 7)
            }
            _ => self.varint_long(),
        }
    }

    #[inline]
    fn varint_long(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                // A last group of zero is a longer form; the tenth group has one bit.
                if (*byte == 0 && index > 0) || (index == VARINT_BYTES_MAX - 1 && *byte > 1) {
                    return Err(DecodeError::Varint);
                }
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < VARINT_BYTES_MAX { DecodeError::Cut } else { DecodeError::Varint })
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Varint)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Cut)?;
        self.rest = rest;
        Ok(array)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Cut)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Cut)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        self.take(len)
    }

    #[inline]
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TooLong) }
    }
}
