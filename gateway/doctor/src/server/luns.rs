//! Checks of logical units and their storage.

use crate::Verdict;
use crate::facts::{LunFacts, ServerFacts};
use zgate_control::{Dataset, DatasetKind};

/// Record size above which small writes of a virtual machine are amplified, in
/// bytes.
const LARGE_RECORD_BYTES: u64 = 64 << 10;
/// Block size of a zvol below which blocks cannot be compressed and parity is
/// expensive, in bytes.
const SMALL_BLOCK_BYTES: u64 = 8 << 10;

fn with_dataset(facts: &ServerFacts) -> impl Iterator<Item = (&LunFacts, &Dataset)> {
    facts.luns.iter().filter_map(|lun| {
        let dataset = facts.zfs.dataset(lun.dataset.as_ref()?.as_str())?;
        Some((lun, dataset))
    })
}

/// Checks that the device or file exists.
pub(super) fn store(facts: &ServerFacts) -> Vec<Verdict> {
    let show = facts.luns.iter().map(|lun| match &lun.problem {
        None => Verdict::ok(format!("{}: {}", lun.title(), lun.path.display())),
        Some(problem) => Verdict::error(
            format!("{}: {problem}", lun.title()),
            "the gateway starts without this LUN, and serves it as soon as the path is there; \
             `serve --strict` does not start",
            format!(
                "`zpool import` its pool, `zfs create -V SIZE` the volume, `size = \"…\"` for a \
                 new file, or correct path in {}",
                facts.config_path.display()
            ),
        ),
    });
    show.collect()
}

/// Checks that acknowledged writes are stable.
pub(super) fn sync(facts: &ServerFacts) -> Vec<Verdict> {
    let show = with_dataset(facts).map(|(lun, dataset)| {
        if !dataset.loses_sync_writes() {
            return Verdict::ok(format!(
                "{}: {} keeps acknowledged writes",
                lun.title(),
                dataset.name
            ));
        }
        Verdict::error(
            format!("{}: {} has sync=disabled", lun.title(), dataset.name),
            "the file system of the virtual machine relies on flushes: a power failure can \
             destroy it, not only its latest files",
            format!("`zfs set sync=standard {0}` (or `zfs inherit sync {0}`)", dataset.name),
        )
    });
    show.collect()
}

/// Checks that the block size suits a virtual machine.
pub(super) fn block_size(facts: &ServerFacts) -> Vec<Verdict> {
    let judge = |(lun, dataset): (&LunFacts, &Dataset)| {
        let name = &dataset.name;
        match dataset.kind {
            DatasetKind::Filesystem { recordsize_bytes, .. }
                if recordsize_bytes > LARGE_RECORD_BYTES =>
            {
                Some(Verdict::warning(
                    format!(
                        "{}: a file in {name} with recordsize {} KiB",
                        lun.title(),
                        recordsize_bytes >> 10
                    ),
                    "each small write of the virtual machine reads and writes a whole record",
                    format!("`zfs set recordsize=16K {name}`, then copy the file; or use a zvol"),
                ))
            }
            DatasetKind::Volume { volblocksize_bytes, .. }
                if volblocksize_bytes < SMALL_BLOCK_BYTES =>
            {
                Some(Verdict::warning(
                    format!("{}: {name} has volblocksize {volblocksize_bytes}", lun.title()),
                    "much metadata, no compression, and on raidz much parity for each block",
                    format!(
                        "a new volume, `zfs create -V SIZE -o volblocksize=16K {name}-new`, and \
                         copy: it cannot be changed"
                    ),
                ))
            }
            _ => None,
        }
    };
    with_dataset(facts).filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};
    use zgate_control::properties::SyncMode;

    #[test]
    fn a_volume_without_sync_is_an_error() {
        let mut facts = server();
        assert_eq!(worst(&sync(&facts)).0, Level::Ok);
        facts.zfs.datasets[2].sync = SyncMode::Disabled;
        let (level, fix) = worst(&sync(&facts));
        assert_eq!(level, Level::Error);
        assert!(fix.contains("zfs set sync=standard tank/vol"), "{fix}");
    }

    #[test]
    fn blocks_that_do_not_fit() {
        let mut facts = server();
        assert!(block_size(&facts).is_empty());
        if let DatasetKind::Volume { volblocksize_bytes, .. } = &mut facts.zfs.datasets[2].kind {
            *volblocksize_bytes = 512;
        }
        assert!(worst(&block_size(&facts)).1.contains("volblocksize=16K"));
        facts.luns[0].dataset = Some("tank/data".parse().unwrap());
        assert!(worst(&block_size(&facts)).1.contains("recordsize=16K tank/data"));
        facts.luns[0].problem = Some("/dev/zvol/x: not found".into());
        assert_eq!(worst(&store(&facts)).0, Level::Error);
    }
}
