//! FSINFO (RFC 1813 §3.3.19).

use super::Rule;
use crate::limits::{MAX_READDIR_BYTES, MAX_TRANSFER_BYTES};
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::FsInfo;
use zgate_nfs_wire::v3::proc::fsinfo::{Info, PROPERTIES};
use zgate_nfs_wire::v3::{Attributes, Fh3, NfsTime, Status};

/// Least suggested multiple of transfer sizes, in bytes: one page.
const LEAST_MULTIPLE_BYTES: u32 = 4096;

/// Suggested size of a directory reply, in bytes.
const DIRECTORY_BYTES: u32 = 64 << 10;

const _: () = assert!(DIRECTORY_BYTES <= MAX_READDIR_BYTES);

impl Rule for FsInfo {
    async fn run(cx: &Cx<'_>, fh: Fh3, _: &mut Option<Attributes>) -> Result<Info, Status> {
        let object = cx.enter(&fh)?;
        let attr = object.store().getattr(&object.node).await?;
        let transfer = object.export.max_transfer_bytes.min(MAX_TRANSFER_BYTES as u32);
        let space = object.store().statfs(&object.node).await?;
        let multiple = multiple(space.preferred_io_bytes, transfer);
        Ok(Info {
            attributes: Some(object.attributes_of(&attr)),
            read_max: transfer,
            read_preferred: transfer,
            read_multiple: multiple,
            write_max: transfer,
            write_preferred: transfer,
            write_multiple: multiple,
            readdir_preferred: DIRECTORY_BYTES,
            max_file_bytes: space.traits.max_file_bytes,
            time_delta: NfsTime { seconds: 0, nanoseconds: 1 },
            properties: PROPERTIES,
        })
    }
}

/// Whole records, if the file system has them: a smaller write must first read
/// the rest of the record.
fn multiple(preferred_io_bytes: u64, transfer_bytes: u32) -> u32 {
    let most = transfer_bytes.max(LEAST_MULTIPLE_BYTES);
    match u32::try_from(preferred_io_bytes) {
        Ok(bytes) if bytes.is_power_of_two() => bytes.clamp(LEAST_MULTIPLE_BYTES, most),
        _ => LEAST_MULTIPLE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn transfers_are_those_of_the_export() {
        let rig = Rig::with(|export| export.max_transfer_bytes = 1 << 20);
        let info = rig.call::<FsInfo>(&rig.root()).unwrap();
        assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
        assert!(info.max_file_bytes > 1 << 32);
    }

    #[test]
    fn multiples_are_records_within_a_transfer() {
        for (preferred, expected) in
            [(0, 4096), (512, 4096), (131_072, 131_072), (16 << 20, 1 << 20), (99_999, 4096)]
        {
            assert_eq!(multiple(preferred, 1 << 20), expected, "{preferred}");
        }
    }
}
