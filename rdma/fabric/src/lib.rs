//! The verbs both transports use, as traits: connections that send, receive,
//! and read and write the peer's memory. `zgate-verbs` implements them over a
//! device; [`EmulatedFabric`] implements them over TCP, with the same rules, so
//! that all code built on them also runs on machines without a device.
//!
//! Memory has one owner at a time. Memory that a device may write is moved into
//! the posted work and returned with its event; memory that it reads is
//! [`bytes::Bytes`], shared read-only and kept until the event. So no buffer is
//! reused while a device or a peer can still access it.

mod device;
mod emulated;
pub mod endpoint;
mod foreign;
pub mod limits;
mod traits;
mod work;

pub use device::DeviceEvent;
pub use emulated::EmulatedFabric;
pub use endpoint::{Endpoint, EndpointEvent};
pub use foreign::{Foreign, Window};
pub use traits::{
    Access, ConnectError, Connection, Established, Exposed, Fabric, Listener, QueueOptions,
    Request, Setup,
};
pub use work::{
    Disconnect, Event, PostError, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch,
    SendPart, WorkId, WorkKind, WorkStatus,
};
