//! The identity service: name, version and abilities of the driver.

use crate::DRIVER;
use crate::proto::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, identity_server,
};
use tonic::{Request, Response, Status};

/// Answers of the identity service.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Set if the process has the controller service.
    pub has_controller: bool,
}

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |kind: service::Type| Type::Service(Service { r#type: kind.into() });
        let mut types = vec![service(service::Type::VolumeAccessibilityConstraints)];
        if self.has_controller {
            types.push(service(service::Type::ControllerService));
            types.push(service(service::Type::GroupControllerService));
        }
        let online = volume_expansion::Type::Online.into();
        types.push(Type::VolumeExpansion(VolumeExpansion { r#type: online }));
        let capabilities =
            types.into_iter().map(|one| PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        // Ready without a gateway, too: restarting the driver would not bring it back.
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
