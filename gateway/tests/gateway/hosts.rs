//! Hosts that no export names: they may only call NULL, whatever the program,
//! version and transport, also with ids that belong to others. Each call is
//! checked against the present exports. And hosts that the gateway connects to:
//! only on their request, and a few at a time.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use zgate_fabric::Event;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::op::setclientid::{self, NetAddress};
use zgate_nfs_wire::v4::op::setclientid_confirm;
use zgate_rpc::Credential;
use zgate_rpc::message::{ReplyError, decode_reply};
use zgate_test_harness::rdma::{Offer, RdmaClient};
use zgate_test_harness::{Client, Gateway, free_port, own_credential, wait_for_listener};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// auth_stat AUTH_TOOWEAK (RFC 5531 §9).
const TOO_WEAK: u32 = 5;
/// A host that no export names.
const OUTSIDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Opens a connection from that address.
fn connect_from(host: Ipv4Addr, gateway: &Gateway) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
    socket.connect(&gateway.address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Builds a call without arguments.
fn call(xid: u32, program: u32, version: u32, procedure: u32, args: &[u32]) -> Message {
    let mut e = Encoder::new();
    [xid, 0, 2, program, version, procedure].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    args.iter().for_each(|word| e.u32(*word));
    e.finish()
}

/// Returns the RPC layer's answer: `Ok` if the call was run.
fn ask(stream: &mut TcpStream, call: &Message) -> Result<(), ReplyError> {
    verdict(&exchange(stream, call))
}

/// Sends a call and reads the reply.
fn exchange(stream: &mut TcpStream, call: &Message) -> Vec<u8> {
    let body = call.flatten().unwrap();
    stream.write_all(&(0x8000_0000 | body.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

fn verdict(reply: &[u8]) -> Result<(), ReplyError> {
    decode_reply(&mut Decoder::new(reply)).map(|_| ()).map_err(|(_, error)| error)
}

/// COMPOUND of minor version 0 with only PUTROOTFH.
fn putrootfh() -> Message {
    call(3, NFS, 4, 1, &[0, 0, 1, 24])
}

#[test]
fn a_host_in_no_export_gets_null_and_nothing_else() {
    let gateway = Gateway::start(60);
    let mut named = Client::ready(&gateway, "named");
    let mut stream = connect_from(OUTSIDER, &gateway);
    for (program, version) in [(NFS, 3), (NFS, 4), (MOUNT, 3)] {
        assert_eq!(ask(&mut stream, &call(1, program, version, 0, &[])), Ok(()));
    }
    // FSINFO of an empty handle, MNT, DUMP, EXPORT, and a COMPOUND of each
    // version.
    for (program, version, procedure, args) in [
        (NFS, 3, 1, &[0][..]),
        (NFS, 3, 19, &[0]),
        (MOUNT, 3, 1, &[1, 0x2f00_0000]),
        (MOUNT, 3, 2, &[]),
        (MOUNT, 3, 5, &[]),
        (NFS, 4, 1, &[0, 0, 1, 24]),
        (NFS, 4, 1, &[0, 1, 1, 24]),
        (NFS, 4, 1, &[0, 2, 0]),
        (NFS, 4, 2, &[]),
    ] {
        let refused = ask(&mut stream, &call(2, program, version, procedure, args));
        let expected = Err(ReplyError::AuthRefused(TOO_WEAK));
        assert_eq!(refused, expected, "{program} {version} {procedure} {args:?}");
    }
    // With the id of another client's session: the slot is not changed.
    let taken = named.session.request(4, 0, false, Ops::new().putrootfh());
    assert_eq!(ask(&mut stream, &taken), Err(ReplyError::AuthRefused(TOO_WEAK)));
    let mut own = connect_from(Ipv4Addr::LOCALHOST, &gateway);
    assert_eq!(ask(&mut own, &taken), Ok(()));
    let root = named.root.clone();
    named.getattr(&root, &[1]).unwrap();
    let clients = gateway.status()["clients"].as_array().map_or(0, Vec::len);
    assert_eq!(clients, 1, "the outsider left something behind");
}

#[test]
fn a_reload_decides_for_connections_that_are_there() {
    let gateway = Gateway::start(60);
    let config = gateway.dir.path().join("zgate.toml");
    let before = fs::read_to_string(&config).unwrap();
    let mut stream = connect_from(OUTSIDER, &gateway);
    let reload = |text: &str| {
        fs::write(&config, text).unwrap();
        assert!(gateway.command(&["reload"]).status.success());
    };
    let refused = Err(ReplyError::AuthRefused(TOO_WEAK));
    assert_eq!(ask(&mut stream, &putrootfh()), refused);
    reload(&before.replace("match = \"127.0.0.1\"", "match = \"127.0.0.0/28\""));
    assert_eq!(ask(&mut stream, &putrootfh()), Ok(()));
    reload(&before);
    assert_eq!(ask(&mut stream, &putrootfh()), refused);
}

#[tokio::test]
async fn over_rdma_too() {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(60, &more);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    let mut rdma = RdmaClient::connect(address).await;
    let message = |xid: u32| call(xid, NFS, 4, 1, &[0, 0, 1, 24]);
    let served = rdma.call(1, &message(1), &Offer::default()).await.unwrap();
    assert_eq!(verdict(&served.message), Ok(()));
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("match = \"127.0.0.1\"", "match = \"127.0.0.9\"")).unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    // Its connection is closed; a new one is refused.
    rdma.send(2, &message(2), &Offer::default());
    let ended = async {
        loop {
            match rdma.connection.event().await {
                Event::Disconnected(_) => return true,
                Event::Received { .. } => return false,
                _ => {}
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap());
}

/// Returns the number of connections to this address within a moment after all
/// earlier ones.
fn visitors(listener: &TcpListener) -> usize {
    listener.set_nonblocking(true).unwrap();
    // Kept until all are counted: the end of one would admit the next.
    let all: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).collect();
    all.len()
}

/// Runs a COMPOUND of one operation of minor version 0; returns its results.
fn minor_zero<T: Decode>(stream: &mut TcpStream, op: OpNum, args: &impl Encode) -> T {
    let mut e = Encoder::new();
    e.u32(0);
    [0, 1].into_iter().for_each(|word| e.u32(word));
    op.encode(&mut e);
    args.encode(&mut e);
    let body = e.finish().flatten().unwrap();
    let words: Vec<u32> =
        body.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    let reply = exchange(stream, &call(9, NFS, 4, 1, &words));
    let mut d = Decoder::new(&reply);
    decode_reply(&mut d).unwrap();
    assert_eq!((d.u32(), d.u32(), d.u32()), (Ok(0), Ok(0), Ok(1)));
    assert_eq!((d.u32(), d.u32()), (Ok(op as u32), Ok(0)));
    T::decode(&mut d).unwrap()
}

/// Creates a client of minor version 0 with this callback address.
fn introduce(stream: &mut TcpStream, name: &str, callback: SocketAddr) {
    let args = setclientid::Args {
        verifier: [1; 8],
        name: name.as_bytes().into(),
        callback_program: 0x4000_0000,
        callback_address: NetAddress::from_socket(callback),
        callback_ident: 1,
    };
    let made: setclientid::Res = minor_zero(stream, OpNum::Setclientid, &args);
    let args = setclientid_confirm::Args { clientid: made.clientid, confirm: made.confirm };
    minor_zero::<()>(stream, OpNum::SetclientidConfirm, &args);
}

#[test]
fn callbacks_connect_to_the_clients_own_host_and_not_without_bound() {
    let more = "[[export]]\npath = \"{dir}/export\"\npseudo = \"/more\"\n\
                clients = [{ match = \"127.0.0.0/28\" }]\n";
    let gateway = Gateway::start_with(60, more);
    let silent = |host: [u8; 4]| TcpListener::bind(SocketAddr::from((host, 0))).unwrap();
    let (own, foreign, last) =
        (silent([127, 0, 0, 1]), silent([127, 0, 0, 9]), silent([127, 0, 0, 2]));
    let mut stream = connect_from(Ipv4Addr::LOCALHOST, &gateway);
    introduce(&mut stream, "elsewhere", foreign.local_addr().unwrap());
    for number in 0..40 {
        introduce(&mut stream, &format!("many{number}"), own.local_addr().unwrap());
    }
    // Another host is called in spite of that.
    let mut second = connect_from(Ipv4Addr::new(127, 0, 0, 2), &gateway);
    introduce(&mut second, "last", last.local_addr().unwrap());
    last.accept().unwrap();
    assert_eq!(visitors(&foreign), 0, "somebody else's port");
    assert_eq!(visitors(&own), 4, "callback connections to one host");
}
