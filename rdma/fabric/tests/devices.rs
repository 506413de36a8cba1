//! Removal and return of a device, and loss of its port.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use futures_util::StreamExt;
use std::io::Write;
use std::time::Duration;
use zgate_fabric::{
    DeviceEvent, Disconnect, EmulatedFabric, Event, Fabric, RemoteSlice, RemoteWrite, SendBatch,
    Setup, WorkId,
};
use zgate_store::AlignedBuf;

#[tokio::test]
async fn a_device_that_is_taken_away_ends_what_was_on_it() {
    let fabric = EmulatedFabric::new();
    let mut events = fabric.device_events();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_address();
    let peer = EmulatedFabric::new();
    let connecting = tokio::spawn(peer.connect(address, Setup::default()));
    let receives = vec![(WorkId(7), AlignedBuf::zeroed(64))];
    let setup = Setup { receives, ..Setup::default() };
    let request = listener.accept().await.unwrap();
    let mut connection = request.accept(setup).await.unwrap();
    let mut other = connecting.await.unwrap().unwrap().connection;

    fabric.unplug();
    assert!(listener.accept().await.is_err());
    drop(listener);
    // The receive is returned, then the end.
    assert!(matches!(connection.event().await, Event::Failed { id: WorkId(7), .. }));
    let ended = connection.event().await;
    assert!(matches!(ended, Event::Disconnected(Disconnect::DeviceGone)), "{ended:?}");
    assert!(matches!(other.event().await, Event::Disconnected(_)));
    assert!(fabric.listen(address).is_err());
    assert!(fabric.connect(address, Setup::default()).await.is_err());

    fabric.plug();
    fabric.plug();
    fabric.set_port(false);
    let mut listener = fabric.listen(address).unwrap();
    let again = tokio::spawn(peer.connect(address, Setup::default()));
    listener.accept().await.unwrap().accept(Setup::default()).await.unwrap();
    again.await.unwrap().unwrap();
    let kinds: Vec<usize> = events.by_ref().take(3).map(|event| event.kind()).collect().await;
    let names: Vec<_> = kinds.into_iter().map(|kind| DeviceEvent::KINDS[kind]).collect();
    assert_eq!(names, ["gone", "arrived", "port_down"]);
}

/// A peer that does not read keeps no memory allocated once the connection
/// ended.
#[tokio::test]
async fn what_nobody_takes_is_free_when_the_connection_ends() {
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    // A connection request whose sender does not read.
    let mut client = std::net::TcpStream::connect(listener.local_address()).unwrap();
    client.write_all(b"zgF1\0").unwrap();
    let request = listener.accept().await.unwrap();
    let mut server = request.accept(Setup::default()).await.unwrap();
    let data = Bytes::from(vec![1; 32 << 20]);
    let to = RemoteSlice { rkey: 1, address: 0, len: data.len() as u32 };
    let writes = vec![RemoteWrite { to, gather: vec![data.clone()] }];
    server.post_send(SendBatch { id: WorkId(1), writes, send: None }).unwrap();
    drop(server);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !data.is_unique() {
        assert!(tokio::time::Instant::now() < deadline, "still held");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(client);
}
