//! Addresses that two listeners cannot share.

use crate::interface::{RDMA_PORT, covers};
use crate::problem::{Findings, Place};
use crate::rdma::FabricChoice;
use crate::schema::Config;
use std::net::SocketAddr;

/// One listener: its place, its key for messages, and its address.
struct Listener {
    place: Place,
    key: &'static str,
    address: SocketAddr,
    over_rdma: bool,
}

fn all(config: &Config) -> Vec<Listener> {
    let mut all = Vec::new();
    let mut add = |place: Place, key, listen: &[SocketAddr], over_rdma| {
        for (index, &address) in listen.iter().enumerate() {
            all.push(Listener { place: place.item(index), key, address, over_rdma });
        }
    };
    let (server, iscsi) = (Place::root("server"), Place::root("iscsi"));
    // First: it is the one that a file often leaves out.
    let metrics = std::slice::from_ref(&config.server.metrics_listen);
    add(server.key("metrics_listen"), "server.metrics_listen", metrics, false);
    add(server.key("listen"), "server.listen", &config.server.listen, false);
    add(iscsi.key("listen"), "iscsi.listen", &config.iscsi.listen, false);
    add(iscsi.key("iser_listen"), "iscsi.iser_listen", &config.iscsi.iser_listen, true);
    for (index, group) in config.iscsi.groups.iter().enumerate() {
        let place = iscsi.key("group").item(index);
        add(place.key("listen"), "iscsi.group listen", &group.listen, false);
        add(place.key("iser_listen"), "iscsi.group iser_listen", &group.iser_listen, true);
    }
    add(Place::root("api").key("listen"), "api.listen", &config.api.listen, false);
    add(Place::root("rdma").key("listen"), "rdma.listen", &config.rdma.listen, true);
    if config.rdma.listen.is_empty() {
        for (index, interface) in config.interfaces.iter().enumerate() {
            if interface.role.rdma() {
                let address = SocketAddr::new(interface.address, RDMA_PORT);
                add(Place::root("interface").item(index), "interface", &[address], true);
            }
        }
    }
    all
}

/// Returns whether the second of two listeners could not be opened.
fn collide(one: SocketAddr, two: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), two.ip().to_canonical());
    one.port() == two.port() && one.port() != 0 && (covers(a, b) || covers(b, a))
}

/// Adds the listeners that collide with one before them. Ports of RDMA devices
/// are separate from TCP ports; the emulated fabric listens on TCP ports.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let emulated = config.rdma.fabric == FabricChoice::Emulated;
    let listeners = all(config);
    for (index, listener) in listeners.iter().enumerate() {
        let taken = listeners[..index].iter().find(|other| {
            (emulated || other.over_rdma == listener.over_rdma)
                && collide(other.address, listener.address)
        });
        if let Some(Listener { key, address, .. }) = taken {
            let problem = format!("{} collides with {address} of {key}", listener.address);
            found.add(listener.place.clone(), problem, "choose another port or address");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn listeners_that_collide_are_told() {
        let said = |nfs: &str, iscsi: &str, metrics: &str| {
            let text = format!(
                "[server]\nlisten = [{nfs}]\nmetrics_listen = \"{metrics}\"\n\
                 [iscsi]\nlisten = [{iscsi}]\n"
            );
            let error = crate::parse(&text, Path::new("x")).err();
            error.map_or(Vec::new(), |error| error.problems.into_iter().map(|p| p.key).collect())
        };
        let (nfs, iscsi) = ("server.listen", "iscsi.listen");
        let same = said("\"0.0.0.0:2049\"", "\"0.0.0.0:2049\"", "127.0.0.1:2049");
        assert_eq!(same, [nfs, iscsi]);
        assert_eq!(said("\"0.0.0.0:9\", \"[::]:9\"", "", "127.0.0.1:8"), [nfs]);
        assert_eq!(said("\"127.0.0.1:9\", \"127.0.0.1:9\"", "", "127.0.0.1:8"), [nfs]);
        assert!(said("\"127.0.0.1:9\"", "\"127.0.0.2:9\"", "[::1]:9").is_empty());
        assert!(said("\"127.0.0.1:0\"", "\"127.0.0.1:0\"", "127.0.0.1:0").is_empty());
    }
}
