//! `key=value` text (RFC 7143 §6.1).

use crate::limits::{MAX_KEY_NAME_BYTES, MAX_KEYS_PER_EXCHANGE, MAX_TEXT_BYTES};
use bytes::{Bytes, BytesMut};

/// Reason why text was refused; an error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Longer than [`MAX_TEXT_BYTES`] or with too many keys.
    #[error("text exceeds the bounds")]
    TooLong,
    /// Not `key=value`, or with characters that are not allowed in a key or
    /// value.
    #[error("malformed text")]
    Malformed,
    /// The same key twice in one exchange.
    #[error("key given twice")]
    Repeated,
}

/// Splits text into keys and values.
///
/// # Errors
/// See [`TextError`].
pub fn parse_text(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for item in text.split(|&byte| byte == 0).filter(|item| !item.is_empty()) {
        let item = std::str::from_utf8(item).map_err(|_| TextError::Malformed)?;
        let (key, value) = item.split_once('=').ok_or(TextError::Malformed)?;
        if !is_key(key) || value.chars().any(char::is_control) {
            return Err(TextError::Malformed);
        }
        if pairs.len() == MAX_KEYS_PER_EXCHANGE {
            return Err(TextError::TooLong);
        }
        if pairs.iter().any(|(seen, _)| *seen == key) {
            return Err(TextError::Repeated);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// True for a standard-label: begins with a capital letter (RFC 7143 §6.1). `#`
/// is for the X# keys of older drafts; iSCSIProtocolLevel (RFC 7144 §7.1.1) and
/// iSERHelloRequired (RFC 7145 §6.10) are the registered keys that start
/// otherwise.
fn is_key(key: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'@' | b'_' | b'#')
    };
    let starts = key.starts_with(|c: char| c.is_ascii_uppercase())
        || matches!(key, "iSCSIProtocolLevel" | "iSERHelloRequired");
    starts && key.len() <= MAX_KEY_NAME_BYTES && key.bytes().all(allowed)
}

/// Text under construction.
#[derive(Clone, Debug, Default)]
pub struct TextWriter(BytesMut);

impl TextWriter {
    /// Appends a pair.
    pub fn push(&mut self, key: &str, value: &str) {
        for part in [key.as_bytes(), b"=", value.as_bytes(), &[0]] {
            self.0.extend_from_slice(part);
        }
    }

    /// Length of the text so far, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the text.
    pub fn take(&mut self) -> Bytes {
        self.0.split().freeze()
    }
}

/// Text that arrives in several PDUs with the C bit.
#[derive(Clone, Debug, Default)]
pub struct TextGather(BytesMut);

impl TextGather {
    /// Adds the data segment of one PDU.
    ///
    /// # Errors
    /// [`TextError::TooLong`] once it exceeds [`MAX_TEXT_BYTES`].
    pub fn push(&mut self, slices: &[Bytes]) -> Result<(), TextError> {
        for slice in slices {
            if self.0.len() + slice.len() > MAX_TEXT_BYTES {
                return Err(TextError::TooLong);
            }
            self.0.extend_from_slice(slice);
        }
        Ok(())
    }

    /// True if nothing was gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the whole text.
    pub fn take(&mut self) -> Bytes {
        self.0.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_and_bounded() {
        assert_eq!(
            parse_text(b"A=1\0B=x=y\0C=\0\0").unwrap(),
            [("A", "1"), ("B", "x=y"), ("C", "")]
        );
        assert_eq!(parse_text(b"novalue\0"), Err(TextError::Malformed));
        assert_eq!(parse_text(b"A=1\0A=2\0"), Err(TextError::Repeated));
        assert_eq!(parse_text(b"A\xff=1\0"), Err(TextError::Malformed));
        assert_eq!(parse_text(b"A=a\nb\0"), Err(TextError::Malformed));
        let many: String = (0..200).map(|i| format!("K{i}=v\0")).collect();
        assert_eq!(parse_text(many.as_bytes()), Err(TextError::TooLong));
        let mut gather = TextGather::default();
        let half = Bytes::from(vec![b'a'; MAX_TEXT_BYTES]);
        assert_eq!(gather.push(std::slice::from_ref(&half)), Ok(()));
        assert_eq!(gather.push(&[Bytes::from_static(b"b")]), Err(TextError::TooLong));
    }
}
