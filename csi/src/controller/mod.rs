//! The controller service: volumes, access of nodes, snapshots. It keeps nothing that the next
//! one would need: what exists is at the gateways, under names that follow from the requests.

mod access;
mod capability;
mod chosen;
mod gather;
mod group;
mod list;
mod parameters;
mod place;
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
use crate::status::{no_volume, not_final, of_gateway};
use chosen::ChosenPlaces;
use std::sync::Arc;
use tonic::Status;
use zgate_api::{ApiError, ErrorCode, Volume};

/// The controller.
#[derive(Clone)]
pub struct Controller {
    owner: Arc<str>,
    sites: Arc<[Site]>,
    locks: Locks,
    chosen: ChosenPlaces,
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
        Self {
            owner: settings.owner.into(),
            sites: sites.into(),
            locks: Locks::default(),
            chosen: ChosenPlaces::default(),
        }
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

    /// Returns a volume of this owner; none if its gateway says that there is none, or
    /// that there cannot be one of this name.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where the settings of the driver or of the gateway do not
    /// name the place of the volume, or another owner: the volume and the access to it
    /// may exist, and callers must not forget them.
    async fn find(&self, id: &VolumeId) -> Result<Option<Volume>, Status> {
        let site = self.site(&id.gateway)?;
        match site.gateway.volume(&id.dataset).await {
            Ok(volume) if volume.owner == *self.owner => Ok(Some(volume)),
            Ok(volume) => Err(Status::failed_precondition(format!(
                "volume {id} is of owner {:?}, and the settings have {:?}; correct `owner`, or \
                 `zgate:owner` of the dataset",
                volume.owner, self.owner
            ))),
            // ZFS allows no such name.
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Invalid) => {
                Ok(None)
            }
            Err(error) if error.code == ErrorCode::Forbidden => {
                Err(Status::failed_precondition(format!("volume {id}: {error}")))
            }
            Err(error) => Err(of_gateway(error)),
        }
    }

    /// Returns a volume of this owner.
    ///
    /// # Errors
    /// NOT_FOUND if there is none, and those of [`Self::find`].
    async fn required(&self, id: &VolumeId) -> Result<Volume, Status> {
        self.find(id).await?.ok_or_else(|| no_volume(&id.to_string()))
    }

    /// Returns the reason for which there are no snapshots of volumes: one of them is not there,
    /// or else the refusal. Until that is known, no error is final.
    async fn not_taken(&self, volumes: &[VolumeId], refusal: Status) -> Status {
        for id in volumes {
            match self.find(id).await {
                Ok(Some(_)) => {}
                Ok(None) => return no_volume(&id.to_string()),
                Err(error) => return not_final(error),
            }
        }
        refusal
    }
}

/// Returns whether a refusal may be because the volume is not there, or is another's.
fn is_of_volume(refusal: &ApiError) -> bool {
    matches!(refusal.code, ErrorCode::NotFound | ErrorCode::Invalid | ErrorCode::Forbidden)
}

#[cfg(test)]
mod tests;
