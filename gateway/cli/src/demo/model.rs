//! A sharded safetensors model to serve, and the checksums of its files.

use super::stop::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use zgate_loader::safetensors::{Header, TensorInfo};

/// Largest shard in bytes.
const SHARD_BYTES: u64 = 256 << 20;
/// Number of tensors per shard.
const TENSORS_PER_SHARD: u64 = 8;
/// Most files of a served model.
const MAX_FILES: usize = 10_000;

/// A file of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Path below the export.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
}

/// All files of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub files: Vec<Entry>,
}

/// Hexadecimal digest.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writer that passes bytes on and hashes them.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Fast, repeatable noise (xorshift64*).
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed + 1))
    }

    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

impl Manifest {
    /// Writes a model of about `bytes` into `dir`.
    ///
    /// # Errors
    /// The file system's error; that it was stopped.
    pub(super) fn generate(dir: &Path, bytes: u64, stop: &Stop) -> io::Result<Self> {
        let bar = progress("writing model", bytes);
        let shards = bytes.div_ceil(SHARD_BYTES);
        let mut manifest = Self::default();
        let mut weight_map = BTreeMap::new();
        for shard in 0..shards {
            let size = SHARD_BYTES.min(bytes - shard * SHARD_BYTES);
            let name = format!("model-{:05}-of-{shards:05}.safetensors", shard + 1);
            let header = shard_header(shard, size);
            for tensor in header.tensors.keys() {
                weight_map.insert(tensor.clone(), name.clone());
            }
            let (bytes, sha256) = write_shard(&dir.join(&name), shard, &header, (&bar, stop))?;
            manifest.files.push(Entry { path: name, bytes, sha256 });
        }
        let index = serde_json::json!({
            "metadata": { "total_size": bytes },
            "weight_map": weight_map,
        });
        let name = "model.safetensors.index.json";
        let raw = serde_json::to_vec_pretty(&index)?;
        std::fs::write(dir.join(name), &raw)?;
        manifest.files.push(Entry {
            path: name.to_owned(),
            bytes: raw.len() as u64,
            sha256: hex(&Sha256::digest(&raw)),
        });
        bar.finish_and_clear();
        Ok(manifest)
    }

    /// Lists the files of an existing directory.
    ///
    /// # Errors
    /// The file that cannot be read; that it was stopped.
    pub(super) fn of(dir: &Path, stop: &Stop) -> io::Result<Self> {
        let mut manifest = Self::default();
        manifest.collect(dir, "", stop)?;
        if manifest.files.is_empty() {
            let reason =
                format!("{} contains no files; --model needs a model's directory", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        Ok(manifest)
    }

    fn collect(&mut self, dir: &Path, prefix: &str, stop: &Stop) -> io::Result<()> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
        };
        let mut entries: Vec<_> = std::fs::read_dir(dir)
            .map_err(|error| named(dir, error))?
            .collect::<io::Result<_>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.collect(&path, &format!("{name}/"), stop)?;
            } else if kind.is_file() {
                if self.files.len() >= MAX_FILES {
                    let reason = format!("more than {MAX_FILES} files; choose a smaller directory");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                }
                let hashed = hash_file(&path, name, stop);
                // Nothing is wrong with the file if the demo was stopped.
                stop.check()?;
                self.files.push(hashed.map_err(|error| named(&path, error))?);
            }
        }
        Ok(())
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

fn hash_file(path: &Path, name: String, stop: &Stop) -> io::Result<Entry> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            break;
        }
        stop.check()?;
        hash.update(&buffer[..got]);
        bytes += got as u64;
    }
    Ok(Entry { path: name, bytes, sha256: hex(&hash.finalize()) })
}

fn shard_header(shard: u64, bytes: u64) -> Header {
    let mut header = Header::default();
    let each = (bytes / TENSORS_PER_SHARD) & !1;
    for index in 0..TENSORS_PER_SHARD {
        let tensor = TensorInfo {
            dtype: "F16".to_owned(),
            shape: vec![each / 2],
            data_offsets: [index * each, (index + 1) * each],
        };
        header.tensors.insert(format!("layers.{shard}.{index}.weight"), tensor);
    }
    header
}

/// Writes a shard; returns its length and checksum.
fn write_shard(
    path: &Path,
    shard: u64,
    header: &Header,
    (bar, stop): (&ProgressBar, &Stop),
) -> io::Result<(u64, String)> {
    let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut out = Hashing { inner: file, hash: Sha256::new(), bytes: 0 };
    out.write_all(&header.to_bytes())?;
    let mut left = header.tensors.values().map(|t| t.data_offsets[1]).max().unwrap_or(0);
    let mut noise = Noise::new(shard);
    let mut block = vec![0; 1 << 20];
    while left > 0 {
        stop.check()?;
        let len = left.min(block.len() as u64) as usize;
        noise.fill(&mut block[..len]);
        out.write_all(&block[..len])?;
        left -= len as u64;
        bar.inc(len as u64);
    }
    out.flush()?;
    Ok((out.bytes, hex(&out.hash.finalize())))
}

/// Creates a progress bar with speed, on standard error.
pub(crate) fn progress(what: &'static str, bytes: u64) -> ProgressBar {
    let template =
        "{msg:>16} {bar:32} {bytes:>10}/{total_bytes:<10} {decimal_bytes_per_sec:>12} {eta:>4}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style).with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_model_hashes_to_its_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let mut made = Manifest::generate(dir.path(), 3 << 20, &Stop::default()).unwrap();
        let mut found = Manifest::of(dir.path(), &Stop::default()).unwrap();
        made.files.sort_by(|a, b| a.path.cmp(&b.path));
        found.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(made, found);
        let shard = std::fs::read(dir.path().join("model-00001-of-00001.safetensors")).unwrap();
        let (header, start) = Header::parse(&shard).unwrap();
        let end = header.tensors.values().map(|t| t.data_offsets[1]).max().unwrap();
        assert_eq!(shard.len(), start + end as usize);
    }
}
