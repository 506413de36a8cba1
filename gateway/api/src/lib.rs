//! Types of the gateway's HTTP API under `/api/v1`: bodies of requests and
//! answers, error codes, paths. No sockets, no HTTP: the gateway and its clients
//! share them.

pub mod access;
pub mod change;
pub mod error;
pub mod path;
pub mod snapshot;
pub mod volume;

pub use access::{
    Access, GrantAccess, LeftAccess, Portal, Reach, SoleAccess, Transport, WithdrawAccess,
};
pub use change::{
    AddLun, AddRule, ReleaseDataset, Reload, ReplacedDataset, ResizeLun, ResumeDataset,
};
pub use error::{ApiError, ErrorAnswer, ErrorCode};
pub use snapshot::{
    CreateGroupSnapshot, CreateSnapshot, GroupSnapshot, RollBack, Snapshot, SnapshotPage,
};
pub use volume::{
    Capacity, ChangeVolume, ConfirmVolume, CreateVolume, DeleteVolume, Properties, Source, Volume,
    VolumeKind, VolumePage,
};
