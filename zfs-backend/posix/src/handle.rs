//! Node handles and their format.
//!
//! | tag | then |
//! | --- | --- |
//! | 1 kernel | file system key u64, handle type i32, the kernel's bytes |
//! | 2 in-tree | device u64, inode u64, birth time u64, generation u64 |
//! | 3 signed | file system key u64, SipHash-2-4 u64, handle type i32, the kernel's bytes |
//!
//! Numbers are little-endian. A signed handle proves that this store issued it
//! for an object below its root; the gateway keeps the key in its state
//! directory, so that handles stay valid over restarts.
//!
//! The identity of an object is its handle without what differs between stores:
//! the signature and the generation.

use siphasher::sip::SipHasher24;
use zgate_io::file_handle::KernelHandle;
use zgate_store::handle::MAX_NODE_HANDLE_BYTES;
use zgate_store::{NodeHandle, StoreError, StoreResult};

const TAG_KERNEL: u8 = 1;
const TAG_IN_TREE: u8 = 2;
const TAG_SIGNED: u8 = 3;

/// Longest kernel handle that fits into a signed node handle.
pub(crate) const MAX_WRAPPED_BYTES: usize = MAX_NODE_HANDLE_BYTES - (1 + 8 + 8 + 4);

/// An object identified by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InTreeHandle {
    /// Device number.
    pub(crate) device: u64,
    /// Inode number.
    pub(crate) inode: u64,
    /// Creation time in nanoseconds; distinguishes a reused inode number.
    pub(crate) birth: u64,
}

/// A decoded handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parsed {
    /// A kernel handle, for open_by_handle_at.
    Kernel {
        /// Key of the file system.
        key: u64,
        /// Handle of the kernel.
        handle: KernelHandle,
        /// Set if a signature proves that the object was below the root.
        proven: bool,
    },
    /// An in-tree handle, for the table of remembered names.
    InTree(InTreeHandle),
}

/// Encodes, decodes and verifies handles.
#[derive(Clone, Copy)]
pub(crate) struct HandleCodec {
    secret: Option<SipHasher24>,
    generation: u64,
}

impl HandleCodec {
    /// Creates a codec. `generation` distinguishes in-tree handles of this
    /// process from those of earlier ones.
    pub(crate) fn new(secret: Option<[u8; 16]>, generation: u64) -> Self {
        Self { secret: secret.map(|key| SipHasher24::new_with_key(&key)), generation }
    }

    /// Wraps a kernel handle; `None` if it is too long.
    pub(crate) fn kernel(&self, key: u64, handle: &KernelHandle) -> Option<NodeHandle> {
        let Some(secret) = self.secret else { return unsigned(key, handle) };
        let mut raw = Vec::with_capacity(48);
        raw.push(TAG_SIGNED);
        raw.extend_from_slice(&key.to_le_bytes());
        raw.extend_from_slice(&signature(secret, key, handle).to_le_bytes());
        raw.extend_from_slice(&handle.handle_type.to_le_bytes());
        raw.extend_from_slice(handle.as_bytes());
        NodeHandle::new(&raw)
    }

    /// Makes an in-tree handle.
    pub(crate) fn in_tree(&self, object: InTreeHandle) -> StoreResult<NodeHandle> {
        let mut raw = Vec::with_capacity(33);
        raw.push(TAG_IN_TREE);
        for number in [object.device, object.inode, object.birth, self.generation] {
            raw.extend_from_slice(&number.to_le_bytes());
        }
        NodeHandle::new(&raw).ok_or(StoreError::Io)
    }

    /// Returns the identity of the object of a handle, see
    /// [`zgate_store::FileStore::identity`].
    pub(crate) fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        match self.parse(node).ok()? {
            Parsed::Kernel { key, handle, .. } => unsigned(key, &handle),
            Parsed::InTree(object) => Self { secret: None, generation: 0 }.in_tree(object).ok(),
        }
    }

    /// Decodes a handle.
    pub(crate) fn parse(&self, node: &NodeHandle) -> StoreResult<Parsed> {
        let mut reader = Reader(node.as_bytes());
        match (reader.tag()?, self.secret) {
            (TAG_KERNEL, None) => {
                let key = reader.number()?;
                Ok(Parsed::Kernel { key, handle: reader.kernel_handle()?, proven: false })
            }
            (TAG_SIGNED, Some(secret)) => {
                let (key, signed) = (reader.number()?, reader.number()?);
                let handle = reader.kernel_handle()?;
                if signature(secret, key, &handle) != signed {
                    return Err(StoreError::BadHandle);
                }
                Ok(Parsed::Kernel { key, handle, proven: true })
            }
            (TAG_IN_TREE, _) => {
                let (device, inode) = (reader.number()?, reader.number()?);
                let (birth, generation) = (reader.number()?, reader.number()?);
                match reader.0 {
                    [] if generation == self.generation => {
                        Ok(Parsed::InTree(InTreeHandle { device, inode, birth }))
                    }
                    [] => Err(StoreError::Stale),
                    _ => Err(StoreError::BadHandle),
                }
            }
            // The handle was issued under another setting.
            (TAG_KERNEL | TAG_SIGNED, _) => Err(StoreError::Stale),
            _ => Err(StoreError::BadHandle),
        }
    }
}

fn unsigned(key: u64, handle: &KernelHandle) -> Option<NodeHandle> {
    let mut raw = Vec::with_capacity(48);
    raw.push(TAG_KERNEL);
    raw.extend_from_slice(&key.to_le_bytes());
    raw.extend_from_slice(&handle.handle_type.to_le_bytes());
    raw.extend_from_slice(handle.as_bytes());
    NodeHandle::new(&raw)
}

fn signature(secret: SipHasher24, key: u64, handle: &KernelHandle) -> u64 {
    let mut message = Vec::with_capacity(48);
    message.extend_from_slice(&key.to_le_bytes());
    message.extend_from_slice(&handle.handle_type.to_le_bytes());
    message.extend_from_slice(handle.as_bytes());
    secret.hash(&message)
}

/// Identities of the objects of a store, also while the store is closed.
#[derive(Clone, Copy)]
pub struct Identities(pub(crate) HandleCodec);

impl Identities {
    /// Returns the identity of the object of a handle, see
    /// [`zgate_store::FileStore::identity`].
    #[must_use]
    pub fn of(&self, node: &NodeHandle) -> Option<NodeHandle> {
        self.0.identity(node)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> StoreResult<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(StoreError::BadHandle)?;
        self.0 = rest;
        Ok(*head)
    }

    fn tag(&mut self) -> StoreResult<u8> {
        self.take::<1>().map(|[tag]| tag)
    }

    fn number(&mut self) -> StoreResult<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn kernel_handle(&mut self) -> StoreResult<KernelHandle> {
        let handle_type = i32::from_le_bytes(self.take()?);
        if self.0.is_empty() {
            return Err(StoreError::BadHandle);
        }
        KernelHandle::from_parts(handle_type, self.0).ok_or(StoreError::BadHandle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> KernelHandle {
        KernelHandle::from_parts(1, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap()
    }

    /// Handles outlive the process: the hash is that of the paper (Aumasson and
    /// Bernstein, 2012), whatever implements it.
    #[test]
    fn the_signature_matches_the_published_vectors() {
        let key = SipHasher24::new_with_key(&std::array::from_fn(|n| n as u8));
        let message: [u8; 15] = std::array::from_fn(|n| n as u8);
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn handles_survive_the_round_trip() {
        for secret in [None, Some([7; 16])] {
            let codec = HandleCodec::new(secret, 9);
            let node = codec.kernel(42, &sample()).unwrap();
            let Parsed::Kernel { key, handle, proven } = codec.parse(&node).unwrap() else {
                panic!("a kernel handle")
            };
            assert_eq!((key, handle.handle_type, proven), (42, 1, secret.is_some()));
            assert_eq!(handle.as_bytes(), sample().as_bytes());
            let object = InTreeHandle { device: 1, inode: 2, birth: 3 };
            let node = codec.in_tree(object).unwrap();
            assert!(matches!(codec.parse(&node), Ok(Parsed::InTree(found)) if found == object));
        }
    }

    #[test]
    fn an_object_has_one_identity_in_all_stores() {
        let codecs = [
            HandleCodec::new(Some([7; 16]), 1),
            HandleCodec::new(Some([8; 16]), 2),
            HandleCodec::new(None, 3),
        ];
        let another = KernelHandle::from_parts(1, &[1, 2, 3, 4, 5, 6, 7, 9]).unwrap();
        let objects: [&dyn Fn(&HandleCodec) -> NodeHandle; 5] = [
            &|codec| codec.kernel(42, &sample()).unwrap(),
            &|codec| codec.kernel(43, &sample()).unwrap(),
            &|codec| codec.kernel(42, &another).unwrap(),
            &|codec| codec.in_tree(InTreeHandle { device: 1, inode: 2, birth: 3 }).unwrap(),
            &|codec| codec.in_tree(InTreeHandle { device: 1, inode: 2, birth: 4 }).unwrap(),
        ];
        let mut known = Vec::new();
        for object in objects {
            let [one, other, unsigned] = codecs.map(|codec| codec.identity(&object(&codec)));
            assert!(one.is_some() && one == other && one == unsigned);
            assert!(!known.contains(&one));
            known.push(one);
        }
        // Handles of another store, and unsigned ones, cannot be had from this one.
        for handle in [codecs[1].kernel(42, &sample()), codecs[2].kernel(42, &sample())] {
            assert_eq!(codecs[0].identity(&handle.unwrap()), None);
        }
    }

    #[test]
    fn forged_and_foreign_handles_are_told_apart() {
        let codec = HandleCodec::new(Some([7; 16]), 9);
        let mut raw = codec.kernel(42, &sample()).unwrap().as_bytes().to_vec();
        *raw.last_mut().unwrap() ^= 1;
        let forged = NodeHandle::new(&raw).unwrap();
        assert_eq!(codec.parse(&forged).unwrap_err(), StoreError::BadHandle);
        let earlier = HandleCodec::new(None, 8);
        let object = InTreeHandle { device: 1, inode: 2, birth: 3 };
        let node = earlier.in_tree(object).unwrap();
        assert_eq!(codec.parse(&node).unwrap_err(), StoreError::Stale);
        let unsigned = earlier.kernel(42, &sample()).unwrap();
        assert_eq!(codec.parse(&unsigned).unwrap_err(), StoreError::Stale);
        for raw in [&[9u8][..], &[2, 0], &[3; 12], &[0; 56]] {
            let node = NodeHandle::new(raw).unwrap();
            assert_eq!(codec.parse(&node).unwrap_err(), StoreError::BadHandle);
        }
    }
}
