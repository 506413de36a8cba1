//! Staging: the volume is mounted, or its disk attached, once per node.

use super::mount::{
    Server, mounted_at, ours, remove_left_target, text, unmount, unmount_volume, users,
};
use super::record::{DiskRecord, Record};
use super::{Node, filesystem, iscsi, nfs};
use crate::limits::COMMAND_SECONDS;
use crate::proto::volume_capability::AccessType;
use crate::proto::{NodeStageVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability};
use crate::publication::{Place, Publication};
use crate::status::{invalid, missing, needed, not_final};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio::time::Instant;
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
        let mut wanted = Record {
            volume_id: id.clone(),
            staging,
            is_raw: mounting.is_none(),
            read_only: publication.read_only,
            nfs_path: None,
            disk: None,
            published: BTreeMap::new(),
        };
        let staged = match &publication.place {
            Place::Nfs { path } => {
                let mounting = mounting.ok_or_else(|| invalid("NFS has no block devices"))?;
                wanted.nfs_path = Some(path.clone());
                let record = self.begin(wanted).await?;
                nfs::mount(self, &publication, path, &record, &mounting.flags).await
            }
            Place::Iscsi { target, naa, .. } => {
                if let Some(mounting) = &mounting {
                    filesystem::Kind::named(&mounting.filesystem)?;
                }
                wanted.disk =
                    Some(DiskRecord { target: target.clone(), naa: naa.clone(), filesystem: None });
                let record = self.begin(wanted).await?;
                self.stage_disk(&publication, record, mounting).await
            }
        };
        // There may be a session or a mount now, which Kubernetes is to unstage.
        staged.map_err(not_final)
    }

    /// Writes the record of a stage, and returns it. It goes on with an earlier one of the same;
    /// what is left of another one makes way.
    async fn begin(&self, wanted: Record) -> Result<Record, Status> {
        let record = match self.record(&wanted.volume_id)? {
            Some(known) if known.is_of_same_stage(&wanted) => {
                Record { nfs_path: wanted.nfs_path, ..known }
            }
            Some(known) => {
                self.end_other(&known, &wanted).await?;
                wanted
            }
            None => wanted,
        };
        self.make_staging(&record)?;
        Ok(record)
    }

    /// Ends an earlier stage of a volume at another path, with another mode or of another disk:
    /// nobody has unstaged it, such as a node that has lost its power.
    async fn end_other(&self, known: &Record, wanted: &Record) -> Result<(), Status> {
        let host = &*self.host;
        let (id, staging) = (&known.volume_id, known.staging.display());
        let user = users(host, known)?.into_iter().next();
        if known.staging != wanted.staging
            && (user.is_some() || mounted_at(host, &known.staging)?.is_some())
        {
            return Err(Status::already_exists(format!("volume {id} is staged at {staging}")));
        }
        if let Some(pod) = user {
            return Err(Status::unavailable(format!(
                "volume {id} is staged with another mode or of another disk; {} uses it: delete \
                 its pod",
                pod.display()
            )));
        }
        tracing::warn!(volume = id, %staging, "what an earlier stage has left makes way");
        self.end(known).await
    }

    /// Makes the staging directory and writes the record, before anything that an
    /// unstage would have to undo.
    fn make_staging(&self, record: &Record) -> Result<(), Status> {
        self.keep(record)?;
        if mounted_at(&*self.host, &record.staging)?.is_some() {
            return Ok(());
        }
        std::fs::create_dir_all(&record.staging)
            .map_err(|error| ours(&format!("{}", record.staging.display()), &error))
    }

    async fn stage_disk(
        &self,
        publication: &Publication,
        mut record: Record,
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
        let (wanted, flags) = (&mounting.filesystem, &mounting.flags);
        let filesystem = filesystem::mount(self, (&disk, &known), &record, wanted, flags).await?;
        record.disk = Some(DiskRecord { filesystem: Some(filesystem.to_owned()), ..known });
        self.keep(&record)
    }

    pub(super) async fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let staging = absolute("staging_target_path", &request.staging_target_path)?;
        let _lock = self.locks.take(id)?;
        let host = &*self.host;
        let Some(record) = self.record(id)? else {
            // Staged by nobody; a mount of ours would have a record.
            return unmount(host, &staging).await;
        };
        if record.staging != staging && !users(host, &record)?.is_empty() {
            // Left of an earlier stage; pods have the volume by another path.
            return unmount(host, &staging).await;
        }
        self.end(&record).await
    }

    /// Takes down what was staged, and removes its record.
    async fn end(&self, record: &Record) -> Result<(), Status> {
        let begun = Instant::now();
        // Pods that were not unpublished would hold the volume.
        for target in record.published.keys() {
            unmount(&*self.host, target).await?;
            remove_left_target(target)?;
        }
        let server = match &record.disk {
            Some(disk) => Server::Disk(&disk.target),
            None => Server::Files,
        };
        unmount_volume(&*self.host, &record.staging, server).await?;
        if let Some(disk) = &record.disk {
            iscsi::detach(self, (&disk.target, &disk.naa), begun).await?;
        }
        let removed = self.records.remove(&record.volume_id);
        removed.map_err(|error| ours("state directory", &error))
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
        // One that nobody may write to has the size that it was staged with.
        if let Some(name) = known.filesystem.as_ref().filter(|_| !record.read_only) {
            let kind = filesystem::Kind::named(name)?;
            // The mount of a pod may be read-only by itself.
            let is_staged = mounted_at(host, &record.staging)?.is_some();
            let place: &Path = if is_staged { &record.staging } else { path };
            filesystem::grow_mounted(self, known, kind, place).await?;
        }
        Ok(disk.size_bytes)
    }
}
