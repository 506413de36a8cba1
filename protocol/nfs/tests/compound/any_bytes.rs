//! Arbitrary and damaged messages: an answer or a refusal, never a panic, and
//! the server continues.

use crate::fault::CALLS;
use bytes::Bytes;
use std::sync::Arc;
use zgate_fuzz::{Dice, target};
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::{mount, v3};
use zgate_nfs_wire::bulk::{BulkPosition, bulk_position};
use zgate_nfs_wire::v4::op::{Lock, Open, Sequence};
use zgate_rpc::AcceptError;
use zgate_test_harness::nfs::{CallbackBehavior, Fixture, Harness, OpenRequest, Ops};
use zgate_xdr::{Decoder, Encoder};

/// More than any answer in these tests can need.
const MOST_BYTES: usize = 4 << 20;

target!(any_bytes_as_a_compound, 400, any_compound);
target!(small_words_as_operations, 400, small_words);
target!(damaged_compounds, 200, damaged);
target!(data_received_apart, 200, received_apart);
target!(the_place_of_bulk_data, 300, place_of_bulk);
target!(what_clients_answer_to_callbacks, 120, callback_answers);
target!(version_three_and_mount, 300, version_three);

/// Words that lengths, counts and discriminants go wrong with.
const WORDS: [u32; 5] = [u32::MAX, 0x8000_0000, 0x7fff_ffff, 1 << 20, 0];

/// Damages a message up to `most` times, in one way each.
fn damage(bytes: &mut Vec<u8>, most: usize, dice: &mut Dice<'_>) {
    for _ in 0..dice.below(most + 1) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        match dice.below(5) {
            0 => bytes[at] ^= dice.byte(),
            1 => {
                let word = match dice.below(3) {
                    0 => dice.below(20) as u32,
                    1 => dice.u32(),
                    _ => *dice.pick(&WORDS),
                };
                let at = at & !3;
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&word.to_be_bytes()[..end - at]);
            }
            2 => bytes.truncate(at),
            3 => {
                let more = dice.blob(8);
                bytes.splice(at..at, more);
            }
            _ => {
                let end = (at + 1 + dice.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
}

/// Sends bytes; the answer is bounded and the server continues.
fn survive(s: &Fixture, bytes: &[u8]) {
    match s.c.send(bytes) {
        Ok(reply) => {
            assert!(reply.len() >= 12 && reply.len().is_multiple_of(4));
            assert!(reply.len() <= MOST_BYTES, "{} bytes", reply.len());
        }
        Err(error) => assert_eq!(error, AcceptError::GarbageArguments),
    }
}

/// Valid requests of a minor version, after SEQUENCE where there is one.
fn valid(s: &Fixture, which: usize) -> Vec<u8> {
    let minor = s.c.minor;
    let last = if minor == 2 { CALLS.len() } else { 30 };
    let ops = match which % (last + 3) {
        n if n < last => (CALLS[n].2)(s),
        n if n == last => {
            let opened = s.open();
            let args = s.c.lock_args(&opened, "l", zgate_nfs_wire::v4::LockType::Write, (0, 9));
            Ops::new().at(&s.file).op::<Lock>(&args)
        }
        n if n == last + 1 => {
            let wish = OpenRequest::name(&s.root, "made");
            let how =
                zgate_nfs_wire::v4::op::open::How::Unchecked(zgate_test_harness::nfs::mode(0o600));
            let args = s.c.open_args(&wish.how(how));
            Ops::new().at(&s.root).op::<Open>(&args).getfh()
        }
        _ => Ops::new().root().lookup("export").getattr(&[0, 1, 3, 4, 8, 12, 20, 36]),
    };
    let ops = if minor == 0 {
        ops
    } else {
        let next = s.c.slots.borrow()[0] + 1;
        ops.after(Ops::new().op::<Sequence>(&s.c.sequence_args(0, next)))
    };
    ops.encode(b"fuzz", u32::from(minor)).0
}

fn any_compound(dice: &mut Dice<'_>) {
    let minor = dice.below(3) as u32;
    let bytes = dice.rest();
    let s = Fixture::new(0);
    survive(&s, bytes);
    // With a valid header, so that the operations are decoded.
    let mut e = Encoder::new();
    e.opaque(b"");
    e.u32(minor);
    e.u32(5);
    let with_head = [&e.finish().flatten().unwrap()[..], bytes].concat();
    survive(&s, &with_head);
}

fn small_words(dice: &mut Dice<'_>) {
    let mut words = Vec::new();
    while !dice.is_spent() {
        words.push(if dice.once_in(2) { dice.u32() } else { dice.below(80) as u32 });
    }
    let s = Fixture::new(0);
    let mut e = Encoder::new();
    e.opaque(b"");
    e.u32(0);
    e.u32(words.len() as u32);
    words.iter().for_each(|word| e.u32(*word));
    survive(&s, &e.finish().flatten().unwrap());
}

fn damaged(dice: &mut Dice<'_>) {
    let (minor, which) = (dice.below(3) as u8, dice.below(1 << 16));
    let s = Fixture::new(minor);
    let mut bytes = valid(&s, which);
    damage(&mut bytes, 4, dice);
    survive(&s, &bytes);
    // Again: a retry, or a new request.
    survive(&s, &bytes);
    let other = s.harness.client("alive", 2);
    assert_eq!(other.run(Ops::new().root().lookup("export")).status as u32, 0);
}

fn received_apart(dice: &mut Dice<'_>) {
    let (at, len, which) = (dice.below(1 << 16), dice.below(64), dice.below(1 << 16));
    let s = Fixture::new(0);
    let mut bytes = valid(&s, which);
    damage(&mut bytes, 2, dice);
    let at = at % (bytes.len() + 1);
    let (server, call, now) = (s.harness.server(), s.c.rpc_call(), s.harness.simulation.clock());
    let data = Bytes::from(vec![7; len]);
    let answer = s.harness.simulation.drive(Box::pin(async move {
        server.compound(&call, now, &mut Decoder::with_splice(&bytes, at, data)).await
    }));
    match answer {
        Ok(message) => assert!(message.len() <= MOST_BYTES),
        Err(error) => assert_eq!(error, AcceptError::GarbageArguments),
    }
}

fn place_of_bulk(dice: &mut Dice<'_>) {
    let (which, cut) = (dice.below(1 << 16), dice.below(1 << 16));
    let prefix = dice.rest();
    if let BulkPosition::At { offset, .. } = bulk_position(prefix) {
        assert!(offset <= prefix.len());
    }
    let s = Fixture::new(0);
    let mut e = Encoder::new();
    for word in [9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0] {
        e.u32(word);
    }
    let record = [&e.finish().flatten().unwrap()[..], &valid(&s, which)].concat();
    let part = &record[..cut % (record.len() + 1)];
    if let BulkPosition::At { offset, len } = bulk_position(part) {
        assert!(offset <= part.len() && offset + len <= record.len());
        assert_eq!(bulk_position(&record), BulkPosition::At { offset, len });
    }
}

fn callback_answers(dice: &mut Dice<'_>) {
    let tidy = dice.once_in(2);
    let harness = Harness::new();
    let (holder, other) = (harness.reachable("holder", 1), harness.client("other", 1));
    let root = other.export();
    other.file(&root, "f", b"content");
    let opened = holder.open(&OpenRequest::name(&root, "f")).unwrap();
    let mut answer = Vec::new();
    if tidy {
        // NFS4_OK, no tag, two operations, CB_SEQUENCE, CB_GETATTR.
        for word in [0_u32, 0, 2, 11, 0] {
            answer.extend(word.to_be_bytes());
        }
        answer.extend([0; 32]);
        answer.extend([0, 0, 0, 3, 0, 0, 0, 0]);
    }
    // Small bytes for the most part.
    while !dice.is_spent() {
        answer.push(match dice.below(3) {
            0 => 0,
            1 => dice.below(20) as u8,
            _ => dice.byte(),
        });
    }
    holder.answers_callbacks(CallbackBehavior::Says(answer));
    other.number(&opened.fh, 4);
    assert!(other.open(&OpenRequest::name(&root, "f")).is_err());
}

fn version_three(dice: &mut Dice<'_>) {
    let file = dice.once_in(2);
    let words: Vec<u32> = (0..dice.below(30))
        .map(|_| if dice.once_in(2) { dice.u32() } else { dice.below(6) as u32 })
        .collect();
    let bytes = dice.rest();
    let s = Fixture::new(2);
    let server = s.harness.server();
    let guard = Arc::new(StateGuard::default());
    guard.connect(&server);
    let of = Arc::clone(&server);
    let source: v3::NamespaceSource = Arc::new(move || of.namespace());
    let three = v3::Server {
        namespace: Arc::clone(&source),
        write_verifier: zgate_nfs::write_verifier::WriteVerifier::new([0; 8]),
        guard,
    };
    let mounts = mount::Server::new(source);
    let mut e = Encoder::new();
    e.opaque(if file { &s.file.0 } else { &s.root.0 });
    words.iter().for_each(|word| e.u32(*word));
    let behind_a_handle = e.finish().flatten().unwrap();
    let call = s.c.rpc_call();
    for input in [bytes, &behind_a_handle[..]] {
        for procedure in 0..25 {
            let (three, mounts, call) = (&three, &mounts, &call);
            let lens = s.harness.simulation.drive(Box::pin(async move {
                let (mut a, mut b) = (Encoder::new(), Encoder::new());
                let one = three.handle(call, procedure, &mut Decoder::new(input), &mut a).await;
                let two = mounts.handle(call, procedure, &mut Decoder::new(input), &mut b).await;
                (one.is_ok() || a.is_empty(), two.is_ok() || b.is_empty(), a.len().max(b.len()))
            }));
            assert!(lens.0 && lens.1, "a refusal writes nothing");
            assert!(lens.2 <= MOST_BYTES);
        }
    }
}
