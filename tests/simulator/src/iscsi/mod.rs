//! Disks for initiators: a target of the product's rooms on virtual time, and
//! hosts with several connections.

mod execute;
mod host;
mod iser;
mod recovery;
mod steps;
mod storage;
mod target;
mod tasks;
mod wires;

pub use host::{HostSession, HostTransport};
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
/// Name and secret of hosts that must authenticate, and the target's secret.
const CHAP_NAME: &str = "host";
const CHAP_SECRET: &[u8] = b"a secret of a host";
/// A name that no host has.
const STRANGER: &str = "stranger";
const TARGET_SECRET: &[u8] = b"a secret of the target";

/// Every second host must authenticate, and asks the same of the target.
fn has_secret(initiator: &str) -> bool {
    initiator.ends_with("host1")
}

/// Blocks of a host on the disk.
const BLOCKS_PER_HOST: u32 = 4;

/// Identifier of the logical unit.
const NAA: [u8; 8] = [0x30, 0, 0, 0, 0, 0, 0, 1];

/// Block from which a worker's copies are made.
fn staging_lba(host: usize, worker: u32) -> u32 {
    /// Behind the blocks of all hosts.
    const FIRST: u32 = 64;
    FIRST + (host - FIRST_HOST) as u32 * crate::plan::WORKERS + worker
}

/// Block of a register on the disk.
#[must_use]
pub fn lba(register: Register) -> u32 {
    1 + (register.client - FIRST_HOST) as u32 * BLOCKS_PER_HOST + register.block
}
