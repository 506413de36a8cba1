//! XFS whose making was cut off. `mkfs.xfs` writes the superblock before the rest, with a mark that
//! it removes at its end (`sb_inprogress`). `blkid` takes such a disk for one with XFS, and no kernel
//! mounts it. The XFS that the driver makes has a UUID that follows from its disk's identifier: with
//! this UUID and the mark, it is the driver's own, and nobody has written to it.

use super::host::Host;
use crate::limits::COMMAND_SECONDS;
use sha2::{Digest, Sha256};
use std::ops::Range;
use tonic::Status;

/// Beginning of the superblock: its bytes up to the mark, and what they are (`struct xfs_dsb`,
/// fs/xfs/libxfs/xfs_format.h of Linux).
const HEAD_BYTES: &str = "127";
const MAGIC: &[u8] = b"XFSB";
const UUID: Range<usize> = 32..48;
const MARK: usize = 126;

/// Returns the UUID of the XFS that the driver makes on a disk, of version 8 (RFC 9562 §5.8). It
/// stays the same for good.
pub(super) fn uuid_of(naa: &str) -> String {
    let mut bytes = Sha256::digest(format!("zgate xfs {naa}"));
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    text(&bytes[..UUID.len()])
}

fn text(uuid: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// Returns whether the XFS on a disk is one that the driver did not make to its end.
///
/// # Errors
/// FAILED_PRECONDITION if it is somebody else's and unfinished.
pub(super) async fn is_cut_off(host: &dyn Host, device: &str, naa: &str) -> Result<bool, Status> {
    let arguments = ["-A", "n", "-v", "-t", "x1", "-N", HEAD_BYTES, device];
    // The mount tells what keeps the disk from being read.
    let Ok(head) = host.run("od", &arguments, COMMAND_SECONDS).await else { return Ok(false) };
    match unfinished(&head) {
        None => Ok(false),
        Some(uuid) if uuid == uuid_of(naa) => Ok(true),
        Some(uuid) => Err(Status::failed_precondition(format!(
            "the XFS {uuid} on the disk was not made or copied to its end (sb_inprogress), and is \
             not the driver's; if nobody needs it, remove it (`wipefs -a {device}`)"
        ))),
    }
}

/// Returns the UUID of an XFS whose superblock has the mark; `od` has printed its beginning.
fn unfinished(head: &str) -> Option<String> {
    let bytes = head.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let is_marked = bytes.starts_with(MAGIC) && *bytes.get(MARK)? != 0;
    is_marked.then(|| text(&bytes[UUID]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another version of the driver must find what this one has begun.
    #[test]
    fn the_uuid_of_a_disk_is_always_the_same() {
        let uuid = uuid_of("naa.60000000000000001");
        assert_eq!(uuid, "5bb4a3f9-0721-873e-95a3-645c8b2d3696");
        assert_ne!(uuid, uuid_of("naa.60000000000000002"));
    }

    #[test]
    fn only_a_whole_superblock_with_the_mark_is_unfinished() {
        let mut head = [b"XFSB".as_slice(), &[0; 28], &[0xab; 16], &[0; 78], &[1]].concat();
        let said = |head: &[u8]| head.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
        let uuid = "abababab-abab-abab-abab-abababababab";
        assert_eq!(unfinished(&said(&head)).as_deref(), Some(uuid));
        assert_eq!(unfinished(&said(&head[..MARK])), None);
        assert_eq!(unfinished(""), None);
        head[0] = 0;
        assert_eq!(unfinished(&said(&head)), None);
        (head[0], head[MARK]) = (b'X', 0);
        assert_eq!(unfinished(&said(&head)), None);
    }
}
