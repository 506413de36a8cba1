//! Load of clients, exports, initiators and logical units, for `zgate top`:
//! figures since the beginning of each, which the command turns into rates.

use super::shared::Shared;
use super::throughput::Throughput;
use crate::iscsi::session::LiveSession;
use crate::observe::load::LoadFigures;
use crate::observe::printable::printable;
use serde::Serialize;
use std::collections::HashMap;
use zgate_nfs::runtime::Runtime;

/// Answer of `zgate top`.
#[derive(Debug, Serialize)]
pub(crate) struct Activity {
    /// Time of the figures on a clock that never jumps, in seconds.
    at_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<Throughput>,
    clients: Vec<ClientActivity>,
    exports: Vec<ExportActivity>,
    initiators: Vec<InitiatorActivity>,
    luns: Vec<LunActivity>,
}

/// Load of one NFS client.
#[derive(Debug, Serialize)]
pub(crate) struct ClientActivity {
    /// Its address; `others` for all beyond the number that is counted.
    pub address: String,
    /// Name that it calls itself, if it uses NFSv4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub connections: usize,
    #[serde(flatten)]
    pub figures: LoadFigures,
}

/// Load of one export.
#[derive(Debug, Serialize)]
struct ExportActivity {
    pseudo_path: String,
    #[serde(flatten)]
    figures: LoadFigures,
}

/// Load of one iSCSI session.
#[derive(Debug, Serialize)]
pub(crate) struct InitiatorActivity {
    pub initiator: String,
    pub tsih: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub address: String,
    pub connections: usize,
    #[serde(flatten)]
    pub figures: LoadFigures,
}

/// Load of one logical unit.
#[derive(Debug, Serialize)]
struct LunActivity {
    target: String,
    number: u16,
    #[serde(flatten)]
    figures: LoadFigures,
}

/// Returns the load of everything.
pub(crate) fn activity(shared: &Shared) -> Activity {
    let namespace = shared.nfs.v4.namespace();
    let mut exports: Vec<_> = namespace
        .exports()
        .map(|export| ExportActivity {
            pseudo_path: export.pseudo_path.clone(),
            figures: shared.nfs.loads.of_export(export.id.0),
        })
        .collect();
    exports.sort_by(|a, b| a.pseudo_path.cmp(&b.pseudo_path));
    let rules = shared.iscsi.rules();
    let luns = rules.catalog.units().map(|unit| LunActivity {
        target: unit.target.to_string(),
        number: unit.config.number,
        figures: unit.stats.load(),
    });
    Activity {
        at_seconds: shared.nfs.runtime.now().monotonic_nanos as f64 / 1e9,
        throughput: shared.recent.throughput(shared),
        clients: clients(shared),
        exports,
        initiators: initiators(shared),
        luns: luns.collect(),
    }
}

/// Returns the load of the NFS clients.
pub(crate) fn clients(shared: &Shared) -> Vec<ClientActivity> {
    let views = shared.nfs.v4.clients(shared.nfs.runtime.now().seconds());
    let names: HashMap<_, _> =
        views.into_iter().map(|view| (view.address, printable(&view.name))).collect();
    let show = shared.nfs.loads.clients().into_iter().map(|client| {
        let address = client.address.map(|address| address.to_string());
        ClientActivity {
            name: address.as_ref().and_then(|address| names.get(address).cloned()),
            address: address.unwrap_or_else(|| "others".to_owned()),
            connections: client.connections,
            figures: client.figures,
        }
    });
    show.collect()
}

/// Returns the load of the initiators.
fn initiators(shared: &Shared) -> Vec<InitiatorActivity> {
    let show = |live: &LiveSession| InitiatorActivity {
        initiator: live.key.initiator.to_string(),
        tsih: live.tsih.0,
        target: live.key.target.as_ref().map(ToString::to_string),
        address: live.address.to_string(),
        connections: live.connections().len(),
        figures: LoadFigures { running: live.running() as u64, ..live.load.figures() },
    };
    shared.iscsi.sessions().iter().map(|live| show(live)).collect()
}
