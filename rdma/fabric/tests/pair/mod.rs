//! Two connected ends.
#![allow(dead_code, reason = "every test program uses its own part of it")]

use bytes::Bytes;
use zgate_fabric::{
    Connection, EmulatedFabric, Fabric, Listener, QueueOptions, SendBatch, SendPart, Setup, WorkId,
};

pub(crate) async fn connected(
    fabric: &EmulatedFabric,
    listener: &mut Box<dyn Listener>,
) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let options = QueueOptions { rnr_retries: 2, ..QueueOptions::default() };
    let setup = || Setup { options, ..Setup::default() };
    let client = tokio::spawn(fabric.connect(listener.local_address(), setup()));
    let request = listener.accept().await.expect("a request");
    let server = request.accept(setup()).await.expect("a connection");
    (client.await.expect("no panic").expect("a connection").connection, server)
}

/// Both ends, and the fabric whose memory both can use.
pub(crate) async fn pair() -> (Box<dyn Connection>, Box<dyn Connection>, EmulatedFabric) {
    let fabric = EmulatedFabric::new();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listener = fabric.listen(any).expect("an address");
    let (a, b) = connected(&fabric, &mut listener).await;
    (a, b, fabric)
}

pub(crate) fn filled(byte: u8, len: usize) -> Bytes {
    Bytes::from(vec![byte; len])
}

pub(crate) fn sent(id: u64, gather: Vec<Bytes>) -> SendBatch {
    let send = Some(SendPart { gather, invalidate: None });
    SendBatch { id: WorkId(id), writes: Vec::new(), send }
}
