//! Model files for the tests of the loader.

use std::collections::BTreeMap;
use std::path::Path;
use zgate_loader::safetensors::{Header, TensorInfo};

/// A `.safetensors` file to be written.
#[derive(Default)]
pub(crate) struct ModelFile {
    header: Header,
    data: Vec<u8>,
}

impl ModelFile {
    /// Appends a tensor.
    pub(crate) fn add(&mut self, name: &str, dtype: &str, shape: &[u64], content: &[u8]) {
        let start = self.data.len() as u64;
        self.data.extend_from_slice(content);
        let data_offsets = [start, self.data.len() as u64];
        let info = TensorInfo { dtype: dtype.into(), shape: shape.to_vec(), data_offsets };
        self.header.tensors.insert(name.to_owned(), info);
    }

    /// Appends a tensor of bytes.
    pub(crate) fn add_bytes(&mut self, name: &str, content: &[u8]) {
        self.add(name, "U8", &[content.len() as u64], content);
    }

    /// Adds metadata.
    pub(crate) fn describe(&mut self, key: String, value: String) {
        self.header.metadata.insert(key, value);
    }

    /// Writes it.
    pub(crate) fn write(self, file: &Path) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut raw = self.header.to_bytes();
        raw.extend_from_slice(&self.data);
        std::fs::write(file, raw).unwrap();
    }
}

/// Writes the index of a model: the file of each tensor.
pub(crate) fn write_index(dir: &Path, files: &BTreeMap<String, String>) {
    let index = serde_json::json!({ "metadata": {}, "weight_map": files });
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}
