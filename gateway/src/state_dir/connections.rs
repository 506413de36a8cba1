//! The list of TCP connections of the gateway that uses the directory, for the one after it:
//! text, whose meaning is the reader's.

use super::{StateDir, read_text};
use std::io;
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
        Ok(read_text(&self.connections_path(), MAX_LIST_BYTES)?.unwrap_or_default())
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
