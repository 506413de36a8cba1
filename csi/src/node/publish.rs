//! Publishing: a staged volume becomes a path of a pod.

use super::Node;
use super::mount::{bind, is_bind, mounted_at, ours, remove_target, unmount, users};
use super::stage::absolute;
use crate::limits::LOCK_SECONDS;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use crate::status::{missing, needed};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use tonic::Status;

impl Node {
    pub(super) async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let target = absolute("target_path", &request.target_path)?;
        let capability =
            request.volume_capability.as_ref().ok_or_else(|| missing("volume_capability"))?;
        let access = capability.access_type.as_ref().ok_or_else(|| missing("access_type"))?;
        let is_raw = matches!(access, AccessType::Block(_));
        let mode = capability.access_mode.as_ref().map(|mode| mode.mode());
        if request.staging_target_path.is_empty() {
            // CSI 1.12, NodePublishVolume Errors.
            return Err(Status::failed_precondition(
                "staging_target_path is missing: stage the volume first",
            ));
        }
        let _lock = self.locks.take_within(id, LOCK_SECONDS).await?;
        let staged = || Status::failed_precondition(format!("volume {id} is not staged here"));
        let mut record = self.record(id)?.ok_or_else(staged)?;
        if record.is_raw != is_raw {
            return Err(Status::failed_precondition(format!("volume {id} is staged otherwise")));
        }
        if mode == Some(Mode::SingleNodeSingleWriter)
            && let Some(other) =
                users(&*self.host, &record)?.into_iter().find(|other| **other != *target)
        {
            return Err(Status::failed_precondition(format!(
                "volume {id} has one writer, at {}",
                other.display()
            )));
        }
        let read_only = request.readonly || record.read_only;
        if record.published.get(&target).is_some_and(|known| *known != read_only) {
            return Err(Status::already_exists(format!(
                "{} is published with another mode",
                target.display()
            )));
        }
        let host = &*self.host;
        let source = match &record.disk {
            Some(disk) if is_raw => self.device(disk)?,
            _ if mounted_at(host, &record.staging)?.is_none() => return Err(staged()),
            _ => record.staging.clone(),
        };
        record.published.insert(target.clone(), read_only);
        self.keep(&record)?;
        if let Some(mount) = mounted_at(host, &target)? {
            if is_bind(host, &mount, &source, read_only)? {
                return Ok(());
            }
            // Left by an earlier volume or stage, or by a call that ended half-way.
            tracing::warn!(path = %target.display(), "a mount is not the volume's and makes way");
            unmount(host, &target).await?;
        }
        make_target(&target, is_raw)?;
        // A device that must not be written is set so itself; see staging.
        bind(host, &source, &target, read_only).await
    }

    pub(super) async fn unpublish(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let target = absolute("target_path", &request.target_path)?;
        let _lock = self.locks.take_within(id, LOCK_SECONDS).await?;
        unmount(&*self.host, &target).await?;
        remove_target(&target)?;
        if let Some(mut record) = self.record(id)?
            && record.published.remove(&target).is_some()
        {
            self.keep(&record)?;
        }
        Ok(())
    }
}

fn make_target(target: &Path, is_raw: bool) -> Result<(), Status> {
    let failed = |error: io::Error| ours(&format!("{}", target.display()), &error);
    if !is_raw {
        return fs::create_dir_all(target).map_err(failed);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    File::options().create(true).append(true).open(target).map(drop).map_err(failed)
}
