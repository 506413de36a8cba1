//! Geometry of a block device, from ioctl(2) and sysfs.

use crate::aligned::Alignment;
use crate::backing::{BackingKind, Shape};
use rustix::fs::{AtFlags, Statx, StatxFlags, major, minor};
use rustix::io;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use zgate_io::block_ioctl;
use zgate_store::block_store::BlockGeometry;

/// Smallest and largest block size accepted from the kernel; any other value is
/// replaced by `fallback`.
const MIN_BLOCK_BYTES: u32 = 512;
const MAX_BLOCK_BYTES: u32 = 16 << 20;
/// Preferred transfer size of a device that names none.
const DEFAULT_OPTIMAL_BYTES: u32 = 1 << 20;
/// Major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;
/// Directory of the links that udev makes for zvols.
const ZVOL_LINKS: &str = "/dev/zvol";

/// Returns the block size reported by the kernel if it is plausible, else
/// `fallback`.
pub(crate) fn plausible_block(bytes: u32, fallback: u32) -> u32 {
    if bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes) {
        bytes
    } else {
        fallback
    }
}

/// Largest optimal transfer size accepted. Zvols report an optimum derived from
/// a transaction group, larger than any request. Linux's initiator ignores an
/// optimum of more than 65535 blocks, and file systems then ignore the
/// granularity, too.
const MAX_OPTIMAL_BYTES: u32 = 4 << 20;

/// Returns the preferred transfer size: whole physical blocks, 1 MiB if the
/// device reports nothing plausible.
pub(crate) fn plausible_optimal(bytes: u32, physical_block: u32) -> u32 {
    let named =
        if (1..=MAX_OPTIMAL_BYTES).contains(&bytes) { bytes } else { DEFAULT_OPTIMAL_BYTES };
    named.checked_next_multiple_of(physical_block).unwrap_or(physical_block)
}

/// Returns the alignment that O_DIRECT requires for an open object; `None` if
/// the kernel does not report it, `Some(None)` if it reports that O_DIRECT is
/// impossible.
pub(crate) fn direct_demands(stat: &Statx) -> Option<Option<Alignment>> {
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    Some(Alignment::new(stat.stx_dio_offset_align, stat.stx_dio_mem_align))
}

/// Reads attributes of an open object, with O_DIRECT's alignment where known.
pub(crate) fn stat(fd: &OwnedFd) -> io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)
}

/// Paths of a device in sysfs.
pub(crate) struct Sysfs {
    /// Directory of the device itself.
    pub(crate) folder: PathBuf,
    /// The `queue` directory of the disk that the device is, or is a partition
    /// of.
    queue: PathBuf,
    /// Name of the disk, such as `zd16`.
    disk: String,
    major: u32,
}

impl Sysfs {
    /// Finds the directories of a device number. If sysfs is not mounted,
    /// nothing is found and every query returns `None`.
    pub(crate) fn of(device: u64) -> Self {
        let (major, minor) = (major(device), minor(device));
        let named = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let folder = fs::canonicalize(&named).unwrap_or(named);
        let disk = if folder.join("partition").exists() {
            folder.parent().map_or_else(|| folder.clone(), Path::to_path_buf)
        } else {
            folder.clone()
        };
        let name = disk.file_name().map(|name| name.to_string_lossy().into_owned());
        Self { folder, queue: disk.join("queue"), disk: name.unwrap_or_default(), major }
    }

    fn queue_text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.queue.join(name)).ok().map(|text| text.trim().to_owned())
    }

    fn queue_number(&self, name: &str) -> Option<u64> {
        self.queue_text(name)?.parse().ok()
    }

    /// Returns the path at which udev puts this open device if it is a zvol, or a
    /// partition of one, and `path` lies there; none for other devices and paths.
    ///
    /// # Errors
    /// The zvol's name cannot be read.
    pub(crate) fn zvol_link(&self, fd: &OwnedFd, path: &Path) -> io::Result<Option<PathBuf>> {
        if !path.starts_with(ZVOL_LINKS) || self.kind() != BackingKind::Zvol {
            return Ok(None);
        }
        let partition = fs::read_to_string(self.folder.join("partition")).ok();
        let name = block_ioctl::zvol_name(fd)?;
        Ok(Some(zvol_link(&name, partition.as_deref().map(str::trim))))
    }

    fn kind(&self) -> BackingKind {
        let drivers = fs::read_to_string("/proc/devices").unwrap_or_default();
        if is_zvol_name(&self.disk) || is_zvol_major(&drivers, self.major) {
            BackingKind::Zvol
        } else if self.major == LOOP_MAJOR {
            BackingKind::Loop
        } else {
            BackingKind::Device
        }
    }
}

/// Returns the path at which udev puts a zvol, or a partition of it: `+` stands
/// for a blank.
fn zvol_link(name: &str, partition: Option<&str>) -> PathBuf {
    let partition = partition.map(|number| format!("-part{number}")).unwrap_or_default();
    Path::new(ZVOL_LINKS).join(format!("{name}{partition}").replace(' ', "+"))
}

/// Returns whether a disk is named as OpenZFS names its volumes: `zd` and a
/// number.
fn is_zvol_name(disk: &str) -> bool {
    disk.strip_prefix("zd")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

/// Returns whether /proc/devices lists the major number among block devices as
/// `zvol`.
fn is_zvol_major(drivers: &str, major: u32) -> bool {
    let blocks = drivers.split_once("Block devices:").map_or("", |(_, blocks)| blocks);
    blocks.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next().and_then(|number| number.parse().ok()) == Some(major)
            && words.next() == Some("zvol")
    })
}

/// Reads the geometry of an open device. `direct`: I/O bypasses the page cache.
pub(crate) fn shape(fd: &OwnedFd, sysfs: &Sysfs, direct: bool) -> io::Result<Shape> {
    let kind = sysfs.kind();
    let logical = plausible_block(block_ioctl::logical_block_bytes(fd)?, MIN_BLOCK_BYTES);
    let physical = plausible_block(block_ioctl::physical_block_bytes(fd)?, logical).max(logical);
    let optimal = block_ioctl::optimal_io_bytes(fd).unwrap_or(0);
    let discards = sysfs.queue_number("discard_max_bytes").is_some_and(|bytes| bytes > 0);
    let granularity = sysfs
        .queue_number("discard_granularity")
        .and_then(|bytes| u32::try_from(bytes).ok())
        .map_or(logical, |bytes| plausible_block(bytes, logical));
    // A zvol frees whole volblocks, whatever granularity it reports.
    let granularity =
        if kind == BackingKind::Zvol { granularity.max(physical) } else { granularity };
    let writes_through = sysfs.queue_text("write_cache").as_deref() == Some("write through");
    Ok(Shape {
        kind,
        logical_block_bytes: logical,
        physical_block_bytes: physical,
        optimal_io_bytes: plausible_optimal(optimal, physical),
        discard_granularity_bytes: discards.then_some(granularity),
        write_cache: !(direct && writes_through),
    })
}

/// Returns the geometry of a zvol by its `volsize` and `volblocksize` in bytes, as it is found at
/// the device of OpenZFS; none for sizes that no zvol has. `read_only`: writes are refused.
#[must_use]
pub fn zvol_geometry(
    volsize_bytes: u64,
    volblocksize_bytes: u32,
    read_only: bool,
) -> Option<BlockGeometry> {
    if volsize_bytes == 0 || plausible_block(volblocksize_bytes, 0) == 0 {
        return None;
    }
    Some(BlockGeometry {
        capacity_bytes: volsize_bytes,
        physical_block_bytes: volblocksize_bytes,
        // The optimum of the device is not plausible.
        optimal_io_bytes: plausible_optimal(0, volblocksize_bytes),
        discard_granularity_bytes: Some(volblocksize_bytes),
        discard_zeroes: BackingKind::Zvol.discard_zeroes(),
        write_cache: true,
        read_only,
    })
}

/// Reads the alignment that the device requires for O_DIRECT.
pub(crate) fn alignment(fd: &OwnedFd, sysfs: &Sysfs) -> io::Result<Option<Alignment>> {
    let logical = plausible_block(block_ioctl::logical_block_bytes(fd)?, MIN_BLOCK_BYTES);
    if let Some(demands) = direct_demands(&stat(fd)?) {
        return Ok(demands);
    }
    // The queue's value is a mask: 511 means multiples of 512.
    let memory = sysfs
        .queue_number("dma_alignment")
        .and_then(|mask| u32::try_from(mask).ok()?.checked_add(1))
        .unwrap_or(logical);
    Ok(Alignment::new(logical, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zvols_are_known_by_name_or_by_major_number() {
        assert!(is_zvol_name("zd0") && is_zvol_name("zd1040"));
        for other in ["zd", "zda", "zd0p1", "sda", "zram0", ""] {
            assert!(!is_zvol_name(other), "{other}");
        }
        let drivers =
            "Character devices:\n230 zvol\n\nBlock devices:\n  7 loop\n230 zvol\n259 blkext\n";
        assert!(is_zvol_major(drivers, 230));
        assert!(!is_zvol_major(drivers, 7));
        assert!(!is_zvol_major("Character devices:\n230 zvol\n", 230));
    }

    #[test]
    fn a_zvol_has_one_link() {
        let link = |name, partition| zvol_link(name, partition).display().to_string();
        assert_eq!(link("lab/vm/a-old", None), "/dev/zvol/lab/vm/a-old");
        assert_eq!(link("my lab/a b", None), "/dev/zvol/my+lab/a+b");
        assert_eq!(link("lab/vm", Some("2")), "/dev/zvol/lab/vm-part2");
    }

    #[test]
    fn a_zvol_has_the_shape_of_its_properties() {
        let geometry = zvol_geometry(5 << 40, 16 << 10, true).unwrap();
        assert_eq!((geometry.capacity_bytes, geometry.physical_block_bytes), (5 << 40, 16 << 10));
        assert_eq!(geometry.optimal_io_bytes, 1 << 20);
        assert_eq!(geometry.discard_granularity_bytes, Some(16 << 10));
        assert!(geometry.discard_zeroes && geometry.write_cache && geometry.read_only);
        // The largest volblocksize has the largest optimum.
        assert_eq!(zvol_geometry(1 << 30, 16 << 20, false).unwrap().optimal_io_bytes, 16 << 20);
        for (size, block) in [(0, 16 << 10), (1 << 30, 0), (1 << 30, 1000), (1 << 30, 32 << 20)] {
            assert_eq!(zvol_geometry(size, block, false), None, "{size} {block}");
        }
    }

    #[test]
    fn nonsense_sizes_are_replaced() {
        assert_eq!(plausible_block(16384, 512), 16384);
        assert_eq!(plausible_block(0, 512), 512);
        assert_eq!(plausible_block(1000, 4096), 4096);
        assert_eq!(plausible_optimal(0, 16384), 1 << 20);
        assert_eq!(plausible_optimal(u32::MAX, 512), 1 << 20);
        assert_eq!(plausible_optimal(100_000, 65536), 131_072);
    }
}
