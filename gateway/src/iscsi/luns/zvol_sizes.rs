//! Sizes of zvols whose devices are not there, as ZFS tells them. A host that finds such a disk
//! before its device comes is to learn its size at once: Linux takes one that it is not told within
//! 100 s for 0, and does not look again by itself.

use crate::iscsi::limits::ZVOL_SIZE_SECONDS;
use std::path::PathBuf;
use std::sync::Arc;
use zgate_block::zvol_geometry;
use zgate_config::LunConfig;
use zgate_control::health::kstat;
use zgate_control::{DatasetName, SystemTool, Tool};
use zgate_store::block_store::BlockGeometry;

/// What tells the sizes of zvols.
pub(crate) struct ZvolSizes {
    tool: Arc<dyn Tool>,
    /// Directory with one of each imported pool.
    pools: PathBuf,
}

impl ZvolSizes {
    /// Asks ZFS of this machine.
    pub(super) fn new() -> Self {
        let tool = SystemTool { limit_seconds: ZVOL_SIZE_SECONDS };
        Self::with(Arc::new(tool), kstat::ROOT.into())
    }

    /// Asks this tool about zvols of the pools that have a directory in `pools`.
    pub(in crate::iscsi) fn with(tool: Arc<dyn Tool>, pools: PathBuf) -> Self {
        Self { tool, pools }
    }

    /// Returns the geometry that the device of a logical unit will have; none if its path is not
    /// that of a zvol, or ZFS does not tell. Blocks until `zfs` has answered; while the pool is
    /// not imported, no program is started.
    pub(super) fn geometry(&self, lun: &LunConfig) -> Option<BlockGeometry> {
        let dataset = DatasetName::of_device(&lun.path)?;
        if !self.pools.join(dataset.pool().as_str()).is_dir() {
            return None;
        }
        let properties = "volsize,volblocksize";
        let arguments = ["get", "-Hp", "-o", "property,value", properties, dataset.as_str()];
        let said = match self.tool.run("zfs", &arguments) {
            Ok(said) => said,
            Err(error) => {
                tracing::debug!(%error, "the size of an absent LUN is not known");
                return None;
            }
        };
        let value = |name: &str| {
            let mut lines = said.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(property, _)| *property == name)?.1.parse::<u64>().ok()
        };
        let block_bytes = u32::try_from(value("volblocksize")?).ok()?;
        zvol_geometry(value("volsize")?, block_bytes, lun.read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::tool::Recorded;

    const ASKED: &str = "zfs get -Hp -o property,value volsize,volblocksize tank/vm/a";

    /// Returns the size of the LUN at this path, in a machine with the pool `tank`.
    fn size(path: &str, tool: Recorded) -> (Option<u64>, bool) {
        let pools = tempfile::tempdir().unwrap();
        std::fs::create_dir(pools.path().join("tank")).unwrap();
        let tool = Arc::new(tool);
        let sizes = ZvolSizes::with(Arc::<Recorded>::clone(&tool), pools.path().to_owned());
        let lun: LunConfig = toml::from_str(&format!("number = 0\npath = {path:?}\n")).unwrap();
        let geometry = sizes.geometry(&lun);
        (geometry.map(|geometry| geometry.capacity_bytes), tool.is_done())
    }

    #[test]
    fn the_size_of_a_zvol_of_an_imported_pool_is_asked_for() {
        let told = || Recorded::default().then(ASKED, "volsize\t1073741824\nvolblocksize\t16384\n");
        assert_eq!(size("/dev/zvol/tank/vm/a", told()), (Some(1 << 30), true));
        // Nobody is asked about a pool that is not imported, or what is no zvol.
        for path in ["/dev/zvol/gone/vm/a", "/dev/sdx", "/srv/disk.img"] {
            assert_eq!(size(path, told()), (None, false), "{path}");
        }
    }

    #[test]
    fn what_is_no_size_is_none() {
        let path = "/dev/zvol/tank/vm/a";
        for said in ["volsize\t-\nvolblocksize\t-\n", "volsize\t1073741824\n", "", "garbage\n"] {
            let tool = Recorded::default().then(ASKED, said);
            assert_eq!(size(path, tool), (None, true), "{said:?}");
        }
        let tool = Recorded::default().then_fail(ASKED, 1, "dataset does not exist");
        assert_eq!(size(path, tool), (None, true));
    }
}
