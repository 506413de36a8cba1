//! From a configuration to listeners, whenever there is a device for them.

use super::accept::accept_loop;
use crate::lifecycle::fabric::FabricSource;
use crate::listen::accept::{NewConnection, Protocol};
use crate::serve::boundary::essential;
use crate::serve::service::Service;
use futures_util::stream::StreamExt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{DeviceEvent, Fabric};

/// Between two looks for a library or a device that was missing.
const OPEN_PERIOD: Duration = Duration::from_secs(5);

/// Opens the fabric when there is one, then listens for all time. What is
/// missing is said once; TCP goes on.
pub(crate) async fn supervise(
    source: FabricSource,
    portals: Vec<(SocketAddr, Protocol)>,
    service: Rc<Service>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let fabric = open(source, &service).await;
    tokio::task::spawn_local(tell_of_devices(Arc::clone(&fabric), Rc::clone(&service)));
    for (address, protocol) in portals {
        let (fabric, service, cores) = (Arc::clone(&fabric), Rc::clone(&service), cores.clone());
        tokio::task::spawn_local(async move {
            let accept = accept_loop(fabric, address, protocol, Rc::clone(&service), cores);
            essential("accepting over RDMA", &service.shared.drain, accept).await;
        });
    }
}

async fn open(source: FabricSource, service: &Service) -> Arc<dyn Fabric> {
    let state = &service.shared.rdma;
    loop {
        let source = source.clone();
        // Registering the arena takes its time.
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
            tracing::warn!(%reason, "no RDMA yet; clients are served over TCP");
        }
        tokio::time::sleep(OPEN_PERIOD).await;
    }
}

/// Logs and counts what happens to the devices.
async fn tell_of_devices(fabric: Arc<dyn Fabric>, service: Rc<Service>) {
    let mut events = fabric.device_events();
    while let Some(event) = events.next().await {
        service.shared.rdma.event(&event);
        match event {
            DeviceEvent::Arrived { .. } | DeviceEvent::PortUp { .. } => {
                tracing::info!("RDMA: {event}");
            }
            _ => tracing::warn!("RDMA: {event}"),
        }
    }
}
