//! A SCSI direct-access block device (SPC-4, SBC-4) over a block store, as a
//! host sees it through any transport. It knows no transport, no clock, no
//! socket and no thread: a transport brings a [`Command`] and carries the
//! [`Response`] away.
//!
//! - `disk/` is one logical unit: what is configured, what changes, locks.
//! - `command/` has one file for each family of commands, and the table that
//!   says which commands there are and when they may run.
//! - `target.rs` maps LUNs to disks, as one initiator sees them.

mod command;
mod disk;
pub mod limits;
mod lun;
mod nexus;
mod sense;
mod target;
#[cfg(test)]
mod testing;
mod transport;
mod wire;

pub use command::cdb::Cdb;
pub use command::table::{command_name, expected_data_out, touches_nothing};
pub use command::{Command, Response, TaskAttribute};
pub use disk::background::{Pacer, Unpaced};
pub use disk::config::{AccessState, ConfigError, DiskConfig, Naa, PortGroup, TargetPort};
pub use disk::reservation_store::{MemoryReservations, ReservationStore};
pub use disk::running::RunningCommands;
pub use disk::{Disk, OpenError, ResetReason, ThinSpace};
pub use lun::Lun;
pub use nexus::{Nexus, NexusId, TransportId};
pub use sense::{Asc, FieldPointer, ScsiStatus, Sense, SenseKey, Specific};
pub use target::LogicalUnits;
pub use transport::{Finished, Task, Work};
