//! The configuration file: schema, parsing, validation, differences. Depends on
//! no other crate of the workspace.

mod api;
mod bounds;
mod certificate;
mod deserialize;
mod diff;
mod document;
mod edit;
mod entries;
mod files;
mod id_range;
mod interface;
mod kerberos;
mod listeners;
mod live_change;
mod merge;
mod notice;
mod parse;
mod problem;
pub mod rates;
mod rdma;
mod schema;
mod snapshot;
mod target;
mod text;
mod tls;
mod validate;
mod validate_api;
mod validate_target;
mod validate_volumes;
mod volumes;

pub use api::{ApiConfig, MetricsTransport};
pub use certificate::{
    CertificateName, CertificateRequirement, ClientIdentity, Fingerprint, NoCertificateName,
    NoFingerprint,
};
pub use diff::{Change, Effect, after_reload, diff};
pub use entries::{EntryChange, EntryEvent, changed_entries};
pub use files::ConfigFiles;
pub use id_range::{IdRange, MAX_ID_RANGES};
pub use interface::{InterfaceConfig, InterfaceRole, RDMA_PORT};
pub use kerberos::KerberosConfig;
pub use live_change::{Edit, LiveChange, NotEdited};
pub use notice::Notices;
pub use parse::{ConfigError, SourceText, examine, load, parse};
pub use problem::{Diagnostic, Place, Problem};
pub use rates::Rates;
pub use rdma::{FabricChoice, RdmaConfig};
pub use schema::{
    AccessMode, ByteSize, Cidr, ClientMatch, Config, ExportClient, ExportConfig, IoEngineChoice,
    ServerConfig, SquashMode,
};
pub use snapshot::SnapshotConfig;
pub use target::{
    ChapConfig, DirectChoice, ISCSI_PORT, InitiatorConfig, IscsiConfig, LunConfig, NaaId,
    NamePattern, PortalGroupConfig, TargetConfig, VolumesConfig,
};
pub use tls::{ClientTransport, TlsConfig};
pub use validate::contradictions;
pub use validate_api::api_tls;
pub use validate_target::{initiator_problems, lun_problems};
pub use volumes::{VolumeParent, VolumesSection};
