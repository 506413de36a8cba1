//! A worker of a host: it carries out its steps one after the other, and tells
//! the history what it was told.

use super::host::{Ended, HostSession, Lost, Sent};
use super::{FIRST_HOST, LOGICAL_BLOCK_BYTES, NAA, SHARED_LBA, lba, staging_lba};
use crate::executor::MILLISECOND;
use crate::history::{BLOCK_BYTES, Register};
use crate::plan::{PlannedStep, Step};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use zgate_iscsi::pdu::{TaskFunction, TaskResult};

/// Force unit access, in byte 1 of a CDB.
const FUA: u8 = 8;
/// Registrants only, for writing.
const RESERVATION_TYPE: u8 = 5;
/// Activate persist through power loss, in a parameter list.
const APTPL: u8 = 1;
/// Bytes of a PERSISTENT RESERVE OUT parameter list.
const RESERVE_BYTES: usize = 24;

/// Service actions of PERSISTENT RESERVE OUT.
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

/// End of a command that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It may have run.
    Unknown,
    /// RESERVATION CONFLICT: it has not run.
    Conflict,
    /// MISCOMPARE.
    Differs,
}

/// A worker.
pub struct HostWorker {
    host: Arc<HostSession>,
    number: u32,
    name: String,
    /// Written through the cache: version and session.
    unflushed: BTreeMap<u32, (u32, u64)>,
    swaps: u64,
}

fn key_of(host: usize) -> u64 {
    host as u64
}

fn block(register: Register, version: u32) -> Bytes {
    Bytes::from(register.content(version).repeat(LOGICAL_BLOCK_BYTES / BLOCK_BYTES))
}

/// The part of a block that names its version, if all parts are alike.
fn first_part(data: &[u8]) -> Option<&[u8]> {
    let first = data.get(..BLOCK_BYTES)?;
    data.chunks(BLOCK_BYTES).all(|part| part == first).then_some(first)
}

fn write_cdb(lba: u32, through: bool) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    [0x2a, if through { FUA } else { 0 }, a, b, c, d, 0, 0, 1, 0]
}

fn value_block(value: u64) -> Vec<u8> {
    value.to_be_bytes().repeat(LOGICAL_BLOCK_BYTES / 8)
}

/// Parameter list of an EXTENDED COPY (LID1) of one block of the unit onto
/// another one (SPC-4 §6.4).
fn copy_list(from: u32, to: u32) -> Vec<u8> {
    /// Bytes of a header, of a CSCD descriptor and of a segment descriptor.
    const LENGTHS: [usize; 3] = [16, 32, 28];
    let mut list = vec![0; LENGTHS.iter().sum()];
    (list[1], list[3], list[11]) = (0x18, LENGTHS[1] as u8, LENGTHS[2] as u8);
    let (cscd, segment) = list[LENGTHS[0]..].split_at_mut(LENGTHS[1]);
    // Identification descriptor: binary, NAA.
    (cscd[0], cscd[4], cscd[5], cscd[7]) = (0xe4, 1, 3, NAA.len() as u8);
    cscd[8..8 + NAA.len()].copy_from_slice(&NAA);
    cscd[29..32].copy_from_slice(&(LOGICAL_BLOCK_BYTES as u32).to_be_bytes()[1..]);
    // Block to block, both the first and only unit.
    (segment[0], segment[3], segment[11]) = (2, 0x18, 1);
    segment[12..20].copy_from_slice(&u64::from(from).to_be_bytes());
    segment[20..28].copy_from_slice(&u64::from(to).to_be_bytes());
    list
}

impl HostWorker {
    /// A worker that has done nothing yet.
    #[must_use]
    pub fn new(host: &Arc<HostSession>, number: u32) -> Self {
        let name = format!("{}.{number}", host.name);
        let (host, unflushed) = (Arc::clone(host), BTreeMap::new());
        Self { host, number, name, unflushed, swaps: 0 }
    }

    /// Carries out all steps.
    pub async fn run(&mut self, steps: Vec<PlannedStep>) {
        for planned in steps {
            self.host.executor.sleep(planned.pause).await;
            self.note(format_args!("#{} {:?}", planned.number, planned.step));
            self.take(planned.step).await;
        }
        self.note(format_args!("done"));
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.host.trace.note(&self.name, what);
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Put { block, through } => self.put(block, through).await,
            Step::Flush => self.flush().await,
            Step::Get { host, block } => {
                self.get(Register { client: FIRST_HOST + host, block }).await;
            }
            Step::Swap => self.swap().await,
            Step::Unmap { block } => self.unmap(block).await,
            Step::AbortPut { block, after, whole_unit } => {
                self.abort_put(block, after, whole_unit).await;
            }
            Step::CopyBlock { block } => self.copy_block(block).await,
            Step::WrongSecret => self.host.try_wrong_secret().await,
            Step::Register => {
                self.register().await;
            }
            Step::Fence { host } if FIRST_HOST + host != self.host.number => {
                self.fence(FIRST_HOST + host).await;
            }
            _ => {}
        }
    }

    fn register_of(&self, block: u32) -> Register {
        Register { client: self.host.number, block }
    }

    async fn ended(&self, sent: &mut Sent) -> Result<(u8, Bytes, Bytes), Lost> {
        match self.host.end(sent).await? {
            Ended::Done { status, sense, data } => Ok((status, sense, data)),
            Ended::Function(result) => panic!("a function for an answer: {result:?}"),
        }
    }

    /// Runs a command until it has an end other than BUSY or UNIT ATTENTION.
    async fn command(&self, cdb: &[u8], read_bytes: u32, write: &Bytes) -> Result<Bytes, Refused> {
        loop {
            let way = self.number as usize;
            let mut sent = self.host.send(way, cdb, read_bytes, write.clone()).await;
            let Ok((status, sense, data)) = self.ended(&mut sent).await else {
                return Err(Refused::Unknown);
            };
            let key = sense.get(2).map_or(0, |byte| byte & 0xf);
            match (status, key) {
                (0, _) => return Ok(data),
                // UNIT ATTENTION: it has not run.
                (2, 6) => {}
                (2, 0xe) => return Err(Refused::Differs),
                // BUSY, TASK SET FULL.
                (8 | 0x28, _) => self.host.executor.sleep(200 * MILLISECOND).await,
                (0x18, _) => return Err(Refused::Conflict),
                _ => return Err(Refused::Unknown),
            }
        }
    }

    async fn put(&mut self, block_number: u32, through: bool) {
        let register = self.register_of(block_number);
        let version = self.host.history.next_version(register);
        let losses = self.host.history.losses();
        let fence = self.host.history.fenced(self.host.number);
        let data = block(register, version);
        let end = self.command(&write_cdb(lba(register), through), 0, &data).await;
        self.note(format_args!("  WRITE {version}: {:?}", end.as_ref().map(|_| ())));
        if end.is_err() {
            return;
        }
        self.host.history.wrote_fenced(self.host.number, fence);
        self.wrote(register, version, through, losses);
    }

    /// EXTENDED COPY of a block that was written elsewhere before.
    async fn copy_block(&mut self, block_number: u32) {
        let register = self.register_of(block_number);
        let version = self.host.history.next_version(register);
        let from = staging_lba(self.host.number, self.number);
        let data = block(register, version);
        if self.command(&write_cdb(from, true), 0, &data).await.is_err() {
            return;
        }
        let losses = self.host.history.losses();
        let fence = self.host.history.fenced(self.host.number);
        let list = Bytes::from(copy_list(from, lba(register)));
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
        let end = self.command(&cdb, 0, &list).await;
        self.note(format_args!("  EXTENDED COPY {version}: {:?}", end.as_ref().map(|_| ())));
        if end.is_ok() {
            self.host.history.wrote_fenced(self.host.number, fence);
            self.wrote(register, version, false, losses);
        }
    }

    fn wrote(&mut self, register: Register, version: u32, through: bool, losses: u64) {
        if through {
            self.unflushed.remove(&register.block);
            self.host.history.stable(register, version, false);
        } else {
            self.unflushed.insert(register.block, (version, self.host.generation()));
            if self.host.history.losses() == losses {
                self.host.history.written(register, version);
            }
        }
    }

    async fn flush(&mut self) {
        let cdb = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let unflushed = std::mem::take(&mut self.unflushed);
        let end = self.command(&cdb, 0, &Bytes::new()).await;
        self.note(format_args!("  SYNCHRONIZE CACHE: {:?}", end.as_ref().map(|_| ())));
        if end.is_err() {
            return;
        }
        let generation = self.host.generation();
        for (block, (version, session)) in unflushed {
            // A host writes again what another session had not flushed.
            if session == generation {
                self.host.history.stable(self.register_of(block), version, true);
            }
        }
    }

    async fn get(&mut self, register: Register) -> Option<Bytes> {
        let expected = self.host.history.expected(register);
        let [a, b, c, d] = lba(register).to_be_bytes();
        let cdb = [0x28, 0, a, b, c, d, 0, 0, 1, 0];
        let end = self.command(&cdb, LOGICAL_BLOCK_BYTES as u32, &Bytes::new()).await;
        let Ok(data) = end else {
            self.note(format_args!("  READ: {end:?}"));
            return None;
        };
        let content = first_part(&data).unwrap_or(&data);
        self.note(format_args!("  READ {register:?}: {:?}", register.version(content)));
        self.host.history.read(register, expected, content);
        Some(Bytes::copy_from_slice(content))
    }

    /// Reads everything, to be called when nothing else happens.
    pub async fn read_all(&mut self, registers: Vec<Register>) {
        for register in registers {
            // The session of before the power loss fails first.
            if self.get(register).await.is_none() {
                self.get(register).await;
            }
        }
        if self.host.history.must_be_reserved() {
            let found = self.is_reserved().await;
            if found == Some(false) {
                self.host.history.fail(
                    crate::invariant::Invariant::ReservationKept,
                    "a reservation that was granted is gone after a power loss".to_owned(),
                );
            }
        }
    }

    async fn swap(&mut self) {
        let lba = SHARED_LBA.to_be_bytes();
        let cdb = [0x28, 0, lba[0], lba[1], lba[2], lba[3], 0, 0, 1, 0];
        let end = self.command(&cdb, LOGICAL_BLOCK_BYTES as u32, &Bytes::new()).await;
        let Ok(before) = end else { return };
        let Some(from) = before.first_chunk::<8>().copied().map(u64::from_be_bytes) else { return };
        self.swaps += 1;
        let to = (self.host.number as u64) << 40 | u64::from(self.number) << 32 | self.swaps;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x89, FUA, 1);
        let data = Bytes::from([value_block(from), value_block(to)].concat());
        let end = self.command(&cdb, 0, &data).await;
        self.note(format_args!(
            "  COMPARE AND WRITE {from:x} {to:x}: {:?}",
            end.as_ref().map(|_| ())
        ));
        if end.is_ok() {
            self.host.history.swapped(from, to);
        }
    }

    async fn unmap(&mut self, block_number: u32) {
        let register = self.register_of(block_number);
        let version = self.host.history.next_version(register);
        let fence = self.host.history.fenced(self.host.number);
        let losses = self.host.history.losses();
        self.host.history.unmapping(register, version);
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(u64::from(lba(register)).to_be_bytes());
        list.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        let end = self.command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &Bytes::from(list)).await;
        self.note(format_args!("  UNMAP {version}: {:?}", end.as_ref().map(|_| ())));
        if end.is_ok() {
            self.host.history.wrote_fenced(self.host.number, fence);
            self.wrote(register, version, false, losses);
        }
    }

    /// A write that is aborted, and one behind it: the first may never land on
    /// the second.
    async fn abort_put(&mut self, block_number: u32, after: u64, whole_unit: bool) {
        if self.host.recovers() {
            // Its tasks may be moved while they are aborted: not simulated.
            return self.put(block_number, false).await;
        }
        let register = self.register_of(block_number);
        let version = self.host.history.next_version(register);
        let (data, way) = (block(register, version), self.number as usize);
        let cdb = write_cdb(lba(register), false);
        let mut sent = self.host.send(way, &cdb, 0, data).await;
        self.host.executor.sleep(after).await;
        let function = match whole_unit {
            true => TaskFunction::LUN_RESET,
            false => TaskFunction::ABORT_TASK,
        };
        let sent_at = self.host.executor.nanos();
        if whole_unit {
            self.host.history.unit_reset(true);
        }
        let mut managed = self.host.manage(function, &sent);
        let end = self.host.end(&mut managed).await;
        if whole_unit {
            self.host.history.unit_reset(false);
        }
        self.note(format_args!("  {function:?} of WRITE {version}: {end:?}"));
        match end {
            Ok(Ended::Function(TaskResult::COMPLETE)) if whole_unit => {
                self.host.check_reset(sent_at);
            }
            Ok(Ended::Function(TaskResult::COMPLETE | TaskResult::TASK_DOES_NOT_EXIST)) => {}
            // It may still land, and the host knows: it waits for its end.
            Ok(_) => drop(self.ended(&mut sent).await),
            Err(Lost) => {}
        }
        self.put(block_number, false).await;
    }

    async fn reserve_out(&self, action: u8, key: u64, service_key: u64) -> Result<Bytes, Refused> {
        let mut list = vec![0; RESERVE_BYTES];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&service_key.to_be_bytes());
        list[20] = APTPL;
        let kind = if action == REGISTER_AND_IGNORE { 0 } else { RESERVATION_TYPE };
        let length = RESERVE_BYTES as u8;
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, length, 0];
        let end = self.command(&cdb, 0, &Bytes::from(list)).await;
        self.note(format_args!(
            "  PERSISTENT RESERVE OUT {action}: {:?}",
            end.as_ref().map(|_| ())
        ));
        end
    }

    async fn register(&self) -> bool {
        let host = self.host.number;
        self.host.history.registering(host);
        let end = self.reserve_out(REGISTER_AND_IGNORE, 0, key_of(host)).await;
        self.host.history.registered(host, end == Err(Refused::Unknown));
        end.is_ok()
    }

    /// Returns whether somebody holds a reservation.
    async fn is_reserved(&self) -> Option<bool> {
        let cdb = [0x5e, 1, 0, 0, 0, 0, 0, 0, 64, 0];
        let data = self.command(&cdb, 64, &Bytes::new()).await.ok()?;
        Some(data.get(4..8)? != [0; 4])
    }

    /// Takes a host's registration away under a reservation, and reads what it
    /// has left.
    async fn fence(&mut self, victim: usize) {
        let own = key_of(self.host.number);
        if !self.register().await {
            return;
        }
        // Another host may hold it.
        if self.reserve_out(RESERVE, own, 0).await.is_ok() {
            self.host.history.reserved();
        }
        if self.is_reserved().await != Some(true) {
            return;
        }
        let registrations = self.host.history.registrations(victim);
        self.host.history.unit_reset(true);
        let preempted = self.reserve_out(PREEMPT_AND_ABORT, own, key_of(victim)).await;
        self.host.history.unit_reset(false);
        if preempted.is_err() {
            return;
        }
        let Some(fence) = self.host.history.fence(victim, registrations) else { return };
        self.note(format_args!("  host {victim} is fenced"));
        for block in 0..crate::plan::WORKERS * crate::plan::BLOCKS_PER_WORKER {
            let register = Register { client: victim, block };
            if let Some(content) = self.get(register).await {
                self.host.history.read_behind_fence(register, fence, &content);
            }
        }
    }
}
