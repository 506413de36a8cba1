//! Binary values in text: hexadecimal or base64 (RFC 7143 §6.1).

use crate::limits::MAX_BINARY_BYTES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Decodes `0x…` or `0b…`. `None` if the prefix is another one, or the value is
/// empty or too long.
#[must_use]
pub fn decode_binary(text: &str) -> Option<Vec<u8>> {
    let prefix = text.get(..2)?;
    let body = text.get(2..)?;
    if body.len() > MAX_BINARY_BYTES * 2 {
        return None;
    }
    let bytes = match prefix {
        "0x" | "0X" => decode_hex(body)?,
        "0b" | "0B" => STANDARD.decode(body).ok()?,
        _ => return None,
    };
    (!bytes.is_empty() && bytes.len() <= MAX_BINARY_BYTES).then_some(bytes)
}

fn decode_hex(body: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = body.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let mut digits = digits?;
    if digits.len() % 2 == 1 {
        digits.insert(0, 0);
    }
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Encodes as `0x…`.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(2 + bytes.len() * 2);
    out.push_str("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_decode() {
        assert_eq!(decode_binary("0x0aFF"), Some(vec![10, 255]));
        assert_eq!(decode_binary("0xaff"), Some(vec![10, 255]));
        assert_eq!(decode_binary("0bCv8="), Some(vec![10, 255]));
        for bad in ["", "0", "0x", "0xg1", "12", "0b***", "é1"] {
            assert_eq!(decode_binary(bad), None, "{bad}");
        }
        assert_eq!(decode_binary(&encode_hex(&[1; 1025])), None);
        assert_eq!(decode_binary(&encode_hex(&[1; 1024])).unwrap().len(), 1024);
    }
}
