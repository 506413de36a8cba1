//! Access of nodes. It is in effect when it is answered.

use super::{Answer, VolumeService, absent, error, not_served, view};
use crate::exports::granted::ParentPlan;
use crate::server::limits::{DEVICE_ATTEMPTS, DEVICE_PAUSE, SETTLE_ATTEMPTS, SETTLE_PAUSE};
use zgate_api::access::{MAX_WITHDRAWN_NODES, Portal};
use zgate_api::{
    Access, ApiError, ErrorCode, GrantAccess, LeftAccess, Reach, SoleAccess, Transport,
    WithdrawAccess,
};
use zgate_control::volume::{self, Fault, Grant, VolumeKind, VolumeRecord};

impl VolumeService {
    /// Gives a node access; it replaces what the node had.
    pub(crate) fn grant(&self, id: &str, node: &str, asked: &GrantAccess) -> Answer<Access> {
        let (dataset, parent) = self.parent_of(id)?;
        let lock = self.locks.lock_volume(&dataset)?;
        let volume = self.owned(&dataset, &asked.owner)?.ok_or_else(|| absent(&dataset))?;
        let grant = Grant {
            node: node.to_owned(),
            addresses: asked.addresses.iter().map(|address| address.to_canonical()).collect(),
            initiator: asked.initiator.as_ref().map(|name| name.to_lowercase()),
            read_only: asked.read_only,
        };
        check(&volume, &grant)?;
        if let Some(condition) = asked.sole {
            refuse_unless_sole(&volume, &grant, condition)?;
        }
        volume::grant(self.tool(), &volume, &grant).map_err(error)?;
        volume::confirm(self.tool(), &volume).map_err(error)?;
        if volume.kind == VolumeKind::Filesystem && volume.mounted_at.is_none() {
            // A restart of the machine, or a crash after it was made.
            let mounted = self.tool().run("zfs", &["mount", dataset.as_str()]);
            mounted.map_err(|failed| error(failed.into()))?;
        }
        drop(lock);
        self.in_effect(&parent, &volume, &grant)
    }

    /// Waits until the grant is in effect: a zvol's device appears a moment
    /// after the zvol.
    fn in_effect(
        &self,
        parent: &ParentPlan,
        volume: &VolumeRecord,
        grant: &Grant,
    ) -> Answer<Access> {
        for attempt in 0..DEVICE_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(DEVICE_PAUSE);
            }
            // A search for datasets costs more than this look.
            if volume.kind == VolumeKind::Block && !self.serving.has_device(&volume.dataset) {
                continue;
            }
            self.serving.apply(&volume.dataset).map_err(|error| not_served(&error))?;
            if let Some(reach) = self.reach(parent, volume, grant) {
                let portals = match &reach {
                    Reach::Nfs { portals, .. } | Reach::Iscsi { portals, .. } => portals,
                };
                let mut transports: Vec<Transport> =
                    portals.iter().map(|portal| portal.transport).collect();
                transports.sort_unstable();
                transports.dedup();
                return Ok(Access {
                    volume: volume.dataset.to_string(),
                    node: grant.node.clone(),
                    read_only: volume.read_only || grant.read_only,
                    reach,
                    transports,
                });
            }
        }
        Err(ApiError::new(
            ErrorCode::Storage,
            format!("volume {}: access is granted, but it is not served yet", volume.dataset),
            "send the same request again; the gateway's log has the reason",
        ))
    }

    fn reach(&self, parent: &ParentPlan, volume: &VolumeRecord, grant: &Grant) -> Option<Reach> {
        let portals: Vec<Portal> = self.serving.portals(volume.kind);
        match volume.kind {
            VolumeKind::Filesystem => {
                let path = parent.pseudo_path(volume)?;
                let is_open = |address| self.serving.exports_to(&path, address);
                grant.addresses.iter().all(|address| is_open(*address)).then_some(())?;
                Some(Reach::Nfs { path, portals })
            }
            VolumeKind::Block => {
                let target = parent.target(volume)?;
                let naa = self.serving.served_to(&target, grant.initiator.as_deref()?)?;
                Some(Reach::Iscsi { target, lun: crate::iscsi::granted::LUN, naa, portals })
            }
        }
    }

    /// Withdraws the access of a node, and ends its use of the volume; nothing
    /// if it has none.
    pub(crate) fn withdraw(&self, id: &str, node: &str, owner: &str) -> Answer<()> {
        let (dataset, parent) = self.parent_of(id)?;
        let lock = self.locks.lock_volume(&dataset)?;
        let Some(volume) = self.owned(&dataset, owner)? else { return Ok(()) };
        self.end_access(&volume, node)?;
        drop(lock);
        // Also if the property is gone already: an earlier request may have
        // ended in between.
        self.serving.apply(&dataset).map_err(|error| not_served(&error))?;
        self.settle(&parent, &volume, volume.grants.iter().any(|grant| grant.node != node))
    }

    /// Withdraws the access that a node has under one of its names, or that of all nodes, and ends
    /// their use of the volume. Returns what is left; nothing if there is no volume.
    pub(crate) fn withdraw_from(&self, id: &str, asked: &WithdrawAccess) -> Answer<LeftAccess> {
        if let Some(nodes) = &asked.nodes
            && !(1..=MAX_WITHDRAWN_NODES).contains(&nodes.len())
        {
            let message = format!("a withdrawal has 1 to {MAX_WITHDRAWN_NODES} names");
            return Err(ApiError::new(ErrorCode::Invalid, message, "name those of one node"));
        }
        let mut names = asked.nodes.iter().flatten();
        names.try_for_each(|node| Grant::check_node(node)).map_err(error)?;
        let (dataset, parent) = self.parent_of(id)?;
        let lock = self.locks.lock_volume(&dataset)?;
        let Some(volume) = self.owned(&dataset, &asked.owner)? else {
            return Ok(LeftAccess::default());
        };
        let is_asked =
            |node: &String| asked.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        let all = volume.grants.iter().map(|grant| grant.node.clone());
        let (mut ended, access): (Vec<String>, Vec<String>) = all.partition(is_asked);
        if ended.is_empty() {
            // A grant whose command has timed out may come later.
            ended = asked.nodes.clone().unwrap_or_default();
        }
        ended.iter().try_for_each(|node| self.end_access(&volume, node))?;
        drop(lock);
        // See `withdraw`.
        self.serving.apply(&dataset).map_err(|error| not_served(&error))?;
        self.settle(&parent, &volume, !access.is_empty())?;
        Ok(LeftAccess { access })
    }

    /// Waits until what nodes without access have sent before does not run any more: what it
    /// writes may land behind what the next node writes. Of a file system that other nodes have
    /// access to it is not waited for without an end: a long request may be one of theirs.
    fn settle(&self, parent: &ParentPlan, volume: &VolumeRecord, is_shared: bool) -> Answer<()> {
        for attempt in 0..SETTLE_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(SETTLE_PAUSE);
            }
            if self.is_settled(parent, volume) {
                return Ok(());
            }
        }
        if is_shared && volume.kind == VolumeKind::Filesystem {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::Storage,
            format!(
                "volume {}: access has ended, and writes from before still run",
                volume.dataset
            ),
            "send the same request again; if it stays so, see `zpool status`",
        ))
    }

    fn is_settled(&self, parent: &ParentPlan, volume: &VolumeRecord) -> bool {
        match volume.kind {
            VolumeKind::Filesystem => {
                parent.pseudo_path(volume).is_none_or(|path| self.serving.is_export_settled(&path))
            }
            VolumeKind::Block => {
                parent.target(volume).is_none_or(|target| self.serving.is_settled(&target))
            }
        }
    }

    /// Ends the access of a node in the record of a volume. One that is gone has no access; one
    /// whose pool has just been exported comes back with it.
    pub(super) fn end_access(&self, volume: &VolumeRecord, node: &str) -> Answer<()> {
        match volume::withdraw(self.tool(), volume, node) {
            Err(gone) if gone.fault == Fault::NotFound => self.require_parent(&volume.dataset),
            outcome => outcome.map_err(error),
        }
    }
}

/// Refuses access under a condition that does not hold.
fn refuse_unless_sole(volume: &VolumeRecord, grant: &Grant, condition: SoleAccess) -> Answer<()> {
    let other = volume.grants.iter().find(|other| other.node != grant.node);
    let why = if let Some(other) = other {
        format!("node {} has access", other.node)
    } else if condition.kind.is_some_and(|kind| kind != view::kind(volume.kind)) {
        "it is of another kind".to_owned()
    } else if volume.read_only && !grant.read_only {
        "it is read-only".to_owned()
    } else {
        return Ok(());
    };
    let next = "look at the volume, then ask without this condition";
    Err(ApiError::new(ErrorCode::InUse, format!("volume {}: {why}", volume.dataset), next))
}

fn check(volume: &VolumeRecord, grant: &Grant) -> Answer<()> {
    let invalid = |what: &str, next: &str| {
        let message = format!("node {}: {what}", grant.node);
        Err(ApiError::new(ErrorCode::Invalid, message, next))
    };
    match volume.kind {
        VolumeKind::Filesystem if grant.addresses.is_empty() => {
            invalid("no address", "give the addresses that it mounts from")
        }
        VolumeKind::Block if grant.initiator.is_none() => {
            let next = "give the InitiatorName of /etc/iscsi/initiatorname.iscsi";
            invalid("no initiator name", next)
        }
        _ => Ok(()),
    }
}
