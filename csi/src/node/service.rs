//! The service of CSI, each call to its function.

use super::Node;
use crate::proto::node_server::Node as Service;
use crate::proto::node_service_capability::{Rpc, Type, rpc};
use crate::proto::*;
use std::future::Future;
use tonic::{Request, Response, Status};

const ABILITIES: [rpc::Type; 5] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
];

/// Runs a call to its end, also if its caller gives up: a login or a mount that is
/// left half-way would be found by nobody.
async fn to_its_end<T: Send + 'static>(
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let ended = tokio::spawn(call).await;
    // Part of a call that panicked may be done.
    ended.map_err(|error| Status::unavailable(error.to_string()))?.map(Response::new)
}

#[tonic::async_trait]
impl Service for Node {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let node = self.clone();
        to_its_end(async move {
            node.stage(request.into_inner()).await.map(|()| NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let node = self.clone();
        to_its_end(async move {
            node.unstage(request.into_inner()).await.map(|()| NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let node = self.clone();
        to_its_end(async move {
            node.publish(request.into_inner()).await.map(|()| NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let node = self.clone();
        to_its_end(async move {
            node.unpublish(request.into_inner()).await.map(|()| NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let node = self.clone();
        to_its_end(async move { node.stats(request.into_inner()).await }).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let node = self.clone();
        to_its_end(async move { node.expand(request.into_inner()).await }).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let one = |kind: &rpc::Type| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: (*kind).into() })),
        };
        let capabilities = ABILITIES.iter().map(one).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.id.to_string(),
            max_volumes_per_node: self.max_volumes,
            accessible_topology: Some(self.topology.clone()),
        }))
    }
}
