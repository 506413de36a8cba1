//! Reading XDR. Every length a peer sends is checked against what the caller
//! allows and against the bytes that are there, before anything is allocated.
//!
//! Functions that read a word or a few bytes are inlined into other crates: a COMPOUND makes a
//! hundred such calls.

use bytes::Bytes;
use thiserror::Error;

/// Fault of the peer: the bytes are not valid XDR.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum XdrError {
    /// The input ends too early.
    #[error("input ends early")]
    Short,
    /// A length or count exceeds its limit.
    #[error("length above its limit")]
    TooLong,
    /// A discriminant or boolean has no meaning.
    #[error("value out of range")]
    BadValue,
    /// Padding bytes are missing.
    #[error("bytes left over")]
    Trailing,
    /// A string is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
}

/// A type that can be read from XDR.
pub trait Decode: Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// [`XdrError`] when the input is not a value of this type.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

/// Bulk data that was received separately from the rest of the message. It
/// belongs at `at` in the remaining bytes; its padding stays in them.
#[derive(Clone, Debug)]
struct Splice {
    at: usize,
    data: Bytes,
}

/// A cursor over one message.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    input: &'a [u8],
    /// Owner of the input bytes, if they can be shared.
    owner: Option<&'a Bytes>,
    at: usize,
    splice: Option<Splice>,
    bulk_bytes: usize,
    copied_bytes: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder of a contiguous message.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, owner: None, at: 0, splice: None, bulk_bytes: 0, copied_bytes: 0 }
    }

    /// Creates a decoder of a message whose opaque body at `at` was received
    /// into `data`; `input` is the message without that body (its length word
    /// and padding stay in `input`).
    #[must_use]
    pub fn with_splice(input: &'a [u8], at: usize, data: Bytes) -> Self {
        Self { splice: Some(Splice { at, data }), ..Self::new(input) }
    }

    /// Creates a decoder of a message whose bulk data is returned as slices of
    /// it, which keep all of it allocated.
    #[must_use]
    pub fn shared(input: &'a Bytes) -> Self {
        Self { owner: Some(input), ..Self::new(input) }
    }

    /// Returns the bytes of bulk data taken so far.
    #[must_use]
    pub fn bulk_bytes(&self) -> usize {
        self.bulk_bytes
    }

    /// Returns the bytes of bulk data that were copied.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Returns the position in the input, in bytes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes not read yet, without a spliced body.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> usize {
        self.input.len() - self.at
    }

    /// Returns the length of the whole message in bytes, a spliced body
    /// included.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.input.len() + self.splice.as_ref().map_or(0, |splice| splice.data.len())
    }

    /// Returns the bytes not read yet.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.input[self.at..]
    }

    /// Succeeds only at the end of the input.
    ///
    /// # Errors
    /// [`XdrError::Trailing`] when bytes are left.
    pub fn finish(&self) -> Result<(), XdrError> {
        if self.remaining() == 0 { Ok(()) } else { Err(XdrError::Trailing) }
    }

    /// Takes `len` raw bytes, without padding.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        if self.remaining() < len {
            return Err(XdrError::Short);
        }
        let bytes = &self.input[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// Takes fixed-length opaque data with its padding.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn opaque_fixed(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        let bytes = self.take(len)?;
        self.take(padding(len))?;
        Ok(bytes)
    }

    /// Takes variable-length opaque data of at most `max` bytes, with its
    /// padding.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] or [`XdrError::Short`].
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let len = self.length(max)?;
        self.opaque_fixed(len)
    }

    /// Takes variable-length bulk data of at most `max` bytes. A body that was
    /// received separately is returned as it is, one of a shared message as a
    /// slice of it; otherwise it is copied.
    ///
    /// # Errors
    /// [`XdrError::TooLong`], [`XdrError::Short`], or
    /// [`XdrError::BadValue`] when the received body has another length.
    pub fn bulk(&mut self, max: usize) -> Result<Bytes, XdrError> {
        let len = self.length(max)?;
        if self.splice.as_ref().is_some_and(|splice| splice.at == self.at) {
            let data = self.splice.take().map(|splice| splice.data).unwrap_or_default();
            if data.len() != len {
                return Err(XdrError::BadValue);
            }
            self.take(padding(len))?;
            self.bulk_bytes += len;
            return Ok(data);
        }
        let start = self.at;
        let bytes = self.opaque_fixed(len)?;
        self.bulk_bytes += len;
        match self.owner {
            Some(owner) => Ok(owner.slice(start..start + len)),
            None => {
                self.copied_bytes += len;
                Ok(Bytes::copy_from_slice(bytes))
            }
        }
    }

    /// Skips variable-length bulk data and returns
    /// `(offset of the body, length)`. The body itself need not be present yet;
    /// no more can be decoded afterwards. Used to find the body of a WRITE
    /// before it is received.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] or [`XdrError::Short`].
    pub fn bulk_position(&mut self, max: usize) -> Result<(usize, usize), XdrError> {
        let len = self.length(max)?;
        Ok((self.at, len))
    }

    /// Reads a count or length of at most `max`.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] or [`XdrError::Short`].
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, XdrError> {
        let len = self.u32()? as usize;
        if len > max { Err(XdrError::TooLong) } else { Ok(len) }
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        let b = self.take(4)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Reads an unsigned hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Reads a counted array of at most `max` elements.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] or an element's own error.
    pub fn array<T: Decode>(&mut self, max: usize) -> Result<Vec<T>, XdrError> {
        let count = self.length(max)?;
        // An element takes at least four bytes: refuse a count that the input
        // cannot hold before memory is reserved for it.
        if count > self.remaining() / 4 {
            return Err(XdrError::Short);
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(self)?);
        }
        Ok(items)
    }
}

/// Returns the padding after `len` bytes of opaque data (RFC 4506 §4.9).
#[inline]
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

impl Decode for u32 {
    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.u32()
    }
}

impl Decode for i32 {
    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.u32().map(|v| v as i32)
    }
}

impl Decode for u64 {
    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.u64()
    }
}

impl Decode for i64 {
    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.u64().map(|v| v as i64)
    }
}

impl Decode for bool {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::BadValue),
        }
    }
}

impl Decode for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        if bool::decode(d)? { T::decode(d).map(Some) } else { Ok(None) }
    }
}

impl<const N: usize> Decode for [u8; N] {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let mut out = [0; N];
        out.copy_from_slice(d.opaque_fixed(N)?);
        Ok(out)
    }
}
