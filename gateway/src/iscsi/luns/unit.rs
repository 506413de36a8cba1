//! One logical unit: a volume, its disk, its statistics.

use super::geometry::{GeometryRecord, last_geometry, recorded};
use super::late_flush::LateFlush;
use super::reservations::DirReservations;
use super::state_files::StateFiles;
use super::watch::watch;
use super::zvol_sizes::ZvolSizes;
use super::zvol_spaces::ZvolSpaces;
use crate::exports::absent::Fault;
use crate::exports::stores::in_time;
use crate::iscsi::limits::{BACKGROUND_BYTES_PER_SECOND, BACKGROUND_SECONDS};
use crate::iscsi::port_groups::PortGroups;
use crate::iscsi::settings::{IscsiSettings, identity};
use crate::iscsi::stats::UnitStats;
use crate::net::accept::is_local;
use crate::qos::limited_disk;
use crate::state_dir::{StateDir, random_bytes};
use crate::state_writer::StateWriter;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use zgate_block::{
    BackingKind, BlockOptions, BlockVolume, DirectIo, OpenError, ResizeError, Shrink,
};
use zgate_config::{DirectChoice, LunConfig, NaaId};
use zgate_io::IoEngine;
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{AbsentUnit, Disk, DiskConfig, Naa, Pacer};
use zgate_store::block_store::BlockGeometry;
use zgate_store::{BlockStore, BufferPool};

/// Reason for which a disk is never made smaller.
const NO_SHRINKING: &str = "a smaller disk would lose data";

/// Next step for a LUN whose file has not got the size of the configuration.
pub(in crate::iscsi) const RESIZE_IT: &str = "change it by `zgate lun resize`";

/// Next step where the file that stands for a disk in standby cannot be made.
const STAND_IN_STEP: &str = "put state_dir on a file system that has files of this size, such as \
    XFS or ZFS: ext4 has them up to 16 TiB";

/// Parts of the gateway that a unit needs.
#[derive(Clone)]
pub(crate) struct UnitHome {
    pub engine: IoEngine,
    pub pool: BufferPool,
    pub state_files: Arc<StateFiles>,
    /// Writer of persistent reservations.
    writer: Arc<StateWriter>,
    /// Writer of geometries: hosts that reserve do not wait until those of all units are
    /// written.
    geometry_writer: Arc<StateWriter>,
    pub groups: Arc<PortGroups>,
    pub thin_warning_percent: u8,
    zvol_spaces: Arc<ZvolSpaces>,
    /// Sizes of zvols that are absent.
    pub(in crate::iscsi) zvol_sizes: Arc<ZvolSizes>,
    pub token_secret: [u8; 16],
}

/// A logical unit that is served.
pub(crate) struct Unit {
    pub target: IscsiName,
    pub config: LunConfig,
    pub serial: String,
    pub naa: NaaId,
    pub volume: Arc<BlockVolume>,
    pub disk: Arc<Disk>,
    pub stats: UnitStats,
    /// Flush of the volume that has not ended in time.
    pub late_flush: Arc<LateFlush>,
    pub thin_warning_percent: u8,
    /// Space behind the zvols of all units.
    pub(super) zvol_spaces: Arc<ZvolSpaces>,
    /// Record of what initiators are told while its storage is absent after a restart.
    geometry: GeometryRecord,
    closed: watch::Sender<bool>,
}

impl UnitHome {
    /// Creates the parts that need no session.
    pub(crate) fn new(
        engine: IoEngine,
        pool: BufferPool,
        state_files: Arc<StateFiles>,
        settings: &IscsiSettings,
    ) -> io::Result<Self> {
        Ok(Self {
            engine,
            pool,
            state_files,
            writer: Arc::new(StateWriter::start("zgate-state")?),
            geometry_writer: Arc::new(StateWriter::start("zgate-sizes")?),
            groups: Arc::new(PortGroups::new(settings, is_local)),
            thin_warning_percent: settings.thin_warning_percent,
            zvol_spaces: Arc::new(ZvolSpaces::new()),
            zvol_sizes: Arc::new(ZvolSizes::new()),
            token_secret: random_bytes()?,
        })
    }

    /// Opens a unit, over its earlier volume if that still fits. Blocks: call
    /// it outside the cores.
    ///
    /// # Errors
    /// Target, LUN and the fault.
    pub(crate) fn open(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        before: Option<&Unit>,
    ) -> io::Result<Arc<Unit>> {
        let volume = match before.filter(|unit| unit.is_of(lun)) {
            Some(_) => None,
            None => {
                let opened = in_time(self.volume_work(target, lun));
                let opened = opened.map_err(|error| Fault::wrong(error.to_string()));
                Some(opened.flatten().map_err(|fault| named(target, lun, &fault.to_string()))?)
            }
        };
        self.open_over(target, lun, before, volume)
    }

    /// Opens a unit over a volume; without one, over the earlier unit's.
    ///
    /// # Errors
    /// Target, LUN and the fault: `InvalidInput` if it is the configuration's, else one of
    /// files in the state directory.
    pub(crate) fn open_over(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        before: Option<&Unit>,
        volume: Option<BlockVolume>,
    ) -> io::Result<Arc<Unit>> {
        let named = |error: String| named(target, lun, &error);
        let (serial, naa) = identity(target, lun);
        let before = before.filter(|unit| unit.is_of(lun));
        let volume = match (volume, before) {
            (Some(volume), _) => {
                warn_of_smaller_file(target, lun, &volume);
                Arc::new(volume)
            }
            (None, Some(unit)) if unit.has_volume_of(lun) => Arc::clone(&unit.volume),
            (None, _) => {
                let reason = "read_only and direct change when it is removed and added again";
                return Err(named(reason.to_owned()));
            }
        };
        if self.notes_file_of(&volume) {
            self.state_files.note_file(&naa.to_string(), &lun.path)?;
        }
        let config = self.disk_config(target, lun, &serial, naa);
        let reservations = Arc::new(DirReservations::new(
            Arc::clone(&self.state_files),
            Arc::clone(&self.writer),
            naa.to_string(),
        ));
        let store: Arc<dyn BlockStore> = Arc::<BlockVolume>::clone(&volume);
        #[cfg(test)]
        let store = crate::iscsi::tests::gate::around(&lun.path, store);
        let store = limited_disk(store, lun.rates());
        let opened = match before {
            // Sessions and commands of the earlier unit go on over the same volume.
            Some(unit) => unit.disk.reopen(config, store, reservations),
            None => {
                let runtime = tokio::runtime::Builder::new_current_thread().build()?;
                runtime.block_on(Disk::open(config, store, reservations))
            }
        };
        let disk = opened.map_err(|error| match error {
            zgate_scsi::OpenError::Config(error) => named(error.to_string()),
            error => self.unusable_reservations(target, lun, naa, &error),
        })?;
        Ok(Arc::new(Unit {
            target: target.clone(),
            config: lun.clone(),
            serial,
            naa,
            volume,
            disk: Arc::new(disk),
            stats: UnitStats::default(),
            late_flush: before.map(|unit| Arc::clone(&unit.late_flush)).unwrap_or_default(),
            thin_warning_percent: self.thin_warning_percent,
            zvol_spaces: Arc::clone(&self.zvol_spaces),
            geometry: GeometryRecord::new(
                Arc::clone(&self.state_files.dir),
                Arc::clone(&self.geometry_writer),
                naa,
            ),
            closed: watch::Sender::new(false),
        }))
    }

    /// Returns whether the file of a volume is noted: that of a disk in standby holds nothing.
    fn notes_file_of(&self, volume: &BlockVolume) -> bool {
        volume.kind() == BackingKind::File && !self.groups.standby
    }

    /// Notes the file of a unit that is in effect as the one that it is served from.
    pub(in crate::iscsi) fn settle_file(&self, unit: &Unit) {
        if !self.notes_file_of(&unit.volume) {
            return;
        }
        let settled = self.state_files.settle_file(&unit.naa.to_string(), &unit.config.path);
        if let Err(error) = settled {
            tracing::warn!(%error, "the note of a LUN's file still has the one before");
        }
    }

    /// Names the file in the error of a unit whose reservations cannot be used: the
    /// configuration is not at fault.
    fn unusable_reservations(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        naa: NaaId,
        error: &zgate_scsi::OpenError,
    ) -> io::Error {
        let path = self.state_files.dir.reservations_path(&naa.to_string());
        let reason = format!("target {target} lun {}: {}: {error}", lun.number, path.display());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    /// Returns the work that opens a unit's device or file. It blocks.
    pub(super) fn volume_work(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
    ) -> impl FnOnce() -> Result<BlockVolume, Fault> + Send + 'static {
        let (mut lun, (_, naa)) = (lun.clone(), identity(target, lun));
        let standby = self.groups.standby;
        if standby {
            lun.path = self.state_files.dir.standby_file(&naa.to_string());
            // It has to be made; the disk's configuration tells hosts what they may do.
            lun.read_only = false;
        }
        let (state_dir, engine) = (Arc::clone(&self.state_files.dir), self.engine.clone());
        let options = BlockOptions {
            read_only: lun.read_only,
            direct: direct_io(lun.direct),
            create_bytes: lun.size.map(|size| size.0),
            ..BlockOptions::new(self.pool.clone())
        };
        move || {
            #[cfg(test)]
            crate::iscsi::tests::gate::wait_open(&lun.path);
            if standby {
                remove_stand_in(&lun)?;
            } else {
                check_file(&state_dir, &lun, naa)?;
            }
            BlockVolume::open(&lun.path, options, engine).map_err(|error| match error {
                OpenError::Unexaminable { .. } | OpenError::TooLarge { .. } if standby => {
                    Fault::absent(error.to_string(), STAND_IN_STEP)
                }
                error => fault(&error),
            })
        }
    }

    /// Returns the same for a unit that is absent. If it still is, and is a zvol, ZFS is asked for
    /// its size: it may have been made, grown or made anew since it was served.
    pub(super) fn retry_work(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        naa: NaaId,
    ) -> impl FnOnce() -> Result<BlockVolume, Fault> + Send + 'static {
        let open = self.volume_work(target, lun);
        let (lun, zvol_sizes) = (lun.clone(), Arc::clone(&self.zvol_sizes));
        let served_here = !self.groups.standby;
        move || {
            let opened = open();
            if served_here && opened.is_err() {
                zvol_sizes.ask(&lun, naa);
            }
            opened
        }
    }

    /// Returns what is known of a unit whose storage is absent: by its record in the state
    /// directory, unless ZFS has told another size since. Of a disk in standby the configuration
    /// says all.
    pub(super) fn absent_unit(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        told: Option<BlockGeometry>,
    ) -> AbsentUnit {
        let (serial, naa) = identity(target, lun);
        let config = self.disk_config(target, lun, &serial, naa);
        let served_here = !self.groups.standby;
        let last = served_here.then(|| last_geometry(&self.state_files, naa)).flatten();
        // The record knows more than the sizes.
        let sizes = |of: &BlockGeometry| (of.capacity_bytes, of.physical_block_bytes);
        let is_as_told = |last: &BlockGeometry| told.is_none_or(|told| sizes(&told) == sizes(last));
        AbsentUnit::new(config, last.filter(is_as_told).or(told))
    }

    /// Returns the same of a unit whose record can be used; nothing of another one.
    pub(super) fn recorded_unit(&self, target: &IscsiName, lun: &LunConfig) -> Option<AbsentUnit> {
        if self.groups.standby {
            return None;
        }
        let (serial, naa) = identity(target, lun);
        let geometry = recorded(&self.state_files, naa)?;
        let unit = AbsentUnit::new(self.disk_config(target, lun, &serial, naa), Some(geometry));
        unit.told_bytes().is_some().then_some(unit)
    }

    /// Waits until all geometries that were to be written are written.
    #[cfg(test)]
    pub(in crate::iscsi) async fn all_written(&self) -> io::Result<()> {
        self.geometry_writer.run(|| ()).await
    }

    /// Returns the configuration of a unit's disk.
    fn disk_config(
        &self,
        target: &IscsiName,
        lun: &LunConfig,
        serial: &str,
        naa: NaaId,
    ) -> DiskConfig {
        DiskConfig {
            vendor: "ZGATE".to_owned(),
            product: "ZGATE DISK".to_owned(),
            revision: "0001".to_owned(),
            serial: serial.to_owned(),
            naa: match naa {
                NaaId::Short(bytes) => Naa::Short(bytes),
                NaaId::Long(bytes) => Naa::Long(bytes),
            },
            logical_block_bytes: lun.block_bytes,
            physical_block_bytes: lun.physical_block_bytes,
            read_only: lun.read_only,
            removable: lun.removable,
            // After a takeover a host would sync, and be told that it succeeded, although
            // the first machine took written data with it.
            write_cache: lun.write_cache.or(self.groups.is_asymmetric().then_some(false)),
            thin: lun.thin,
            sanitize: true,
            // Which machine serves is not for initiators to say.
            explicit_alua: !self.groups.is_asymmetric(),
            state_elsewhere: self.groups.standby,
            token_secret: self.token_secret,
            port_groups: self.groups.of(target),
        }
    }
}

/// Names the unit in an error.
pub(super) fn named(target: &IscsiName, lun: &LunConfig, error: &str) -> io::Error {
    let reason = format!("target {target} lun {}: {error}", lun.number);
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Warns of a file that is smaller than the configuration says: only an empty file gets its
/// size when it is opened, and a reload that was to give it one may have been cut off.
fn warn_of_smaller_file(target: &IscsiName, lun: &LunConfig, volume: &BlockVolume) {
    let Some(wanted) = lun.size.map(|size| size.0).filter(|_| !lun.read_only) else { return };
    let found = volume.geometry().capacity_bytes;
    if volume.kind() == BackingKind::File && found < wanted {
        tracing::warn!(
            target_name = %target, lun = lun.number, path = %lun.path.display(),
            size_bytes = found, configured_bytes = wanted,
            "the file of a LUN is smaller than its `size`, and keeps what it has: {RESIZE_IT}"
        );
    }
}

/// Refuses to create a new, empty file in place of one that was served before:
/// its file system may not be mounted, and initiators would find their data gone.
fn check_file(state_dir: &StateDir, lun: &LunConfig, naa: NaaId) -> Result<(), Fault> {
    let creates = lun.size.is_some() && !lun.read_only;
    let empty = std::fs::metadata(&lun.path).map_or(true, |found| found.len() == 0);
    if !creates || !empty {
        return Ok(());
    }
    let name = naa.to_string();
    let what = match state_dir.knows_file(&name, &lun.path) {
        Ok(false) => return Ok(()),
        Ok(true) => "was served before and is gone or empty".to_owned(),
        Err(error) => format!("is gone or empty, and may have been served before: {error}"),
    };
    let note = state_dir.file_note(&name);
    Err(Fault::absent(
        format!("{} {what}", lun.path.display()),
        format!("mount its file system; to start with an empty disk, remove {}", note.display()),
    ))
}

/// Removes the file that stands for a disk in standby: it holds nothing, and the next
/// one gets the size that the configuration has by now.
fn remove_stand_in(lun: &LunConfig) -> Result<(), Fault> {
    if lun.size.is_none() {
        return Ok(());
    }
    match std::fs::remove_file(&lun.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::absent(
            format!("cannot remove {}: {error}", lun.path.display()),
            "remove it, or check the file system of state_dir",
        )),
        _ => Ok(()),
    }
}

/// Returns the use of the page cache that a configuration chooses.
pub(super) fn direct_io(choice: DirectChoice) -> DirectIo {
    match choice {
        DirectChoice::Auto => DirectIo::Auto,
        DirectChoice::Always => DirectIo::Always,
        DirectChoice::Never => DirectIo::Never,
    }
}

/// Returns whether a volume is absent, or can never be served as configured.
pub(super) fn fault(error: &OpenError) -> Fault {
    let next_step = match error {
        OpenError::Unreachable { .. } | OpenError::NoSuchDevice(_) => {
            "import its pool, create the volume or file, or correct the path"
        }
        OpenError::OtherZvol { .. } => {
            "run `udevadm trigger --action=change --subsystem-match=block`, so that udev renews the \
             links"
        }
        OpenError::InUse { .. } => "end the other use of it",
        // A file system after an error, a zvol that is a copy: it may be writable again.
        OpenError::NotWritable { .. } => "or make it writable",
        OpenError::Unexaminable { .. } => "check its pool or device",
        OpenError::TooLarge { .. } => "lower size, or put it on a file system with larger files",
        _ => return Fault::wrong(error.to_string()),
    };
    Fault::absent(error.to_string(), next_step)
}

impl Unit {
    /// Returns whether a LUN is on the same device or file. A renamed zvol is the
    /// same volume; its device is in use.
    pub(super) fn is_of(&self, lun: &LunConfig) -> bool {
        self.config.path == lun.path || (lun.naa.is_some() && self.config.naa == lun.naa)
    }

    /// Returns whether its volume was opened with these options.
    fn has_volume_of(&self, lun: &LunConfig) -> bool {
        let as_opened = |config: &LunConfig| (config.read_only, config.direct);
        as_opened(&self.config) == as_opened(lun)
    }

    /// Notes what the unit is, which is in service now; runs the disk's background work and
    /// watches its device or file until the unit is closed.
    pub(crate) async fn run_background(self: Arc<Self>) {
        self.keep_geometry();
        let mut closed = self.closed.subscribe();
        let pace = Paced(&self);
        let watched = async {
            match self.is_watched() {
                true => watch(&self).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.disk.run_background(&pace) => {}
            () = watched => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }

    /// Returns whether its device or file is watched. The file of a unit in standby
    /// tells nothing of the disk: neither its size nor the space behind it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.disk.config().state_elsewhere
    }

    /// Has its geometry written to the state directory.
    fn keep_geometry(&self) {
        if self.is_watched() {
            self.geometry.keep(self.disk.store().geometry());
        }
    }

    /// Has the record of its geometry removed: it is no longer a unit.
    pub(crate) fn forget_geometry(&self) {
        self.geometry.forget();
    }

    /// Stops serving the unit: its background work ends, and the volume is
    /// closed with the last command that uses it.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Refuses a size that [`Unit::resize`] would refuse.
    ///
    /// # Errors
    /// The reason for which the unit keeps its size.
    pub(crate) fn check_growth(&self, size_bytes: u64) -> io::Result<()> {
        let capacity_bytes = self.volume.geometry().capacity_bytes;
        if size_bytes >= capacity_bytes || self.volume.kind() != BackingKind::File {
            return Ok(());
        }
        let smaller = ResizeError::Smaller { capacity_bytes };
        Err(self.named(format!("size = {size_bytes}: {smaller}; {NO_SHRINKING}")))
    }

    fn named(&self, error: String) -> io::Error {
        let reason = format!("target {} lun {}: {error}", self.target, self.config.number);
        io::Error::other(reason)
    }

    /// Changes the size of a file in bytes, or adopts a device's size; every
    /// initiator is informed. Returns the size in bytes.
    ///
    /// # Errors
    /// The reason for which the unit keeps its size.
    pub(crate) async fn resize(&self, size_bytes: Option<u64>) -> io::Result<u64> {
        let before = self.volume.geometry().capacity_bytes;
        let failed = |error: String| self.named(error);
        let now = match size_bytes {
            Some(bytes) => {
                let block = u64::from(self.config.block_bytes);
                if !bytes.is_multiple_of(block) {
                    return Err(failed(format!("the size is not a multiple of {block} bytes")));
                }
                #[cfg(test)]
                crate::iscsi::tests::gate::wait_resize(&self.config.path);
                match self.volume.resize(bytes, Shrink::Refuse).await {
                    Ok(now) => now,
                    Err(error @ ResizeError::Smaller { .. }) => {
                        return Err(failed(format!("{error}; {NO_SHRINKING}")));
                    }
                    Err(error) => return Err(failed(error.to_string())),
                }
            }
            None => self.volume.refresh().await.map_err(|error| failed(error.to_string()))?,
        };
        if now != before {
            self.disk.capacity_changed();
            self.keep_geometry();
        }
        Ok(now)
    }
}

/// Limits background work in favour of the initiators.
struct Paced<'a>(&'a Unit);

impl Pacer for Paced<'_> {
    fn pace<'a>(&'a self, bytes: u64) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        let capacity = self.0.volume.geometry().capacity_bytes;
        let rate = (capacity / BACKGROUND_SECONDS).clamp(1, BACKGROUND_BYTES_PER_SECOND);
        let nanos = bytes.saturating_mul(1_000_000_000) / rate;
        Box::pin(tokio::time::sleep(Duration::from_nanos(nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_disk_that_cannot_be_written_now_keeps_no_gateway_from_starting() {
        let path = PathBuf::from("/tank/disk");
        let read_only =
            OpenError::NotWritable { path: path.clone(), why: "its file system is read-only" };
        let found = fault(&read_only);
        assert!(found.absent, "{found}");
        assert_eq!(
            found.to_string(),
            "/tank/disk cannot be written: its file system is read-only; set it read-only; or make \
             it writable"
        );
        let wrong = OpenError::WrongType { path, what: "a directory" };
        assert!(!fault(&wrong).absent, "nothing but the configuration changes that");
    }
}
