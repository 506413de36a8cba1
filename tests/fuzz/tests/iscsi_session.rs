//! The session engine (RFC 7143 §4, §7, §10, §11) with partly valid PDUs on up
//! to three connections, at every error recovery level, while commands end,
//! functions are executed and connections are opened and closed: no panic,
//! numbers never decrease, memory stays within its bounds.
#![allow(dead_code, reason = "the harness serves other tests, too")]

use bytes::Bytes;
use std::time::Duration;
use zgate_fuzz::{Dice, target};
use zgate_iscsi::framing::Decoder;
use zgate_iscsi::limits;
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::{Completion, ConnHandle, Event, TaskTag};
use zgate_store::Payload;
use zgate_test_harness::iscsi::Harness;

target!(iscsi_session_bytes, 4000, bytes);
target!(iscsi_session_pdus, 4000, pdus);

const WINDOW: u32 = 16;

/// An initiator with arbitrary answers.
struct Bench {
    harness: Harness,
    handles: Vec<ConnHandle>,
    running: Vec<TaskTag>,
    max_cmd_sn: Option<Sn>,
    exp_cmd_sn: Option<Sn>,
    ttts: Vec<(Itt, Ttt, u32, u32)>,
    ended: bool,
}

impl Bench {
    fn new(dice: &mut Dice<'_>) -> Self {
        let offer = Offer {
            initial_r2t: false,
            command_window: WINDOW,
            error_recovery_level: 2,
            max_connections: 4,
            ..Offer::default()
        };
        let level = ["0", "1", "2"][dice.below(3)];
        let yes = |flag| if flag { "Yes" } else { "No" };
        let keys = [
            ("ErrorRecoveryLevel", level),
            ("MaxConnections", "4"),
            ("InitialR2T", yes(dice.once_in(2))),
            ("ImmediateData", yes(!dice.once_in(4))),
            ("DataPDUInOrder", yes(dice.once_in(2))),
            ("MaxOutstandingR2T", if dice.once_in(2) { "4" } else { "1" }),
            ("MaxRecvDataSegmentLength", "512"),
            ("MaxBurstLength", "2048"),
            ("FirstBurstLength", "1024"),
            ("iSCSIProtocolLevel", "2"),
        ];
        let harness = Harness::with_offer(&keys, offer);
        let handles = vec![harness.links[0].handle];
        Self {
            harness,
            handles,
            running: Vec::new(),
            max_cmd_sn: None,
            exp_cmd_sn: None,
            ttts: Vec::new(),
            ended: false,
        }
    }

    fn join(&mut self, cid: u16) {
        if !self.harness.session.is_ended() && self.handles.len() < 12 {
            let at = self.harness.join(cid);
            self.handles.push(self.harness.links[at].handle);
        }
    }

    /// Takes the events and the queued PDUs, and checks both.
    fn settle(&mut self, dice: &mut Dice<'_>) {
        while let Some(event) = self.harness.session.poll_event() {
            assert!(
                !self.ended || matches!(event, Event::Abort(_) | Event::Close(..)),
                "after the end: {event:?}"
            );
            match event {
                Event::Command(command) => {
                    let len: usize = command.data_out.iter().map(Bytes::len).sum();
                    assert_eq!(
                        len,
                        command.expected_write_bytes.min(limits::MAX_GATHERED_BYTES) as usize,
                        "a command is delivered with all its data"
                    );
                    self.running.push(command.task);
                }
                Event::Abort(task) => self.finish(task, dice),
                Event::Function { tag, affected, .. } => {
                    affected.into_iter().for_each(|task| self.finish(task, dice));
                    self.harness.session.function_done(tag, TaskResult::COMPLETE);
                }
                Event::SendTargets { tag, .. } => {
                    self.harness.session.answer_send_targets(tag, &[])
                }
                Event::Ended(_) => self.ended = true,
                Event::Close(..) => {}
            }
        }
        let handles = self.handles.clone();
        for handle in handles {
            while let Some(pdu) = self.harness.session.poll_transmit(handle) {
                self.check(&pdu);
            }
        }
        let bound = WINDOW as usize + limits::MAX_IMMEDIATE_TASKS + 128;
        assert!(self.harness.session.task_count() <= bound, "tasks without bound");
    }

    fn check(&mut self, pdu: &Outgoing) {
        assert!(pdu.data_bytes() <= 8192);
        let (expected, most) = (pdu.bhs.exp_sn(), pdu.bhs.max_cmd_sn());
        if let Some(before) = self.exp_cmd_sn.replace(expected) {
            assert!(!expected.before(before), "ExpCmdSN goes back");
        }
        if let Some(before) = self.max_cmd_sn.replace(most) {
            assert!(!most.before(before), "MaxCmdSN goes back");
        }
        // RFC 7143 §4.2.2.1: the window.
        assert!(
            !most.after(expected.plus(WINDOW - 1)) || most.ahead_of(expected) < 2 * WINDOW as i32
        );
        if pdu.bhs.opcode() == Opcode::R2T {
            let r2t = R2t::parse(&pdu.bhs);
            assert!(r2t.desired_bytes > 0 && r2t.desired_bytes <= 2048, "RFC 7143 §11.8.4");
            self.ttts.push((r2t.itt, r2t.ttt, r2t.offset, r2t.desired_bytes));
            self.ttts.drain(..self.ttts.len().saturating_sub(16));
        }
    }

    fn finish(&mut self, task: TaskTag, dice: &mut Dice<'_>) {
        self.running.retain(|running| *running != task);
        let good = !dice.once_in(4);
        let data = vec![Payload::Bytes(Bytes::from(vec![7; dice.below(3000)]))];
        let completion = Completion {
            status: if good { 0 } else { 2 },
            sense: if good { Bytes::new() } else { Bytes::from_static(&[0x70; 18]) },
            data_in: if good { data } else { Vec::new() },
            wanted_bytes: dice.once_in(4).then(|| dice.number()),
        };
        self.harness.session.complete(task, completion);
    }

    fn outside(&mut self, dice: &mut Dice<'_>) {
        match dice.below(8) {
            0 => self.join(u16::from(dice.byte() % 4)),
            1 => {
                let handle = *dice.pick(&self.handles);
                self.harness.session.handle_closed(handle, self.harness.now);
            }
            2 => {
                self.harness.now = self.harness.now.after(Duration::from_secs(dice.byte().into()));
                self.harness.session.handle_timeout(self.harness.now);
            }
            3 => {
                let handle = *dice.pick(&self.handles);
                self.harness.session.handle_framing_error(handle, self.harness.now);
            }
            _ if !self.running.is_empty() => {
                let task = *dice.pick(&self.running);
                self.finish(task, dice);
            }
            _ => {}
        }
    }

    fn feed(&mut self, frame: Frame, dice: &mut Dice<'_>) {
        let handle = *dice.pick(&self.handles);
        self.harness.session.handle_pdu(handle, frame, self.harness.now);
    }
}

fn bytes(dice: &mut Dice<'_>) {
    let mut bench = Bench::new(dice);
    let mut decoder = Decoder::new(8192);
    while !dice.is_spent() {
        decoder.feed(Bytes::copy_from_slice(dice.raw(64)));
        while let Ok(Some(frame)) = decoder.poll() {
            bench.feed(frame, dice);
        }
        bench.settle(dice);
    }
}

fn lun(dice: &mut Dice<'_>) -> Lun {
    if dice.once_in(8) { Lun(dice.u64()) } else { Lun(u64::from(dice.byte() & 1) << 48) }
}

fn command(bench: &Bench, dice: &mut Dice<'_>) -> Outgoing {
    let (expected, _) = bench.harness.session.window();
    let attributes = [
        TaskAttribute::Simple,
        TaskAttribute::Ordered,
        TaskAttribute::HeadOfQueue,
        TaskAttribute::Untagged,
    ];
    let (read, write) = (dice.once_in(2), dice.once_in(2));
    let command = ScsiCommand {
        immediate: dice.once_in(6),
        is_final: !dice.once_in(3),
        read,
        write,
        attribute: *dice.pick(&attributes),
        lun: lun(dice),
        itt: Itt(dice.byte().into()),
        expected_bytes: if dice.once_in(12) { dice.u32() } else { dice.below(5000) as u32 },
        cmd_sn: expected.plus(if dice.once_in(3) { dice.byte().into() } else { 0 }),
        exp_stat_sn: Sn(dice.byte().into()),
        cdb: Cdb::new(&dice.blob(16)).expect("a short CDB"),
        bidirectional_read_bytes: (read && write).then(|| dice.below(3000) as u32),
    };
    let data = if write { dice.blob(600) } else { Vec::new() };
    command.encode(Bytes::from(data))
}

/// A Data-Out that usually answers an R2T of the target.
fn data_out(bench: &Bench, dice: &mut Dice<'_>) -> Outgoing {
    let known = (!bench.ttts.is_empty() && !dice.once_in(4)).then(|| *dice.pick(&bench.ttts));
    let unknown = (Itt(dice.byte().into()), Ttt::NONE, dice.below(4000) as u32, 512);
    let (itt, ttt, offset, len) = known.unwrap_or(unknown);
    let (data_sn, part) =
        if dice.once_in(3) { (dice.byte().into(), dice.below(700)) } else { (0, len as usize) };
    let pdu = DataOut {
        is_final: !dice.once_in(4),
        lun: Lun(0),
        itt,
        ttt,
        exp_stat_sn: Sn(dice.byte().into()),
        data_sn,
        offset: offset.wrapping_add(if dice.once_in(6) { dice.byte().into() } else { 0 }),
    };
    pdu.encode(Bytes::from(vec![1; part.min(8192)]))
}

fn pdu(bench: &Bench, dice: &mut Dice<'_>) -> Outgoing {
    let cmd_sn = bench.harness.session.window().0.plus(u32::from(dice.byte() % 4));
    let (itt, exp_stat_sn) = (Itt(dice.byte().into()), Sn(dice.byte().into()));
    let (immediate, lun) = (dice.once_in(2), lun(dice));
    match dice.below(16) {
        0..=4 => command(bench, dice),
        5..=8 => data_out(bench, dice),
        9 => {
            let function = TaskFunction(dice.byte() % 10);
            let referenced = Itt(dice.byte().into());
            let (ref_cmd_sn, exp_data_sn) = (Sn(dice.byte().into()), dice.byte().into());
            TaskRequest {
                immediate,
                function,
                lun,
                itt,
                referenced,
                cmd_sn,
                exp_stat_sn,
                ref_cmd_sn,
                exp_data_sn,
            }
            .encode()
        }
        10 | 11 => {
            let kinds = [
                SnackKind::DataOrR2t,
                SnackKind::Status,
                SnackKind::DataAck,
                SnackKind::ResegmentData,
            ];
            let ttt = if dice.once_in(2) { Ttt::NONE } else { Ttt(dice.byte().into()) };
            let (begin_run, run_length) = (dice.number() as u32, dice.number() as u32);
            Snack { kind: *dice.pick(&kinds), lun, itt, ttt, exp_stat_sn, begin_run, run_length }
                .encode()
        }
        12 => {
            let (is_final, continues) = (!dice.once_in(4), dice.once_in(4));
            let text = TextRequest {
                immediate,
                is_final,
                continues,
                lun,
                itt,
                ttt: Ttt::NONE,
                cmd_sn,
                exp_stat_sn,
            };
            let keys = [
                "SendTargets=All\0",
                "SendTargets=\0",
                "MaxRecvDataSegmentLength=4096\0",
                "X=1\0",
                "Max",
            ];
            text.encode(Bytes::from_static(dice.pick(&keys).as_bytes()))
        }
        13 => {
            let ttt = if dice.once_in(2) { Ttt::NONE } else { Ttt(dice.byte().into()) };
            let itt = if dice.once_in(4) { Itt::NONE } else { itt };
            NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn }
                .encode(Bytes::from(dice.blob(64)))
        }
        14 => {
            let reason = LogoutReason(dice.byte() % 4);
            let cid = zgate_iscsi::names::Cid(dice.byte().into());
            LogoutRequest { immediate, reason, itt, cid, cmd_sn, exp_stat_sn }.encode()
        }
        _ => {
            let mut bhs = Bhs([0; 48]);
            bhs.put(0, dice.raw(48));
            bhs.set_ahs_bytes(0);
            Outgoing::with_bytes(bhs, Bytes::from(dice.blob(64)))
        }
    }
}

fn pdus(dice: &mut Dice<'_>) {
    let mut bench = Bench::new(dice);
    while !dice.is_spent() {
        if dice.once_in(5) {
            bench.outside(dice);
        } else {
            let mut out = pdu(&bench, dice);
            if dice.once_in(10) {
                let at = dice.below(48);
                out.bhs.0[at] ^= dice.byte();
            }
            let data = out.data.iter().filter_map(|piece| match piece {
                Payload::Bytes(bytes) => Some(bytes.clone()),
                Payload::Span(_) => None,
            });
            let mut frame = Frame::new(out.bhs, out.ahs, data.collect());
            frame.data_digest_ok = !dice.once_in(12);
            bench.feed(frame, dice);
        }
        bench.settle(dice);
    }
}
