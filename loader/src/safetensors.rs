//! The safetensors format: eight bytes of header length, a JSON header, raw
//! tensor data, and the index of a model in several files.

use safetensors::Dtype;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest header accepted, in bytes (the format's own limit is 100 MB).
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Bits of an element; `None` for an unknown type.
#[must_use]
pub fn dtype_bits(dtype: &str) -> Option<u64> {
    let name: StrDeserializer<'_, serde::de::value::Error> = dtype.into_deserializer();
    Dtype::deserialize(name).ok().map(|dtype| dtype.bitsize() as u64)
}

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

impl TensorInfo {
    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data_offsets[1].saturating_sub(self.data_offsets[0])
    }

    /// Returns the length implied by type and shape, in bytes.
    ///
    /// # Errors
    /// An unknown type; an overflow; a fraction of a byte.
    pub fn expected_bytes(&self) -> Result<u64, String> {
        let bits =
            dtype_bits(&self.dtype).ok_or_else(|| format!("type {} is unknown", self.dtype))?;
        let total = self
            .shape
            .iter()
            .try_fold(bits, |product, dim| product.checked_mul(*dim))
            .ok_or_else(|| format!("shape {:?} is too large", self.shape))?;
        if total % 8 == 0 {
            Ok(total / 8)
        } else {
            Err("the length is not a whole number of bytes".to_owned())
        }
    }
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Metadata.
    #[serde(rename = "__metadata__", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    #[serde(flatten)]
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// Returns the length of the header from a file's first eight bytes.
///
/// # Errors
/// The fault, for people.
pub fn header_bytes(raw: &[u8]) -> Result<u64, String> {
    let length = raw.first_chunk::<8>().ok_or("shorter than eight bytes")?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(format!("a header of {length} bytes is longer than the format allows"));
    }
    Ok(length)
}

impl Header {
    /// Encodes the header with its length in front, padded with spaces so that
    /// data begins at a multiple of eight.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&json);
        bytes
    }

    /// Parses a header at the start of a file; also returns the offset of the
    /// data.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn parse(raw: &[u8]) -> Result<(Self, usize), String> {
        let end = 8 + header_bytes(raw)? as usize;
        let json = raw.get(8..end).ok_or("the header is cut short")?;
        let header: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        for (name, tensor) in &header.tensors {
            if tensor.data_offsets[0] > tensor.data_offsets[1] {
                return Err(format!("tensor {name} ends before it begins"));
            }
        }
        Ok((header, end))
    }

    /// Checks every tensor against its shape, and all of them against the
    /// `data_bytes` behind the header: the format allows neither gaps nor
    /// overlaps.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn check(&self, data_bytes: u64) -> Result<(), String> {
        let mut all: Vec<(&String, &TensorInfo)> = self.tensors.iter().collect();
        all.sort_by_key(|(_, tensor)| tensor.data_offsets);
        let mut end = 0;
        for (name, tensor) in all {
            let expected =
                tensor.expected_bytes().map_err(|reason| format!("tensor {name}: {reason}"))?;
            if tensor.bytes() != expected {
                let has = tensor.bytes();
                return Err(format!("tensor {name} has {has} bytes; its shape needs {expected}"));
            }
            if tensor.data_offsets[0] != end {
                return Err(format!("tensor {name} does not follow the one before it"));
            }
            end = tensor.data_offsets[1];
        }
        if end != data_bytes {
            return Err(format!("{data_bytes} bytes of data; the header describes {end}"));
        }
        Ok(())
    }
}

/// `model.safetensors.index.json`: the file of each tensor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Index {
    /// File by tensor.
    pub weight_map: BTreeMap<String, String>,
}

impl Index {
    /// Parses an index.
    ///
    /// # Errors
    /// The fault, for people; a file outside the model's own directory.
    pub fn parse(raw: &[u8]) -> Result<Self, String> {
        let index: Self = serde_json::from_slice(raw).map_err(|error| error.to_string())?;
        for file in index.weight_map.values() {
            if file.is_empty() || file.contains('/') || file.starts_with('.') {
                return Err(format!("file {file:?} does not lie beside the index"));
            }
        }
        Ok(index)
    }

    /// Returns the files, each once, in order.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = self.weight_map.values().cloned().collect();
        files.sort();
        files.dedup();
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: &str, shape: &[u64], data_offsets: [u64; 2]) -> TensorInfo {
        TensorInfo { dtype: dtype.into(), shape: shape.to_vec(), data_offsets }
    }

    #[test]
    fn a_header_survives_the_trip() {
        let header = Header {
            metadata: BTreeMap::new(),
            tensors: BTreeMap::from([("w".to_owned(), tensor("F32", &[2, 3], [0, 24]))]),
        };
        let raw = header.to_bytes();
        assert_eq!(raw.len() % 8, 0);
        assert_eq!(Header::parse(&raw).unwrap(), (header, raw.len()));
        assert!(Header::parse(&raw[..20]).is_err());
        assert!(Header::parse(&u64::MAX.to_le_bytes()).is_err());
    }

    #[test]
    fn shapes_and_places_have_to_fit() {
        let header = |tensors: &[(&str, TensorInfo)]| Header {
            metadata: BTreeMap::new(),
            tensors: tensors.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect(),
        };
        let good =
            header(&[("a", tensor("F16", &[4], [0, 8])), ("b", tensor("I64", &[], [8, 16]))]);
        assert_eq!(good.check(16), Ok(()));
        assert!(good.check(17).unwrap_err().contains("describes 16"));
        let hole = header(&[("a", tensor("F16", &[4], [8, 16]))]);
        assert!(hole.check(16).unwrap_err().contains("follow"));
        let short = header(&[("a", tensor("F16", &[5], [0, 8]))]);
        assert!(short.check(8).unwrap_err().contains("needs 10"));
        let huge = header(&[("a", tensor("F64", &[u64::MAX, 2], [0, 8]))]);
        assert!(huge.check(8).unwrap_err().contains("too large"));
        assert!(
            header(&[("a", tensor("X", &[1], [0, 1]))]).check(1).unwrap_err().contains("unknown")
        );
    }

    #[test]
    fn an_index_stays_in_its_directory() {
        let index = Index::parse(
            br#"{"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}}"#,
        );
        assert_eq!(index.unwrap().files(), ["m-1.safetensors"]);
        for bad in ["../x", "/x", "", ".."] {
            let raw = format!(r#"{{"weight_map":{{"a":"{bad}"}}}}"#);
            assert!(Index::parse(raw.as_bytes()).is_err(), "{bad}");
        }
    }
}
