//! Commands addressed by LUN.

use crate::command::table::{reserved_bit, touches_nothing};
use crate::command::{Command, Response, inquiry, report_luns};
use crate::logical_units::{AbsentUnit, Late, LogicalUnits};
use crate::lun::Lun;
use crate::sense::{Asc, ScsiStatus, Sense, SenseKey};
use crate::transport::{Alone, Task};
use bytes::Bytes;
use zgate_store::Payload;

impl LogicalUnits {
    /// Runs a command addressed by the eight LUN bytes of a transport, without
    /// a task that could be aborted.
    pub async fn execute(&self, lun: [u8; 8], command: Command) -> Response {
        self.execute_task(lun, command, &Alone).await
    }

    /// Runs the command of a task. Do not drop the future before its end.
    pub async fn execute_task(&self, lun: [u8; 8], command: Command, task: &dyn Task) -> Response {
        let lun = Lun::parse(lun);
        if let Some(disk) = lun.and_then(|lun| self.get(lun)) {
            return disk.execute_among(Some(self), command, task).await;
        }
        let not_ready = Sense::new(SenseKey::NotReady, Asc::BECOMING_READY);
        match lun.and_then(|lun| self.late(lun)) {
            Some(Late::Known(unit)) => {
                self.describe(unit, &command).unwrap_or_else(|| self.absent(&command, not_ready))
            }
            Some(Late::Unknown) => self.absent(&command, not_ready),
            None => self.absent(&command, Sense::illegal(Asc::LUN_NOT_SUPPORTED)),
        }
    }

    /// Answers a command about a LUN whose storage cannot be opened now, if it needs none: a
    /// host that searches for disks finds the one that it has, and one that looks at its disk
    /// anew finds the size that it had. Of a disk that was not served before only the names
    /// are known.
    fn describe(&self, unit: &AbsentUnit, command: &Command) -> Option<Response> {
        if let Some(disk) = &unit.last {
            return disk.describe(self, command);
        }
        let cdb = &command.cdb;
        // `absent` refuses one with a reserved bit.
        if cdb.opcode() != 0x12 || reserved_bit(cdb).is_some() {
            return None;
        }
        Some(match inquiry::becoming_ready(&unit.config, command) {
            Ok(data) => good(data, u32::from(cdb.be16(3))),
            Err(sense) => Response::check(sense),
        })
    }

    /// Returns whether sense data for a LUN is in descriptor format, as the control mode page of
    /// its logical unit says (D_SENSE, SPC-4 §7.5.8): a transport asks that for sense data that
    /// it makes itself. A LUN without a logical unit has no mode pages: the format is fixed.
    #[must_use]
    pub fn wants_descriptor_sense(&self, lun: [u8; 8]) -> bool {
        let disk = Lun::parse(lun).and_then(|lun| self.get(lun));
        disk.is_some_and(|disk| disk.state().mode.descriptor_sense())
    }

    /// Returns the response of a LUN without a logical unit for this reason
    /// (SPC-4 §6.33, §6.6.2, §6.39). Its sense data is in fixed format: there are no mode pages
    /// with D_SENSE, nor are there for a unit that was not opened yet.
    fn absent(&self, command: &Command, reason: Sense) -> Response {
        let cdb = &command.cdb;
        if touches_nothing(cdb)
            && let Some((byte, bit)) = reserved_bit(cdb)
        {
            return Response::check(Sense::invalid_cdb(byte, Some(bit)));
        }
        match cdb.opcode() {
            0x12 if cdb.byte(1) & 0x01 == 0 => match cdb.byte(2) {
                0 => good(inquiry::absent(), u32::from(cdb.be16(3))),
                // A page code without EVPD, as at a logical unit.
                _ => Response::check(Sense::invalid_cdb(2, None)),
            },
            0xA0 => match report_luns::parameter_data(&self.numbers(), cdb.byte(2)) {
                Ok(data) => {
                    self.attention_reported(command.nexus.id, Asc::LUNS_CHANGED);
                    good(data, cdb.be32(6))
                }
                Err(sense) => Response::check(sense),
            },
            // REQUEST SENSE succeeds and returns the reason.
            0x03 => {
                let sense = Sense { descriptor_format: cdb.byte(1) & 0x01 != 0, ..reason };
                good(sense.encode(), u32::from(cdb.byte(4)))
            }
            _ => Response::check(reason),
        }
    }
}

fn good(mut data: Vec<u8>, allocation_bytes: u32) -> Response {
    data.truncate(usize::try_from(allocation_bytes).unwrap_or(usize::MAX));
    Response {
        status: ScsiStatus::Good,
        sense: None,
        data_in: Some(Payload::Bytes(Bytes::from(data))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::config::DiskConfig;
    use crate::testing::Bench;
    use std::sync::Arc;
    use zgate_store::block_store::BlockGeometry;

    /// TEST UNIT READY.
    const READY: [u8; 6] = [0; 6];
    /// READ CAPACITY (10) and (16).
    const CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const CAPACITY_16: [u8; 16] = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    /// MODE SENSE (6) of the caching page, (10) of all pages.
    const CACHING: [u8; 6] = [0x1A, 0x08, 0x08, 0, 255, 0];
    const MODES_10: [u8; 10] = [0x5A, 0, 0x3F, 0, 0, 0, 0, 0, 255, 0];

    #[test]
    fn absent_luns_answer_inquiry_and_report_luns() {
        let bench = Bench::new();
        let luns = LogicalUnits::new([(Lun::new(3).unwrap(), Arc::clone(&bench.disk))]);
        let run = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        assert_eq!(bench.data(&run(0, &[0x12, 0, 0, 0, 36, 0]))[0], 0x7F);
        assert_eq!(run(0, &[0; 6]).sense.unwrap().asc, Asc::LUN_NOT_SUPPORTED);
        assert_eq!(bench.data(&run(0, &[0x03, 0, 0, 0, 252, 0]))[12], 0x25);
        assert_eq!(run(3, &[0; 6]).status, ScsiStatus::Good);
        for lun in [0, 3] {
            let list = bench.data(&run(lun, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]));
            assert_eq!(&list[..10], &[0, 0, 0, 8, 0, 0, 0, 0, 0, 3]);
        }
    }

    #[test]
    fn a_unit_tells_the_format_of_sense_data_and_without_one_it_is_fixed() {
        let bench = Bench::new();
        let luns = LogicalUnits::new([(Lun::new(3).unwrap(), Arc::clone(&bench.disk))]);
        let wants = |lun: u8| luns.wants_descriptor_sense([0, lun, 0, 0, 0, 0, 0, 0]);
        assert!(!wants(3), "as it is after a reset");
        // The control mode page with D_SENSE=1.
        let mut list = bench.data(&bench.run(&[0x1A, 0x08, 0x0A, 0, 255, 0], b""));
        (list[0], list[2]) = (0, 0);
        list[6] |= 0x04;
        let length = u8::try_from(list.len()).unwrap();
        let selected = bench.run(&[0x15, 0x10, 0, 0, length, 0], &list);
        assert_eq!(selected.status, ScsiStatus::Good);
        assert!(wants(3) && !wants(0));
        let command = bench.command(&bench.nexus, &[0; 6], b"");
        let absent = bench.block_on(luns.execute([0; 8], command)).sense.unwrap();
        assert!(!absent.descriptor_format, "{absent:?}");
    }

    #[test]
    fn an_initiator_that_may_only_read_is_refused_and_told_so() {
        let bench = Bench::new();
        let all = LogicalUnits::new([(Lun::new(0).unwrap(), Arc::clone(&bench.disk))]);
        let run = |luns: &LogicalUnits, cdb: &[u8], data: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, data);
            bench.block_on(luns.execute([0; 8], command))
        };
        let reader = all.clone().with_read_only(true);
        let (write, read) = ([0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let same = [0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        for cdb in [write, same] {
            let sense = run(&reader, &cdb, &[1; 512]).sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::DataProtect, Asc::WRITE_PROTECTED));
        }
        assert_eq!(bench.data(&run(&reader, &read, b"")), [0; 512]);
        let protected = |luns| bench.data(&run(luns, &[0x1A, 0, 0x3F, 0, 255, 0], b""))[2] & 0x80;
        assert_eq!((protected(&reader), protected(&all)), (0x80, 0));
        // The other initiator of the same disk writes.
        assert_eq!(run(&all, &write, &[1; 512]).status, ScsiStatus::Good);
    }

    #[test]
    fn a_lun_that_nobody_knows_yet_is_not_ready_and_not_listed() {
        let bench = Bench::new();
        let luns = LogicalUnits::new([(Lun::new(3).unwrap(), Arc::clone(&bench.disk))])
            .with_unknown([(Lun::new(5).unwrap(), None)].into());
        let run = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        let sense = run(5, &[0; 6]).sense.unwrap();
        assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::BECOMING_READY));
        assert_eq!(run(6, &[0; 6]).sense.unwrap().asc, Asc::LUN_NOT_SUPPORTED);
        assert_eq!(bench.data(&run(5, &[0x12, 0, 0, 0, 36, 0]))[0], 0x7F);
        assert_eq!(bench.data(&run(5, &[0x03, 0, 0, 0, 252, 0]))[12..14], [0x04, 0x01]);
        let list = bench.data(&run(5, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]));
        assert_eq!(&list[..10], &[0, 0, 0, 8, 0, 0, 0, 0, 0, 3]);
    }

    #[test]
    fn a_lun_that_nobody_knows_yet_tells_what_it_was_if_that_is_known() {
        let bench = Bench::new();
        let (present, known, named) = (Lun::new(3).unwrap(), Lun::new(5), Lun::new(6));
        let (config, geometry) = (bench.disk.config(), bench.disk.store().geometry());
        let unit = |geometry| Some(Arc::new(AbsentUnit::new(config.clone(), geometry)));
        let unknown = [(known.unwrap(), unit(Some(geometry))), (named.unwrap(), unit(None))];
        let luns =
            LogicalUnits::new([(present, Arc::clone(&bench.disk))]).with_unknown(unknown.into());
        let run = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        let standard = [0x12, 0, 0, 0, 255, 0];
        let device_id = [0x12, 1, 0x83, 0, 255, 0];
        let shown = [&standard[..], &device_id[..], &CAPACITY_10[..], &CAPACITY_16[..]];
        for cdb in shown.into_iter().chain([&CACHING[..]]) {
            assert_eq!(bench.data(&run(5, cdb)), bench.data(&run(3, cdb)), "{cdb:02x?}");
        }
        // Names alone are none of a LUN that is not listed.
        assert_eq!(bench.data(&run(6, &standard))[0], 0x7F);
        for (lun, cdb) in [(5, &READY[..]), (6, &READY[..]), (6, &CAPACITY_16[..])] {
            let sense = run(lun, cdb).sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::BECOMING_READY));
        }
        for lun in [3, 5, 6] {
            let list = bench.data(&run(lun, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]));
            assert_eq!(&list[..10], &[0, 0, 0, 8, 0, 0, 0, 0, 0, 3], "none of them is listed");
        }
    }

    #[test]
    fn a_lun_without_a_disk_looks_at_a_cdb_as_one_with_a_disk_does() {
        let bench = Bench::new();
        let (present, listed) = (Lun::new(3).unwrap(), Lun::new(2).unwrap());
        let unit = AbsentUnit::new(bench.disk.config().clone(), None);
        let luns = LogicalUnits::new([(present, Arc::clone(&bench.disk))])
            .with_becoming_ready([(listed, unit)].into());
        let sense = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command)).sense
        };
        let wrong: [&[u8]; 5] = [
            // INQUIRY: CMDDT, which is obsolete; a page code without EVPD.
            &[0x12, 2, 0, 0, 36, 0],
            &[0x12, 0, 0x83, 0, 36, 0],
            // REPORT LUNS: a reserved bit, and a reserved value of SELECT REPORT.
            &[0xA0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[0xA0, 0, 0x55, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            // REQUEST SENSE: a reserved bit.
            &[0x03, 2, 0, 0, 252, 0],
        ];
        for cdb in wrong {
            let at_a_disk = sense(3, cdb).unwrap();
            assert_eq!(at_a_disk.asc, Asc::INVALID_FIELD_IN_CDB, "{cdb:02x?}");
            // Of a LUN whose storage is absent, and of one that is not supported.
            for lun in [2, 0] {
                assert_eq!(sense(lun, cdb), Some(at_a_disk), "LUN {lun}: {cdb:02x?}");
            }
        }
    }

    #[test]
    fn a_lun_without_its_storage_is_not_ready_and_says_who_it_is() {
        let bench = Bench::new();
        let (present, missing) = (Lun::new(3).unwrap(), Lun::new(2).unwrap());
        let config = DiskConfig { serial: "0002".into(), ..bench.disk.config().clone() };
        let luns = LogicalUnits::new([(present, Arc::clone(&bench.disk))])
            .with_becoming_ready([(missing, AbsentUnit::new(config, None))].into());
        let run = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        let (ready, read) = ([0_u8; 6], [0x28_u8, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        for cdb in [&ready[..], &read[..], &CAPACITY_10[..], &CAPACITY_16[..], &CACHING[..]] {
            let sense = run(2, cdb).sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::BECOMING_READY));
        }
        for lun in [0, 2, 3] {
            let list = bench.data(&run(lun, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]));
            assert_eq!((list.len(), list[9], list[17]), (24, 2, 3));
        }
        // As it is with its storage.
        for cdb in [[0x12, 0, 0, 0, 255, 0], [0x12, 1, 0x83, 0, 12, 0]] {
            assert_eq!(bench.data(&run(2, &cdb)), bench.data(&run(3, &cdb)));
        }
        assert_eq!(bench.data(&run(2, &[0x12, 1, 0x80, 0, 255, 0]))[4..], *b"0002");
        assert_eq!(bench.data(&run(2, &[0x12, 1, 0, 0, 255, 0]))[4..], [0, 0x80, 0x83]);
        let refused = run(2, &[0x12, 1, 0xB0, 0, 255, 0]).sense.unwrap();
        assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn a_lun_without_its_storage_tells_what_it_was_if_that_is_known() {
        let bench = Bench::with(|config| config.read_only = true);
        let (present, missing) = (Lun::new(3).unwrap(), Lun::new(2).unwrap());
        let geometry = bench.disk.store().geometry();
        let known = AbsentUnit::new(bench.disk.config().clone(), Some(geometry));
        let luns = LogicalUnits::new([(present, Arc::clone(&bench.disk))])
            .with_becoming_ready([(missing, known)].into());
        let run = |lun: u8, cdb: &[u8]| {
            let command = bench.command(&bench.nexus, cdb, b"");
            bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        let page = |code: u8| [0x12, 1, code, 0, 255, 0];
        let opcodes = [0xA3_u8, 0x0C, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0];
        for cdb in [&CAPACITY_10[..], &CAPACITY_16[..], &CACHING[..], &MODES_10[..], &opcodes[..]] {
            let data = bench.data(&run(2, cdb));
            assert!(!data.is_empty(), "{cdb:02x?}");
            assert_eq!(data, bench.data(&run(3, cdb)), "{cdb:02x?}");
        }
        for code in [0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2] {
            assert_eq!(bench.data(&run(2, &page(code))), bench.data(&run(3, &page(code))));
        }
        let standard = [0x12, 0, 0, 0, 255, 0];
        assert_eq!(bench.data(&run(2, &standard)), bench.data(&run(3, &standard)));
        let refused = run(2, &[0x25, 0, 0, 0, 0, 0, 0, 0, 1, 0]).sense.unwrap();
        assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_CDB, "a reserved bit");
        // All that needs the medium, and the reservations that nobody has read.
        let (ready, read) = ([0_u8; 6], [0x28_u8, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let flush = [0x35_u8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let keys = [0x5E_u8, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        for cdb in [&ready[..], &read[..], &flush[..], &keys[..]] {
            let sense = run(2, cdb).sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::BECOMING_READY));
        }
        assert_eq!(bench.data(&run(2, &[0x03, 0, 0, 0, 252, 0]))[12..14], [0x04, 0x01]);
    }

    #[test]
    fn a_size_that_no_disk_can_have_is_not_told() {
        let bench = Bench::new();
        let empty = BlockGeometry { capacity_bytes: 511, ..bench.disk.store().geometry() };
        assert!(AbsentUnit::new(bench.disk.config().clone(), Some(empty)).last.is_none());
    }
}
