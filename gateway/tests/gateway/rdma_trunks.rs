//! One session over several RDMA connections, as a client with `trunkdiscovery`
//! creates it: the server reports the same owner, requests run on any
//! connection, callbacks use any that is left.

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::op::bind_conn_to_session::{self as bind, Direction};
use zgate_nfs_wire::v4::op::{exchange_id, open};
use zgate_nfs_wire::v4::{ClientId, OpNum, SessionId, StateOwner};
use zgate_rpc::Credential;
use zgate_rpc::message::decode_reply;
use zgate_rpcrdma::{Direction as RpcDirection, Header, direction};
use zgate_test_harness::rdma::{Offer, RdmaClient};
use zgate_test_harness::{Client, Gateway, free_port, own_credential, wait_for_listener};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message, Opaque};

const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// Builds a COMPOUND of one operation without a session.
fn alone(xid: u32, op: OpNum, args: &impl Encode) -> Message {
    let mut e = Encoder::new();
    [xid, 0, 2, 100_003, 4, 1].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    e.opaque(b"");
    [2, 1].into_iter().for_each(|word| e.u32(word));
    op.encode(&mut e);
    args.encode(&mut e);
    e.finish()
}

async fn ask<T: Decode>(rdma: &mut RdmaClient, xid: u32, op: OpNum, args: &impl Encode) -> T {
    let answer = rdma.call(xid, &alone(xid, op, args), &Offer::default()).await.unwrap();
    let mut d = Decoder::new(&answer.message);
    decode_reply(&mut d).unwrap();
    assert_eq!((d.u32(), d.opaque(9).unwrap().len(), d.u32()), (Ok(0), 0, Ok(1)));
    assert_eq!((d.u32(), d.u32()), (Ok(op as u32), Ok(0)));
    T::decode(&mut d).unwrap()
}

/// Returns the session of a request: the words behind the number of SEQUENCE.
fn session_of(request: &Message) -> SessionId {
    let flat = request.flatten().unwrap();
    let mark = (OpNum::Sequence as u32).to_be_bytes();
    let at = (0..flat.len()).step_by(4).find(|at| flat[*at..*at + 4] == mark).unwrap();
    SessionId::decode(&mut Decoder::new(&flat[at + 4..])).unwrap()
}

/// Waits for a callback about `fh`.
async fn recalled(rdma: &mut RdmaClient, fh: &[u8]) {
    loop {
        let (message, _) = rdma.receive().await;
        let decoded = Header::decode(&message).unwrap();
        if direction(decoded.header.xid, decoded.inline) != Some(RpcDirection::Call) {
            continue;
        }
        assert_eq!(decoded.inline[12..16], CALLBACK_PROGRAM.to_be_bytes());
        if decoded.inline.windows(fh.len()).any(|part| part == fh) {
            return;
        }
    }
}

#[tokio::test]
async fn requests_and_callbacks_take_any_connection_of_a_session() {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(90, &more);
    let mut tcp = Client::ready(&gateway, "trunks");
    let root = tcp.root.clone();
    let file = tcp.create(&root, "file").unwrap();
    tcp.close(&file).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    let mut one = RdmaClient::connect(address).await;
    let mut two = RdmaClient::connect(address).await;

    // Fields that Linux compares before it accepts a connection as a trunk.
    let introduce = exchange_id::Args {
        verifier: u64::from(std::process::id()).to_be_bytes(),
        owner: Opaque(b"trunks".to_vec()),
        flags: 0,
        protect: exchange_id::Protect::None,
        implementation: None,
    };
    let first: exchange_id::Res = ask(&mut one, 1, OpNum::ExchangeId, &introduce).await;
    let second: exchange_id::Res = ask(&mut two, 2, OpNum::ExchangeId, &introduce).await;
    assert_eq!(first.clientid, second.clientid);
    assert_eq!(
        (&first.owner_major, first.owner_minor, &first.scope),
        (&second.owner_major, second.owner_minor, &second.scope)
    );

    let session = session_of(&tcp.session.request(3, 7, false, Ops::new().putrootfh()));
    for (rdma, xid) in [(&mut one, 4), (&mut two, 5)] {
        let args = bind::Args { session, direction: Direction::ForeOrBoth, rdma_mode: false };
        let bound: bind::Res = ask(rdma, xid, OpNum::BindConnToSession, &args).await;
        assert_eq!((bound.session, bound.direction), (session, 3));
    }
    // One slot, with requests on either connection in turn.
    for xid in 10..20 {
        let rdma = if xid % 2 == 0 { &mut one } else { &mut two };
        let message = tcp.session.request(xid, 1, false, Ops::new().putfh(&root).getfh());
        let answer = rdma.call(xid, &message, &Offer::default()).await.unwrap();
        assert_eq!(answer.message[24..28], [0; 4]);
    }

    let args = open::Args {
        seqid: 0,
        access: 1,
        deny: 0,
        owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"owner".to_vec()) },
        how: open::How::NoCreate,
        claim: open::Claim::Null(Opaque(b"file".to_vec())),
    };
    let ops = Ops::new().putfh(&root).op(OpNum::Open, &args);
    let message = tcp.session.request(30, 2, false, ops);
    one.call(30, &message, &Offer::default()).await.unwrap();
    // A write by another client: the delegation is recalled, over either
    // connection.
    let Client { mut connection, mut session, .. } = Client::ready(&gateway, "other");
    let fh: Bytes = file.fh.0.clone().into();
    let write = open::Args { access: 2 | 0x400, ..args };
    let mut xid = 0;
    let mut conflict = || {
        xid += 1;
        let ops = Ops::new().putfh(&root).op(OpNum::Open, &write);
        let message = session.request(xid, 0, false, ops);
        connection.exchange(&message).unwrap();
    };
    conflict();
    let patience = Duration::from_secs(20);
    let on_one = tokio::time::timeout(patience, async {
        tokio::select! {
            () = recalled(&mut one, &fh) => true,
            () = recalled(&mut two, &fh) => false,
        }
    });
    let on_one = on_one.await.expect("no recall");
    // That connection is lost before an answer: the recall uses the other.
    let (gone, mut left) = if on_one { (one, two) } else { (two, one) };
    drop(gone);
    let again = tokio::time::timeout(patience, async {
        loop {
            conflict();
            let wait = Duration::from_millis(300);
            if tokio::time::timeout(wait, recalled(&mut left, &fh)).await.is_ok() {
                return;
            }
        }
    });
    again.await.expect("the recall is not sent again");
    drop(tcp);
}
