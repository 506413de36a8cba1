//! Opaque, comparable names of objects inside one store.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Longest node handle a store may issue, in bytes. An NFSv3 handle holds 64
/// bytes (RFC 1813 §2.4) and the server adds its own prefix of at most 8.
pub const MAX_NODE_HANDLE_BYTES: usize = 56;

/// A store's own name for one file, directory or other object. Stable across
/// renames, and across restarts if
/// [`crate::file_store::StoreTraits::persistent_handles`] is set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeHandle {
    len: u8,
    bytes: [u8; MAX_NODE_HANDLE_BYTES],
}

impl NodeHandle {
    /// Wraps raw bytes; `None` when they are empty or longer than
    /// [`MAX_NODE_HANDLE_BYTES`].
    #[must_use]
    pub fn new(raw: &[u8]) -> Option<Self> {
        Self::of_parts(&[raw])
    }

    /// Puts parts one behind the other; `None` when they are empty or, together, longer than
    /// [`MAX_NODE_HANDLE_BYTES`].
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Option<Self> {
        let (mut bytes, mut len) = ([0; MAX_NODE_HANDLE_BYTES], 0);
        for part in parts {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        (len > 0).then_some(Self { len: len as u8, bytes })
    }

    /// Returns the raw bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Hash for NodeHandle {
    /// Hashes the bytes in use, not the room for the longest handle.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeHandle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_enforced() {
        assert!(NodeHandle::new(&[]).is_none());
        assert!(NodeHandle::new(&[0; MAX_NODE_HANDLE_BYTES + 1]).is_none());
        assert_eq!(NodeHandle::new(&[1, 2]).unwrap().as_bytes(), &[1, 2]);
    }

    #[test]
    fn parts_make_the_handle_of_all_their_bytes() {
        let raw = [7; MAX_NODE_HANDLE_BYTES];
        for at in [0, 1, 20, MAX_NODE_HANDLE_BYTES] {
            let (head, tail) = raw.split_at(at);
            assert_eq!(NodeHandle::of_parts(&[head, tail]), NodeHandle::new(&raw));
            assert_eq!(NodeHandle::of_parts(&[head, tail, &[1]]), None);
        }
        assert_eq!(NodeHandle::of_parts(&[&[], &[]]), None);
        assert_eq!(NodeHandle::of_parts(&[]), None);
    }
}
