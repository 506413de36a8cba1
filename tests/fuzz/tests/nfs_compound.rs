//! COMPOUNDs against the whole NFSv4 server on a store in memory: arbitrary
//! bytes, and sequences of plausible operations with handles, stateids, client
//! and session ids from earlier answers. The server never panics, every answer
//! can be decoded completely and stays within the session's limits, a retry
//! gets the same answer, and the state that clients can create is bounded by
//! the data they sent.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "nfs/grammar.rs"]
mod grammar;

use grammar::{ROWS, check_answer};
use zgate_fuzz::{Dice, target};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::create_session;
use zgate_nfs_wire::v4::{LockType, Stateid, Status};
use zgate_rpc::AcceptError;
use zgate_test_harness::nfs::{Client, Fixture, OpenRequest, Ops};
use zgate_xdr::{Encode, Encoder};

target!(compound_bytes, 600, bytes);
target!(compound_operations, 3000, operations);

/// A session's limit for one message, and the size of the RPC header before an
/// answer.
const SMALL_BYTES: u32 = 1200;
const RPC_REPLY_BYTES: usize = 24;
const NAMES: &[&str] =
    &["file", "dir", "inner", "link", "fifo", "a", "b", "", ".", "..", "a/b", "user.x"];

fn bytes(dice: &mut Dice<'_>) {
    let minor = u32::from(dice.byte() % 3);
    let fixture = Fixture::new(minor as u8);
    let ops = dice.byte() % 8;
    let raw = dice.rest();
    let mut e = Encoder::new();
    e.opaque(b"");
    e.u32(minor);
    e.u32(ops.into());
    let with_head = [&e.finish().flatten().unwrap()[..], raw].concat();
    for input in [raw, &with_head] {
        match fixture.c.send(input) {
            Ok(reply) => assert!(reply.len() >= 12 && reply.len().is_multiple_of(4)),
            Err(error) => assert_eq!(error, AcceptError::GarbageArguments),
        }
    }
    let alive = fixture.harness.client("alive", 2).run(Ops::new().root().lookup("export"));
    assert_eq!(alive.status, Status::Ok);
}

/// Handles and ids from earlier answers.
struct Known {
    handles: Vec<Fh>,
    stateids: Vec<Stateid>,
}

struct Player {
    fixture: Fixture,
    /// A client whose session allows small messages only.
    small: Client,
    known: Known,
    sent_ops: usize,
}

impl Player {
    fn new(minor: u8) -> Self {
        let fixture = Fixture::new(minor);
        let small = fixture.harness.stranger("small", 2);
        let made = small.exchange_id().unwrap();
        let mut args = small.session_args(made.sequenceid, false);
        let fore: &mut create_session::ChannelAttrs = &mut args.fore;
        fore.max_request_bytes = SMALL_BYTES;
        fore.max_response_bytes = SMALL_BYTES;
        fore.max_cached_bytes = 400;
        small.create_session_with(&args).unwrap();
        small.reclaim_complete().unwrap();
        let opened = fixture.open();
        let locked = fixture.c.lock(&opened, "locker", LockType::Write, (0, 4)).unwrap();
        let handles = [
            &fixture.root,
            &fixture.file,
            &fixture.dir,
            &fixture.inner,
            &fixture.link,
            &fixture.fifo,
            &fixture.stale,
        ];
        let other = small.open(&OpenRequest::name(&fixture.dir, "inner").access(1)).unwrap();
        let known = Known {
            handles: handles.into_iter().cloned().collect(),
            stateids: vec![
                Stateid::ANONYMOUS,
                Stateid::INVALID,
                opened.stateid,
                locked.stateid,
                other.stateid,
            ],
        };
        Self { fixture, small, known, sent_ops: 0 }
    }

    fn client(&self, small: bool) -> &Client {
        if small { &self.small } else { &self.fixture.c }
    }

    /// Encodes one item of an operation's arguments.
    fn item(&self, letter: char, client: &Client, dice: &mut Dice<'_>, e: &mut Encoder) {
        match letter {
            '0'..='9' => e.u32(letter.to_digit(10).unwrap_or(0)),
            'w' if dice.once_in(6) => e.u32(dice.number() as u32),
            'w' => e.u32(u32::from(*dice.pick(&[1_u8, 2, 3, 0, 4, 200]))),
            'q' => e.u32(dice.byte().into()),
            'l' => e.u64(dice.number()),
            'n' if dice.once_in(12) => e.opaque(&dice.blob(300)),
            'n' => e.opaque(dice.pick(NAMES).as_bytes()),
            'f' if dice.once_in(12) => e.opaque(&dice.blob(140)),
            'f' => dice.pick(&self.known.handles).encode(e),
            's' => {
                let mut stateid = *dice.pick(&self.known.stateids);
                if dice.once_in(8) {
                    stateid.seqid = dice.byte().into();
                }
                stateid.encode(e);
            }
            'b' => {
                e.u32(3);
                (0..3).for_each(|_| {
                    if dice.once_in(3) { e.u32(dice.u32()) } else { e.u32(0x0010_003a) }
                });
            }
            'a' => self.attributes(dice, e),
            'd' => e.opaque(&dice.blob(200)),
            'v' => e.u64(dice.byte().into()),
            'c' => {
                if dice.once_in(4) {
                    e.u64(dice.u64())
                } else {
                    client.id.get().encode(e)
                }
            }
            'O' => client.owner(["owner", "locker", "x"][dice.below(3)]).encode(e),
            'S' => {
                if dice.once_in(4) {
                    e.raw(&[7; 16])
                } else {
                    client.session.get().encode(e)
                }
            }
            other => panic!("no item {other}"),
        }
    }

    fn attributes(&self, dice: &mut Dice<'_>, e: &mut Encoder) {
        let word = |value: u32| value.to_be_bytes().to_vec();
        let (mask, values): (&[u32], Vec<u8>) = match dice.below(6) {
            0 => (&[], Vec::new()),
            1 => (&[0, 2], word(0o644)),
            2 => (&[1 << 4], dice.number().to_be_bytes().to_vec()),
            3 => (&[0, 1 << 4], [word(1), b"0\0\0\0".to_vec()].concat()),
            4 => (&[0, 1 << 16], word(0)),
            _ => (&[1 << 12, 2], dice.blob(60)),
        };
        e.u32(mask.len() as u32);
        mask.iter().for_each(|word| e.u32(*word));
        e.opaque(&values);
    }

    /// Encoded operations, and their number.
    fn ops(&self, client: &Client, dice: &mut Dice<'_>) -> (Encoder, usize) {
        let (mut e, mut count) = (Encoder::new(), 0);
        let start = if dice.once_in(12) { 24 } else { 22 };
        let steps = 1 + dice.below(6);
        for step in 0..=steps {
            let row = match step {
                0 => ROWS.iter().find(|row| row.number == start).unwrap(),
                _ => dice.pick(ROWS),
            };
            // Operations that end the client or its session are rare.
            if matches!(row.number, 44 | 57) && !dice.once_in(8) {
                continue;
            }
            e.u32(row.number);
            let cut = if dice.once_in(40) { dice.below(row.args.len() + 1) } else { usize::MAX };
            row.args.chars().take(cut).for_each(|letter| self.item(letter, client, dice, &mut e));
            count += 1;
        }
        (e, count)
    }

    fn play(&mut self, dice: &mut Dice<'_>) {
        let small = dice.once_in(3);
        let client = self.client(small);
        let (body, mut count) = self.ops(client, dice);
        let mut e = Encoder::new();
        e.opaque(b"tag");
        e.u32(client.minor.into());
        let in_session = client.minor > 0 && !dice.once_in(16);
        let slot = if dice.once_in(4) { 1 } else { 0 };
        let next = client.slots.borrow()[slot].wrapping_add(1);
        count += usize::from(in_session);
        e.u32(count as u32);
        if in_session {
            e.u32(53);
            client.cache.set(dice.once_in(2));
            client.sequence_args(slot as u32, next).encode(&mut e);
        }
        let cached = in_session && client.cache.get();
        e.append(&body.finish());
        let raw = e.finish().flatten().unwrap();
        let reply = match client.send(&raw) {
            Ok(reply) => reply,
            Err(error) => return assert_eq!(error, AcceptError::GarbageArguments),
        };
        let status = check_answer(&reply, count);
        if small && in_session {
            assert!(
                reply.len() + RPC_REPLY_BYTES <= SMALL_BYTES as usize,
                "{} bytes, {status:?}",
                reply.len()
            );
        }
        if in_session && sequence_was_done(&reply) {
            client.slots.borrow_mut()[slot] = next;
            let again = client.send(&raw);
            if cached && client_still_there(&again) {
                assert_eq!(again.as_ref(), Ok(&reply), "a retry gets another answer");
            }
        }
        self.sent_ops += count;
        self.learn(&reply);
        self.check_totals();
    }

    /// Collects the stateids of an answer, at any position.
    fn learn(&mut self, reply: &[u8]) {
        let epoch_and_kind = self.known.stateids[2].other;
        for at in (0..reply.len().saturating_sub(16)).step_by(4) {
            let other = &reply[at + 4..at + 16];
            if other[..3] == epoch_and_kind[..3] && self.known.stateids.len() < 24 {
                let seqid = u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
                let stateid = Stateid { seqid, other: other.try_into().unwrap() };
                if seqid < 1000 && !self.known.stateids.contains(&stateid) {
                    self.known.stateids.push(stateid);
                }
            }
        }
    }

    fn check_totals(&self) {
        let now = self.fixture.harness.simulation.clock().seconds();
        let totals = self.fixture.harness.server().totals(now);
        let bound = self.sent_ops + 8;
        for count in
            [totals.clients, totals.sessions, totals.opens, totals.locks, totals.delegations]
        {
            assert!(count <= bound, "{count} states after {} operations", self.sent_ops);
        }
        assert_eq!(totals.busy_slots, 0, "a slot stays busy");
    }
}

/// Returns whether the first result is a successful SEQUENCE.
fn sequence_was_done(reply: &[u8]) -> bool {
    // Status, tag ("tag" and its padding), count, then the first answer.
    reply.get(16..24) == Some(&[0, 0, 0, 53, 0, 0, 0, 0])
}

fn client_still_there(again: &Result<bytes::Bytes, AcceptError>) -> bool {
    again.as_ref().is_ok_and(|reply| sequence_was_done(reply))
}

fn operations(dice: &mut Dice<'_>) {
    let mut player = Player::new(dice.byte() % 3);
    let mut passed = 0;
    while !dice.is_spent() {
        if dice.once_in(24) && passed < 100 {
            let seconds = u64::from(dice.byte() % 50);
            passed += seconds;
            player.fixture.harness.pass_seconds(seconds);
        }
        player.play(dice);
    }
    let alive = player.fixture.harness.client("alive", 2).run(Ops::new().root().lookup("export"));
    assert_eq!(alive.status, Status::Ok);
}
