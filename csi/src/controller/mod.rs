//! The controller service: volumes, access of nodes, snapshots. It keeps nothing:
//! what exists is at the gateways, under names that follow from the requests.

mod access;
mod capability;
mod group;
mod list;
mod parameters;
mod service;
mod snapshot;
mod topology;
mod volume;

pub(crate) use capability::Wanted;

use crate::gateway::Gateway;
use crate::gateway::http::HttpGateway;
use crate::locks::Locks;
use crate::names::VolumeId;
use crate::settings::{GatewaySettings, Settings};
use crate::status::of_gateway;
use std::sync::Arc;
use tonic::Status;
use zgate_api::{ErrorCode, Volume};

/// The controller.
#[derive(Clone)]
pub struct Controller {
    owner: Arc<str>,
    sites: Arc<[Site]>,
    locks: Locks,
}

/// A gateway of the settings.
pub(crate) struct Site {
    pub(crate) settings: GatewaySettings,
    pub(crate) gateway: Arc<dyn Gateway>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Controller {
    /// Creates a controller that reaches the gateways by HTTP.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, |gateway| Arc::new(HttpGateway::new(gateway.clone())))
    }

    /// Creates a controller with gateways of the caller.
    pub fn with(
        settings: Settings,
        mut gateway: impl FnMut(&GatewaySettings) -> Arc<dyn Gateway>,
    ) -> Self {
        let site = |settings: GatewaySettings| Site { gateway: gateway(&settings), settings };
        let sites: Vec<Site> = settings.gateways.into_iter().map(site).collect();
        Self { owner: settings.owner.into(), sites: sites.into(), locks: Locks::default() }
    }

    /// Returns the gateway of an id.
    fn site(&self, gateway: &str) -> Result<&Site, Status> {
        let missing = || {
            Status::failed_precondition(format!(
                "gateway {gateway:?} is not in the settings; add it again, its volumes exist"
            ))
        };
        self.sites.iter().find(|site| site.settings.name == gateway).ok_or_else(missing)
    }

    /// Returns a volume of this owner; none if there is no such volume.
    async fn find(&self, id: &VolumeId) -> Result<Option<Volume>, Status> {
        let Ok(site) = self.site(&id.gateway) else { return Ok(None) };
        match site.gateway.volume(&id.dataset).await {
            Ok(volume) if volume.owner == *self.owner => Ok(Some(volume)),
            Ok(_) => Ok(None),
            // A name outside of the parents is no volume of ours.
            Err(error)
                if matches!(
                    error.code,
                    ErrorCode::NotFound | ErrorCode::Forbidden | ErrorCode::Invalid
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(of_gateway(error)),
        }
    }
}
