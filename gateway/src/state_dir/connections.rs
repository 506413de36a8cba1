//! The list of TCP connections of the gateway that uses the directory, for the one after it:
//! text, whose meaning is the reader's.

use super::{StateDir, named};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Most bytes that are read of the list: the rest of a damaged one is not read.
const MAX_LIST_BYTES: u64 = 4 << 20;

impl StateDir {
    fn connections_path(&self) -> PathBuf {
        self.path.join("connections")
    }

    /// Returns the stored list; empty if there is none.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn connections(&self) -> io::Result<String> {
        let path = self.connections_path();
        let read = || -> io::Result<String> {
            let mut text = String::new();
            File::open(&path)?.take(MAX_LIST_BYTES).read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(|error| named(&path, "read", &error)),
        }
    }

    /// Stores the list; on stable storage on return.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn put_connections(&self, list: &str) -> io::Result<()> {
        self.replace(&self.connections_path(), list.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_gateway_before_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.connections().unwrap(), "");
        state.put_connections("one\ntwo\n").unwrap();
        drop(state);
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.connections().unwrap(), "one\ntwo\n");
        state.put_connections(&"x".repeat(5 << 20)).unwrap();
        assert_eq!(state.connections().unwrap().len() as u64, MAX_LIST_BYTES);
    }
}
