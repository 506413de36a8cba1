//! Statistics, condition and growth of volumes on this node.

use super::mount::{mounted_at, ours};
use super::record::Record;
use super::{Node, filesystem, iscsi};
use crate::limits::STATS_SECONDS;
use crate::node::host::HostError;
use crate::proto::volume_usage::Unit;
use crate::proto::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage,
};
use crate::status::{invalid, needed};
use std::path::Path;
use tonic::Status;

/// Fields that `stat -f` prints: size of a block; blocks in all, free, free for
/// users; inodes in all, free.
const FORMAT: &str = "%S %b %f %a %c %d";

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

fn usage(text: &str) -> Option<Vec<VolumeUsage>> {
    let fields: Option<Vec<i64>> =
        text.split_whitespace().map(|field| field.parse().ok()).collect();
    let [block, blocks, free, available, inodes, free_inodes] = fields?[..] else { return None };
    let bytes = |count: i64| count.saturating_mul(block);
    let one = |unit: Unit, total: i64, used: i64, available: i64| VolumeUsage {
        unit: unit.into(),
        total,
        used: used.max(0),
        available,
    };
    Some(vec![
        one(Unit::Bytes, bytes(blocks), bytes(blocks.saturating_sub(free)), bytes(available)),
        one(Unit::Inodes, inodes, inodes.saturating_sub(free_inodes), free_inodes),
    ])
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
        let record = self.staged_at(&request.volume_id, &request.volume_path)?;
        if record.is_raw {
            return self.disk_stats(&record).await;
        }
        let host = &*self.host;
        let Some(mount) = mounted_at(host, Path::new(&request.volume_path))? else {
            return Ok(abnormal("it is not mounted; delete the pod, so that it is mounted again"));
        };
        let mut condition = Condition::InOrder;
        // A file system answers from memory when its disk has long been gone.
        if let Some(disk) = &record.disk {
            condition = iscsi::condition(host, &self.disk_reads, disk).await;
            if let Condition::Fault(reason) = &condition {
                return Ok(abnormal(reason));
            }
            if !filesystem::is_of(host, disk, &mount) {
                return Ok(abnormal(
                    "its disk was attached anew since it was mounted; delete the pod, so that it \
                     is mounted again",
                ));
            }
        }
        let arguments = ["-f", "-c", FORMAT, &request.volume_path];
        match host.run("stat", &arguments, STATS_SECONDS).await {
            Ok(text) => Ok(NodeGetVolumeStatsResponse {
                usage: usage(&text).ok_or_else(|| ours("stat", &text))?,
                volume_condition: Some(condition.told("the server answers")),
            }),
            Err(HostError::TimedOut { .. } | HostError::Stuck) => Ok(abnormal(
                "the server does not answer; the volume goes on when the gateway is back",
            )),
            Err(error) => Ok(abnormal(&error.to_string())),
        }
    }

    async fn disk_stats(&self, record: &Record) -> Result<NodeGetVolumeStatsResponse, Status> {
        let Some(known) = &record.disk else { return Ok(abnormal("it has no disk")) };
        let condition = iscsi::condition(&*self.host, &self.disk_reads, known).await;
        if let Condition::Fault(reason) = &condition {
            return Ok(abnormal(reason));
        }
        let size_bytes = iscsi::attached(&*self.host, &known.naa).map_or(0, |disk| disk.size_bytes);
        let total = size_bytes.cast_signed();
        let usage = VolumeUsage { total, unit: Unit::Bytes.into(), ..VolumeUsage::default() };
        Ok(NodeGetVolumeStatsResponse {
            usage: vec![usage],
            volume_condition: Some(condition.told("the disk answers")),
        })
    }

    pub(super) async fn expand(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let record = self.staged_at(&request.volume_id, &request.volume_path)?;
        let _lock = self.locks.take(&request.volume_id)?;
        let required = request.capacity_range.unwrap_or_default().required_bytes;
        let required = u64::try_from(required).map_err(|_| invalid("capacity is negative"))?;
        let size = self.grow(&record, Path::new(&request.volume_path), required).await?;
        Ok(NodeExpandVolumeResponse { capacity_bytes: size.cast_signed() })
    }
}

fn abnormal(message: &str) -> NodeGetVolumeStatsResponse {
    NodeGetVolumeStatsResponse {
        usage: Vec::new(),
        volume_condition: Some(VolumeCondition { abnormal: true, message: message.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read() {
        let read = usage("4096 100 60 50 10 4\n").unwrap();
        assert_eq!((read[0].total, read[0].used, read[0].available), (409_600, 163_840, 204_800));
        assert_eq!((read[1].total, read[1].used, read[1].available), (10, 6, 4));
        assert!(usage("1 2").is_none() && usage("a b c d e f").is_none());
    }
}
