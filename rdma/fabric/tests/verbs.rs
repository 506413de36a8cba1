//! Intended use of the emulated fabric's verbs.

mod pair;

use bytes::Bytes;
use pair::{connected, filled, pair, sent};
use zgate_fabric::{
    Access, ConnectError, Disconnect, EmulatedFabric, Event, Fabric, ReadBatch, RemoteRead,
    RemoteSlice, RemoteWrite, SendBatch, SendPart, Setup, WorkId, WorkKind, WorkStatus,
};
use zgate_store::AlignedBuf;

#[tokio::test]
async fn messages_arrive_in_order_and_fill_the_oldest_receive() {
    let (mut a, mut b, _) = pair().await;
    for i in 0..4u64 {
        b.post_receive(WorkId(i), AlignedBuf::zeroed(64));
    }
    for i in 0..4u8 {
        let gather = vec![Bytes::from(vec![i; 3]), Bytes::new(), Bytes::from(vec![9; 2])];
        a.post_send(sent(u64::from(i), gather)).unwrap();
    }
    for i in 0..4u8 {
        let Event::Received { id, buffer, len, invalidated: None } = b.event().await else {
            panic!("no message")
        };
        assert_eq!((id, &buffer[..len]), (WorkId(u64::from(i)), &[i, i, i, 9, 9][..]));
        assert!(matches!(a.event().await, Event::Sent { id } if id == WorkId(u64::from(i))));
    }
}

#[tokio::test]
async fn writes_are_there_before_the_message_behind_them() {
    let (mut a, mut b, fabric) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(64));
    let access = Access { read: false, write: true };
    let exposed = fabric.expose(AlignedBuf::zeroed(8192), access).unwrap();
    let to = |offset: u64, len| RemoteSlice {
        rkey: exposed.rkey(),
        address: exposed.address() + offset,
        len,
    };
    let pieces = vec![filled(1, 4000), filled(2, 96)];
    let writes = vec![
        RemoteWrite { to: to(0, 4096), gather: pieces },
        RemoteWrite { to: to(8191, 1), gather: vec![filled(3, 1)] },
        RemoteWrite { to: to(0, 0), gather: vec![] },
    ];
    let send = Some(SendPart {
        gather: vec![Bytes::from_static(b"done")],
        invalidate: Some(exposed.rkey()),
    });
    a.post_send(SendBatch { id: WorkId(7), writes, send }).unwrap();
    let event = b.event().await;
    let Event::Received { len: 4, invalidated: Some(rkey), .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!(rkey, exposed.rkey());
    let buffer = exposed.withdraw();
    assert_eq!((buffer[0], buffer[3999], buffer[4000], buffer[4096]), (1, 1, 2, 0));
    assert_eq!(buffer[8191], 3);
    assert!(matches!(a.event().await, Event::Sent { id: WorkId(7) }));
    assert_eq!(fabric.exposed_buffers(), 0);
}

#[tokio::test]
async fn reads_scatter_into_several_buffers() {
    let (mut a, _b, fabric) = pair().await;
    let mut memory = AlignedBuf::zeroed(5000);
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let access = Access { read: true, write: false };
    let exposed = fabric.expose(memory, access).unwrap();
    let from = |offset: u64, len| RemoteSlice {
        rkey: exposed.rkey(),
        address: exposed.address() + offset,
        len,
    };
    let reads = vec![
        RemoteRead { from: from(0, 100), buffer: 0, offset: 28 },
        RemoteRead { from: from(100, 4096), buffer: 1, offset: 0 },
        RemoteRead { from: from(4999, 1), buffer: 0, offset: 0 },
    ];
    let buffers = vec![AlignedBuf::zeroed(128), AlignedBuf::zeroed(4096)];
    a.post_read(ReadBatch { id: WorkId(5), buffers, reads }).unwrap();
    let Event::Read { id: WorkId(5), buffers } = a.event().await else { panic!("not read") };
    assert_eq!((buffers[0][28], buffers[0][127], buffers[0][0]), (0, 99, 4999u16 as u8));
    assert_eq!((buffers[1][0], buffers[1][4095]), (100, 4195u16 as u8));
    drop(exposed);
}

#[tokio::test]
async fn both_sides_send_at_once() {
    let (mut a, mut b, _) = pair().await;
    // No receive is posted yet: both messages wait, and neither side blocks the
    // other.
    a.post_send(sent(1, vec![filled(1, 10)])).unwrap();
    b.post_send(sent(1, vec![filled(2, 10)])).unwrap();
    tokio::task::yield_now().await;
    a.post_receive(WorkId(2), AlignedBuf::zeroed(10));
    b.post_receive(WorkId(2), AlignedBuf::zeroed(10));
    for side in [&mut a, &mut b] {
        let kinds = [side.event().await, side.event().await];
        assert!(kinds.iter().any(|event| matches!(event, Event::Sent { .. })));
        assert!(kinds.iter().any(|event| matches!(event, Event::Received { len: 10, .. })));
    }
}

#[tokio::test]
async fn all_work_comes_back_before_the_end() {
    let (mut a, mut b, _) = pair().await;
    for i in 0..3 {
        a.post_receive(WorkId(i), AlignedBuf::zeroed(64));
    }
    b.disconnect();
    for i in 0..3 {
        let event = a.event().await;
        let Event::Failed { id, kind: WorkKind::Receive, status, buffers } = event else {
            panic!("{event:?}")
        };
        assert_eq!((id, status, buffers.len()), (WorkId(i), WorkStatus::Flushed, 1));
    }
    // Work posted too late is returned as well.
    a.post_send(sent(9, vec![filled(1, 1)])).unwrap();
    let event = a.event().await;
    assert!(matches!(event, Event::Failed { id: WorkId(9), status: WorkStatus::Flushed, .. }));
    assert!(matches!(a.event().await, Event::Disconnected(Disconnect::Peer)));
    assert!(matches!(b.event().await, Event::Disconnected(Disconnect::Local)));
}

#[tokio::test]
async fn a_connection_that_is_dropped_is_noticed() {
    let (a, mut b, _) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(64));
    drop(a);
    assert!(matches!(b.event().await, Event::Failed { .. }));
    assert!(matches!(b.event().await, Event::Disconnected(Disconnect::Peer)));
}

#[tokio::test]
async fn a_hung_side_takes_nothing_until_it_takes_again() {
    let (mut a, mut b, fabric) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(64));
    fabric.stop_taking();
    a.post_send(sent(2, vec![filled(1, 10)])).unwrap();
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(200), b.event()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    fabric.take_again();
    assert!(matches!(b.event().await, Event::Received { id: WorkId(1), len: 10, .. }));
    assert!(matches!(a.event().await, Event::Sent { id: WorkId(2) }));
}

#[tokio::test]
async fn private_data_travels_both_ways() {
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = listener.local_address();
    let setup = |data: &[u8]| Setup { private_data: data.to_vec(), ..Setup::default() };
    let client = tokio::spawn(fabric.connect(to, setup(b"hello")));
    let request = listener.accept().await.unwrap();
    // Padded, as connection managers do it.
    assert_eq!(&request.private_data()[..6], b"hello\0");
    let _server = request.accept(setup(b"welcome")).await.unwrap();
    assert_eq!(&client.await.unwrap().unwrap().private_data[..8], b"welcome\0");

    let client = tokio::spawn(fabric.connect(to, setup(b"again")));
    listener.accept().await.unwrap().reject(b"no".to_vec()).await;
    let refused = client.await.unwrap().unwrap_err();
    assert!(matches!(refused, ConnectError::Rejected(why) if why.starts_with(b"no\0")));

    let long = fabric.connect(to, setup(&[1; 57])).await;
    assert!(matches!(long, Err(ConnectError::Io(_))));
}

#[tokio::test]
async fn someone_who_speaks_something_else_is_no_request() {
    use tokio::io::AsyncWriteExt;
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = listener.local_address();
    let mut stranger = tokio::net::TcpStream::connect(to).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (a, b) = connected(&fabric, &mut listener).await;
    drop((a, b));
}
