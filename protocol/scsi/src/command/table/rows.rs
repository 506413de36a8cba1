//! Rows of the table, sorted by operation code and service action.

use super::{Conflict, DataOut, Family, Needs, Row};
use crate::command::cdb::Shape;

/// Expands the bits of a CDB that have a meaning; trailing zero bytes are
/// omitted.
const fn usage(bytes: &[u8]) -> [u8; 16] {
    let mut map = [0; 16];
    let mut at = 0;
    while at < bytes.len() {
        map[at] = bytes[at];
        at += 1;
    }
    map
}

const fn row(name: &'static str, map: &[u8], family: Family) -> Row {
    let opcode = map[0];
    let length = match opcode >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    };
    Row {
        opcode,
        service_action: None,
        name,
        length,
        usage: usage(map),
        shape: Shape::None,
        data_out: DataOut::None,
        conflict: Conflict::Never,
        under_reserve6: false,
        attention_exempt: false,
        while_sanitizing: false,
        in_standby: false,
        medium: false,
        writes: false,
        needs: Needs::Nothing,
        nominal_seconds: 1,
        recommended_seconds: 30,
        family,
    }
}

impl Row {
    const fn action(mut self, service_action: u8) -> Self {
        self.service_action = Some(service_action);
        self
    }

    /// Marks a command that reads or checks the medium.
    const fn reads(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self.medium = true;
        self.conflict = Conflict::ExclusiveAccess;
        self
    }

    /// Marks a command that changes the medium.
    const fn writes(mut self, shape: Shape, data_out: DataOut) -> Self {
        self.shape = shape;
        self.data_out = data_out;
        self.medium = true;
        self.writes = true;
        self.conflict = Conflict::Always;
        self
    }

    const fn list(mut self, data_out: DataOut) -> Self {
        self.data_out = data_out;
        self
    }

    const fn conflict(mut self, conflict: Conflict) -> Self {
        self.conflict = conflict;
        self
    }

    /// Marks a command that works in every state of the unit.
    const fn anytime(mut self) -> Self {
        self.under_reserve6 = true;
        self.while_sanitizing = true;
        self.in_standby = true;
        self
    }

    const fn exempt(mut self) -> Self {
        self.attention_exempt = true;
        self
    }

    const fn under_reserve6(mut self) -> Self {
        self.under_reserve6 = true;
        self
    }

    const fn standby(mut self) -> Self {
        self.in_standby = true;
        self
    }

    const fn medium(mut self) -> Self {
        self.medium = true;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    const fn seconds(mut self, nominal: u32, recommended: u32) -> Self {
        self.nominal_seconds = nominal;
        self.recommended_seconds = recommended;
        self
    }
}

use Conflict as C;
use DataOut as D;
use Family as F;
use Shape as S;

const X: u8 = 0xFF;
/// GROUP NUMBER.
const G: u8 = 0x1F;
/// SERVICE ACTION.
const A: u8 = 0x1F;
/// DPO and FUA.
const DF: u8 = 0x18;
/// DPO and BYTCHK.
const DB: u8 = 0x16;

/// Every command.
pub(crate) static ROWS: &[Row] = &[
    row("TEST UNIT READY", &[0x00], F::TestUnitReady).medium(),
    row("REQUEST SENSE", &[0x03, 0x01, 0, 0, X], F::RequestSense).anytime().exempt(),
    row("READ (6)", &[0x08, 0x1F, X, X, X], F::Read).reads(S::Six),
    row("WRITE (6)", &[0x0A, 0x1F, X, X, X], F::Write).writes(S::Six, D::Blocks),
    row("INQUIRY", &[0x12, 0x01, X, X, X], F::Inquiry).anytime().exempt(),
    row("MODE SELECT (6)", &[0x15, 0x11, 0, 0, X], F::ModeSelect)
        .list(D::List8(4))
        .conflict(C::Always)
        .standby(),
    row("RESERVE (6)", &[0x16], F::Reserve6).standby(),
    row("RELEASE (6)", &[0x17], F::Release6).under_reserve6().standby(),
    row("MODE SENSE (6)", &[0x1A, 0x08, X, X, X], F::ModeSense)
        .conflict(C::ExclusiveAccess)
        .standby(),
    row("START STOP UNIT", &[0x1B, 0x01, 0, 0x0F, 0xF7], F::StartStop)
        .conflict(C::UnlessStarts)
        .seconds(1, 60),
    row("SEND DIAGNOSTIC", &[0x1D, 0x04], F::SendDiagnostic).conflict(C::Always).standby(),
    row("PREVENT ALLOW MEDIUM REMOVAL", &[0x1E, 0, 0, 0, 0x03], F::PreventAllow)
        .conflict(C::UnlessAllows),
    row("READ CAPACITY (10)", &[0x25], F::ReadCapacity10).medium().anytime(),
    row("READ (10)", &[0x28, DF, X, X, X, X, G, X, X], F::Read).reads(S::Ten),
    row("WRITE (10)", &[0x2A, DF, X, X, X, X, G, X, X], F::Write).writes(S::Ten, D::Blocks),
    row("WRITE AND VERIFY (10)", &[0x2E, DB, X, X, X, X, G, X, X], F::WriteAndVerify)
        .writes(S::Ten, D::Blocks),
    row("VERIFY (10)", &[0x2F, DB, X, X, X, X, G, X, X], F::Verify)
        .reads(S::Ten)
        .list(D::ByteCheck)
        .seconds(1, 120),
    row("PRE-FETCH (10)", &[0x34, 0x02, X, X, X, X, G, X, X], F::Prefetch).reads(S::Ten),
    row("SYNCHRONIZE CACHE (10)", &[0x35, 0x06, X, X, X, X, G, X, X], F::SyncCache)
        .reads(S::Ten)
        .conflict(C::Always)
        .seconds(5, 120),
    row("READ DEFECT DATA (10)", &[0x37, 0, 0x1F, 0, 0, 0, 0, X, X], F::Defects).reads(S::None),
    row("WRITE SAME (10)", &[0x41, 0x08, X, X, X, X, G, X, X], F::WriteSame)
        .writes(S::Ten, D::OneBlock)
        .seconds(5, 120),
    row("UNMAP", &[0x42, 0, 0, 0, 0, 0, G, X, X], F::Unmap)
        .writes(S::None, D::List16(7))
        .needs(Needs::Thin)
        .seconds(5, 120),
    row("SANITIZE, OVERWRITE", &[0x48, 0xBF, 0, 0, 0, 0, 0, X, X], F::Sanitize)
        .action(0x01)
        .writes(S::None, D::List16(7))
        .needs(Needs::Sanitize)
        .seconds(60, 86_400),
    row("SANITIZE, BLOCK ERASE", &[0x48, 0xBF, 0, 0, 0, 0, 0, X, X], F::Sanitize)
        .action(0x02)
        .writes(S::None, D::List16(7))
        .needs(Needs::SanitizeAndThin)
        .seconds(60, 86_400),
    row("SANITIZE, CRYPTOGRAPHIC ERASE", &[0x48, 0xBF, 0, 0, 0, 0, 0, X, X], F::Sanitize)
        .action(0x03)
        .writes(S::None, D::List16(7))
        .needs(Needs::Sanitize)
        .seconds(60, 86_400),
    row("SANITIZE, EXIT FAILURE MODE", &[0x48, 0xBF, 0, 0, 0, 0, 0, X, X], F::Sanitize)
        .action(0x1F)
        .writes(S::None, D::List16(7))
        .needs(Needs::Sanitize),
    row("LOG SENSE", &[0x4D, 0, X, X, 0, X, X, X, X], F::LogSense).anytime(),
    row("MODE SELECT (10)", &[0x55, 0x11, 0, 0, 0, 0, 0, X, X], F::ModeSelect)
        .list(D::List16(7))
        .conflict(C::Always)
        .standby(),
    row("MODE SENSE (10)", &[0x5A, 0x18, X, X, 0, 0, 0, X, X], F::ModeSense)
        .conflict(C::ExclusiveAccess)
        .standby(),
    reserve_in("PERSISTENT RESERVE IN, READ KEYS", 0x00),
    reserve_in("PERSISTENT RESERVE IN, READ RESERVATION", 0x01),
    reserve_in("PERSISTENT RESERVE IN, REPORT CAPABILITIES", 0x02),
    reserve_in("PERSISTENT RESERVE IN, READ FULL STATUS", 0x03),
    reserve_out("PERSISTENT RESERVE OUT, REGISTER", 0x00),
    reserve_out("PERSISTENT RESERVE OUT, RESERVE", 0x01),
    reserve_out("PERSISTENT RESERVE OUT, RELEASE", 0x02),
    reserve_out("PERSISTENT RESERVE OUT, CLEAR", 0x03),
    reserve_out("PERSISTENT RESERVE OUT, PREEMPT", 0x04),
    reserve_out("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", 0x05),
    reserve_out("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", 0x06),
    reserve_out("PERSISTENT RESERVE OUT, REGISTER AND MOVE", 0x07),
    row("EXTENDED COPY (LID1)", &[0x83, A, 0, 0, 0, 0, 0, 0, 0, 0, X, X, X, X], F::ExtendedCopy)
        .action(0x00)
        .writes(S::None, D::List32(10))
        .seconds(10, 300),
    row("POPULATE TOKEN", &[0x83, A, 0, 0, 0, 0, X, X, X, X, X, X, X, X, G], F::PopulateToken)
        .action(0x10)
        .reads(S::None)
        .list(D::List32(10)),
    row("WRITE USING TOKEN", &[0x83, A, 0, 0, 0, 0, X, X, X, X, X, X, X, X, G], F::WriteUsingToken)
        .action(0x11)
        .writes(S::None, D::List32(10))
        .seconds(10, 300),
    row("COPY OPERATION ABORT", &[0x83, A, X, X, X, X], F::CopyAbort)
        .action(0x1C)
        .conflict(C::Always),
    copy_results("RECEIVE COPY STATUS (LID1)", 0x00),
    row(
        "RECEIVE COPY OPERATING PARAMETERS",
        &[0x84, A, 0, 0, 0, 0, 0, 0, 0, 0, X, X, X, X],
        F::CopyResults,
    )
    .action(0x03),
    copy_results("RECEIVE COPY FAILURE DETAILS (LID1)", 0x04),
    row(
        "RECEIVE ROD TOKEN INFORMATION",
        &[0x84, A, X, X, X, X, 0, 0, 0, 0, X, X, X, X],
        F::ReceiveTokenInformation,
    )
    .action(0x07),
    row("REPORT ALL ROD TOKENS", &[0x84, A, 0, 0, 0, 0, 0, 0, 0, 0, X, X, X, X], F::ReportTokens)
        .action(0x08),
    row("READ (16)", &[0x88, DF, X, X, X, X, X, X, X, X, X, X, X, X, G], F::Read).reads(S::Sixteen),
    row(
        "COMPARE AND WRITE",
        &[0x89, DF, X, X, X, X, X, X, X, X, 0, 0, 0, X, G],
        F::CompareAndWrite,
    )
    .writes(S::CompareAndWrite, D::BlocksTwice),
    row("WRITE (16)", &[0x8A, DF, X, X, X, X, X, X, X, X, X, X, X, X, G], F::Write)
        .writes(S::Sixteen, D::Blocks),
    row("ORWRITE (16)", &[0x8B, DF, X, X, X, X, X, X, X, X, X, X, X, X, G], F::OrWrite)
        .writes(S::Sixteen, D::Blocks),
    row(
        "WRITE AND VERIFY (16)",
        &[0x8E, DB, X, X, X, X, X, X, X, X, X, X, X, X, G],
        F::WriteAndVerify,
    )
    .writes(S::Sixteen, D::Blocks),
    row("VERIFY (16)", &[0x8F, DB, X, X, X, X, X, X, X, X, X, X, X, X, G], F::Verify)
        .reads(S::Sixteen)
        .list(D::ByteCheck)
        .seconds(1, 120),
    row("PRE-FETCH (16)", &[0x90, 0x02, X, X, X, X, X, X, X, X, X, X, X, X, G], F::Prefetch)
        .reads(S::Sixteen),
    row(
        "SYNCHRONIZE CACHE (16)",
        &[0x91, 0x06, X, X, X, X, X, X, X, X, X, X, X, X, G],
        F::SyncCache,
    )
    .reads(S::Sixteen)
    .conflict(C::Always)
    .seconds(5, 120),
    row("WRITE SAME (16)", &[0x93, 0x09, X, X, X, X, X, X, X, X, X, X, X, X, G], F::WriteSame)
        .writes(S::Sixteen, D::OneBlock)
        .seconds(5, 120),
    row("WRITE ATOMIC (16)", &[0x9C, DF, X, X, X, X, X, X, X, X, 0, 0, X, X, G], F::WriteAtomic)
        .writes(S::Atomic, D::Blocks),
    row("READ CAPACITY (16)", &[0x9E, A, 0, 0, 0, 0, 0, 0, 0, 0, X, X, X, X], F::ReadCapacity16)
        .action(0x10)
        .medium()
        .anytime(),
    row("GET LBA STATUS", &[0x9E, A, X, X, X, X, X, X, X, X, X, X, X, X], F::LbaStatus)
        .action(0x12)
        .reads(S::None),
    row("REPORT LUNS", &[0xA0, 0, X, 0, 0, 0, X, X, X, X], F::ReportLuns).anytime().exempt(),
    row("REPORT TARGET PORT GROUPS", &[0xA3, 0x3F, 0, 0, 0, 0, X, X, X, X], F::ReportPortGroups)
        .action(0x0A)
        .anytime(),
    row(
        "REPORT SUPPORTED OPERATION CODES",
        &[0xA3, A, 0x87, X, X, X, X, X, X, X],
        F::ReportOpcodes,
    )
    .action(0x0C)
    .conflict(C::ExclusiveAccess)
    .anytime(),
    row(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[0xA3, A, 0x80, 0, 0, 0, X, X, X, X],
        F::ReportTaskManagement,
    )
    .action(0x0D)
    .conflict(C::ExclusiveAccess)
    .anytime(),
    row("SET TARGET PORT GROUPS", &[0xA4, A, 0, 0, 0, 0, X, X, X, X], F::SetPortGroups)
        .action(0x0A)
        .list(D::List32(6))
        .conflict(C::Always)
        .needs(Needs::ExplicitAlua)
        .standby(),
    row("READ (12)", &[0xA8, DF, X, X, X, X, X, X, X, X, G], F::Read).reads(S::Twelve),
    row("WRITE (12)", &[0xAA, DF, X, X, X, X, X, X, X, X, G], F::Write)
        .writes(S::Twelve, D::Blocks),
    row("WRITE AND VERIFY (12)", &[0xAE, DB, X, X, X, X, X, X, X, X, G], F::WriteAndVerify)
        .writes(S::Twelve, D::Blocks),
    row("VERIFY (12)", &[0xAF, DB, X, X, X, X, X, X, X, X, G], F::Verify)
        .reads(S::Twelve)
        .list(D::ByteCheck)
        .seconds(1, 120),
    row("READ DEFECT DATA (12)", &[0xB7, 0x1F, X, X, X, X, X, X, X, X], F::Defects).reads(S::None),
];

const fn reserve_in(name: &'static str, action: u8) -> Row {
    row(name, &[0x5E, A, 0, 0, 0, 0, 0, X, X], F::ReserveIn).action(action).standby()
}

/// Builds a row of PERSISTENT RESERVE OUT, which handles conflicts itself.
const fn reserve_out(name: &'static str, action: u8) -> Row {
    row(name, &[0x5F, A, X, 0, 0, X, X, X, X], F::ReserveOut)
        .action(action)
        .list(D::List32(5))
        .standby()
}

const fn copy_results(name: &'static str, action: u8) -> Row {
    row(name, &[0x84, A, X, 0, 0, 0, 0, 0, 0, 0, X, X, X, X], F::CopyResults).action(action)
}
