//! The model that loaders load: its files, and what every byte of them is.

use serde_json::{Map, json};

/// Files of the model.
pub const SHARDS: usize = 2;
/// Lengths of each file's tensors in bytes.
const TENSOR_BYTES: [usize; 4] = [3000, 64, 5000, 1];

/// Name of a file.
#[must_use]
pub fn shard_name(number: usize) -> String {
    format!("m{number}.safetensors")
}

fn tensor_name(shard: usize, number: usize) -> String {
    format!("t{shard}-{number}")
}

/// All tensors: name and data, in the order of the files.
pub(super) fn tensors() -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..SHARDS).flat_map(|shard| {
        (0..TENSOR_BYTES.len()).map(move |number| (tensor_name(shard, number), data(shard, number)))
    })
}

/// Every word of the model is another one.
fn data(shard: usize, number: usize) -> Vec<u8> {
    let words = 0..TENSOR_BYTES[number].div_ceil(8) as u64;
    let first = ((shard * TENSOR_BYTES.len() + number) as u64 + 1) << 32;
    let words = words.map(|word| (first | word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let mut data: Vec<u8> = words.flatten().collect();
    data.truncate(TENSOR_BYTES[number]);
    data
}

/// The whole of a file.
#[must_use]
pub fn shard(number: usize) -> Vec<u8> {
    let (mut header, mut content) = (Map::new(), Vec::new());
    for tensor in 0..TENSOR_BYTES.len() {
        let begin = content.len();
        content.extend(data(number, tensor));
        let entry = json!({
            "dtype": "U8", "shape": [content.len() - begin], "data_offsets": [begin, content.len()],
        });
        header.insert(tensor_name(number, tensor), entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(content);
    file
}
