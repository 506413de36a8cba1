//! The bookkeeping of a connection, over the emulated fabric.

mod pair;

use bytes::Bytes;
use futures_util::FutureExt;
use pair::{filled, pair};
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use zgate_fabric::{
    Access, Connection, Disconnect, Endpoint, EndpointEvent, Event, Fabric, PostError, ReadBatch,
    RemoteRead, RemoteSlice, RemoteWrite, SendBatch, SendPart, WorkId, WorkKind, WorkStatus,
};
use zgate_store::AlignedBuf;

fn message(len: usize) -> Option<SendPart> {
    Some(SendPart { gather: vec![filled(1, len)], invalidate: None })
}

/// Returns the time without progress, as seen 9 seconds later.
fn stalled_seconds<R>(endpoint: &Endpoint<R>) -> u64 {
    endpoint.stalled_for(Instant::now() + Duration::from_secs(9)).as_secs()
}

#[tokio::test]
async fn bytes_are_counted_until_the_peer_has_them() {
    let (a, b, fabric) = pair().await;
    let (mut a, mut b) = (Endpoint::<()>::new(a), Endpoint::<()>::new(b));
    let access = Access { read: false, write: true };
    let exposed = fabric.expose(AlignedBuf::zeroed(4096), access).unwrap();
    let to = RemoteSlice { rkey: exposed.rkey(), address: exposed.address(), len: 100 };
    let write = RemoteWrite { to, gather: vec![filled(2, 100)] };
    a.send(vec![write], message(7)).unwrap();
    a.send(Vec::new(), message(5)).unwrap();
    a.send_quietly(message(3).unwrap()).unwrap();
    // A message counts 4 KiB at least.
    assert_eq!((a.sends(), a.sending_bytes()), (2, 100 + 2 * 4096));
    for len in [7, 5, 3] {
        b.post_receive(AlignedBuf::zeroed(64));
        let EndpointEvent::Received(message) = b.event().await else { panic!("no message") };
        assert_eq!(message.bytes().len(), len);
        assert!(matches!(a.event().await, EndpointEvent::Sent));
    }
    assert_eq!((a.sends(), a.sending_bytes()), (0, 0));
    assert_eq!(exposed.withdraw()[99], 2);
}

#[tokio::test]
async fn quiet_messages_count_with_the_send_behind_them() {
    let (a, b, _) = pair().await;
    let (mut a, mut b) = (Endpoint::<()>::new(a), Endpoint::<()>::new(b));
    a.send_quietly(message(3).unwrap()).unwrap();
    a.send_quietly(message(5000).unwrap()).unwrap();
    // Nobody waits for what may be complete only with later work.
    assert_eq!((a.sends(), a.sending_bytes(), a.has_work()), (0, 0, false));
    assert_eq!(stalled_seconds(&a), 0);
    a.send(Vec::new(), message(7)).unwrap();
    assert_eq!((a.sends(), a.sending_bytes(), a.has_work()), (1, 5000 + 2 * 4096, true));
    for _ in 0..3 {
        b.post_receive(AlignedBuf::zeroed(8192));
        assert!(matches!(b.event().await, EndpointEvent::Received(_)));
        assert!(matches!(a.event().await, EndpointEvent::Sent));
    }
    assert_eq!((a.sends(), a.sending_bytes(), a.has_work()), (0, 0, false));
    // One that is complete before the next send does not count with it.
    a.send_quietly(message(3).unwrap()).unwrap();
    b.post_receive(AlignedBuf::zeroed(64));
    assert!(matches!(a.event().await, EndpointEvent::Sent));
    a.send(Vec::new(), message(7)).unwrap();
    assert_eq!((a.sends(), a.sending_bytes()), (1, 4096));
}

#[tokio::test]
async fn quiet_messages_that_the_peer_does_not_take_are_counted() {
    let (a, _b, _) = pair().await;
    let mut a = Endpoint::<()>::new(a);
    for _ in 0..640 {
        a.send_quietly(message(1).unwrap()).unwrap();
    }
    assert_eq!((a.sends(), a.sending_bytes()), (10, 640 * 4096));
    assert_eq!(stalled_seconds(&a), 9);
}

#[tokio::test]
async fn a_read_comes_back_with_its_note() {
    let (a, _b, fabric) = pair().await;
    let mut a = Endpoint::new(a);
    let access = Access { read: true, write: false };
    let exposed = fabric.expose(AlignedBuf::zeroed(8), access).unwrap();
    let from = RemoteSlice { rkey: exposed.rkey(), address: exposed.address(), len: 8 };
    for note in ["first", "second"] {
        let read = RemoteRead { from, buffer: 0, offset: 0 };
        a.read(note, vec![AlignedBuf::zeroed(8)], vec![read]).unwrap();
    }
    assert_eq!(a.reads(), 2);
    for expected in ["first", "second"] {
        let EndpointEvent::Read { note, buffers } = a.event().await else { panic!("not read") };
        assert_eq!((note, buffers.len()), (expected, 1));
    }
    assert!(!a.has_work());
    let outside = RemoteRead { from, buffer: 0, offset: 1 };
    let posted = a.read("third", vec![AlignedBuf::zeroed(8)], vec![outside]);
    assert_eq!(posted, Err(PostError::OutsideBuffer));
    assert!(!a.has_work(), "work that is not posted is not waited for");
}

#[tokio::test]
async fn time_runs_from_the_first_work_and_from_each_completion() {
    let (a, b, _) = pair().await;
    let (mut a, mut b) = (Endpoint::<()>::new(a), Endpoint::<()>::new(b));
    assert_eq!(stalled_seconds(&a), 0, "nothing is under way");
    a.send(Vec::new(), message(1)).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    a.send(Vec::new(), message(1)).unwrap();
    assert!(a.stalled_for(Instant::now()) >= Duration::from_millis(20), "more work is no progress");
    assert_eq!(stalled_seconds(&a), 9);
    b.post_receive(AlignedBuf::zeroed(1));
    b.event().await;
    let completed = Instant::now();
    assert!(matches!(a.event().await, EndpointEvent::Sent));
    assert!(a.has_work());
    let at = completed + Duration::from_millis(20);
    assert!(a.stalled_for(at) <= Duration::from_millis(20), "a completion is progress");
}

#[tokio::test]
async fn a_probe_reaches_the_peer_and_is_not_sent_beside_work() {
    let (a, b, _) = pair().await;
    let (mut a, mut b) = (Endpoint::<()>::new(a), Endpoint::<()>::new(b));
    a.probe().unwrap();
    assert_eq!((a.sends(), a.sending_bytes()), (1, 0));
    a.probe().unwrap();
    assert_eq!(a.sends(), 1);
    assert!(matches!(a.event().await, EndpointEvent::Sent), "without a receive of the peer's");
    b.close().await;
    a.probe().unwrap();
    let kind_and_status = match a.event().await {
        EndpointEvent::Failed { kind, status } => (kind, status),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind_and_status, (WorkKind::Send, WorkStatus::Flushed));
    assert!(matches!(a.event().await, EndpointEvent::Disconnected(Disconnect::Peer)));
    // Nothing comes any more, and nothing is waited for.
    a.close().await;
    assert!(!a.has_work());
}

#[tokio::test]
async fn events_that_came_together_are_at_hand() {
    let (a, b, _) = pair().await;
    let (mut a, mut b) = (Endpoint::<()>::new(a), Endpoint::<()>::new(b));
    for _ in 0..2 {
        b.post_receive(AlignedBuf::zeroed(8));
        let gather = vec![Bytes::from_static(b"news")];
        a.send(Vec::new(), Some(SendPart { gather, invalidate: None })).unwrap();
    }
    // The peer's answers say that both messages have arrived.
    assert!(matches!(a.event().await, EndpointEvent::Sent));
    assert!(matches!(a.event().await, EndpointEvent::Sent));
    assert!(b.next_at_hand().is_some() && b.next_at_hand().is_some());
    assert!(b.next_at_hand().is_none());
}

/// A connection whose peer always has more.
#[derive(Debug)]
struct Flooded;

impl Connection for Flooded {
    fn peer_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }

    fn post_receive(&mut self, _: WorkId, _: AlignedBuf) {}

    fn post_read(&mut self, _: ReadBatch) -> Result<(), PostError> {
        Ok(())
    }

    fn post_send(&mut self, _: SendBatch) -> Result<(), PostError> {
        Ok(())
    }

    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Event> {
        Poll::Ready(Event::Sent { id: WorkId(1) })
    }

    fn next_at_hand(&mut self) -> Option<Event> {
        None
    }

    fn disconnect(&mut self) {}
}

#[tokio::test]
async fn a_peer_that_always_has_more_leaves_others_their_turn() {
    let mut flooded = Endpoint::<()>::new(Box::new(Flooded));
    let at_once = (0..1000).take_while(|_| flooded.event().now_or_never().is_some()).count();
    assert!((1..1000).contains(&at_once), "{at_once}");
    // Nobody else need wake the task.
    let more = async {
        for _ in 0..1000 {
            flooded.event().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), more).await.expect("it goes on by itself");
}
