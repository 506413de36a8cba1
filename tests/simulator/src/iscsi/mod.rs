//! Disks for initiators: a target of the product's rooms on virtual time, and
//! hosts with several connections.

mod execute;
mod host;
mod steps;
mod storage;
mod target;
mod tasks;
mod wires;

pub use host::HostSession;
pub use steps::HostWorker;
pub use storage::{Reservations, UnitStore};
pub use target::Target;
pub use wires::Wires;

use crate::history::Register;
use zgate_iscsi::pdu::Lun;

/// Name of the target.
pub const TARGET: &str = "iqn.2026-11.test.zgate:disk";
/// The one logical unit.
pub const LUN: Lun = Lun(0);
/// Bytes of a logical block.
pub const LOGICAL_BLOCK_BYTES: usize = 512;
/// Hosts are counted from here in the history.
pub const FIRST_HOST: usize = 100;
/// Block that all hosts compare and write.
pub const SHARED_LBA: u32 = 0;
/// Blocks of a host on the disk.
const BLOCKS_PER_HOST: u32 = 4;

/// Block of a register on the disk.
#[must_use]
pub fn lba(register: Register) -> u32 {
    1 + (register.client - FIRST_HOST) as u32 * BLOCKS_PER_HOST + register.block
}
