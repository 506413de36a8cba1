//! The login state machine of one connection.

use super::identity::{Arrival, Identity, Refusal, identify};
use super::keys::{IDENTITY_KEYS, is_security_key};
use super::negotiate::{Negotiation, NegotiationContext};
use super::params::{Offer, Operational, Transport};
use super::security::Security;
use super::status::LoginStatus;
use crate::access::{AccessPolicy, Peer};
use crate::directory::{Claim, ClaimError, Directory, SessionKey};
use crate::entropy::Entropy;
use crate::limits::{DEFAULT_RECV_SEGMENT_BYTES, MAX_LOGIN_REQUESTS, MAX_UNSOLICITED_BYTES};
use crate::names::{Cid, Isid, PortalGroup, Tsih};
use crate::pdu::{Frame, Itt, LoginRequest, LoginResponse, Opcode, Outgoing, Stage};
use crate::serial::Sn;
use crate::text::{TextGather, TextWriter, parse_text};
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Context that the owner supplies for each step of login.
pub struct LoginContext<'a> {
    /// Targets and access.
    pub policy: &'a dyn AccessPolicy,
    /// The existing sessions.
    pub directory: &'a mut Directory,
    /// Random numbers.
    pub entropy: &'a mut dyn Entropy,
    /// ExpCmdSN and MaxCmdSN of a live session, for connections that join it.
    pub window_of: &'a dyn Fn(Tsih) -> Option<(Sn, Sn)>,
    /// Takes a place for the connection of a normal session, just before its login succeeds; true
    /// is for one that takes the place of others, which end. The error is for the log.
    pub admit: &'a dyn Fn(bool) -> Result<(), String>,
}

/// A connection in full feature phase.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// Identification of the session; without a target it is a discovery
    /// session.
    pub key: SessionKey,
    /// New session, reinstatement, or an additional connection. End a
    /// reinstated session before transmitting the last login response.
    pub claim: Claim,
    /// The connection's number.
    pub cid: Cid,
    /// Negotiated parameters. For a joining connection only digests and segment
    /// lengths apply.
    pub params: Operational,
    /// CmdSN of the first command.
    pub cmd_sn: Sn,
    /// StatSN of the next response on this connection.
    pub stat_sn: Sn,
    /// Size of the command window that the initiator was told.
    pub command_window: u32,
    /// The name authenticated by CHAP.
    pub authenticated: Option<String>,
    /// Transport of the connection.
    pub transport: Transport,
}

/// State of a login.
#[derive(Clone, Debug)]
pub enum LoginState {
    /// More requests are needed.
    InProgress,
    /// Complete. Transmit the PDUs from [`Login::poll_transmit`], then change
    /// the framing to the negotiated digests.
    Done(Box<LoggedIn>),
    /// Failed: transmit and close.
    Failed(LoginStatus),
}

/// Values that the first request fixed for the whole login.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    isid: Isid,
    tsih: Tsih,
    itt: Itt,
    cid: Cid,
    cmd_sn: Sn,
}

/// Login of one connection, from the first request to full feature phase.
#[derive(Debug)]
pub struct Login {
    offer: Offer,
    address: Option<IpAddr>,
    portal_group: PortalGroup,
    fixed: Option<Fixed>,
    stage: Stage,
    stat_sn: Sn,
    requests: u32,
    gather: TextGather,
    /// Response text that did not fit in one PDU, and the stage that follows
    /// it.
    backlog: Option<(Bytes, Option<Stage>)>,
    identity: Option<SessionKey>,
    security: Security,
    negotiation: Negotiation,
    out: VecDeque<Outgoing>,
    state: LoginState,
    detail: Option<String>,
}

impl Login {
    /// The login of a connection from `address` to a portal of `portal_group`.
    #[must_use]
    pub fn new(offer: Offer, address: Option<IpAddr>, portal_group: PortalGroup) -> Self {
        Self {
            offer,
            address,
            portal_group,
            fixed: None,
            stage: Stage::Security,
            stat_sn: Sn(0),
            requests: 0,
            gather: TextGather::default(),
            backlog: None,
            identity: None,
            security: Security::Satisfied(None),
            negotiation: Negotiation::default(),
            out: VecDeque::new(),
            state: LoginState::InProgress,
            detail: None,
        }
    }

    /// Changes the offer, which may depend on the target. Call it before the request that
    /// names the target whole; it has no effect once the target is known.
    pub fn set_offer(&mut self, offer: Offer) {
        if self.identity.is_none() {
            self.offer = offer;
        }
    }

    /// The state of the login.
    #[must_use]
    pub fn state(&self) -> &LoginState {
        &self.state
    }

    /// The fault in the initiator's keys, or the limit that its host has reached, for the log, if
    /// it is the reason of a failure.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// The next PDU to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// Takes a PDU.
    pub fn handle_pdu(&mut self, frame: &Frame, cx: &mut LoginContext<'_>) {
        if !matches!(self.state, LoginState::InProgress) {
            return;
        }
        if let Err(refusal) = self.handle(frame, cx) {
            let mut text = TextWriter::default();
            if let Some(address) = &refusal.address {
                text.push("TargetAddress", address);
            }
            let status = refusal.status;
            self.respond(frame, cx, text.take(), None, (status.0, status.1), false);
            self.state = LoginState::Failed(status);
        }
    }

    fn handle(&mut self, frame: &Frame, cx: &mut LoginContext<'_>) -> Result<(), Refusal> {
        if frame.bhs.opcode() != Opcode::LOGIN_REQUEST {
            return Err(LoginStatus::INVALID_DURING_LOGIN.into());
        }
        self.requests += 1;
        if self.requests > MAX_LOGIN_REQUESTS {
            return Err(LoginStatus::INITIATOR_ERROR.into());
        }
        // RFC 7143 §11.12.4: our only version is 0.
        if frame.bhs.u8(3) > 0 {
            return Err(LoginStatus::UNSUPPORTED_VERSION.into());
        }
        let request = LoginRequest::parse(&frame.bhs).map_err(LoginStatus::from)?;
        self.check_fixed(&request)?;
        self.gather.push(&frame.data).map_err(LoginStatus::from)?;
        if request.continues {
            self.respond(frame, cx, Bytes::new(), None, (0, 0), false);
            return Ok(());
        }
        let text = self.gather.take();
        if let Some((rest, transit)) = self.backlog.take() {
            if !text.is_empty() {
                return Err(LoginStatus::INITIATOR_ERROR.into());
            }
            return self.answer(frame, cx, rest, transit);
        }
        let pairs = parse_text(&text).map_err(LoginStatus::from)?;
        let mut out = TextWriter::default();
        let first = self.identity.is_none();
        if first {
            self.begin(&request, &pairs, cx, &mut out)?;
        } else if pairs.iter().any(|(key, _)| IDENTITY_KEYS.contains(key)) {
            return Err(LoginStatus::INITIATOR_ERROR.into());
        }
        self.negotiate(&pairs, cx, &mut out)?;
        let transit = request.transit.filter(|_| self.security.is_satisfied());
        self.answer(frame, cx, out.take(), transit)
    }

    /// Checks the fields that must not change between the requests of one
    /// login.
    fn check_fixed(&mut self, request: &LoginRequest) -> Result<(), LoginStatus> {
        let Some(fixed) = self.fixed else {
            self.fixed = Some(Fixed {
                isid: request.isid,
                tsih: request.tsih,
                itt: request.itt,
                cid: request.cid,
                cmd_sn: request.cmd_sn,
            });
            self.stage = request.current;
            self.stat_sn = request.exp_stat_sn;
            return Ok(());
        };
        let same = (fixed.isid, fixed.tsih, fixed.itt, fixed.cid)
            == (request.isid, request.tsih, request.itt, request.cid);
        if !same || request.current != self.stage {
            Err(LoginStatus::INITIATOR_ERROR)
        } else {
            Ok(())
        }
    }

    /// The first exchange: identity, target and admission.
    fn begin(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        cx: &mut LoginContext<'_>,
        out: &mut TextWriter,
    ) -> Result<(), Refusal> {
        let arrival =
            Arrival { address: self.address, portal_group: self.portal_group, isid: request.isid };
        let Identity { key, target_alias, auth } = identify(pairs, arrival, cx.policy)?;
        if request.tsih != Tsih(0) {
            cx.directory.check_join(&key, request.tsih).map_err(LoginStatus::from)?;
        }
        self.security = Security::Open(auth);
        // RFC 7143 §6.3.1: the target may refuse to skip the security stage.
        if self.stage != Stage::Security && !self.security.is_satisfied() {
            return Err(LoginStatus::AUTHENTICATION_FAILED.into());
        }
        if key.target.is_some() {
            // RFC 7143 §13.9: in the first response of a normal session.
            out.push("TargetPortalGroupTag", &self.portal_group.0.to_string());
            if let Some(alias) = &target_alias {
                out.push("TargetAlias", alias);
            }
        } else {
            // Nothing is kept to be sent again: such a session may need no secret.
            self.offer.error_recovery_level = 0;
        }
        self.identity = Some(key);
        Ok(())
    }

    fn negotiate(
        &mut self,
        pairs: &[(&str, &str)],
        cx: &mut LoginContext<'_>,
        out: &mut TextWriter,
    ) -> Result<(), LoginStatus> {
        let (security, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(key, _)| is_security_key(key));
        let operational: Vec<_> =
            others.into_iter().filter(|(key, _)| !IDENTITY_KEYS.contains(key)).collect();
        if self.stage == Stage::Security {
            self.security.handle(&security, cx.entropy, out, &mut self.detail)?;
        } else if !security.is_empty() {
            return Err(LoginStatus::INITIATOR_ERROR); // RFC 7143 §12: security stage only
        }
        let tsih = self.fixed.map_or(Tsih(0), |fixed| fixed.tsih);
        let discovery = self.identity.as_ref().is_some_and(|key| key.target.is_none());
        let context =
            NegotiationContext { leading: tsih == Tsih(0), discovery, full_feature: false };
        self.negotiation.handle(&operational, &self.offer, context, out).map_err(|error| {
            self.detail = Some(error.to_string());
            LoginStatus::INITIATOR_ERROR
        })?;
        if self.stage == Stage::Operational {
            self.negotiation.declare(&self.offer, out);
        }
        Ok(())
    }

    /// Sends text, split if it is long, and moves to the next stage with the
    /// last part.
    fn answer(
        &mut self,
        frame: &Frame,
        cx: &mut LoginContext<'_>,
        mut text: Bytes,
        transit: Option<Stage>,
    ) -> Result<(), Refusal> {
        let most = DEFAULT_RECV_SEGMENT_BYTES as usize;
        if text.len() > most {
            let rest = text.split_off(most);
            self.backlog = Some((rest, transit));
            self.respond(frame, cx, text, None, (0, 0), true);
            return Ok(());
        }
        let Some(next) = transit else {
            self.respond(frame, cx, text, None, (0, 0), false);
            return Ok(());
        };
        if next == Stage::FullFeature {
            self.finish(cx)?;
        }
        self.respond(frame, cx, text, Some(next), (0, 0), false);
        self.stage = next;
        if let LoginState::Done(done) = &mut self.state {
            done.stat_sn = self.stat_sn;
        }
        Ok(())
    }

    fn finish(&mut self, cx: &mut LoginContext<'_>) -> Result<(), LoginStatus> {
        let (Some(key), Some(fixed)) = (self.identity.clone(), self.fixed) else {
            return Err(LoginStatus::TARGET_ERROR);
        };
        let params = self.negotiation.result.clone();
        // RFC 7145 §5.1: a normal session on iSER has RDMAExtensions=Yes.
        let iser = self.offer.transport == Transport::Iser;
        if iser && key.target.is_some() && !params.rdma_extensions {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        self.check_take_over(&key, fixed.tsih, cx)?;
        let claim = self.claim(&key, fixed, params.max_connections as usize, cx)?;
        self.state = LoginState::Done(Box::new(LoggedIn {
            key,
            claim,
            cid: fixed.cid,
            params,
            cmd_sn: fixed.cmd_sn,
            stat_sn: self.stat_sn,
            command_window: self.command_window(),
            authenticated: self.security.authenticated().map(str::to_owned),
            transport: self.offer.transport,
        }));
        Ok(())
    }

    /// Takes places for the connection and its session. RFC 7143 §11.13.5: 0302 is for a lack of
    /// either.
    fn claim(
        &mut self,
        key: &SessionKey,
        Fixed { tsih, cid, .. }: Fixed,
        max_connections: usize,
        cx: &mut LoginContext<'_>,
    ) -> Result<Claim, LoginStatus> {
        let from = self.address;
        let claimed = if key.target.is_some() {
            (cx.admit)(cx.directory.replaces(key, tsih, cid)).map_err(|full| {
                self.detail = Some(full);
                LoginStatus::OUT_OF_RESOURCES
            })?;
            cx.directory.claim(key, tsih, cid, from, max_connections, cx.entropy)
        } else {
            cx.directory.claim_discovery(key, tsih, cid, from, cx.entropy)
        };
        if let Err(full @ ClaimError::HostHasAll(_)) = &claimed {
            self.detail = Some(full.to_string());
        }
        claimed.map_err(LoginStatus::from)
    }

    /// Refuses to join or reinstate a session that is somebody else's by the rules.
    fn check_take_over(
        &self,
        key: &SessionKey,
        tsih: Tsih,
        cx: &LoginContext<'_>,
    ) -> Result<(), LoginStatus> {
        let Some(target) = &key.target else { return Ok(()) };
        let Some(from) = cx.directory.origin(key, tsih) else { return Ok(()) };
        let peer = Peer {
            initiator: key.initiator.clone(),
            address: self.address,
            portal_group: self.portal_group,
        };
        if cx.policy.may_take_over(target, &peer, self.security.authenticated(), from) {
            return Ok(());
        }
        // A host that moved to another network may retry until its old session has ended.
        Err(if tsih == Tsih(0) { LoginStatus::UNAVAILABLE } else { LoginStatus::CANNOT_JOIN })
    }

    /// Size of the command window: limited by the unsolicited data that the
    /// commands may carry.
    fn command_window(&self) -> u32 {
        let affordable =
            MAX_UNSOLICITED_BYTES as u32 / self.negotiation.result.first_burst_bytes.max(1);
        self.offer.window().min(affordable.max(1))
    }

    fn respond(
        &mut self,
        frame: &Frame,
        cx: &LoginContext<'_>,
        text: Bytes,
        transit: Option<Stage>,
        status: (u8, u8),
        continues: bool,
    ) {
        let b = &frame.bhs;
        let fixed = self.fixed.unwrap_or(Fixed {
            isid: Isid([b.u8(8), b.u8(9), b.u8(10), b.u8(11), b.u8(12), b.u8(13)]),
            tsih: Tsih(b.u16(14)),
            itt: b.itt(),
            cid: Cid(0),
            cmd_sn: b.sn(),
        });
        let tsih = match &self.state {
            LoginState::Done(done) => done.claim.tsih(),
            _ => fixed.tsih,
        };
        // RFC 7143 §11.13.4: 0 until the last response of a new session.
        let window = if transit == Some(Stage::FullFeature) { self.command_window() } else { 1 };
        let (exp_cmd_sn, max_cmd_sn) =
            (cx.window_of)(fixed.tsih).unwrap_or((fixed.cmd_sn, fixed.cmd_sn.plus(window - 1)));
        let response = LoginResponse {
            continues,
            current: self.stage,
            transit,
            isid: fixed.isid,
            tsih,
            itt: fixed.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            status,
        };
        // RFC 7143 §11.13.3: StatSN counts successful responses.
        if status.0 == 0 {
            self.stat_sn = self.stat_sn.next();
        }
        self.out.push_back(response.encode(text));
    }
}
