//! Arbitrary and damaged messages: an answer or a refusal, never a panic, and
//! a server that goes on.

use super::config;
use crate::fault::CALLS;
use crate::rig::{Manner, Ops, Rig, Scene, Wish};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::Arc;
use zgate_nfs::v4::bulk::{BulkPosition, bulk_position};
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::v4::op::sequence::Sequence;
use zgate_nfs::{mount, v3};
use zgate_rpc::AcceptError;
use zgate_xdr::{Decoder, Encoder};

/// More than any answer here can need.
const MOST_BYTES: usize = 4 << 20;

/// One way to damage a message.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Word(Index, u32),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Drop(Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop_oneof![
        0..20_u32,
        any::<u32>(),
        Just(u32::MAX),
        Just(0x8000_0000),
        Just(0x7fff_ffff),
        Just(1 << 20)
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        (any::<Index>(), word).prop_map(|(at, word)| Damage::Word(at, word)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<Index>(), 1..9_usize).prop_map(|(at, len)| Damage::Drop(at, len)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &[Damage]) {
    for one in damage {
        if bytes.is_empty() {
            return;
        }
        match one {
            Damage::Flip(at, bits) => {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            Damage::Word(at, word) => {
                let at = at.index(bytes.len()) & !3;
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&word.to_be_bytes()[..end - at]);
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Drop(at, len) => {
                let at = at.index(bytes.len());
                let end = (at + len).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
}

/// Sends bytes; the server answers with bounds and stays up.
fn survive(s: &Scene, bytes: &[u8]) -> Result<(), TestCaseError> {
    match s.c.send(bytes) {
        Ok(reply) => {
            prop_assert!(reply.len() >= 12 && reply.len().is_multiple_of(4));
            prop_assert!(reply.len() <= MOST_BYTES, "{} bytes", reply.len());
        }
        Err(error) => prop_assert_eq!(error, AcceptError::GarbageArguments),
    }
    Ok(())
}

/// Valid requests of a minor version, behind SEQUENCE where there is one.
fn valid(s: &Scene, which: usize) -> Vec<u8> {
    let minor = s.c.minor;
    let last = if minor == 2 { CALLS.len() } else { 30 };
    let ops = match which % (last + 3) {
        n if n < last => (CALLS[n].2)(s),
        n if n == last => {
            let opened = s.open();
            let args = s.c.lock_args(&opened, "l", zgate_nfs::v4::wire::LockType::Write, (0, 9));
            Ops::new().at(&s.file).op::<zgate_nfs::v4::op::lock::Lock>(&args)
        }
        n if n == last + 1 => {
            let wish = Wish::name(&s.root, "made");
            let how = zgate_nfs::v4::op::open::How::Unchecked(crate::rig::mode(0o600));
            let args = s.c.open_args(&wish.how(how));
            Ops::new().at(&s.root).op::<zgate_nfs::v4::op::open::Open>(&args).getfh()
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

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn any_bytes_as_a_compound(bytes in prop::collection::vec(any::<u8>(), 0..400), minor in 0..3_u32) {
        let s = Scene::new(0);
        survive(&s, &bytes)?;
        // With a head, so that the operations are looked at.
        let mut e = Encoder::new();
        e.opaque(b"");
        e.u32(minor);
        e.u32(5);
        let with_head = [&e.finish().flatten().unwrap()[..], &bytes].concat();
        survive(&s, &with_head)?;
    }

    #[test]
    fn small_words_as_operations(words in prop::collection::vec(prop_oneof![0..80_u32, any::<u32>()], 0..60)) {
        let s = Scene::new(0);
        let mut e = Encoder::new();
        e.opaque(b"");
        e.u32(0);
        e.u32(words.len() as u32);
        words.iter().for_each(|word| e.u32(*word));
        survive(&s, &e.finish().flatten().unwrap())?;
    }

    #[test]
    fn damaged_compounds(which in any::<u16>(), minor in 0..3_u8, harm in prop::collection::vec(damage(), 1..5)) {
        let s = Scene::new(minor);
        let mut bytes = valid(&s, usize::from(which));
        apply(&mut bytes, &harm);
        survive(&s, &bytes)?;
        // Again: a retry, or something new.
        survive(&s, &bytes)?;
        let other = s.rig.client("alive", 2);
        prop_assert_eq!(other.run(Ops::new().root().lookup("export")).status as u32, 0);
    }

    #[test]
    fn data_received_apart(which in any::<u16>(), at in any::<Index>(), len in 0..64_usize, harm in prop::collection::vec(damage(), 0..3)) {
        let s = Scene::new(0);
        let mut bytes = valid(&s, usize::from(which));
        apply(&mut bytes, &harm);
        let at = at.index(bytes.len() + 1);
        let (server, call, now) = (s.rig.server(), s.c.rpc_call(), s.rig.world.clock());
        let data = Bytes::from(vec![7; len]);
        let answer = s.rig.world.drive(Box::pin(async move {
            server.compound(&call, now, &mut Decoder::with_splice(&bytes, at, data)).await
        }));
        match answer {
            Ok(message) => prop_assert!(message.len() <= MOST_BYTES),
            Err(error) => prop_assert_eq!(error, AcceptError::GarbageArguments),
        }
    }

    #[test]
    fn the_place_of_bulk_data(prefix in prop::collection::vec(any::<u8>(), 0..300), which in any::<u16>(), cut in any::<Index>()) {
        if let BulkPosition::At { offset, .. } = bulk_position(&prefix) {
            prop_assert!(offset <= prefix.len());
        }
        let s = Scene::new(0);
        let mut e = Encoder::new();
        for word in [9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0] {
            e.u32(word);
        }
        let record = [&e.finish().flatten().unwrap()[..], &valid(&s, usize::from(which))].concat();
        let part = &record[..cut.index(record.len() + 1)];
        if let BulkPosition::At { offset, len } = bulk_position(part) {
            prop_assert!(offset <= part.len() && offset + len <= record.len());
            prop_assert_eq!(bulk_position(&record), BulkPosition::At { offset, len });
        }
    }

    #[test]
    fn what_clients_answer_to_callbacks(bytes in prop::collection::vec(prop_oneof![Just(0_u8), 0..20_u8, any::<u8>()], 0..120), tidy in any::<bool>()) {
        let rig = Rig::new();
        let (holder, other) = (rig.reachable("holder", 1), rig.client("other", 1));
        let root = other.export();
        other.file(&root, "f", b"content");
        let opened = holder.open(&Wish::name(&root, "f")).unwrap();
        let mut answer = Vec::new();
        if tidy {
            // NFS4_OK, no tag, two operations, CB_SEQUENCE, CB_GETATTR.
            for word in [0_u32, 0, 2, 11, 0] {
                answer.extend(word.to_be_bytes());
            }
            answer.extend([0; 32]);
            answer.extend([0, 0, 0, 3, 0, 0, 0, 0]);
        }
        answer.extend(bytes);
        holder.answers_callbacks(Manner::Says(answer));
        other.number(&opened.fh, 4);
        prop_assert!(other.open(&Wish::name(&root, "f")).is_err());
    }

    #[test]
    fn version_three_and_mount(bytes in prop::collection::vec(any::<u8>(), 0..200), words in prop::collection::vec(prop_oneof![0..6_u32, any::<u32>()], 0..30), file in any::<bool>()) {
        let s = Scene::new(2);
        let server = s.rig.server();
        let guard = Arc::new(StateGuard::default());
        guard.connect(&server);
        let of = Arc::clone(&server);
        let source: v3::NamespaceSource = Arc::new(move || of.namespace());
        let three = v3::Server { namespace: Arc::clone(&source), write_verifier: zgate_nfs::write_verifier::WriteVerifier::new([0; 8]), guard };
        let mounts = mount::Server::new(source);
        let mut e = Encoder::new();
        e.opaque(if file { &s.file.0 } else { &s.root.0 });
        words.iter().for_each(|word| e.u32(*word));
        let behind_a_handle = e.finish().flatten().unwrap();
        let call = s.c.rpc_call();
        for input in [&bytes[..], &behind_a_handle[..]] {
            for procedure in 0..25 {
                let (three, mounts, call) = (&three, &mounts, &call);
                let lens = s.rig.world.drive(Box::pin(async move {
                    let (mut a, mut b) = (Encoder::new(), Encoder::new());
                    let one = three.handle(call, procedure, &mut Decoder::new(input), &mut a).await;
                    let two = mounts.handle(call, procedure, &mut Decoder::new(input), &mut b).await;
                    (one.is_ok() || a.is_empty(), two.is_ok() || b.is_empty(), a.len().max(b.len()))
                }));
                prop_assert!(lens.0 && lens.1, "a refusal writes nothing");
                prop_assert!(lens.2 <= MOST_BYTES);
            }
        }
    }
}
