//! The safetensors container: eight bytes of header length, a JSON header, raw
//! tensor data. Only what a generator and a verifier need.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest header accepted, in bytes (the format's own limit is 100 MB).
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Element type: F16, BF16, F32, ...
    pub dtype: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// First byte and one past the last, relative to the end of the header.
    pub data_offsets: [u64; 2],
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Free text.
    #[serde(rename = "__metadata__", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    #[serde(flatten)]
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl Header {
    /// The header's bytes with their length in front, padded with spaces so
    /// that data begins at a multiple of eight.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&json);
        bytes
    }

    /// Reads a header from the start of a file.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(raw: &[u8]) -> Result<(Self, usize), String> {
        let length = raw.first_chunk::<8>().ok_or("shorter than eight bytes")?;
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER_BYTES {
            return Err(format!("a header of {length} bytes is longer than the format allows"));
        }
        let end = 8 + length as usize;
        let json = raw.get(8..end).ok_or("the header is cut short")?;
        let header: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        for (name, tensor) in &header.tensors {
            if tensor.data_offsets[0] > tensor.data_offsets[1] {
                return Err(format!("tensor {name} ends before it begins"));
            }
        }
        Ok((header, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_trip() {
        let tensor = TensorInfo { dtype: "F32".into(), shape: vec![2, 3], data_offsets: [0, 24] };
        let header = Header {
            metadata: BTreeMap::new(),
            tensors: BTreeMap::from([("w".to_owned(), tensor)]),
        };
        let raw = header.to_bytes();
        assert_eq!(raw.len() % 8, 0);
        assert_eq!(Header::parse(&raw).unwrap(), (header, raw.len()));
        assert!(Header::parse(&raw[..20]).is_err());
        assert!(Header::parse(&u64::MAX.to_le_bytes()).is_err());
    }
}
