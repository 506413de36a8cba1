//! A host: a session over several connections, and its recovery. When anything
//! is lost, the host drops all connections and logs in anew, as hosts at error
//! recovery level 0 do.

use super::recovery::Recovery;
use super::wires::{Arrived, Wires};
use super::{CHAP_NAME, CHAP_SECRET, FIRST_HOST, STRANGER, TARGET, TARGET_SECRET, has_secret};
use crate::executor::{Domain, Executor, MILLISECOND, SECOND, lock};
use crate::history::History;
use crate::invariant::{ANSWER_SECONDS, Invariant};
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use zgate_iscsi::auth::ChapAlgorithm;
use zgate_iscsi::initiator::{Initiator, LoginOutcome, LoginScript, Notice};
use zgate_iscsi::names::{Cid, Isid};
use zgate_iscsi::pdu::{Frame, Itt, Opcode, Outgoing, TaskFunction, TaskResult};
use zgate_iscsi::serial::Sn;

/// Connections of a session.
const CONNECTIONS: u16 = 2;
/// Time after which a host gives a login up, in seconds.
const LOGIN_SECONDS: u64 = 10;

/// The session was lost before the answer: the command may have run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost;

/// End of a command or a function.
#[derive(Debug)]
pub(super) enum Ended {
    Done { status: u8, sense: Bytes, data: Bytes },
    Function(TaskResult),
}

impl Sent {
    /// A command of a host that recovers.
    pub(super) fn recovering(ticket: u64, told: oneshot::Receiver<Ended>) -> Self {
        let (itt, cmd_sn) = (Itt::NONE, Sn(0));
        Self { itt, cmd_sn, generation: 0, connection: 0, ticket, told }
    }

    pub(super) fn told(&mut self) -> &mut oneshot::Receiver<Ended> {
        &mut self.told
    }
}

/// A command that was sent.
pub(super) struct Sent {
    pub(super) itt: Itt,
    pub(super) cmd_sn: Sn,
    generation: u64,
    connection: usize,
    /// Its name in a session that recovers.
    pub(super) ticket: u64,
    told: oneshot::Receiver<Ended>,
}

struct Connection {
    link: u64,
    initiator: Initiator,
}

#[derive(Default)]
struct Inside {
    /// Number of the session; commands of earlier ones are lost.
    generation: u64,
    connections: Vec<Connection>,
    waiting: BTreeMap<Itt, oneshot::Sender<Ended>>,
    /// Tasks that end with a function.
    managed: BTreeMap<Itt, Vec<Itt>>,
    cmd_sn: u32,
    next_itt: u32,
}

/// Transport of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTransport {
    /// TCP.
    Plain,
    /// TCP with header and data digests.
    Digests,
    /// iSER.
    Iser,
    /// TCP with digests, at error recovery level 1 or 2.
    Recovering(u8),
}

/// A host.
pub struct HostSession {
    /// Its number in the history.
    pub number: usize,
    /// Its name in the trace.
    pub name: String,
    pub(super) executor: Arc<Executor>,
    pub(super) trace: Arc<Trace>,
    pub(super) history: Arc<History>,
    pub(super) wires: Arc<Wires>,
    inside: Mutex<Inside>,
    establishing: tokio::sync::Mutex<()>,
    pub(super) ended: AtomicBool,
    transport: HostTransport,
    /// Error recovery above level 0.
    pub(super) recovery: Option<Recovery>,
    /// End of the faults; 0 before.
    pub(super) healed: AtomicU64,
}

/// Connections of a session: one over iSER, as Linux has it.
fn connection_count(transport: HostTransport) -> u16 {
    if transport == HostTransport::Iser { 1 } else { CONNECTIONS }
}

fn script((number, name): (usize, &str), transport: HostTransport) -> LoginScript {
    let initiator = format!("iqn.2026-11.test.zgate:{name}");
    let mut script = LoginScript::normal(&initiator, TARGET)
        .with("MaxConnections", &connection_count(transport).to_string());
    let level = if let HostTransport::Recovering(level) = transport { level } else { 0 };
    script = script.with("ErrorRecoveryLevel", &level.to_string());
    match transport {
        HostTransport::Plain => {}
        HostTransport::Recovering(_) => {
            script = script
                .with("HeaderDigest", "CRC32C")
                .with("DataDigest", "CRC32C")
                .with("InitialR2T", "Yes")
                .with("ImmediateData", "No")
                .with("DefaultTime2Wait", "2")
                .with("DefaultTime2Retain", "20");
        }
        HostTransport::Digests => {
            script = script.with("HeaderDigest", "CRC32C").with("DataDigest", "CRC32C");
        }
        HostTransport::Iser => {
            // All data goes by RDMA.
            script = script
                .with("RDMAExtensions", "Yes")
                .with("InitiatorRecvDataSegmentLength", "262144")
                .with("TargetRecvDataSegmentLength", "8192")
                .with("InitialR2T", "Yes")
                .with("ImmediateData", "No");
        }
    }
    if has_secret(&initiator) {
        let algorithm = ChapAlgorithm::ALL[0];
        script.chap = Some((CHAP_NAME.to_owned(), CHAP_SECRET.to_vec(), algorithm));
        script.mutual = Some(TARGET_SECRET.to_vec());
    }
    script.isid = Isid([0x80, 0, 0, 0, 0, number as u8]);
    script.cmd_sn = Sn(1);
    script
}

impl HostSession {
    /// A host that is not logged in.
    #[must_use]
    pub fn new(
        host: usize,
        (executor, trace): (&Arc<Executor>, &Arc<Trace>),
        history: &Arc<History>,
        wires: &Arc<Wires>,
        transport: HostTransport,
    ) -> Arc<Self> {
        let name = format!("host{host}");
        let number = FIRST_HOST + host;
        let recovery = match transport {
            HostTransport::Recovering(level) => {
                let script = script((number, &name), transport);
                Some(Recovery::new(script, level == 1 || host == 0))
            }
            _ => None,
        };
        let session = Arc::new(Self {
            transport,
            recovery,
            number,
            name,
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            history: Arc::clone(history),
            wires: Arc::clone(wires),
            inside: Mutex::default(),
            establishing: tokio::sync::Mutex::default(),
            ended: AtomicBool::new(false),
            healed: AtomicU64::new(0),
        });
        executor.spawn(Domain::Outside, Arc::clone(&session).recover());
        session
    }

    /// The host recovers lost PDUs and connections.
    pub(super) fn recovers(&self) -> bool {
        self.recovery.is_some()
    }

    /// Number of sessions so far.
    pub(super) fn generation(&self) -> u64 {
        if let Some(recovery) = &self.recovery {
            return recovery.generation();
        }
        lock(&self.inside).generation
    }

    /// The faults are over: from now on answers come in time.
    pub fn heal(&self) {
        self.healed.store(self.executor.nanos(), Ordering::Release);
    }

    /// The host goes away.
    pub fn vanish(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(recovery) = &self.recovery {
            return recovery.end().into_iter().for_each(|link| self.wires.cut(link));
        }
        let generation = self.generation();
        self.lose(generation);
    }

    /// Gives a session up: its connections end, its commands are lost.
    pub(super) fn lose(&self, generation: u64) {
        let (links, waiting) = {
            let mut inside = lock(&self.inside);
            if inside.generation != generation {
                return;
            }
            inside.generation += 1;
            inside.managed.clear();
            let links: Vec<u64> = inside.connections.drain(..).map(|one| one.link).collect();
            (links, std::mem::take(&mut inside.waiting))
        };
        self.trace.note(&self.name, format_args!("gives session {generation} up"));
        links.into_iter().for_each(|link| self.wires.cut(link));
        drop(waiting);
    }

    /// Logs in unless there is a session.
    async fn established(self: &Arc<Self>) {
        let _one_at_a_time = self.establishing.lock().await;
        while lock(&self.inside).connections.is_empty() {
            if self.establish().await.is_none() {
                let generation = self.generation();
                self.lose(generation);
                self.executor.sleep(300 * MILLISECOND).await;
            }
        }
    }

    fn is_iser(&self) -> bool {
        self.transport == HostTransport::Iser
    }

    fn send_up(&self, link: u64, pdu: Outgoing, data: Option<&(Bytes, u32)>) {
        match self.is_iser() {
            true => self.wires.send_message(link, pdu, data),
            false => self.wires.send_up(link, pdu),
        }
    }

    /// Tries to log in with a wrong secret, as another port of the host.
    pub(super) async fn try_wrong_secret(&self) {
        let mut script = script((self.number, &self.name), self.transport);
        let stranger = self.generation().is_multiple_of(2);
        let Some((name, secret, _)) = &mut script.chap else { return };
        if stranger {
            STRANGER.clone_into(name);
        } else {
            secret.push(b'!');
        }
        script.isid = Isid([0x80, 0, 0, 0, 1, self.number as u8]);
        if let Some((link, ..)) = self.log_in(&script).await {
            self.wires.cut(link);
            let text = format!("{} is admitted with a wrong secret", self.name);
            self.history.fail(Invariant::OnlyAdmitted, text);
        }
    }

    async fn establish(self: &Arc<Self>) -> Option<()> {
        let script = script((self.number, &self.name), self.transport);
        let (link, frames, outcome) = self.log_in(&script).await?;
        let leading = Initiator::new(&outcome);
        let mut connections = vec![(Connection { link, initiator: leading }, frames)];
        for cid in 1..connection_count(self.transport) {
            let keys = ["MaxConnections", "ErrorRecoveryLevel"];
            let mut joining = script.clone();
            joining.operational.retain(|(key, _)| !keys.contains(&key.as_str()));
            (joining.tsih, joining.cid) = (outcome.tsih, Cid(cid));
            let Some((link, frames, joined)) = self.log_in(&joining).await else {
                connections.iter().for_each(|(one, _)| self.wires.cut(one.link));
                return None;
            };
            let mut initiator = Initiator::new(&joined);
            let mut params = outcome.params.clone();
            params.target_recv_bytes = joined.params.target_recv_bytes;
            initiator.set_params(params);
            connections.push((Connection { link, initiator }, frames));
        }
        let mut inside = lock(&self.inside);
        inside.cmd_sn = 1;
        let generation = inside.generation;
        let mut readers = Vec::new();
        for (number, (connection, frames)) in connections.into_iter().enumerate() {
            inside.connections.push(connection);
            readers.push((number, frames));
        }
        drop(inside);
        self.history.logged_in(self.number);
        self.trace.note(&self.name, format_args!("session {generation}"));
        for (number, frames) in readers {
            let me = Arc::clone(self);
            self.executor.spawn(Domain::Outside, me.receive(generation, number, frames));
        }
        Some(())
    }

    /// Logs a connection in. The script is run anew with each answer, until it
    /// needs no more of them.
    pub(super) async fn log_in(
        &self,
        script: &LoginScript,
    ) -> Option<(u64, UnboundedReceiver<Arrived>, LoginOutcome)> {
        let (link, mut frames) = self.wires.connect(self.number, self.transport).await;
        let mut answers: Vec<Frame> = Vec::new();
        loop {
            let (mut known, mut next) = (answers.iter().cloned(), None);
            let outcome = script.run(|request| {
                let answer = known.next();
                if answer.is_none() {
                    next = Some(request);
                }
                answer
            });
            let Some(request) = next else {
                let outcome = outcome.filter(|outcome| outcome.status.0 == 0);
                if outcome.is_none() {
                    self.wires.cut(link);
                }
                return Some((link, frames, outcome?));
            };
            self.send_up(link, request, None);
            let limit = LOGIN_SECONDS * SECOND;
            match self.executor.within(limit, frames.recv()).await {
                Some(Some(Arrived { frame, .. })) => answers.push(frame),
                _ => {
                    self.wires.cut(link);
                    return None;
                }
            }
        }
    }

    /// Takes the PDUs of a connection to its end.
    async fn receive(
        self: Arc<Self>,
        generation: u64,
        number: usize,
        mut frames: UnboundedReceiver<Arrived>,
    ) {
        while let Some(Arrived { frame, .. }) = frames.recv().await {
            let rejected = frame.bhs.opcode() == Opcode::REJECT;
            assert!(
                !rejected || self.transport == HostTransport::Digests,
                "the target rejects a valid PDU"
            );
            if rejected || !frame.data_digest_ok {
                // It was changed on its way: at level 0 the session ends.
                break;
            }
            let mut ended = Vec::new();
            {
                let mut inside = lock(&self.inside);
                if inside.generation != generation {
                    return;
                }
                let Inside { connections, waiting, managed, .. } = &mut *inside;
                let Some(connection) = connections.get_mut(number) else { return };
                connection.initiator.handle_pdu(frame);
                while let Some(notice) = connection.initiator.poll_notice() {
                    let (itt, end) = match notice {
                        Notice::Done { itt, status, sense, data, .. } => {
                            let read = self.wires.take_back(connection.link, itt);
                            (itt, Ended::Done { status, sense, data: read.unwrap_or(data) })
                        }
                        Notice::Function(itt, result) => {
                            if result == TaskResult::COMPLETE {
                                let ended = managed.remove(&itt).into_iter().flatten();
                                ended.for_each(|task| {
                                    self.wires.take_back(connection.link, task);
                                });
                            }
                            (itt, Ended::Function(result))
                        }
                        Notice::Other(_) => continue,
                    };
                    ended.extend(waiting.remove(&itt).map(|tell| (tell, end)));
                }
                self.flush(connection, None);
            }
            for (tell, end) in ended {
                // The command may have been given up.
                let _ = tell.send(end);
            }
        }
        self.lose(generation);
    }

    fn flush(&self, connection: &mut Connection, data: Option<&(Bytes, u32)>) {
        while let Some(pdu) = connection.initiator.poll_transmit() {
            self.send_up(connection.link, pdu, data);
        }
    }

    /// Sends a command over one of the connections.
    pub(super) async fn send(
        self: &Arc<Self>,
        way: usize,
        cdb: &[u8],
        read_bytes: u32,
        write: Bytes,
    ) -> Sent {
        if let Some(recovery) = &self.recovery {
            return self.start(recovery, (way, cdb), read_bytes, write).await;
        }
        self.established().await;
        let data = (write.clone(), read_bytes);
        self.enter(way, Some(&data), |initiator| {
            let cmd_sn = initiator.cmd_sn;
            (initiator.command(super::LUN, cdb, read_bytes, write), cmd_sn)
        })
    }

    /// Sends a task management function behind a command, over the same
    /// connection.
    pub(super) fn manage(&self, function: TaskFunction, about: &Sent) -> Sent {
        let referenced = if function == TaskFunction::ABORT_TASK { about.itt } else { Itt::NONE };
        // Tasks that end with the function, whose memory is taken back then.
        let ended: Vec<Itt> = match function {
            TaskFunction::ABORT_TASK => vec![about.itt],
            _ => lock(&self.inside).waiting.keys().copied().collect(),
        };
        let sent = self.enter(about.connection, None, |initiator| {
            let cmd_sn = initiator.cmd_sn;
            (initiator.function(function, super::LUN, referenced, about.cmd_sn), cmd_sn)
        });
        lock(&self.inside).managed.insert(sent.itt, ended);
        sent
    }

    /// Uses an initiator with the numbers that all connections share.
    fn enter(
        &self,
        way: usize,
        data: Option<&(Bytes, u32)>,
        call: impl FnOnce(&mut Initiator) -> (Itt, Sn),
    ) -> Sent {
        let (tell, told) = oneshot::channel();
        let mut inside = lock(&self.inside);
        let generation = inside.generation;
        let count = inside.connections.len();
        if count == 0 {
            // Lost meanwhile: the sender is dropped.
            let (itt, cmd_sn, connection) = (Itt::NONE, Sn(0), 0);
            return Sent { itt, cmd_sn, generation, connection, ticket: 0, told };
        }
        let Inside { connections, waiting, cmd_sn, next_itt, .. } = &mut *inside;
        let at = way % count;
        let connection = &mut connections[at];
        connection.initiator.cmd_sn = Sn(*cmd_sn);
        *next_itt += 1;
        connection.initiator.start_tags_at(Itt(*next_itt));
        let (itt, number) = call(&mut connection.initiator);
        *cmd_sn = connection.initiator.cmd_sn.0;
        waiting.insert(itt, tell);
        self.flush(connection, data);
        Sent { itt, cmd_sn: number, generation, connection: at, ticket: 0, told }
    }

    /// Checks that a reset, sent at this time, has ended all earlier writes, of
    /// whatever host.
    pub(super) fn check_reset(&self, sent_at: u64) {
        self.history.reset_is_complete(sent_at);
        if self.wires.writes_since_before(sent_at) {
            let text = format!("{}: a write of before a reset still runs behind it", self.name);
            self.history.fail(Invariant::Fence, text);
        }
    }

    /// Waits for the end of a command or function.
    ///
    /// # Errors
    /// [`Lost`]: the session was lost, or the answer took too long; the session
    /// is given up then.
    pub(super) async fn end(&self, sent: &mut Sent) -> Result<Ended, Lost> {
        if self.recovers() {
            return self.recovered(sent).await;
        }
        let began = self.executor.nanos();
        let limit = ANSWER_SECONDS * SECOND;
        match self.executor.within(limit, &mut sent.told).await {
            Some(ended) => ended.map_err(|_| Lost),
            None => {
                let healed = self.healed.load(Ordering::Acquire);
                let current =
                    self.generation() == sent.generation && !self.history.was_reset_since(began);
                if current && healed > 0 && healed <= began {
                    self.history.fail(
                        Invariant::BoundedAnswer,
                        format!("{}: no answer after {ANSWER_SECONDS} s", self.name),
                    );
                }
                self.lose(sent.generation);
                Err(Lost)
            }
        }
    }
}
