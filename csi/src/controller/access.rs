//! Access of nodes to volumes.

use super::{Controller, Site, Wanted, is_of_volume};
use crate::limits::LOCK_SECONDS;
use crate::names::{Node, VolumeId};
use crate::proto::validate_volume_capabilities_response::Confirmed;
use crate::proto::{
    ControllerPublishVolumeRequest, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
};
use crate::publication;
use crate::status::{invalid, missing, needed, no_volume, of_gateway};
use std::collections::HashMap;
use tonic::Status;
use zgate_api::{ErrorCode, GrantAccess, SoleAccess, Volume, VolumeKind, WithdrawAccess};

impl Controller {
    /// Gives a node access. When this returns, the gateway serves the volume to it, and to none
    /// of its earlier ids, but those that only have more addresses.
    pub(super) async fn publish(
        &self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<HashMap<String, String>, Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        needed("node_id", &request.node_id)?;
        let capability =
            request.volume_capability.as_ref().ok_or_else(|| missing("volume_capability"))?;
        let wanted = Wanted::parse(capability)?;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let _lock = self.locks.take_within(id, LOCK_SECONDS).await?;
        if let Some(context) = self.publish_solely(&parsed, request, wanted).await? {
            return Ok(context);
        }
        let volume = self.find(&parsed).await?.ok_or_else(|| no_volume(id))?;
        let no_node =
            || Status::not_found(format!("{:?} is no node of this driver", request.node_id));
        let node: Node = request.node_id.parse().map_err(|()| no_node())?;
        if let Some(reason) = wanted.refusal(volume.kind) {
            return Err(invalid(reason));
        }
        if volume.kind == VolumeKind::Block && node.initiator.is_none() {
            return Err(Status::failed_precondition(format!(
                "node {} has no initiator name; install open-iscsi there and restart the driver",
                node.name
            )));
        }
        let read_only = request.readonly || wanted.reads_only() || volume.read_only;
        check_others(&volume, &node, wanted, read_only)?;
        let site = self.site(&parsed.gateway)?;
        let grant = self.grant_of(&node, read_only, None);
        let name = node.access_name(read_only);
        let access =
            site.gateway.grant(&parsed.dataset, &name, &grant).await.map_err(of_gateway)?;
        // Last: what the node has mounted goes on under the new id.
        let stays = |name: &str| {
            let earlier = Node::from_access_name(name);
            earlier.is_some_and(|(earlier, mode)| mode == read_only && has_all(&earlier, &node))
        };
        let earlier = accesses_of(&volume.access, &node.name).filter(|name| !stays(name));
        let earlier: Vec<String> = earlier.cloned().collect();
        self.revoke(site, &parsed.dataset, &earlier).await?;
        Ok(publication::write(&access, site.settings.node_address()))
    }

    /// Gives a node access to a volume that one node uses at a time, if nothing at the gateway
    /// speaks against it. None: something may, and the volume has to be looked at.
    async fn publish_solely(
        &self,
        id: &VolumeId,
        request: &ControllerPublishVolumeRequest,
        wanted: Wanted,
    ) -> Result<Option<HashMap<String, String>>, Status> {
        // Others of a volume for several nodes often have access.
        let (Ok(node), true) = (request.node_id.parse::<Node>(), wanted.is_single_node()) else {
            return Ok(None);
        };
        let site = self.site(&id.gateway)?;
        let read_only = request.readonly || wanted.reads_only();
        let kind = wanted.is_raw.then_some(VolumeKind::Block);
        let grant = self.grant_of(&node, read_only, Some(SoleAccess { kind }));
        let name = node.access_name(read_only);
        match site.gateway.grant(&id.dataset, &name, &grant).await {
            Ok(access) => Ok(Some(publication::write(&access, site.settings.node_address()))),
            Err(refusal) if is_of_volume(&refusal) || refusal.code == ErrorCode::InUse => Ok(None),
            Err(failed) => Err(of_gateway(failed)),
        }
    }

    fn grant_of(&self, node: &Node, read_only: bool, sole: Option<SoleAccess>) -> GrantAccess {
        GrantAccess {
            owner: self.owner.to_string(),
            addresses: node.addresses.clone(),
            initiator: node.initiator.clone(),
            read_only,
            sole,
        }
    }

    /// Ends a node's access; without a node, that of all.
    pub(super) async fn unpublish(&self, id: &str, node_id: &str) -> Result<(), Status> {
        needed("volume_id", id)?;
        let Some(parsed) = VolumeId::parse(id) else { return Ok(()) };
        let _lock = self.locks.take_within(id, LOCK_SECONDS).await?;
        if self.withdraw(&parsed, node_id).await? {
            return Ok(());
        }
        let Some(volume) = self.find(&parsed).await? else { return Ok(()) };
        let site = self.site(&parsed.gateway)?;
        self.revoke(site, &parsed.dataset, &names_to_revoke(&volume, node_id)).await
    }

    /// Ends a node's access, without a node that of all, without a look at the volume before.
    /// False: the id of the node does not tell its names, or the gateway has to be asked otherwise.
    async fn withdraw(&self, id: &VolumeId, node_id: &str) -> Result<bool, Status> {
        let nodes: Option<Vec<String>> = match node_id.parse::<Node>() {
            Ok(node) => Some([false, true].map(|read_only| node.access_name(read_only)).into()),
            Err(()) if node_id.is_empty() => None,
            Err(()) => return Ok(false),
        };
        let site = self.site(&id.gateway)?;
        let asked = WithdrawAccess { owner: self.owner.to_string(), nodes };
        let left = match site.gateway.withdraw(&id.dataset, &asked).await {
            Ok(left) => left.access,
            Err(refusal) if is_of_volume(&refusal) => return Ok(false),
            Err(failed) => return Err(of_gateway(failed)),
        };
        // Under earlier ids.
        let earlier: Vec<String> = accesses_of(&left, name_of(node_id)).cloned().collect();
        self.revoke(site, &id.dataset, &earlier).await.map(|()| true)
    }

    /// Ends the access that has these names at the gateway.
    async fn revoke(&self, site: &Site, dataset: &str, names: &[String]) -> Result<(), Status> {
        for name in names {
            match site.gateway.revoke(dataset, name, &self.owner).await {
                Err(error) if error.code != ErrorCode::NotFound => return Err(of_gateway(error)),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) async fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let wanted = Wanted::parse_all(&request.volume_capabilities)?;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let volume = self.find(&parsed).await?.ok_or_else(|| no_volume(id))?;
        let refusal = wanted.iter().find_map(|one| one.refusal(volume.kind));
        let confirmed = refusal.is_none().then_some(Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        });
        let message = refusal.unwrap_or_default().to_owned();
        Ok(ValidateVolumeCapabilitiesResponse { confirmed, message })
    }
}

/// Returns those names at the gateway under which a node has access. A node's id has its addresses
/// and its initiator name in it, and changes with them: it may have access under an earlier one,
/// also under one that does not parse any more.
fn accesses_of<'a>(access: &'a [String], node_name: &'a str) -> impl Iterator<Item = &'a String> {
    let is_its =
        move |name: &&String| Node::holder(name).is_some_and(|(name, _)| name == node_name);
    access.iter().filter(is_its)
}

/// Returns the name of a node in its id. The id may be one that does not parse any more; the
/// access holds all the same.
fn name_of(node_id: &str) -> &str {
    node_id.split_once(';').map_or(node_id, |(name, _)| name)
}

/// Returns whether an earlier id of a node has the initiator name and all addresses that the node
/// has now. An interface that was away when its driver started may be one by which its pods are
/// served: that access ends with the detachment.
fn has_all(earlier: &Node, node: &Node) -> bool {
    let has = |address| earlier.addresses.contains(address);
    earlier.initiator == node.initiator && node.addresses.iter().all(has)
}

/// Returns the names whose access ends: all of a node, whatever its id was when they were
/// given; without a node, all.
///
/// A node that is not listed with this id may still be served: an earlier request may have
/// removed its name, and failed before the gateway stopped serving it.
fn names_to_revoke(volume: &Volume, node_id: &str) -> Vec<String> {
    if node_id.is_empty() {
        return volume.access.clone();
    }
    let mut names: Vec<String> = accesses_of(&volume.access, name_of(node_id)).cloned().collect();
    if let Ok(asked) = node_id.parse::<Node>() {
        let asked = [false, true].map(|read_only| asked.access_name(read_only));
        if !asked.iter().any(|name| names.contains(name)) {
            names.extend(asked);
        }
    }
    names
}

/// Refuses access that does not go together with that of others.
fn check_others(
    volume: &Volume,
    node: &Node,
    wanted: Wanted,
    read_only: bool,
) -> Result<(), Status> {
    for name in &volume.access {
        let Some((other, other_reads_only)) = Node::holder(name) else { continue };
        if other == node.name {
            let is_same = *name == node.access_name(other_reads_only);
            if is_same && other_reads_only != read_only {
                return Err(Status::already_exists(format!(
                    "volume {} is published to node {} {}",
                    volume.id,
                    node.name,
                    if other_reads_only { "for reading only" } else { "for writing" }
                )));
            }
            continue;
        }
        let both_write = !read_only && !other_reads_only;
        if wanted.is_single_node() || (both_write && !wanted.has_many_writers()) {
            return Err(Status::failed_precondition(format!(
                "volume {} is published to node {}; detach it there first",
                volume.id, other
            )));
        }
    }
    Ok(())
}
