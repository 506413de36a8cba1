//! The files in `captures/`.
//!
//! ```text
//! sender: Linux 6.12.48, NFS client
//! source: lab scenario nfs/basics
//! kind: nfs4-call
//! holds: 4.2 SEQUENCE PUTFH GETATTR
//!
//! 5b2c30f1 00000000 ...
//! ```

use crate::{Kind, RoundTrip};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Bytes in a line of a file.
const LINE_BYTES: usize = 32;

/// One message that another implementation sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The implementation and its version.
    pub sender: String,
    /// Origin of the capture.
    pub source: String,
    /// Its protocol and direction.
    pub kind: Kind,
    /// The minor version and the operations in it, as in [`Self::contents`].
    pub holds: String,
    /// The message, without record mark.
    pub bytes: Vec<u8>,
}

impl Capture {
    /// Formats the line that lists the contents of a message.
    #[must_use]
    pub fn contents(message: &RoundTrip) -> String {
        let minor = message.minor.map(|minor| format!("4.{minor}"));
        minor
            .iter()
            .map(String::as_str)
            .chain(message.holds.iter().copied())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// The missing or malformed part.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (header, body) = text.split_once("\n\n").ok_or("no empty line behind the header")?;
        let field = |name: &str| {
            let lines = header.lines().filter_map(|line| line.split_once(": "));
            let found = lines.clone().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_owned()).ok_or(format!("no line {name}: in the header"))
        };
        let kind = field("kind")?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
        Ok(Self {
            sender: field("sender")?,
            source: field("source")?,
            kind: kind.ok_or("an unknown kind")?,
            holds: field("holds")?,
            bytes: from_hex(body).ok_or("the body is not hexadecimal")?,
        })
    }

    /// The text of its file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { sender, source, kind, holds, bytes } = self;
        let mut text = format!(
            "sender: {sender}\nsource: {source}\nkind: {}\nholds: {holds}\n\n",
            kind.name()
        );
        for line in bytes.chunks(LINE_BYTES) {
            let words = line.chunks(4).map(|word| {
                word.iter().fold(String::new(), |mut hex, byte| {
                    let _ = write!(hex, "{byte:02x}");
                    hex
                })
            });
            text.push_str(&words.collect::<Vec<_>>().join(" "));
            text.push('\n');
        }
        text
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// All captures of this repository with the paths of their files, sorted.
///
/// # Errors
/// A file that cannot be read or parsed, by name.
pub fn all() -> io::Result<Vec<(PathBuf, Capture)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    paths.sort();
    let read = |path: PathBuf| {
        let capture = Capture::parse(&fs::read_to_string(&path)?);
        match capture {
            Ok(capture) => Ok((path, capture)),
            Err(why) => Err(io::Error::other(format!("{}: {why}", path.display()))),
        }
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let capture = Capture {
            sender: "Linux 6.12, NFS client".into(),
            source: "lab scenario nfs/basics".into(),
            kind: Kind::Nfs4Call,
            holds: "4.2 SEQUENCE".into(),
            bytes: (0..70).collect(),
        };
        let text = capture.to_text();
        assert_eq!(Capture::parse(&text), Ok(capture));
        assert!(Capture::parse(&text.replace("kind: nfs4-call", "kind: nfs5-call")).is_err());
        assert!(Capture::parse(&text.replace("sender", "client")).is_err());
        assert!(Capture::parse(&format!("{text}0")).is_err());
    }
}
