//! The emulation refuses what a device refuses: with the failure that the
//! requester would see, and with the end of the connection.

mod pair;

use pair::{connected, filled, pair, sent};
use zgate_fabric::{
    Access, Connection, Disconnect, EmulatedFabric, Event, Exposed, Fabric, PostError, ReadBatch,
    RemoteRead, RemoteSlice, RemoteWrite, SendBatch, SendPart, WorkId, WorkKind, WorkStatus,
};
use zgate_store::AlignedBuf;

const BOTH: Access = Access { read: true, write: true };

fn slice(exposed: &dyn Exposed, offset: i64, len: u32) -> RemoteSlice {
    let address = exposed.address().wrapping_add_signed(offset);
    RemoteSlice { rkey: exposed.rkey(), address, len }
}

fn write(to: RemoteSlice) -> SendBatch {
    let gather = vec![filled(1, to.len as usize)];
    SendBatch { id: WorkId(1), writes: vec![RemoteWrite { to, gather }], send: None }
}

fn read(from: RemoteSlice) -> ReadBatch {
    let reads = vec![RemoteRead { from, buffer: 0, offset: 0 }];
    ReadBatch { id: WorkId(1), buffers: vec![AlignedBuf::zeroed(from.len as usize)], reads }
}

/// Expects this failure as the next event, then all other work flushed, then
/// the end.
async fn fails_with(connection: &mut dyn Connection, expected: WorkStatus) {
    let event = connection.event().await;
    let Event::Failed { id: WorkId(1), status, .. } = event else { panic!("{event:?}") };
    assert_eq!(status, expected);
    loop {
        match connection.event().await {
            Event::Failed { status, .. } => assert_eq!(status, WorkStatus::Flushed),
            Event::Disconnected(why) => return assert_eq!(why, Disconnect::Error),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn memory_is_used_only_as_it_was_exposed() {
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let exposed = fabric.expose(AlignedBuf::zeroed(4096), BOTH).unwrap();
    let read_only =
        fabric.expose(AlignedBuf::zeroed(4096), Access { read: true, write: false }).unwrap();
    let write_only =
        fabric.expose(AlignedBuf::zeroed(4096), Access { read: false, write: true }).unwrap();
    let foreign = RemoteSlice { rkey: 0xdead_beef, ..slice(&*exposed, 0, 8) };
    let writes = [
        foreign,
        slice(&*exposed, 4090, 7),
        slice(&*exposed, -1, 8),
        slice(&*exposed, 0, 4097),
        RemoteSlice { address: u64::MAX - 3, ..slice(&*exposed, 0, 8) },
        slice(&*read_only, 0, 8),
    ];
    for to in writes {
        let (mut a, _b) = connected(&fabric, &mut listener).await;
        a.post_send(write(to)).unwrap();
        a.post_send(sent(2, vec![filled(1, 1)])).unwrap();
        fails_with(&mut *a, WorkStatus::RemoteAccess).await;
    }
    for from in [foreign, slice(&*exposed, 4090, 7), slice(&*write_only, 0, 8)] {
        let (mut a, _b) = connected(&fabric, &mut listener).await;
        a.post_read(read(from)).unwrap();
        fails_with(&mut *a, WorkStatus::RemoteAccess).await;
    }
    // No part of it was written.
    assert!(exposed.withdraw().iter().all(|byte| *byte == 0));
    assert!(read_only.withdraw().iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn a_withdrawn_buffer_is_out_of_reach() {
    let (mut a, _b, fabric) = pair().await;
    let exposed = fabric.expose(AlignedBuf::zeroed(4096), BOTH).unwrap();
    let to = slice(&*exposed, 0, 8);
    let buffer = exposed.withdraw();
    a.post_send(write(to)).unwrap();
    fails_with(&mut *a, WorkStatus::RemoteAccess).await;
    assert_eq!(buffer[0], 0);
}

#[tokio::test]
async fn an_invalidated_key_is_dead() {
    let (mut a, mut b, fabric) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(8));
    let exposed = fabric.expose(AlignedBuf::zeroed(4096), BOTH).unwrap();
    let send = Some(SendPart { gather: vec![], invalidate: Some(exposed.rkey()) });
    a.post_send(SendBatch { id: WorkId(0), writes: vec![], send }).unwrap();
    assert!(matches!(b.event().await, Event::Received { len: 0, invalidated: Some(_), .. }));
    assert!(matches!(a.event().await, Event::Sent { .. }));
    a.post_send(write(slice(&*exposed, 0, 8))).unwrap();
    fails_with(&mut *a, WorkStatus::RemoteAccess).await;
}

#[tokio::test]
async fn a_key_nobody_has_cannot_be_invalidated() {
    let (mut a, mut b, _) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(8));
    let send = Some(SendPart { gather: vec![], invalidate: Some(77) });
    a.post_send(SendBatch { id: WorkId(1), writes: vec![], send }).unwrap();
    fails_with(&mut *a, WorkStatus::RemoteInvalidRequest).await;
    let event = b.event().await;
    assert!(matches!(event, Event::Failed { status: WorkStatus::Flushed, .. }));
}

#[tokio::test]
async fn a_message_longer_than_its_receive() {
    let (mut a, mut b, _) = pair().await;
    b.post_receive(WorkId(1), AlignedBuf::zeroed(8));
    a.post_send(sent(1, vec![filled(1, 9)])).unwrap();
    fails_with(&mut *a, WorkStatus::RemoteInvalidRequest).await;
    fails_with(&mut *b, WorkStatus::LocalLength).await;
}

#[tokio::test]
async fn a_peer_that_posts_no_receives() {
    let (mut a, mut b, _) = pair().await;
    a.post_send(sent(1, vec![filled(1, 1)])).unwrap();
    // Order is kept: later messages wait, too.
    a.post_send(sent(2, vec![filled(2, 1)])).unwrap();
    fails_with(&mut *a, WorkStatus::ReceiverNotReady).await;
    assert!(matches!(b.event().await, Event::Disconnected(Disconnect::Error)));
}

#[tokio::test]
async fn a_receive_that_comes_late_but_in_time() {
    let (mut a, mut b, _) = pair().await;
    a.post_send(sent(1, vec![filled(1, 1)])).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    b.post_receive(WorkId(5), AlignedBuf::zeroed(1));
    assert!(matches!(b.event().await, Event::Received { id: WorkId(5), .. }));
    assert!(matches!(a.event().await, Event::Sent { id: WorkId(1) }));
    // The timer has been cancelled.
    tokio::time::sleep(std::time::Duration::from_millis(80)).await;
    b.post_receive(WorkId(6), AlignedBuf::zeroed(1));
    a.post_send(sent(2, vec![filled(1, 1)])).unwrap();
    assert!(matches!(b.event().await, Event::Received { id: WorkId(6), .. }));
}

#[tokio::test]
async fn a_peer_that_vanishes_with_reads_under_way() {
    let (mut a, b, fabric) = pair().await;
    let exposed = fabric.expose(AlignedBuf::zeroed(4096), BOTH).unwrap();
    drop(b);
    for i in 0..64 {
        let batch = ReadBatch { id: WorkId(i), ..read(slice(&*exposed, 0, 4096)) };
        a.post_read(batch).unwrap();
    }
    let (mut done, mut buffers_back) = (0, 0);
    loop {
        match a.event().await {
            Event::Read { buffers, .. } => {
                (done, buffers_back) = (done + 1, buffers_back + buffers.len())
            }
            Event::Failed { kind: WorkKind::Read, buffers, .. } => {
                (done, buffers_back) = (done + 1, buffers_back + buffers.len());
            }
            Event::Disconnected(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((done, buffers_back), (64, 64));
}

#[tokio::test]
async fn the_posters_own_mistakes_are_told_at_once() {
    let (mut a, _b, fabric) = pair().await;
    let exposed = fabric.expose(AlignedBuf::zeroed(64), BOTH).unwrap();
    let from = slice(&*exposed, 0, 16);
    let outside = |buffer, offset| ReadBatch {
        id: WorkId(1),
        buffers: vec![AlignedBuf::zeroed(16)],
        reads: vec![RemoteRead { from, buffer, offset }],
    };
    assert_eq!(a.post_read(outside(0, 1)), Err(PostError::OutsideBuffer));
    assert_eq!(a.post_read(outside(1, 0)), Err(PostError::OutsideBuffer));
    assert_eq!(a.post_read(outside(0, usize::MAX)), Err(PostError::OutsideBuffer));
    let writes = vec![RemoteWrite { to: from, gather: vec![filled(1, 15)] }];
    let batch = SendBatch { id: WorkId(1), writes, send: None };
    assert_eq!(a.post_send(batch), Err(PostError::LengthMismatch));
}
