//! Table of commands: legal bits, conditions, and the family that executes
//! each.
//!
//! Reservation rules are those of SPC-4 tables 67 and 68 and SBC-3 table 13;
//! the usage maps are returned by REPORT SUPPORTED OPERATION CODES, and CDBs
//! are checked against them.

mod rows;

use super::cdb::{Cdb, Shape};
use crate::limits::MAX_TRANSFER_BYTES;

pub(crate) use rows::ROWS;

/// Family that executes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ReportLuns,
    ReadCapacity10,
    ReadCapacity16,
    LbaStatus,
    Read,
    Write,
    WriteAtomic,
    WriteAndVerify,
    Verify,
    WriteSame,
    Unmap,
    CompareAndWrite,
    OrWrite,
    Prefetch,
    SyncCache,
    Defects,
    ModeSense,
    ModeSelect,
    LogSense,
    StartStop,
    PreventAllow,
    Reserve6,
    Release6,
    ReserveIn,
    ReserveOut,
    ReportPortGroups,
    SetPortGroups,
    ReportOpcodes,
    ReportTaskManagement,
    ExtendedCopy,
    CopyAbort,
    CopyResults,
    PopulateToken,
    WriteUsingToken,
    ReceiveTokenInformation,
    ReportTokens,
    Sanitize,
    SendDiagnostic,
}

/// Condition under which a persistent reservation of another nexus refuses the
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Never.
    Never,
    /// Under Exclusive Access types.
    ExclusiveAccess,
    /// Under every type.
    Always,
    /// Always, except if it only allows removal (PREVENT=0).
    UnlessAllows,
    /// Always, except if it only starts the unit (START=1, POWER CONDITION=0).
    UnlessStarts,
}

/// Data-out length of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataOut {
    /// None.
    None,
    /// A parameter list whose length is this byte of the CDB.
    List8(usize),
    /// A parameter list whose length starts at this byte of the CDB.
    List16(usize),
    /// A parameter list whose length starts at this byte of the CDB.
    List32(usize),
    /// The blocks that the CDB names.
    Blocks,
    /// Twice those blocks.
    BlocksTwice,
    /// One block, or none with NDOB=1.
    OneBlock,
    /// Decided by BYTCHK.
    ByteCheck,
}

/// Ability of a logical unit that the command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Thin,
    Sanitize,
    /// SANITIZE, and blocks that can be unmapped.
    SanitizeAndThin,
    ExplicitAlua,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) opcode: u8,
    pub(crate) service_action: Option<u8>,
    pub(crate) name: &'static str,
    /// Length of the CDB in bytes.
    pub(crate) length: u8,
    /// Bits of the CDB that have a meaning.
    pub(crate) usage: [u8; 16],
    pub(crate) shape: Shape,
    pub(crate) data_out: DataOut,
    pub(crate) conflict: Conflict,
    /// Allowed during a RESERVE (6) of another I_T nexus (SPC-2 table 10).
    pub(crate) under_reserve6: bool,
    /// Leaves unit attentions pending for another command.
    pub(crate) attention_exempt: bool,
    pub(crate) while_sanitizing: bool,
    /// Allowed on ports in standby.
    pub(crate) in_standby: bool,
    /// Needs the medium to be present.
    pub(crate) medium: bool,
    /// Changes the medium.
    pub(crate) writes: bool,
    pub(crate) needs: Needs,
    /// NOMINAL COMMAND PROCESSING TIMEOUT in seconds.
    pub(crate) nominal_seconds: u32,
    /// RECOMMENDED COMMAND TIMEOUT in seconds.
    pub(crate) recommended_seconds: u32,
    pub(crate) family: Family,
}

impl Row {
    /// Returns the first bit set in the CDB that has no meaning, as (byte,
    /// bit).
    pub(crate) fn reserved_bit(&self, cdb: &Cdb) -> Option<(u16, u8)> {
        let bytes = cdb.bytes().iter().zip(&self.usage).enumerate();
        for (at, (byte, usage)) in bytes.take(usize::from(self.length)).skip(1) {
            let wrong = byte & !usage;
            if wrong != 0 {
                let bit = u8::try_from(wrong.ilog2()).unwrap_or(7);
                return Some((u16::try_from(at).unwrap_or(u16::MAX), bit));
            }
        }
        None
    }

    /// Returns the data-out length that the CDB requests, in bytes.
    pub(crate) fn data_out_bytes(&self, cdb: &Cdb, block_bytes: u32) -> u64 {
        let blocks = cdb.range(self.shape).blocks;
        let block = u64::from(block_bytes);
        match self.data_out {
            DataOut::None => 0,
            DataOut::List8(at) => u64::from(cdb.byte(at)),
            DataOut::List16(at) => u64::from(cdb.be16(at)),
            DataOut::List32(at) => u64::from(cdb.be32(at)),
            DataOut::Blocks => blocks.saturating_mul(block),
            DataOut::BlocksTwice => blocks.saturating_mul(2 * block),
            DataOut::OneBlock if self.length == 16 && cdb.byte(1) & 0x01 != 0 => 0,
            DataOut::OneBlock => block,
            DataOut::ByteCheck => match (cdb.byte(1) >> 1) & 0x03 {
                0b01 => blocks.saturating_mul(block),
                0b11 if blocks > 0 => block,
                _ => 0,
            },
        }
    }
}

/// Result of a lookup of a CDB in the table.
#[derive(Clone, Copy)]
pub(crate) enum Lookup {
    /// A row, whether or not the disk supports it.
    Row(&'static Row),
    /// The operation code is known, the service action is not.
    UnknownServiceAction,
    /// Unknown.
    UnknownOpcode,
}

impl Family {
    /// Returns whether the command may change anything: blocks, reservations,
    /// modes.
    fn has_effects(self) -> bool {
        !matches!(
            self,
            Self::TestUnitReady
                | Self::RequestSense
                | Self::Inquiry
                | Self::ReportLuns
                | Self::ReadCapacity10
                | Self::ReadCapacity16
                | Self::LbaStatus
                | Self::Read
                | Self::Verify
                | Self::Prefetch
                | Self::SyncCache
                | Self::Defects
                | Self::ModeSense
                | Self::LogSense
                | Self::ReserveIn
                | Self::ReportPortGroups
                | Self::ReportOpcodes
                | Self::ReportTaskManagement
                | Self::CopyResults
                | Self::ReceiveTokenInformation
                | Self::ReportTokens
                | Self::SendDiagnostic
        )
    }
}

impl Lookup {
    /// Returns whether the command may change anything.
    pub(crate) fn has_effects(&self) -> bool {
        matches!(self, Self::Row(row) if row.family.has_effects())
    }

    /// Returns whether other commands wait for this one. PERSISTENT RESERVE OUT
    /// waits for others itself; only one runs at a time, and commands that wait
    /// for it take the same lock.
    pub(crate) fn is_followed(&self) -> bool {
        matches!(self, Self::Row(row) if row.family.has_effects() && row.family != Family::ReserveOut)
    }
}

/// Returns whether a command needs neither the medium nor anything that may
/// change it: INQUIRY, REPORT LUNS and REQUEST SENSE, which always work (SPC-4
/// §5.6).
#[must_use]
pub fn touches_nothing(cdb: &Cdb) -> bool {
    matches!(cdb.opcode(), 0x03 | 0x12 | 0xA0)
}

/// Finds the row of a CDB.
pub(crate) fn lookup(cdb: &Cdb) -> Lookup {
    let mut known = false;
    // The rows are sorted by operation code.
    let start = ROWS.partition_point(|row| row.opcode < cdb.opcode());
    for row in ROWS.iter().skip(start).take_while(|row| row.opcode == cdb.opcode()) {
        known = true;
        if row.service_action.is_none_or(|action| action == cdb.service_action()) {
            return Lookup::Row(row);
        }
    }
    if known { Lookup::UnknownServiceAction } else { Lookup::UnknownOpcode }
}

/// Returns the first bit set in a CDB that has no meaning, as (byte, bit).
pub(crate) fn reserved_bit(cdb: &Cdb) -> Option<(u16, u8)> {
    match lookup(cdb) {
        Lookup::Row(row) => row.reserved_bit(cdb),
        _ => None,
    }
}

/// Returns the number of data-out bytes that a transport must gather for a CDB,
/// 0 for unknown commands. Never exceeds the largest transfer of a command.
#[must_use]
pub fn expected_data_out(cdb: &Cdb, block_bytes: u32) -> u64 {
    match lookup(cdb) {
        Lookup::Row(row) => {
            let bytes = row.data_out_bytes(cdb, block_bytes);
            // A longer command is refused, which needs none of its data.
            if bytes > MAX_TRANSFER_BYTES { 0 } else { bytes }
        }
        _ => 0,
    }
}

/// Returns the name of the command, for logs and metrics.
#[must_use]
pub fn command_name(cdb: &Cdb) -> &'static str {
    match lookup(cdb) {
        Lookup::Row(row) => row.name,
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        let keys: Vec<_> = ROWS.iter().map(|row| (row.opcode, row.service_action)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(keys, sorted);
    }

    #[test]
    fn usage_maps_fit_their_commands() {
        for row in ROWS {
            assert_eq!(row.usage[0], row.opcode, "{}", row.name);
            let length = usize::from(row.length);
            assert!(row.usage[length..].iter().all(|&byte| byte == 0), "{}", row.name);
            let expected = match row.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                _ => 0,
            };
            assert_eq!(length, expected, "{}", row.name);
            if row.service_action.is_some() {
                assert_eq!(row.usage[1] & 0x1F, 0x1F, "{}", row.name);
            }
        }
    }

    #[test]
    fn reserved_bits_are_found() {
        let Lookup::Row(row) = lookup(&Cdb::new(&[0x28])) else { panic!("READ (10)") };
        let mut cdb = [0u8; 10];
        cdb[0] = 0x28;
        cdb[1] = 0x20;
        assert_eq!(row.reserved_bit(&Cdb::new(&cdb)), Some((1, 5)));
        cdb[1] = 0x18;
        assert_eq!(row.reserved_bit(&Cdb::new(&cdb)), None);
        // NACA=1.
        cdb[9] = 0x04;
        assert_eq!(row.reserved_bit(&Cdb::new(&cdb)), Some((9, 2)));
    }

    #[test]
    fn transports_learn_how_much_to_gather() {
        let write = Cdb::new(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(expected_data_out(&write, 512), 1024);
        let compare = Cdb::new(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]);
        assert_eq!(expected_data_out(&compare, 512), 3072);
        let huge = Cdb::new(&[0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]);
        assert_eq!(expected_data_out(&huge, 512), 0);
        let no_data = Cdb::new(&[0x93, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(expected_data_out(&no_data, 512), 0);
        assert_eq!(expected_data_out(&Cdb::new(&[0xFF]), 512), 0);
    }
}
