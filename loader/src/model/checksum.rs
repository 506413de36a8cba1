//! Checksums compared while data is received: of single tensors, if the file's
//! metadata has them (`sha256:NAME` = hex), and of whole files, if they are
//! known from a side file in the format of `sha256sum`.

use super::LoadError;
use super::catalog::Shard;
use crate::safetensors::Header;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Prefix of a metadata key with a tensor's checksum.
pub const TENSOR_KEY: &str = "sha256:";

/// Checksums to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// None.
    #[default]
    Off,
    /// Those of tensors in the metadata of their file.
    Tensors,
    /// Those of whole files by name, in hex, and of tensors. A file is compared
    /// if everything in it is loaded.
    Files(BTreeMap<String, String>),
}

/// Parses the output of `sha256sum`: hex digits, two spaces (or one and `*`), a
/// name. A `./` before the name is left out.
///
/// # Errors
/// The first line that has another format.
pub fn parse_sums(text: &str) -> Result<BTreeMap<String, String>, String> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (sum, name) = line.split_once(' ').ok_or_else(|| line.to_owned())?;
            let name = name.trim_start_matches([' ', '*']).trim_start_matches("./");
            let hex = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !hex || name.is_empty() {
                return Err(format!("{line:?} is not a line of sha256sum"));
            }
            Ok((name.to_owned(), sum.to_ascii_lowercase()))
        })
        .collect()
}

/// Hash of one file so far.
#[derive(Debug, Default)]
pub(super) struct FileHash {
    name: String,
    tensors: Option<BTreeMap<String, TensorSum>>,
    whole: Option<Whole>,
}

/// Checksum of a whole tensor.
#[derive(Debug)]
struct TensorSum {
    expected: String,
    bytes: u64,
}

#[derive(Debug)]
struct Whole {
    expected: String,
    hash: Sha256,
    /// Offset up to which everything is hashed.
    done: u64,
    /// Data received out of order.
    early: BTreeMap<u64, Vec<u8>>,
    size: u64,
}

impl FileHash {
    pub(super) fn new(shard: &Shard, verify: &Verify) -> Self {
        let tensors = (*verify != Verify::Off).then(|| tensor_sums(shard));
        let whole = match verify {
            Verify::Files(sums) => sums.get(&shard.name).map(|expected| {
                let mut whole = Whole {
                    expected: expected.clone(),
                    hash: Sha256::new(),
                    done: 0,
                    early: BTreeMap::new(),
                    size: shard.size,
                };
                whole.add(0, &shard.header);
                whole
            }),
            _ => None,
        };
        Self { name: shard.name.clone(), tensors, whole }
    }

    /// Adds received bytes of the file.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) {
        if let Some(whole) = &mut self.whole {
            whole.add(offset, data);
        }
    }

    /// Compares the checksum of a received tensor, unless it is a part.
    pub(super) fn check(&self, tensor: &str, data: &[u8]) -> Result<(), LoadError> {
        let sum = self.tensors.as_ref().and_then(|sums| sums.get(tensor));
        let Some(sum) = sum.filter(|sum| sum.bytes == data.len() as u64) else { return Ok(()) };
        compare(&format!("{}: {tensor}", self.name), &hex(&Sha256::digest(data)), &sum.expected)
    }

    /// Compares the checksum of the complete file.
    pub(super) fn finish(self) -> Result<(), LoadError> {
        let Some(whole) = self.whole else { return Ok(()) };
        if whole.done != whole.size {
            // Only a part was loaded: the whole cannot be verified.
            return Ok(());
        }
        compare(&self.name, &hex(&whole.hash.finalize()), &whole.expected)
    }
}

impl Whole {
    /// Hashes data; a copy of data received too early is kept, because its
    /// memory belongs to the tensors.
    fn add(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            // An empty tensor has the offset of the next one.
            return;
        }
        if offset != self.done {
            self.early.insert(offset, data.to_vec());
            return;
        }
        self.take(data);
        while let Some(next) = self.early.remove(&self.done) {
            self.take(&next);
        }
    }

    fn take(&mut self, data: &[u8]) {
        self.hash.update(data);
        self.done += data.len() as u64;
    }
}

/// Hash of a file that is read as it is, in order.
#[derive(Debug)]
pub struct StreamHash {
    name: String,
    expected: String,
    hash: Sha256,
}

impl StreamHash {
    /// Creates the hash of a file, of which nothing was read yet; `expected` is in hex.
    #[must_use]
    pub fn new(name: &str, expected: &str) -> Self {
        Self { name: name.to_owned(), expected: expected.to_owned(), hash: Sha256::new() }
    }

    /// Adds the next bytes of the file.
    pub fn add(&mut self, data: &[u8]) {
        self.hash.update(data);
    }

    /// Compares the checksum of the complete file.
    ///
    /// # Errors
    /// [`LoadError::Checksum`] if it is another.
    pub fn finish(self) -> Result<(), LoadError> {
        compare(&self.name, &hex(&self.hash.finalize()), &self.expected)
    }
}

/// Returns the checksums in a file's metadata, by the names of their tensors.
fn tensor_sums(shard: &Shard) -> BTreeMap<String, TensorSum> {
    // It was parsed when the file was opened.
    let Ok((header, _)) = Header::parse(&shard.header) else { return BTreeMap::new() };
    let sums = header.metadata.iter().filter_map(|(key, expected)| {
        let name = key.strip_prefix(TENSOR_KEY)?;
        let (bytes, expected) = (header.tensors.get(name)?.bytes(), expected.clone());
        Some((name.to_owned(), TensorSum { expected, bytes }))
    });
    sums.collect()
}

fn compare(what: &str, found: &str, expected: &str) -> Result<(), LoadError> {
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let (found, expected) = (found.to_owned(), expected.to_owned());
    Err(LoadError::Checksum { what: what.to_owned(), found, expected })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read() {
        let sum = "a".repeat(64);
        let text =
            format!("{sum}  a.safetensors\n{sum} *b c.safetensors\n\n{sum}  ./d\n{sum} *./e\n");
        let sums = parse_sums(&text).unwrap();
        let names: Vec<&str> = sums.keys().map(String::as_str).collect();
        assert_eq!(names, ["a.safetensors", "b c.safetensors", "d", "e"]);
        assert!(parse_sums("abc  x").is_err());
    }

    #[test]
    fn pieces_in_any_order_make_one_hash() {
        let hash = |order: &[usize]| {
            let pieces: [(u64, &[u8]); 3] = [(0, b"0123"), (4, b"456"), (7, b"789")];
            let expected = hex(&Sha256::digest(b"0123456789"));
            let whole =
                Whole { expected, hash: Sha256::new(), done: 0, early: BTreeMap::new(), size: 10 };
            let mut file = FileHash { name: "x".into(), tensors: None, whole: Some(whole) };
            order.iter().for_each(|&i| file.add(pieces[i].0, pieces[i].1));
            file.finish()
        };
        hash(&[0, 1, 2]).unwrap();
        hash(&[2, 0, 1]).unwrap();
    }

    #[test]
    fn a_stream_has_the_checksum_of_its_pieces() {
        let expected = hex(&Sha256::digest(b"0123456789"));
        let hash = |pieces: [&[u8]; 2]| {
            let mut stream = StreamHash::new("x.gguf", &expected);
            pieces.iter().for_each(|piece| stream.add(piece));
            stream.finish()
        };
        hash([b"0123", b"456789"]).unwrap();
        let error = hash([b"0123", b"45678"]).unwrap_err().to_string();
        assert!(error.starts_with("x.gguf: checksum ") && error.contains("damaged"), "{error}");
    }

    #[test]
    fn an_empty_piece_does_not_take_the_place_of_another() {
        let (expected, early) = ("0".repeat(64), BTreeMap::new());
        let whole = Whole { expected, hash: Sha256::new(), done: 0, early, size: 7 };
        let mut file = FileHash { name: "x".into(), tensors: None, whole: Some(whole) };
        file.add(4, b"456");
        file.add(4, b"");
        file.add(0, b"0123");
        assert!(file.finish().is_err(), "the file was not compared");
    }

    #[test]
    fn damage_is_told() {
        let sum = TensorSum { expected: "0".repeat(64), bytes: 1 };
        let sums = BTreeMap::from([("w".to_owned(), sum)]);
        let file = FileHash { name: "x".into(), tensors: Some(sums), whole: None };
        assert!(file.check("w", b"1").unwrap_err().to_string().contains("damaged"));
        file.check("v", b"1").unwrap();
        // Of a part there is no checksum.
        file.check("w", b"").unwrap();
    }
}
