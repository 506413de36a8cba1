//! Volumes and snapshots as the API shows them.

use super::VolumeService;
use crate::exports::granted::ParentPlan;
use zgate_api::{Snapshot, Source, Volume};
use zgate_control::volume::{VolumeKind, VolumeRecord, VolumeSnapshot};

pub(super) fn kind(kind: VolumeKind) -> zgate_api::VolumeKind {
    match kind {
        VolumeKind::Filesystem => zgate_api::VolumeKind::Filesystem,
        VolumeKind::Block => zgate_api::VolumeKind::Block,
    }
}

/// Writes a source into a property.
pub(super) fn source_text(source: &Source) -> String {
    match source {
        Source::Volume(id) => format!("volume {id}"),
        Source::Snapshot(id) => format!("snapshot {id}"),
        Source::Dataset(name) => format!("dataset {name}"),
    }
}

fn source(text: &str) -> Option<Source> {
    let (kind, name) = text.split_once(' ')?;
    let name = name.to_owned();
    match kind {
        "volume" => Some(Source::Volume(name)),
        "snapshot" => Some(Source::Snapshot(name)),
        "dataset" => Some(Source::Dataset(name)),
        _ => None,
    }
}

impl VolumeService {
    pub(super) fn view(&self, parent: &ParentPlan, volume: VolumeRecord) -> Volume {
        let problem = self.problem(parent, &volume);
        let is_block = volume.kind == VolumeKind::Block;
        let path = (!is_block).then(|| parent.pseudo_path(&volume)).flatten();
        let target = is_block.then(|| parent.target(&volume)).flatten();
        Volume {
            id: volume.dataset.to_string(),
            parent: parent.dataset.to_string(),
            kind: kind(volume.kind),
            size_bytes: volume.size_bytes,
            used_bytes: volume.used_bytes,
            available_bytes: volume.available_bytes,
            read_only: volume.read_only,
            source: volume.source.as_deref().and_then(source),
            healthy: problem.is_none(),
            problem,
            access: volume.grants.iter().map(|grant| grant.node.clone()).collect(),
            path,
            target,
            name: volume.name,
            owner: volume.owner,
            properties: volume.properties,
        }
    }

    /// Returns the reason for which clients cannot use a volume.
    fn problem(&self, parent: &ParentPlan, volume: &VolumeRecord) -> Option<String> {
        if volume.pending_bytes.is_some() {
            return Some("it is not complete: the request that makes it has to be repeated".into());
        }
        match volume.kind {
            VolumeKind::Filesystem if volume.mounted_at.is_none() => {
                Some(format!("it is not mounted: `zfs mount {}`", volume.dataset))
            }
            VolumeKind::Block if !volume.grants.is_empty() => {
                let target = parent.target(volume)?;
                let served = self.serving.serves(&target);
                (!served).then(|| "its target is not served: see the gateway's log".to_owned())
            }
            _ => None,
        }
    }
}

pub(super) fn snapshot(found: VolumeSnapshot) -> Snapshot {
    Snapshot {
        id: found.snapshot.to_string(),
        name: found.snapshot.name().to_owned(),
        volume: found.snapshot.dataset().to_string(),
        owner: found.owner,
        size_bytes: found.size_bytes,
        created_unix_seconds: found.created_unix_seconds,
        ready: true,
    }
}
