//! The configuration file: schema, parsing, validation, differences. Depends on
//! no other crate of the workspace.

mod diff;
mod entries;
mod explain;
mod interface;
mod locate;
mod parse;
mod rdma;
mod schema;
mod snapshot;
mod target;
mod validate;
mod validate_target;

pub use diff::{Change, Effect, after_reload, diff};
pub use entries::{EntryChange, EntryEvent, changed_entries};
pub use interface::{InterfaceConfig, InterfaceRole, RDMA_PORT};
pub use parse::{ConfigError, load, parse};
pub use rdma::{FabricChoice, RdmaConfig};
pub use schema::{
    AccessMode, ByteSize, Cidr, ClientMatch, Config, ExportClient, ExportConfig, IoEngineChoice,
    ServerConfig, SquashMode,
};
pub use snapshot::SnapshotConfig;
pub use target::{
    ChapConfig, DirectChoice, InitiatorConfig, IscsiConfig, LunConfig, NaaId, NamePattern,
    PortalGroupConfig, TargetConfig, VolumesConfig,
};

/// Checks one logical unit of a target against the rules of the file, for a LUN
/// that arrives by a live command. Returns the problems; empty if there are
/// none.
#[must_use]
pub fn lun_problems(target: &str, lun: &LunConfig) -> Vec<String> {
    validate_target::lun_problems(target, lun)
}

/// Checks one initiator's rule in the same way, except for the LUNs it names.
#[must_use]
pub fn initiator_problems(target: &str, initiator: &InitiatorConfig) -> Vec<String> {
    validate_target::initiator_problems(target, initiator)
}
