//! REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35) and REPORT SUPPORTED TASK
//! MANAGEMENT FUNCTIONS (SPC-4 §6.36), from the command table.

use super::table::{ROWS, Row};
use super::{Cx, Failure, Outcome, Reply};
use crate::sense::Sense;
use crate::wire::put;

pub(crate) fn report_supported_opcodes(cx: &Cx<'_>) -> Outcome {
    let cdb = cx.cdb();
    let timeouts = cdb.byte(2) & 0x80 != 0;
    let allocation = cdb.be32(6);
    let opcode = cdb.byte(3);
    let action = cdb.be16(4);
    let data = match cdb.byte(2) & 0x07 {
        0b000 => all(cx, timeouts),
        0b001 if has_actions(opcode) => return Err(Sense::invalid_cdb(3, None).into()),
        0b001 => one(find(cx, opcode, None), timeouts),
        0b010 if !has_actions(opcode) && known(cx, opcode) => {
            return Err(Sense::invalid_cdb(4, None).into());
        }
        0b010 => one(find(cx, opcode, Some(action)), timeouts),
        // Accepted for any kind of operation code.
        0b011 if has_actions(opcode) => one(find(cx, opcode, Some(action)), timeouts),
        0b011 if action == 0 => one(find(cx, opcode, None), timeouts),
        0b011 => one(None, timeouts),
        _ => return Err(Sense::invalid_cdb(2, Some(2)).into()),
    };
    Ok(Reply::data(data, allocation))
}

fn has_actions(opcode: u8) -> bool {
    ROWS.iter().any(|row| row.opcode == opcode && row.service_action.is_some())
}

fn known(cx: &Cx<'_>, opcode: u8) -> bool {
    ROWS.iter().any(|row| row.opcode == opcode && row.exists(cx.disk))
}

fn find(cx: &Cx<'_>, opcode: u8, action: Option<u16>) -> Option<&'static Row> {
    ROWS.iter()
        .find(|row| row.opcode == opcode && row.service_action.map(u16::from) == action)
        .filter(|row| row.exists(cx.disk))
}

/// Appends a command timeouts descriptor (SPC-4 §6.35.4).
fn timeouts_descriptor(data: &mut Vec<u8>, row: &Row) {
    data.extend([0x00, 0x0A, 0x00, 0x00]);
    data.extend(row.nominal_seconds.to_be_bytes());
    data.extend(row.recommended_seconds.to_be_bytes());
}

fn all(cx: &Cx<'_>, timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for row in ROWS.iter().filter(|row| row.exists(cx.disk)) {
        let action = u16::from(row.service_action.unwrap_or(0));
        list.extend([row.opcode, 0]);
        list.extend(action.to_be_bytes());
        // CTDP and SERVACTV.
        let flags = (u8::from(timeouts) << 1) | u8::from(row.service_action.is_some());
        list.extend([0, flags]);
        list.extend(u16::from(row.length).to_be_bytes());
        if timeouts {
            timeouts_descriptor(&mut list, row);
        }
    }
    let mut data = Vec::with_capacity(4 + list.len());
    data.extend(u32::try_from(list.len()).unwrap_or(u32::MAX).to_be_bytes());
    data.extend(list);
    data
}

/// Returns the data of one command: SUPPORT 011b with its usage map, or 001b.
fn one(row: Option<&'static Row>, timeouts: bool) -> Vec<u8> {
    let Some(row) = row else {
        return vec![0, 0x01, 0, 0];
    };
    let mut data = vec![0, (u8::from(timeouts) << 7) | 0x03];
    data.extend(u16::from(row.length).to_be_bytes());
    let mut usage = row.usage;
    if let Some(action) = row.service_action {
        // The map holds the service action itself (SPC-4 §6.35.3).
        usage[1] = (usage[1] & !0x1F) | action;
    }
    data.extend(usage.iter().take(usize::from(row.length)));
    if timeouts {
        timeouts_descriptor(&mut data, row);
    }
    data
}

/// Time that resets may take, in tenths of a second: tasks of other nexuses
/// must end first.
const LONG_TIMEOUT_TENTHS: u32 = 600;
/// Time that aborts of the nexus's own tasks may take, in tenths of a second.
const SHORT_TIMEOUT_TENTHS: u32 = 300;

pub(crate) fn report_task_management(cx: &Cx<'_>) -> Outcome {
    let allocation = cx.cdb().be32(6);
    if allocation < 4 {
        return Err(Failure::from(Sense::invalid_cdb(6, None)));
    }
    // ATS, ATSS, CTSS, LURS, TRS; CACAS is not supported.
    let abort_clear_reset = 0x80 | 0x40 | 0x10 | 0x08;
    let mut data = vec![abort_clear_reset | 0x02, 0, 0, 0];
    if cx.task.has_query_functions() {
        // QTS; QAES, QTSS, ITNRS.
        data[0] |= 0x04;
        data[1] |= 0x04 | 0x02 | 0x01;
    }
    if cx.cdb().byte(2) & 0x80 != 0 {
        data[3] = 12;
        data.resize(16, 0);
        // TMFTMOV; ATTS and ATSTS: the short timeout is that of ABORT TASK and
        // ABORT TASK SET, the long one that of all others.
        data[4] = 0x01;
        data[6] = 0x80 | 0x40;
        put(&mut data, 8, &LONG_TIMEOUT_TENTHS.to_be_bytes());
        put(&mut data, 12, &SHORT_TIMEOUT_TENTHS.to_be_bytes());
    }
    Ok(Reply::data(data, allocation))
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;
    use crate::wire::be32;
    use crate::{Finished, Nexus, Task, Work};

    fn cdb(options: u8, opcode: u8, action: u8) -> [u8; 12] {
        [0xA3, 0x0C, options, opcode, 0, action, 0, 0, 0xFF, 0xFF, 0, 0]
    }

    #[test]
    fn every_command_is_described_one_by_one() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&cdb(0, 0, 0), b""));
        assert_eq!(usize::try_from(be32(&data, 0)).unwrap(), data.len() - 4);
        for entry in data[4..].chunks(8) {
            let servactv = entry[5] & 1;
            let (right, wrong) = if servactv == 1 { (2, 1) } else { (1, 2) };
            let one = bench.run(&cdb(right, entry[0], entry[3]), b"");
            assert_eq!(one.status, ScsiStatus::Good);
            let one = bench.data(&one);
            assert_eq!((one[1] & 7, one[3], one[4]), (3, entry[7], entry[0]));
            bench.refused(&cdb(wrong, entry[0], entry[3]), b"", Asc::INVALID_FIELD_IN_CDB);
            let either = bench.data(&bench.run(&cdb(3, entry[0], entry[3]), b""));
            assert_eq!(either, one);
        }
    }

    #[test]
    fn timeouts_come_when_asked_for() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&cdb(0x80, 0, 0), b""));
        for entry in data[4..].chunks(20) {
            assert_eq!(entry[5] & 0x02, 0x02);
            assert_eq!(&entry[8..10], &[0, 0x0A]);
        }
    }

    #[test]
    fn task_management_has_timeouts_too() {
        let bench = Bench::new();
        let mut cdb = [0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0];
        assert_eq!(bench.data(&bench.run(&cdb, b"")), [0xDA, 0, 0, 0]);
        cdb[2] = 0x80;
        let data = bench.data(&bench.run(&cdb, b""));
        assert_eq!((data[3], data[4], data[6]), (12, 0x01, 0xC0));
        assert_eq!((be32(&data, 8), be32(&data, 12)), (600, 300));
        cdb[9] = 3;
        bench.refused(&cdb, b"", Asc::INVALID_FIELD_IN_CDB);
    }

    /// A task of a transport that carries the functions of RFC 7144.
    struct WithQueries;

    impl Task for WithQueries {
        fn is_aborted(&self) -> bool {
            false
        }

        fn abort_others(&self, _which: &dyn Fn(&Nexus) -> bool) {}

        fn has_query_functions(&self) -> bool {
            true
        }

        fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
            Box::pin(async move {
                work.await;
                true
            })
        }
    }

    #[test]
    fn the_functions_of_the_transport_are_told() {
        let bench = Bench::new();
        let cdb = [0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];
        let command = bench.command(&bench.nexus, &cdb, b"");
        let told = bench.block_on(bench.disk.execute_among(None, command, &WithQueries));
        assert_eq!(bench.data(&told), [0xDE, 0x07, 0, 0]);
    }

    #[test]
    fn unknown_commands_are_unsupported() {
        let bench = Bench::new();
        assert_eq!(bench.data(&bench.run(&cdb(1, 0xFF, 0), b""))[1], 1);
        let thick = Bench::with(|config| config.thin = false);
        assert_eq!(thick.data(&thick.run(&cdb(1, 0x42, 0), b""))[1], 1);
    }
}
