//! An intruder between a client with TLS and the server: it changes, cuts, repeats,
//! adds, swaps, swallows and holds up bytes, and answers requests for TLS in the
//! server's place. Nothing of that may have an effect but the end of the connection.

use super::secure::{Direction, Phase, Secure, framed};
use super::tls::TlsNetwork;
use super::{Network, next_record, xid_of};
use crate::dice::Dice;
use crate::executor::{SECOND, lock};
use crate::invariant::ANSWER_SECONDS;
use crate::mutant::Mutant;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tokio::sync::oneshot;
use zgate_nfs_wire::PROGRAM;
use zgate_nfs_wire::v3::proc::{self, Procedure};
use zgate_nfs_wire::v3::{Fh3, Status, VERSION};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::message::{decode_reply, rejection};
use zgate_rpc::record::MARKER_BYTES;
use zgate_rpc::{AuthError, AuthSys, CallHeader, Credential, Rejection};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Most bytes that the intruder adds.
const ADDED_BYTES: u64 = 600;
/// Transaction id of a call in the clear.
const CLEAR_XID: u32 = 0x7154_0002;

/// Act of the intruder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Changes a bit.
    Flip,
    /// Lets a part pass, and ends the connection.
    Cut,
    /// Sends the bytes twice.
    Repeat,
    /// Adds bytes in front.
    Add,
    /// Sends bytes of another connection.
    Swap,
    /// Swallows the bytes.
    Swallow,
    /// Swallows them and all that follow.
    Hold,
    /// Sends other bytes.
    Garbage,
    /// Adds a call in the clear behind the request for TLS.
    AddCall,
    /// Answers that there is no TLS.
    Refuse,
}

/// An intruder's plan for one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    phase: Phase,
    direction: Direction,
    /// Messages of this phase and direction that pass before.
    after: u64,
    act: Act,
    random: u64,
    /// It has been done.
    is_done: bool,
}

impl Tap {
    fn new(phase: Phase, direction: Direction, after: u64, act: Act, dice: &mut Dice) -> Self {
        Self { phase, direction, after, act, random: dice.u64(), is_done: false }
    }

    /// Chooses what happens to a client's connection: nothing, with one half of them.
    pub(super) fn drawn(dice: &mut Dice) -> Option<Self> {
        const IN_HANDSHAKES: [Act; 5] = [Act::Flip, Act::Cut, Act::Garbage, Act::Hold, Act::Add];
        const IN_DATA: [Act; 6] =
            [Act::Flip, Act::Cut, Act::Repeat, Act::Add, Act::Swap, Act::Swallow];
        let direction = if dice.once_in(2) { Direction::Up } else { Direction::Down };
        let (kind, number) = (dice.below(16), dice.below(30));
        Some(match kind {
            0 => Self::new(Phase::Probe, Direction::Down, 0, Act::Refuse, dice),
            1 => Self::new(Phase::Probe, Direction::Up, 0, Act::Refuse, dice),
            2 => Self::new(Phase::Probe, Direction::Up, 0, Act::AddCall, dice),
            3 => {
                let act = IN_HANDSHAKES[number as usize % IN_HANDSHAKES.len()];
                Self::new(Phase::Handshake, direction, dice.below(2), act, dice)
            }
            4..=8 => {
                let act = IN_DATA[dice.below(IN_DATA.len() as u64) as usize];
                Self::new(Phase::Data, direction, number, act, dice)
            }
            _ => return None,
        })
    }

    /// A connection of the intruder's own that does not complete its handshake.
    pub(super) fn of_stranger(act: Act, after: u64, dice: &mut Dice) -> Self {
        Self::new(Phase::Handshake, Direction::Up, after, act, dice)
    }

    /// True if it lets nothing pass any more.
    fn holds(&self) -> bool {
        self.is_done && self.act == Act::Hold
    }

    /// True if the intruder has done what it planned.
    pub(super) fn has_acted(&self) -> bool {
        self.is_done
    }

    /// Returns whether it is time; counts the messages before.
    fn is_due(&mut self, phase: Phase, direction: Direction) -> bool {
        if self.is_done || (self.phase, self.direction) != (phase, direction) {
            return self.holds() && self.direction == direction;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.is_done = true;
        true
    }
}

/// The bytes in one or two pieces, which may be in the middle of a record.
fn in_pieces(dice: &mut Dice, mut bytes: Bytes) -> Vec<Bytes> {
    if bytes.len() < 2 || !dice.once_in(4) {
        return vec![bytes];
    }
    let first = bytes.split_to(1 + dice.below(bytes.len() as u64 - 1) as usize);
    vec![first, bytes]
}

fn flipped(bytes: &[u8], random: u64) -> Bytes {
    let mut changed = bytes.to_vec();
    let bit = random % (bytes.len().max(1) as u64 * 8);
    if let Some(byte) = changed.get_mut(bit as usize / 8) {
        *byte ^= 1 << (bit % 8);
    }
    changed.into()
}

fn random_bytes(random: u64) -> Bytes {
    let mut dice = Dice::new(random, "garbage");
    let count = 1 + dice.below(ADDED_BYTES);
    (0..count).map(|_| dice.u64() as u8).collect::<Vec<u8>>().into()
}

impl Network {
    /// Returns what passes of bytes that one side sends.
    pub(super) fn tapped(
        &self,
        tls: &mut TlsNetwork,
        (number, direction): (u64, Direction),
        secure: &mut Secure,
        bytes: Bytes,
    ) -> Vec<(Direction, Option<Bytes>)> {
        let phase = secure.phase(direction);
        let is_up = direction == Direction::Up;
        let other = match phase {
            Phase::Data => tls.seen.insert(is_up, (number, bytes.clone())),
            _ => None,
        };
        let other = other.filter(|(of, _)| *of != number).map(|(_, bytes)| bytes);
        let due = secure.tap.as_mut();
        let due = due.and_then(|tap| tap.is_due(phase, direction).then_some(*tap));
        let Some(Tap { act, random, .. }) = due else {
            let pieces = in_pieces(&mut tls.dice, bytes);
            return pieces.into_iter().map(|piece| (direction, Some(piece))).collect();
        };
        self.trace.note("intruder", format_args!("#{number} {phase:?} {direction:?}: {act:?}"));
        let whole = |bytes| vec![(direction, Some(bytes))];
        match act {
            Act::Flip => whole(flipped(&bytes, random)),
            Act::Cut => {
                let kept = random as usize % bytes.len().max(1);
                vec![(direction, Some(bytes.slice(..kept))), (direction, None)]
            }
            Act::Repeat => vec![(direction, Some(bytes.clone())), (direction, Some(bytes))],
            Act::Add => {
                vec![(direction, Some(random_bytes(random))), (direction, Some(bytes))]
            }
            Act::Swap => whole(other.unwrap_or_else(|| flipped(&bytes, random))),
            Act::Swallow | Act::Hold => Vec::new(),
            Act::Garbage => whole(random_bytes(random)),
            Act::AddCall => {
                let call =
                    read_in_the_clear(tls).map_or_else(Bytes::new, |call| framed(&call).into());
                whole([&bytes[..], &call].concat().into())
            }
            Act::Refuse if is_up => {
                // The server has seen no request: the answer comes from elsewhere.
                vec![(Direction::Down, Some(refusal(&bytes)))]
            }
            Act::Refuse => whole(refusal(&bytes)),
        }
    }

    /// A planted fault: what the server would read if it took what the intruder sends.
    /// Returns whether a record would count twice.
    pub(super) fn misread(&self, secure: &mut Secure, plain: &mut Vec<u8>) -> bool {
        let wanted = match self.mutant {
            Some(Mutant::TagNotChecked) => Act::Flip,
            Some(Mutant::RecordReplayed) => Act::Repeat,
            _ => return false,
        };
        let is_data = secure.is_complete();
        let Some(tap) = secure.tap.as_mut().filter(|tap| is_data && tap.act == wanted) else {
            return false;
        };
        if tap.direction != Direction::Up || !tap.is_due(Phase::Data, Direction::Up) {
            return false;
        }
        if wanted == Act::Flip {
            let body = flipped(&plain[MARKER_BYTES..], tap.random);
            plain.truncate(MARKER_BYTES);
            plain.extend_from_slice(&body);
        }
        wanted == Act::Repeat
    }

    /// A client that goes on without TLS when it is told that there is none: the
    /// server must refuse it.
    pub(super) async fn try_in_the_clear(self: &Arc<Self>, number: u64) {
        let call = {
            let inside = lock(&self.inside);
            inside.tls.as_ref().and_then(|tls| read_in_the_clear(tls))
        };
        if let Some(call) = call {
            self.read_as_intruder(number, call, "a call in the clear").await;
        }
    }

    /// Sends a call that must not be served.
    pub(super) async fn read_as_intruder(self: &Arc<Self>, number: u64, call: Bytes, kind: &str) {
        let (tell, told) = oneshot::channel();
        {
            let mut inside = lock(&self.inside);
            let Some(link) = inside.links.get_mut(&number) else { return };
            link.waiting.insert(CLEAR_XID, tell);
        }
        self.write_as_client(number, &call);
        let reply = self.executor.within(ANSWER_SECONDS * SECOND, told).await;
        let end = match &reply {
            Some(Ok(reply)) if is_served(reply) => "served",
            Some(Ok(_)) => "refused",
            Some(Err(_)) | None => "not answered",
        };
        self.trace.note("intruder", format_args!("#{number} {kind}: {end}"));
        if end == "served" {
            self.fail_authentic(&format!("{kind} is served"));
        }
    }
}

/// READ of a client's file, as NFSv3.
pub(super) fn read_in_the_clear(tls: &TlsNetwork) -> Option<Bytes> {
    let file = Fh3(tls.setup.wanted()?.0.clone());
    let credential = Credential::Sys(AuthSys::default()).to_opaque();
    let header = CallHeader {
        xid: CLEAR_XID,
        program: PROGRAM,
        version: VERSION,
        procedure: proc::Read::NUMBER,
        credential,
        verifier: OpaqueAuth::none(),
    };
    let mut e = Encoder::new();
    header.encode(&mut e);
    proc::read::Args { file, offset: 0, count: 64 }.encode(&mut e);
    e.finish().flatten()
}

fn is_served(reply: &[u8]) -> bool {
    let mut d = Decoder::new(reply);
    decode_reply(&mut d).is_ok() && Status::decode(&mut d) == Ok(Status::Ok)
}

/// Answer to a request for TLS that a server without TLS gives.
fn refusal(bytes: &[u8]) -> Bytes {
    let mut rest = BytesMut::from(bytes);
    let xid = next_record(&mut rest).and_then(|record| xid_of(&record)).unwrap_or_default();
    let refused = rejection(xid, Rejection::Auth(AuthError::TooWeak));
    framed(&refused.flatten().unwrap_or_default()).into()
}
