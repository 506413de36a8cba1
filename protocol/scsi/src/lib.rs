//! A SCSI direct-access block device (SPC-4, SBC-4) over a block store,
//! independent of the transport. It has no clock, no socket and no thread: a
//! transport passes in a [`Command`] and sends the [`Response`].
//!
//! - `disk/` is one logical unit: configuration, state, locks.
//! - `command/` has one file for each family of commands, and the table of all
//!   commands with the conditions under which they run.
//! - `logical_units.rs` maps LUNs to disks, as visible to one initiator;
//!   `target.rs` runs commands addressed by LUN.

mod command;
mod disk;
pub mod limits;
mod logical_units;
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
pub use logical_units::{AbsentUnit, LogicalUnits};
pub use lun::Lun;
pub use nexus::{Nexus, NexusId, TransportId};
pub use sense::{Asc, FieldPointer, ScsiStatus, Sense, SenseKey, Specific};
pub use transport::{Finished, Task, Work};
