//! The verbs both transports use, as traits: connections that send, receive,
//! and read and write the peer's memory. `zgate-verbs` implements them over a
//! device; [`EmulatedFabric`] over TCP, with the same rules, so that all that
//! is built on them also runs where no device is.
//!
//! Memory has one owner at a time. What a device may write is moved into the
//! work that is posted and comes back with its event; what it reads is
//! [`bytes::Bytes`], shared read-only and kept until the event. So no buffer
//! is used again while a device or a peer can still reach it.

mod device;
mod emulated;
mod foreign;
pub mod limits;
mod traits;
mod work;

pub use device::DeviceEvent;
pub use emulated::EmulatedFabric;
pub use foreign::{Foreign, Window};
pub use traits::{
    Access, ConnectError, Connection, Established, Exposed, Fabric, Listener, QueueOptions,
    Request, Setup,
};
pub use work::{
    Disconnect, Event, PostError, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch,
    SendPart, WorkId, WorkKind, WorkStatus,
};
