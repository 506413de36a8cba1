//! Staging: the volume is mounted, or its disk attached, once per node.

use super::mount::{Server, ours, remove_target, text, unmount, unmount_volume};
use super::record::{DiskRecord, Record};
use super::{Node, filesystem, iscsi, nfs};
use crate::limits::COMMAND_SECONDS;
use crate::proto::volume_capability::AccessType;
use crate::proto::{NodeStageVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability};
use crate::publication::{Place, Publication};
use crate::status::{invalid, missing, needed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tonic::Status;

/// File system and mount options of a request; none for raw devices.
struct Mounting {
    filesystem: String,
    flags: Vec<String>,
}

fn mounting(capability: Option<&VolumeCapability>) -> Result<Option<Mounting>, Status> {
    let capability = capability.ok_or_else(|| missing("volume_capability"))?;
    match capability.access_type.as_ref().ok_or_else(|| missing("access_type"))? {
        AccessType::Block(_) => Ok(None),
        AccessType::Mount(mount) => {
            // A flag is one word of `mount -o`; it does not bring others.
            if mount.mount_flags.iter().any(|flag| flag.contains(char::is_whitespace)) {
                return Err(invalid("a mount flag has a blank in it"));
            }
            let (filesystem, flags) = (mount.fs_type.clone(), mount.mount_flags.clone());
            Ok(Some(Mounting { filesystem, flags }))
        }
    }
}

/// Error of a stage after its record was written, when there may be a session or a mount.
/// It is final for nobody: Kubernetes would not unstage the volume.
fn begun(error: Status) -> Status {
    Status::unavailable(error.message())
}

/// Parses a path of a request.
pub(super) fn absolute(field: &str, path: &str) -> Result<PathBuf, Status> {
    needed(field, path)?;
    let path = PathBuf::from(path);
    let is_plain = !path.components().any(|part| part.as_os_str() == "..");
    if path.is_absolute() && is_plain {
        return Ok(path);
    }
    Err(invalid(format!("{field} {} is not absolute, or has .. in it", path.display())))
}

impl Node {
    pub(super) async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let staging = absolute("staging_target_path", &request.staging_target_path)?;
        let mounting = mounting(request.volume_capability.as_ref())?;
        let publication = Publication::read(&request.publish_context)?;
        let _lock = self.locks.take(id)?;
        if let Some(record) = self.record(id)?
            && record.staging != staging
        {
            return Err(Status::already_exists(format!(
                "volume {id} is staged at {}",
                record.staging.display()
            )));
        }
        let mut record = self.record(id)?.unwrap_or(Record {
            volume_id: id.clone(),
            staging,
            is_raw: mounting.is_none(),
            read_only: publication.read_only,
            nfs_path: None,
            disk: None,
            published: BTreeMap::new(),
        });
        match &publication.place {
            Place::Nfs { path } => {
                let mounting = mounting.ok_or_else(|| invalid("NFS has no block devices"))?;
                record.nfs_path = Some(path.clone());
                self.make_staging(&record)?;
                nfs::mount(self, &publication, path, &record, &mounting.flags).await
            }
            Place::Iscsi { target, naa, .. } => {
                if let Some(mounting) = &mounting {
                    filesystem::Kind::named(&mounting.filesystem)?;
                }
                record.disk.get_or_insert(DiskRecord {
                    target: target.clone(),
                    naa: naa.clone(),
                    filesystem: None,
                });
                self.make_staging(&record)?;
                self.stage_disk(&publication, &mut record, mounting).await
            }
        }
        .map_err(begun)
    }

    /// Makes the staging directory and writes the record, before anything that an
    /// unstage would have to undo.
    fn make_staging(&self, record: &Record) -> Result<(), Status> {
        self.keep(record)?;
        if super::mount::mounted_at(&*self.host, &record.staging)?.is_some() {
            return Ok(());
        }
        std::fs::create_dir_all(&record.staging)
            .map_err(|error| ours(&format!("{}", record.staging.display()), &error))
    }

    async fn stage_disk(
        &self,
        publication: &Publication,
        record: &mut Record,
        mounting: Option<Mounting>,
    ) -> Result<(), Status> {
        let Some(known) = record.disk.clone() else { return Ok(()) };
        let host = &*self.host;
        let disk = iscsi::attach(self, publication, &known.target, &known.naa).await?;
        if record.read_only {
            let arguments = ["--setro", text(&disk.device)?];
            let set = host.run("blockdev", &arguments, COMMAND_SECONDS).await;
            set.map_err(|error| ours("not made read-only", &error))?;
        }
        let Some(mounting) = mounting else { return Ok(()) };
        let filesystem =
            filesystem::mount(self, (&disk, &known), record, &mounting.filesystem, &mounting.flags);
        let filesystem = Some(filesystem.await?.to_owned());
        record.disk = Some(DiskRecord { filesystem, ..known });
        self.keep(record)
    }

    pub(super) async fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let staging = absolute("staging_target_path", &request.staging_target_path)?;
        let _lock = self.locks.take(id)?;
        let Some(record) = self.record(id)? else {
            // Staged by nobody; a mount of ours would have a record.
            return unmount(&*self.host, &staging).await;
        };
        // Pods that were not unpublished would hold the volume.
        for target in record.published.keys() {
            unmount(&*self.host, target).await?;
            remove_target(target)?;
        }
        let server = match &record.disk {
            Some(disk) => Server::Disk(&disk.target),
            None => Server::Files,
        };
        unmount_volume(&*self.host, &record.staging, server).await?;
        if let Some(disk) = &record.disk {
            iscsi::detach(&*self.host, &disk.target, &disk.naa).await?;
        }
        self.records.remove(id).map_err(|error| ours("state directory", &error))
    }

    /// Device of a staged volume.
    pub(super) fn device(&self, disk: &DiskRecord) -> Result<PathBuf, Status> {
        let gone = || {
            Status::failed_precondition(format!(
                "disk {} is not attached; stage it again",
                disk.naa
            ))
        };
        let attached = iscsi::attached(&*self.host, &disk.target, &disk.naa);
        attached.map(|disk| disk.device).ok_or_else(gone)
    }

    /// Grows what is on a disk to the size that the disk has.
    pub(super) async fn grow(
        &self,
        record: &Record,
        path: &Path,
        required_bytes: u64,
    ) -> Result<u64, Status> {
        let Some(known) = &record.disk else { return Ok(required_bytes) };
        let host = &*self.host;
        let disk = iscsi::rescan(host, &known.target, &known.naa, required_bytes).await?;
        if let Some(name) = &known.filesystem {
            let kind = filesystem::Kind::named(name)?;
            filesystem::grow(self, (text(&disk.device)?, known), kind, path).await?;
        }
        Ok(disk.size_bytes)
    }
}
