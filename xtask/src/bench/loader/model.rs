//! Generates the model to load: several files with an index, and tensors of the
//! sizes of a transformer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use zgate_loader::safetensors::{Header, TensorInfo};

/// Tensors of one layer: name, rows, columns; two bytes per element.
const LAYER: [(&str, u64, u64); 5] = [
    ("attention.query", 4096, 1024),
    ("attention.output", 1024, 4096),
    ("mlp.up", 4096, 2048),
    ("mlp.down", 2048, 4096),
    ("norm", 1, 4096),
];

/// Writes a model of `files` files, about `size_mib` in total, to a new
/// directory. Returns the files' names and total bytes.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn write(dir: &Path, files: u64, size_mib: u64) -> io::Result<(Vec<String>, u64)> {
    std::fs::create_dir(dir)?;
    let layer_bytes: u64 = LAYER.iter().map(|(_, rows, columns)| rows * columns * 2).sum();
    let layers = ((size_mib << 20) / files).div_ceil(layer_bytes).max(1);
    let (mut names, mut map, mut total) = (Vec::new(), BTreeMap::new(), 0);
    for number in 0..files {
        let name = format!("model-{:05}-of-{files:05}.safetensors", number + 1);
        let mut header = Header::default();
        let mut at = 0;
        for layer in 0..layers {
            for (part, rows, columns) in LAYER {
                let tensor = format!("layers.{:03}.{part}.weight", number * layers + layer);
                let end = at + rows * columns * 2;
                let info = TensorInfo {
                    dtype: "F16".into(),
                    shape: vec![rows, columns],
                    data_offsets: [at, end],
                };
                header.tensors.insert(tensor.clone(), info);
                map.insert(tensor, name.clone());
                at = end;
            }
        }
        total += write_file(&dir.join(&name), &header, at, number)?;
        names.push(name);
    }
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": map });
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string())?;
    Ok((names, total))
}

fn write_file(path: &Path, header: &Header, data_bytes: u64, seed: u64) -> io::Result<u64> {
    let mut file = File::create(path)?;
    let head = header.to_bytes();
    file.write_all(&head)?;
    let mut block = vec![0u8; 1 << 20];
    let (mut state, mut left) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, data_bytes);
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let len = left.min(block.len() as u64);
        file.write_all(&block[..len as usize])?;
        left -= len;
    }
    file.sync_all()?;
    Ok(head.len() as u64 + data_bytes)
}
