//! The services of CSI, each call to its function.

use super::Controller;
use crate::proto::controller_server::Controller as Service;
use crate::proto::controller_service_capability::{Rpc, Type, rpc};
use crate::proto::group_controller_server::GroupController;
use crate::proto::group_controller_service_capability as group_capability;
use crate::proto::*;
use crate::status::needed;
use tonic::{Request, Response, Status};

const ABILITIES: [rpc::Type; 15] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ExpandVolume,
    rpc::Type::ListVolumesPublishedNodes,
    rpc::Type::VolumeCondition,
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::ModifyVolume,
    rpc::Type::GetSnapshot,
];

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Service for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let volume = self.create(request.get_ref()).await?;
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        self.delete(&request.get_ref().volume_id).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        let publish_context = self.publish(request.get_ref()).await?;
        Ok(Response::new(ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        self.unpublish(&request.get_ref().volume_id, &request.get_ref().node_id).await?;
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        self.validate(request.into_inner()).await.map(Response::new)
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answer<ListVolumesResponse> {
        Controller::list_volumes(self, request.get_ref()).await.map(Response::new)
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Answer<GetCapacityResponse> {
        self.capacity(request.get_ref()).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        let one = |kind: &rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: (*kind).into() })),
        };
        let capabilities = ABILITIES.iter().map(one).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        let snapshot = self.take_snapshot(request.get_ref()).await?;
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        Controller::delete_snapshot(self, &request.get_ref().snapshot_id).await?;
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Answer<ListSnapshotsResponse> {
        Controller::list_snapshots(self, request.get_ref()).await.map(Response::new)
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Answer<GetSnapshotResponse> {
        let id = &request.get_ref().snapshot_id;
        needed("snapshot_id", id)?;
        let none = || Status::not_found(format!("there is no snapshot {id}"));
        let snapshot = self.snapshot(id).await?.ok_or_else(none)?;
        Ok(Response::new(GetSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        self.expand(request.get_ref()).await.map(Response::new)
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        self.get_volume(&request.get_ref().volume_id).await.map(Response::new)
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        self.modify(request.get_ref()).await?;
        Ok(Response::new(ControllerModifyVolumeResponse {}))
    }
}

#[tonic::async_trait]
impl GroupController for Controller {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<GroupControllerGetCapabilitiesResponse> {
        use group_capability::{Rpc, Type, rpc};
        let kind = rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into();
        let one =
            GroupControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind })) };
        let capabilities = vec![one];
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<CreateVolumeGroupSnapshotResponse> {
        let group_snapshot = Some(self.take_group(request.get_ref()).await?);
        Ok(Response::new(CreateVolumeGroupSnapshotResponse { group_snapshot }))
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<DeleteVolumeGroupSnapshotResponse> {
        let asked = request.get_ref();
        self.delete_group(&asked.group_snapshot_id, &asked.snapshot_ids).await?;
        Ok(Response::new(DeleteVolumeGroupSnapshotResponse {}))
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Answer<GetVolumeGroupSnapshotResponse> {
        let asked = request.get_ref();
        let group_snapshot = Some(self.group(&asked.group_snapshot_id, &asked.snapshot_ids).await?);
        Ok(Response::new(GetVolumeGroupSnapshotResponse { group_snapshot }))
    }
}
