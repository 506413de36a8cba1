//! Opens the fabric and its listeners as soon as there is a device.

use super::accept::accept_loop;
use super::fabric::FabricSource;
use super::state::RdmaState;
use crate::net::arrival::{NewConnection, Protocol};
use crate::net::boundary::essential;
use crate::net::core::Network;
use futures_util::stream::StreamExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{DeviceEvent, Fabric};

/// Time between two attempts to open a missing library or device.
const OPEN_PERIOD: Duration = Duration::from_secs(5);

/// Opens the fabric when it is available, then listens. A missing part is
/// logged once; TCP is not affected.
pub(crate) async fn supervise(
    source: FabricSource,
    portals: Vec<(SocketAddr, Protocol)>,
    network: Arc<Network>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let fabric = open(source, &network.rdma).await;
    tokio::task::spawn_local(tell_of_devices(Arc::clone(&fabric), Arc::clone(&network.rdma)));
    for (address, protocol) in portals {
        let (fabric, network, cores) = (Arc::clone(&fabric), Arc::clone(&network), cores.clone());
        tokio::task::spawn_local(async move {
            let accept = accept_loop(fabric, address, protocol, Arc::clone(&network), cores);
            essential("accepting over RDMA", &network.drain, accept).await;
        });
    }
}

async fn open(source: FabricSource, state: &RdmaState) -> Arc<dyn Fabric> {
    loop {
        let source = source.clone();
        // Registering the arena takes long.
        let opened = tokio::task::spawn_blocking(move || source.open()).await;
        let reason = match opened {
            Ok(Ok(fabric)) => {
                if state.set_problem(None) {
                    tracing::info!("there is an RDMA device now");
                }
                return fabric;
            }
            Ok(Err(reason)) => reason,
            Err(error) => error.to_string(),
        };
        if state.set_problem(Some(reason.clone())) {
            tracing::warn!(%reason, "RDMA is not available yet; clients are served over TCP");
        }
        tokio::time::sleep(OPEN_PERIOD).await;
    }
}

/// Logs and counts events of devices.
async fn tell_of_devices(fabric: Arc<dyn Fabric>, state: Arc<RdmaState>) {
    let mut events = fabric.device_events();
    while let Some(event) = events.next().await {
        state.event(&event);
        match event {
            DeviceEvent::Arrived { .. }
            | DeviceEvent::PortUp { .. }
            | DeviceEvent::AddressesChanged { .. } => {
                tracing::info!("RDMA: {event}");
            }
            _ => tracing::warn!("RDMA: {event}"),
        }
    }
}
