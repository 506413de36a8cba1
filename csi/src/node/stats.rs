//! Statistics, condition and growth of volumes on this node.

use super::mount::{mounted_at, ours};
use super::record::{DiskRecord, Record};
use super::{Node, filesystem, iscsi, usage};
use crate::limits::STATS_SECONDS;
use crate::node::host::HostError;
use crate::proto::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage,
};
use crate::status::{invalid, needed};
use std::path::Path;
use std::sync::Arc;
use tonic::{Code, Status};

/// Condition of what a volume is on.
#[derive(Debug)]
pub(super) enum Condition {
    /// It answers.
    InOrder,
    /// It has this fault.
    Fault(String),
    /// Nobody has looked, for this reason: no fault is claimed.
    Unknown(String),
}

impl Condition {
    fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }

    /// The condition as it is told; `in_order` are the words if there is no fault.
    fn told(self, in_order: &str) -> VolumeCondition {
        let (abnormal, message) = match self {
            Self::InOrder => (false, in_order.to_owned()),
            Self::Fault(reason) => (true, reason),
            Self::Unknown(reason) => (false, reason),
        };
        VolumeCondition { abnormal, message }
    }
}

/// Figures of a volume, if they can be told now, and its condition.
type Seen = (Option<Vec<VolumeUsage>>, Condition);

fn not_mounted() -> Condition {
    Condition::Fault("it is not mounted; delete the pod, so that it is mounted again".to_owned())
}

/// Returns the condition of a file system on a disk: its own, or else that of the disk.
fn of_filesystem(of_disk: Condition, seen: Result<Option<String>, HostError>) -> Condition {
    match seen {
        Ok(Some(sign)) => Condition::Fault(format!(
            "the kernel has given the file system up after an error of its disk: {sign}; delete \
             the pod, so that it is mounted again"
        )),
        Err(error) if error.has_run() => Condition::Fault(error.to_string()),
        Ok(None) | Err(_) => of_disk,
    }
}

impl Node {
    fn staged_at(&self, volume_id: &str, path: &str) -> Result<Record, Status> {
        needed("volume_id", volume_id)?;
        needed("volume_path", path)?;
        let none = || Status::not_found(format!("volume {volume_id} is not at {path}"));
        let record = self.record(volume_id)?.ok_or_else(none)?;
        let path = Path::new(path);
        let is_here = record.staging == path || record.published.contains_key(path);
        is_here.then_some(record).ok_or_else(none)
    }

    pub(super) async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path: path, .. } = request;
        let record = self.staged_at(&volume_id, &path)?;
        let ((figures, condition), in_order) = match &record.disk {
            Some(disk) if record.is_raw => (self.see_raw(disk).await, "the disk answers"),
            Some(disk) => (self.see_filesystem(&record, disk, &path).await?, "the disk answers"),
            None => (self.see_files(&path).await?, "the server answers"),
        };
        Ok(NodeGetVolumeStatsResponse {
            usage: self.last_usage.or_last(&volume_id, figures),
            volume_condition: Some(condition.told(in_order)),
        })
    }

    /// Looks at a volume over NFS.
    async fn see_files(&self, path: &str) -> Result<Seen, Status> {
        let host = &*self.host;
        if mounted_at(host, Path::new(path))?.is_none() {
            return Ok((None, not_mounted()));
        }
        let fault = match host.run("stat", &figures_at(path), STATS_SECONDS).await {
            Ok(text) => return Ok((Some(figures(&text)?), Condition::InOrder)),
            Err(HostError::TimedOut { .. }) => {
                "the server does not answer; the volume goes on when the gateway is back".to_owned()
            }
            Err(error) if !error.has_run() => {
                return Ok((None, Condition::Unknown(format!("{path} was not examined: {error}"))));
            }
            Err(error) => error.to_string(),
        };
        Ok((None, Condition::Fault(fault)))
    }

    /// Looks at a file system on a disk.
    async fn see_filesystem(
        &self,
        record: &Record,
        disk: &DiskRecord,
        path: &str,
    ) -> Result<Seen, Status> {
        let host = &*self.host;
        let Some(mount) = mounted_at(host, Path::new(path))? else {
            return Ok((None, not_mounted()));
        };
        let mut condition = iscsi::condition(host, &self.disk_reads, disk).await;
        if !condition.is_fault() && filesystem::disk_of(host, disk, &mount).is_none() {
            condition = Condition::Fault(
                "its disk was attached anew since it was mounted; delete the pod, so that it is \
                 mounted again"
                    .to_owned(),
            );
        }
        // A file system answers these from memory, also when its disk has long been gone.
        let Ok(place) = self.disk_figures.begin(path).await else { return Ok((None, condition)) };
        let place = Arc::new(place);
        if !condition.is_fault() {
            // The mount of a pod may be read-only by itself.
            let staged = mounted_at(host, &record.staging)?;
            let staged = staged.filter(|one| one.device == mount.device).unwrap_or(mount);
            let held = Box::new(Arc::clone(&place));
            let seen = filesystem::given_up(host, &staged, path, STATS_SECONDS, held).await;
            let timed_out = matches!(seen, Err(HostError::TimedOut { .. }));
            condition = of_filesystem(condition, seen);
            if timed_out {
                // It may wait for ever, in the place that is for one command.
                return Ok((None, condition));
            }
        }
        let arguments = figures_at(path);
        match host.run_holding("stat", &arguments, STATS_SECONDS, Box::new(place)).await {
            Ok(text) => return Ok((Some(figures(&text)?), condition)),
            Err(error) if !error.has_run() => {}
            Err(error) if !condition.is_fault() => condition = Condition::Fault(error.to_string()),
            Err(_) => {}
        }
        Ok((None, condition))
    }

    /// Looks at a disk that pods use themselves.
    async fn see_raw(&self, disk: &DiskRecord) -> Seen {
        let host = &*self.host;
        let condition = iscsi::condition(host, &self.disk_reads, disk).await;
        let attached = iscsi::attached(host, &disk.target, &disk.naa);
        (attached.map(|disk| usage::of_size(disk.size_bytes)), condition)
    }

    /// Returns the record of a volume that is to grow. Of a raw device that several pods have, a
    /// kubelet names the path of the one that came last, also when that one is gone: the others
    /// have the device by its staging path.
    fn to_be_grown(&self, request: &NodeExpandVolumeRequest) -> Result<Record, Status> {
        let id = &request.volume_id;
        match self.staged_at(id, &request.volume_path) {
            Err(absent) if absent.code() == Code::NotFound => {
                let staging = Path::new(&request.staging_target_path);
                let is_its = |record: &Record| record.is_raw && record.staging == staging;
                self.record(id)?.filter(is_its).ok_or(absent)
            }
            found => found,
        }
    }

    pub(super) async fn expand(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let record = self.to_be_grown(&request)?;
        let _lock = self.locks.take(&request.volume_id)?;
        let required = request.capacity_range.unwrap_or_default().required_bytes;
        let required = u64::try_from(required).map_err(|_| invalid("capacity is negative"))?;
        let size = self.grow(&record, Path::new(&request.volume_path), required).await?;
        Ok(NodeExpandVolumeResponse { capacity_bytes: size.cast_signed() })
    }
}

/// Arguments of `stat` for the figures of a file system.
fn figures_at(path: &str) -> [&str; 4] {
    ["-f", "-c", usage::FORMAT, path]
}

fn figures(text: &str) -> Result<Vec<VolumeUsage>, Status> {
    usage::read(text).ok_or_else(|| ours("stat", &text))
}
