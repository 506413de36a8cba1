//! The configuration file: schema, parsing, validation, differences. Knows
//! nobody else.

mod diff;
mod explain;
mod interface;
mod locate;
mod parse;
mod rdma;
mod schema;
mod snapshot;
mod suggest;
mod target;
mod validate;
mod validate_target;

pub use diff::{Change, Effect, after_reload, diff};
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

/// What is wrong with one logical unit of a target: the rules of the file for
/// one that comes by a live command. Empty: nothing.
#[must_use]
pub fn lun_problems(target: &str, lun: &LunConfig) -> Vec<String> {
    validate_target::lun_problems(target, lun)
}

/// The same for an initiator, but for the LUNs it names.
#[must_use]
pub fn initiator_problems(target: &str, initiator: &InitiatorConfig) -> Vec<String> {
    validate_target::initiator_problems(target, initiator)
}
