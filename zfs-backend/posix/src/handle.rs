//! Node handles and their format.
//!
//! | tag | then |
//! | --- | --- |
//! | 1 kernel | file system key u64, handle type i32, the kernel's bytes |
//! | 2 in-tree | device u64, inode u64, birth time u64, generation u64 |
//! | 3 signed | file system key u64, SipHash-2-4 u64, handle type i32, the kernel's bytes |
//! | 4 signed in-tree | as 2, then SipHash-2-4 u64 |
//!
//! Numbers are little-endian. A signed handle proves that this store issued it
//! for an object below its root; the gateway keeps the key in its state
//! directory, so that handles stay valid over restarts.

use siphasher::sip::SipHasher24;
use zgate_io::file_handle::KernelHandle;
use zgate_store::handle::MAX_NODE_HANDLE_BYTES;
use zgate_store::{NodeHandle, StoreError, StoreResult};

const TAG_KERNEL: u8 = 1;
const TAG_IN_TREE: u8 = 2;
const TAG_SIGNED: u8 = 3;
const TAG_SIGNED_IN_TREE: u8 = 4;

/// Longest kernel handle that fits into a signed node handle.
pub(crate) const MAX_WRAPPED_BYTES: usize = MAX_NODE_HANDLE_BYTES - (1 + 8 + 8 + TYPE_BYTES);
/// Length of the type in front of the kernel's bytes.
const TYPE_BYTES: usize = 4;
/// Length of the numbers of an in-tree handle.
const NUMBERS_BYTES: usize = 4 * 8;
/// Signed after these numbers: the whole is longer than what is signed of any kernel
/// handle, so that neither signature stands for the other.
const AFTER_NUMBERS: [u8; 16] = [0; 16];

const _: () = assert!(NUMBERS_BYTES + AFTER_NUMBERS.len() > 8 + TYPE_BYTES + MAX_WRAPPED_BYTES);

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

/// A handle that this store may have issued: with a signature, it has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verified<'a> {
    /// A kernel handle.
    Kernel {
        /// Key of the file system.
        key: u64,
        /// Type and bytes of the kernel's handle, as they stand in the node handle.
        named: &'a [u8],
        /// Set if it has a signature.
        proven: bool,
    },
    /// An in-tree handle.
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
        let (key, handle_type) = (key.to_le_bytes(), handle.handle_type.to_le_bytes());
        let bytes = handle.as_bytes();
        let Some(secret) = self.secret else {
            return NodeHandle::of_parts(&[&[TAG_KERNEL], &key, &handle_type, bytes]);
        };
        let signed = signature(secret, &[&key, &handle_type, bytes])?.to_le_bytes();
        NodeHandle::of_parts(&[&[TAG_SIGNED], &key, &signed, &handle_type, bytes])
    }

    /// Makes an in-tree handle.
    pub(crate) fn in_tree(&self, object: InTreeHandle) -> StoreResult<NodeHandle> {
        let numbers = [object.device, object.inode, object.birth, self.generation];
        let numbers = numbers.map(u64::to_le_bytes);
        let numbers = numbers.as_flattened();
        let made = match self.secret {
            None => NodeHandle::of_parts(&[&[TAG_IN_TREE], numbers]),
            Some(secret) => signature(secret, &[numbers, &AFTER_NUMBERS]).and_then(|signed| {
                NodeHandle::of_parts(&[&[TAG_SIGNED_IN_TREE], numbers, &signed.to_le_bytes()])
            }),
        };
        made.ok_or(StoreError::Io)
    }

    /// Decodes a handle.
    pub(crate) fn parse(&self, node: &NodeHandle) -> StoreResult<Parsed> {
        Ok(match self.verify(node)? {
            Verified::Kernel { key, named, proven } => {
                Parsed::Kernel { key, handle: kernel_handle(named)?, proven }
            }
            Verified::InTree(object) => Parsed::InTree(object),
        })
    }

    /// Checks a handle. Each operation of a client does so: nothing is allocated.
    pub(crate) fn verify<'a>(&self, node: &'a NodeHandle) -> StoreResult<Verified<'a>> {
        let mut reader = Reader(node.as_bytes());
        match (reader.tag()?, self.secret) {
            (TAG_KERNEL, None) => {
                let key = reader.number()?;
                Ok(Verified::Kernel { key, named: reader.kernel_handle()?, proven: false })
            }
            (TAG_SIGNED, Some(secret)) => {
                let (key, signed) = (reader.number()?, reader.number()?);
                let named = reader.kernel_handle()?;
                if signature(secret, &[&key.to_le_bytes(), named]) != Some(signed) {
                    return Err(StoreError::BadHandle);
                }
                Ok(Verified::Kernel { key, named, proven: true })
            }
            (TAG_IN_TREE, None) | (TAG_SIGNED_IN_TREE, Some(_)) => {
                self.verify_in_tree(reader).map(Verified::InTree)
            }
            // The handle was issued under another setting.
            (TAG_KERNEL | TAG_IN_TREE | TAG_SIGNED | TAG_SIGNED_IN_TREE, _) => {
                Err(StoreError::Stale)
            }
            _ => Err(StoreError::BadHandle),
        }
    }

    fn verify_in_tree(&self, mut reader: Reader<'_>) -> StoreResult<InTreeHandle> {
        let numbers = reader.take::<NUMBERS_BYTES>()?;
        if let Some(secret) = self.secret
            && signature(secret, &[&numbers, &AFTER_NUMBERS]) != Some(reader.number()?)
        {
            return Err(StoreError::BadHandle);
        }
        if !reader.0.is_empty() {
            return Err(StoreError::BadHandle);
        }
        let mut numbers = Reader(&numbers);
        let (device, inode) = (numbers.number()?, numbers.number()?);
        let (birth, generation) = (numbers.number()?, numbers.number()?);
        if generation != self.generation {
            return Err(StoreError::Stale);
        }
        Ok(InTreeHandle { device, inode, birth })
    }
}

/// Signs the parts; `None` if they are longer than a node handle may be.
fn signature(secret: SipHasher24, parts: &[&[u8]]) -> Option<u64> {
    NodeHandle::of_parts(parts).map(|message| secret.hash(message.as_bytes()))
}

fn kernel_handle(named: &[u8]) -> StoreResult<KernelHandle> {
    let (handle_type, bytes) =
        named.split_first_chunk::<TYPE_BYTES>().ok_or(StoreError::BadHandle)?;
    let handle_type = i32::from_le_bytes(*handle_type);
    KernelHandle::from_parts(handle_type, bytes).ok_or(StoreError::BadHandle)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
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

    /// Returns the rest: type and bytes of a kernel handle.
    fn kernel_handle(&self) -> StoreResult<&'a [u8]> {
        if self.0.len() > TYPE_BYTES { Ok(self.0) } else { Err(StoreError::BadHandle) }
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
        for raw in [&[9u8][..], &[4, 0], &[3; 12], &[0; 56]] {
            let node = NodeHandle::new(raw).unwrap();
            assert_eq!(codec.parse(&node).unwrap_err(), StoreError::BadHandle);
        }
    }

    #[test]
    fn in_tree_handles_are_signed_too() {
        let codec = HandleCodec::new(Some([7; 16]), 9);
        let object = InTreeHandle { device: 1, inode: 2, birth: 3 };
        let node = codec.in_tree(object).unwrap();
        let mut forged = Vec::new();
        for at in 1..node.as_bytes().len() {
            let mut raw = node.as_bytes().to_vec();
            raw[at] ^= 1;
            forged.push(NodeHandle::new(&raw).unwrap());
        }
        forged.push(NodeHandle::new(&[node.as_bytes(), &[0]].concat()).unwrap());
        forged.push(HandleCodec::new(Some([8; 16]), 9).in_tree(object).unwrap());
        for forged in forged {
            assert_eq!(codec.parse(&forged).unwrap_err(), StoreError::BadHandle, "{forged:?}");
        }
        let before_a_restart = HandleCodec::new(Some([7; 16]), 8).in_tree(object).unwrap();
        assert_eq!(codec.parse(&before_a_restart).unwrap_err(), StoreError::Stale);
    }

    /// The numbers of an in-tree handle may be those of a kernel handle.
    #[test]
    fn the_signature_of_a_kernel_handle_signs_no_in_tree_handle() {
        let codec = HandleCodec::new(Some([7; 16]), u64::from_le_bytes([5; 8]));
        let kernel = KernelHandle::from_parts(1, &[5; NUMBERS_BYTES - 8 - TYPE_BYTES]).unwrap();
        let node = codec.kernel(42, &kernel).unwrap();
        let (key, rest) = node.as_bytes()[1..].split_at(8);
        let (signed, named) = rest.split_at(8);
        let raw = [&[TAG_SIGNED_IN_TREE][..], key, named, signed].concat();
        let forged = NodeHandle::new(&raw).unwrap();
        assert_eq!(codec.parse(&forged).unwrap_err(), StoreError::BadHandle);
    }
}
