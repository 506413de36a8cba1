//! A target and initiators connected by their framing, on virtual time.

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::access::{AccessPolicy, Admission, AuthRequirement, Grant, Peer};
use zgate_iscsi::auth::{ChapAccount, ChapAlgorithm, ChapPolicy, Secret};
use zgate_iscsi::directory::{Claim, Directory};
use zgate_iscsi::entropy::Entropy;
use zgate_iscsi::framing::{Decoder, Digests, Encoder};
use zgate_iscsi::initiator::{Initiator, LoginOutcome, LoginScript, Notice};
use zgate_iscsi::login::{LoggedIn, Login, LoginContext, LoginState, LoginStatus, Offer};
use zgate_iscsi::names::{Cid, IscsiName, PortalGroup, Tsih};
use zgate_iscsi::pdu::{Bhs, Cdb, Frame, Itt, Lun, Outgoing, ScsiCommand, TaskAttribute};
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::{
    Command, Completion, ConnHandle, Event, Session, SessionConfig, TaskTag,
};
use zgate_iscsi::time::Timestamp;
use zgate_store::Payload;

pub const INITIATOR: &str = "iqn.2026-01.test:initiator";
pub const TARGET: &str = "iqn.2026-01.test:open";
/// Logical unit of the tests' commands: 1.
pub const LUN: Lun = Lun(0x0001_0000_0000_0000);

pub struct Counter(pub u64);

impl Entropy for Counter {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// Targets by the last word of their name.
pub struct Policy;

pub fn account(name: &str, secret: &str) -> ChapAccount {
    ChapAccount { name: name.into(), secret: Secret::new(secret.as_bytes()) }
}

impl AccessPolicy for Policy {
    fn admit(&self, target: &IscsiName, peer: &Peer) -> Admission {
        let auth = match target.as_str().rsplit(':').next() {
            Some("open") => AuthRequirement::None,
            Some("chap") => AuthRequirement::Chap(ChapPolicy {
                initiators: vec![account("joe", "joe's long secret")],
                target: Some(account("gate", "the gate's secret")),
                algorithms: ChapAlgorithm::ALL.to_vec(),
            }),
            Some("refused") => return Admission::Refused,
            Some("removed") => return Admission::Removed,
            Some("busy") => return Admission::Unavailable,
            Some("moved") => {
                return Admission::Moved { address: "10.0.0.9:3260,1".into(), permanent: true };
            }
            _ => return Admission::NotFound,
        };
        assert_eq!(peer.portal_group, PortalGroup(1));
        Admission::Granted(Grant { alias: Some("a disk".into()), auth })
    }

    fn admit_discovery(&self, peer: &Peer) -> Option<AuthRequirement> {
        (!peer.initiator.as_str().ends_with("stranger")).then_some(AuthRequirement::None)
    }
}

/// Carries a PDU through the wire format.
pub fn carry(encoder: &mut Encoder, decoder: &mut Decoder, pdu: Outgoing) -> Frame {
    let mut pieces = Vec::new();
    encoder.encode(pdu, &mut pieces).unwrap();
    for piece in pieces {
        let Payload::Bytes(bytes) = piece else { panic!("tests use memory") };
        decoder.feed(bytes);
    }
    decoder.poll().unwrap().expect("a whole PDU")
}

pub fn plain(pdu: Outgoing) -> Frame {
    carry(&mut Encoder::new(), &mut Decoder::new(1 << 24), pdu)
}

pub struct Target {
    pub directory: Directory,
    pub offer: Offer,
    pub entropy: Counter,
    pub window: Option<(Sn, Sn)>,
    /// There is a place for another connection.
    pub has_place: bool,
}

impl Target {
    pub fn new(offer: Offer) -> Self {
        let (directory, entropy) = (Directory::new(100), Counter(1));
        Self { directory, offer, entropy, window: None, has_place: true }
    }

    pub fn feed(&mut self, login: &mut Login, frame: &Frame) {
        let (window, has_place) = (self.window, self.has_place);
        let admit = |replaces: bool| {
            if has_place || replaces { Ok(()) } else { Err(String::from("no place")) }
        };
        let mut cx = LoginContext {
            policy: &Policy,
            directory: &mut self.directory,
            entropy: &mut self.entropy,
            window_of: &|tsih| window.filter(|_| tsih != Tsih(0)),
            admit: &admit,
        };
        login.handle_pdu(frame, &mut cx);
    }

    /// Runs a login to its end.
    pub fn login(&mut self, script: &LoginScript) -> (Option<LoginOutcome>, LoginState) {
        let mut login = Login::new(self.offer.clone(), None, PortalGroup(1));
        let outcome = script.run(|pdu| {
            self.feed(&mut login, &plain(pdu));
            login.poll_transmit().map(plain)
        });
        (outcome, login.state().clone())
    }

    pub fn login_ok(&mut self, script: &LoginScript) -> (LoginOutcome, LoggedIn) {
        match self.login(script) {
            (Some(outcome), LoginState::Done(done)) => (outcome, *done),
            other => panic!("login failed: {other:?}"),
        }
    }

    pub fn login_status(&mut self, script: &LoginScript) -> LoginStatus {
        match self.login(script) {
            (Some(outcome), LoginState::Failed(status)) => {
                assert_eq!(outcome.status, (status.0, status.1));
                status
            }
            other => panic!("login did not fail: {other:?}"),
        }
    }
}

pub struct Link {
    pub handle: ConnHandle,
    pub initiator: Initiator,
    down: (Encoder, Decoder),
    up: (Encoder, Decoder),
}

/// A target with one session, and the initiator's end of its connections.
pub struct Harness {
    pub target: Target,
    pub session: Session,
    pub links: Vec<Link>,
    pub now: Timestamp,
    pub script: LoginScript,
    pub commands: Vec<Command>,
    pub events: Vec<Event>,
    /// PDUs the target sent, for inspection.
    pub sent: Vec<(usize, Bhs)>,
    /// Decides which PDUs to the initiator are lost.
    pub lose: Box<dyn FnMut(&Bhs) -> bool>,
    /// Decides which PDUs to the target are lost.
    pub lose_up: Box<dyn FnMut(&Bhs) -> bool>,
    /// Damages PDUs to the target.
    pub damage: Box<dyn FnMut(&Bhs) -> bool>,
    /// Notices set aside by a test.
    pub held: Vec<Notice>,
}

impl Harness {
    pub fn new(keys: &[(&str, &str)]) -> Self {
        Self::with_offer(keys, Offer { initial_r2t: false, ..Offer::default() })
    }

    pub fn with_offer(keys: &[(&str, &str)], offer: Offer) -> Self {
        let mut target = Target::new(offer);
        let script =
            keys.iter().fold(LoginScript::normal(INITIATOR, TARGET), |script, (key, value)| {
                script.with(key, value)
            });
        let (outcome, done) = target.login_ok(&script);
        let Claim::New(tsih) = done.claim else { panic!("new session") };
        let now = Timestamp(0);
        let mut session = Session::new(&done, tsih, SessionConfig::default(), now);
        let handle = session.attach(&done, now).unwrap();
        let mut harness = Self {
            target,
            session,
            links: Vec::new(),
            now,
            script,
            commands: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            lose: Box::new(|_| false),
            lose_up: Box::new(|_| false),
            damage: Box::new(|_| false),
            held: Vec::new(),
        };
        harness.link(handle, &outcome, &done);
        harness
    }

    fn link(&mut self, handle: ConnHandle, outcome: &LoginOutcome, done: &LoggedIn) {
        let digests = Digests { header: done.params.header_digest, data: done.params.data_digest };
        let half = || {
            let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(1 << 20));
            encoder.configure(digests);
            decoder.configure(digests, 1 << 20);
            (encoder, decoder)
        };
        let initiator = Initiator::new(outcome);
        self.links.push(Link { handle, initiator, down: half(), up: half() });
    }

    /// Logs another connection in to the session.
    pub fn join(&mut self, cid: u16) -> usize {
        let mut script = self.script.clone();
        script.cid = Cid(cid);
        script.tsih = self.session.tsih();
        script.cmd_sn = self.links.last().map_or(script.cmd_sn, |link| link.initiator.cmd_sn);
        let session_wide = ["ErrorRecoveryLevel", "MaxConnections", "InitialR2T", "ImmediateData"];
        script
            .operational
            .retain(|(key, _)| key.ends_with("Digest") || key == "MaxRecvDataSegmentLength");
        assert!(script.operational.iter().all(|(key, _)| !session_wide.contains(&key.as_str())));
        self.target.window = Some(self.session.window());
        let (outcome, done) = self.target.login_ok(&script);
        let handle = self.session.attach(&done, self.now).unwrap();
        self.link(handle, &outcome, &done);
        let last = self.links.len() - 1;
        let mut params = self.links[0].initiator.params().clone();
        params.target_recv_bytes = self.target.offer.max_recv_bytes;
        self.links[last].initiator.set_params(params);
        self.links[last].initiator.start_tags_at(Itt(1000 * (last as u32 + 1)));
        last
    }

    /// Sends all queued PDUs in both directions until there are none left.
    pub fn run(&mut self) {
        loop {
            let mut moved = false;
            for index in 0..self.links.len() {
                moved |= self.pass_up(index);
                moved |= self.pass_down(index);
            }
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Command(command) => self.commands.push(*command),
                    event => self.events.push(event),
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn pass_up(&mut self, index: usize) -> bool {
        let mut moved = false;
        while let Some(pdu) = self.links[index].initiator.poll_transmit() {
            moved = true;
            let link = &mut self.links[index];
            let mut frame = carry(&mut link.up.0, &mut link.up.1, pdu);
            if (self.lose_up)(&frame.bhs) {
                continue;
            }
            if (self.damage)(&frame.bhs) {
                frame.data_digest_ok = false;
            }
            self.session.handle_pdu(link.handle, frame, self.now);
        }
        moved
    }

    fn pass_down(&mut self, index: usize) -> bool {
        let mut moved = false;
        while let Some(pdu) = self.session.poll_transmit(self.links[index].handle) {
            moved = true;
            let link = &mut self.links[index];
            let frame = carry(&mut link.down.0, &mut link.down.1, pdu);
            self.sent.push((index, frame.bhs));
            if !(self.lose)(&frame.bhs) {
                link.initiator.handle_pdu(frame);
            }
        }
        moved
    }

    pub fn initiator(&mut self) -> &mut Initiator {
        &mut self.links[0].initiator
    }

    /// Runs, and returns the one command that must have arrived.
    pub fn take_command(&mut self) -> Command {
        self.run();
        assert_eq!(self.commands.len(), 1, "one command");
        self.commands.remove(0)
    }

    pub fn good(&mut self, task: TaskTag, data: Bytes) {
        let data_in = if data.is_empty() { Vec::new() } else { vec![Payload::Bytes(data)] };
        self.session.complete(task, Completion { data_in, ..Completion::default() });
        self.run();
    }

    pub fn notices(&mut self, index: usize) -> Vec<Notice> {
        std::iter::from_fn(|| self.links[index].initiator.poll_notice()).collect()
    }

    pub fn pass_time(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.session.handle_timeout(self.now);
        self.run();
    }
}

/// A SIMPLE command of [`LUN`] without data, TEST UNIT READY.
pub fn scsi_command(itt: Itt, cmd_sn: Sn) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: false,
        attribute: TaskAttribute::Simple,
        lun: LUN,
        itt,
        expected_bytes: 0,
        cmd_sn,
        exp_stat_sn: Sn(0),
        cdb: Cdb::new(&[0]).unwrap(),
        bidirectional_read_bytes: None,
    }
}

/// The same as READ (10).
pub fn read_command(itt: Itt, cmd_sn: Sn, expected_bytes: u32) -> ScsiCommand {
    let cdb = Cdb::new(&[0x28]).unwrap();
    ScsiCommand { read: true, expected_bytes, cdb, ..scsi_command(itt, cmd_sn) }
}

/// The same as WRITE (10), whose data is immediate or solicited.
pub fn write_command(itt: Itt, cmd_sn: Sn, expected_bytes: u32) -> ScsiCommand {
    let cdb = Cdb::new(&[0x2a]).unwrap();
    ScsiCommand { write: true, expected_bytes, cdb, ..scsi_command(itt, cmd_sn) }
}

pub fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}
