//! Exercises the verbs of a fabric: on this machine's devices, or on the
//! emulated one.
//!
//! ```text
//! pingpong ports                     what the devices are
//! pingpong device 10.9.0.1:7471      both sides on an address of a device
//! pingpong emulated 127.0.0.1:7471   the same over TCP
//! ```

use bytes::Bytes;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;
use zgate_fabric::{
    Access, ConnectError, Connection, Disconnect, EmulatedFabric, Event, Exposed, Fabric, Listener,
    QueueOptions, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch, SendPart, Setup,
    WorkId, WorkStatus,
};
use zgate_store::{AlignedBuf, BufferPool};
use zgate_verbs::VerbsFabric;

type Outcome = Result<(), String>;
type End = Box<dyn Connection>;

const MESSAGES: u64 = 200;
const BULK_BYTES: usize = 1 << 20;
const BULK_ROUNDS: u64 = 16;
const BOTH: Access = Access { read: true, write: true };

struct Bench {
    fabric: Box<dyn Fabric>,
    listener: Box<dyn Listener>,
    pool: BufferPool,
}

fn wrong(what: &str, event: impl std::fmt::Debug) -> String {
    format!("{what}: {event:?}")
}

impl Bench {
    fn setup(&self, receives: u64, private_data: &[u8]) -> Setup {
        let receives = (0..receives).map(|id| (WorkId(id), self.pool.take(4096))).collect();
        let options = QueueOptions { rnr_retries: 2, ..QueueOptions::default() };
        Setup { options, receives, private_data: private_data.to_vec() }
    }

    /// Connects two ends, each with this many receives.
    async fn pair(&mut self, receives: u64) -> Result<(End, End), String> {
        let client =
            self.fabric.connect(self.listener.local_address(), self.setup(receives, b"request"));
        let client = tokio::spawn(client);
        let request = self.listener.accept().await.map_err(|e| wrong("accept", e))?;
        if !request.private_data().starts_with(b"request") {
            return Err(wrong("private data of the request", request.private_data()));
        }
        let setup = self.setup(receives, b"answer");
        let server = request.accept(setup).await.map_err(|e| wrong("accepting", e))?;
        let client = client.await.map_err(|e| wrong("the client", e))?;
        let client = client.map_err(|e| wrong("connecting", e))?;
        if !client.private_data.starts_with(b"answer") {
            return Err(wrong("private data of the answer", client.private_data));
        }
        Ok((client.connection, server))
    }

    async fn rejection(&mut self) -> Outcome {
        let setup = self.setup(1, b"request");
        let client = tokio::spawn(self.fabric.connect(self.listener.local_address(), setup));
        let request = self.listener.accept().await.map_err(|e| wrong("accept", e))?;
        request.reject(b"no".to_vec()).await;
        match client.await.map_err(|e| wrong("the client", e))? {
            Err(ConnectError::Rejected(data)) if data.starts_with(b"no") => Ok(()),
            other => Err(wrong("not rejected", other)),
        }
    }

    async fn messages(&mut self) -> Outcome {
        let (mut a, mut b) = self.pair(8).await?;
        let began = Instant::now();
        for round in 0..MESSAGES {
            let text = Bytes::from(round.to_string());
            send(&mut *a, round, vec![text.clone(), Bytes::from_static(b"!")])?;
            for (end, answers) in [(&mut b, true), (&mut a, false)] {
                let (id, buffer, len) = receive(end).await?;
                if !buffer[..len].starts_with(&text) {
                    return Err(wrong("another message", &buffer[..len]));
                }
                end.post_receive(id, buffer);
                if answers {
                    send(&mut **end, round, vec![text.clone()])?;
                }
            }
        }
        let each = began.elapsed() / MESSAGES as u32;
        println!("FIGURE round trip\t{:.1}\tus", each.as_secs_f64() * 1e6);
        Ok(())
    }

    /// Sends a message of more pieces than one work request holds.
    async fn many_pieces(&mut self) -> Outcome {
        let (mut a, mut b) = self.pair(2).await?;
        let pieces = (0..100u8).map(|i| Bytes::from(vec![i; 7])).collect();
        send(&mut *a, 1, pieces)?;
        let (_, buffer, len) = receive(&mut b).await?;
        let expected: Vec<u8> = (0..100u8).flat_map(|i| [i; 7]).collect();
        if buffer[..len] == expected { Ok(()) } else { Err("pieces out of order".into()) }
    }

    async fn bulk(&mut self) -> Outcome {
        let (mut a, mut b) = self.pair(4).await?;
        let exposed = self.fabric.expose(self.pool.take(2 * BULK_BYTES), BOTH);
        let exposed = exposed.map_err(|e| wrong("exposing", e))?;
        let mut source = self.pool.take(BULK_BYTES);
        source.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 4096) as u8);
        let source = source.into_bytes();
        let began = Instant::now();
        for round in 0..BULK_ROUNDS {
            // In pieces, as a chunk of several segments, followed by a message.
            let write = |at: usize, len: usize| RemoteWrite {
                to: slice(&*exposed, at as i64, len as u32),
                gather: (0..4)
                    .map(|q| source.slice(at + q * len / 4..at + (q + 1) * len / 4))
                    .collect(),
            };
            let half = BULK_BYTES / 2;
            let writes = vec![write(0, half), write(half, half)];
            let send = Some(SendPart { gather: vec![Bytes::from_static(b"x")], invalidate: None });
            a.post_send(SendBatch { id: WorkId(round), writes, send })
                .map_err(|e| wrong("post", e))?;
            let (id, buffer, _) = receive(&mut b).await?;
            b.post_receive(id, buffer);
            sent(&mut *a).await?;
        }
        rate("RDMA Write", began);
        let began = Instant::now();
        let mut into = self.pool.take(BULK_BYTES);
        for round in 0..BULK_ROUNDS {
            into.fill(0);
            let piece = BULK_BYTES / 16;
            let reads = (0..16)
                .map(|i| RemoteRead {
                    from: slice(&*exposed, (i * piece) as i64, piece as u32),
                    buffer: 0,
                    offset: i * piece,
                })
                .collect();
            let batch = ReadBatch { id: WorkId(round), buffers: vec![into], reads };
            a.post_read(batch).map_err(|e| wrong("post", e))?;
            into = match a.event().await {
                Event::Read { mut buffers, .. } => buffers.remove(0),
                other => return Err(wrong("not read", other)),
            };
            if into[..] != source[..] {
                return Err("other bytes than were written".into());
            }
        }
        rate("RDMA Read", began);
        let back = exposed.withdraw();
        if back[..BULK_BYTES] == source[..] { Ok(()) } else { Err("memory differs".into()) }
    }

    /// Uses memory outside the arena, in both directions.
    async fn plain_memory(&mut self) -> Outcome {
        let (mut a, mut b) = self.pair(2).await?;
        let exposed = self.fabric.expose(AlignedBuf::zeroed(20_000), BOTH);
        let exposed = exposed.map_err(|e| wrong("exposing", e))?;
        let to = slice(&*exposed, 0, 20_000);
        let writes = vec![RemoteWrite { to, gather: vec![Bytes::from(vec![9; 20_000])] }];
        let send = Some(SendPart::default());
        a.post_send(SendBatch { id: WorkId(1), writes, send }).map_err(|e| wrong("post", e))?;
        receive(&mut b).await?;
        sent(&mut *a).await?;
        let reads = vec![RemoteRead { from: to, buffer: 0, offset: 0 }];
        let buffers = vec![AlignedBuf::zeroed(20_000)];
        a.post_read(ReadBatch { id: WorkId(2), buffers, reads }).map_err(|e| wrong("post", e))?;
        match a.event().await {
            Event::Read { buffers, .. } if buffers[0].iter().all(|byte| *byte == 9) => Ok(()),
            other => Err(wrong("not read", other)),
        }
    }

    async fn refused(&mut self, what: &str, wanted: &[WorkStatus]) -> Outcome {
        let (mut a, mut b) = self.pair(if what == "receive" { 0 } else { 2 }).await?;
        let read_only = Access { read: true, write: false };
        let exposed = self.fabric.expose(self.pool.take(4096), read_only);
        let exposed = exposed.map_err(|e| wrong("exposing", e))?;
        let gather = vec![Bytes::from(vec![1; 64])];
        let to = match what {
            "rights" => slice(&*exposed, 0, 64),
            "bounds" => slice(&*exposed, 4090, 64),
            _ => RemoteSlice { rkey: exposed.rkey() ^ 0x3300, ..slice(&*exposed, 0, 64) },
        };
        match what {
            "receive" => send(&mut *a, 1, gather)?,
            "length" => send(&mut *a, 1, vec![Bytes::from(vec![1; 5000])])?,
            _ => {
                let writes = vec![RemoteWrite { to, gather }];
                a.post_send(SendBatch { id: WorkId(1), writes, send: None })
                    .map_err(|e| wrong("post", e))?;
            }
        }
        let result = fails(&mut *a, wanted).await;
        ended(&mut *b).await?;
        result
    }

    async fn vanishing(&mut self) -> Outcome {
        let (mut a, b) = self.pair(4).await?;
        drop(b);
        let mut back = 0;
        loop {
            match a.event().await {
                Event::Failed { buffers, status: WorkStatus::Flushed, .. } => back += buffers.len(),
                Event::Disconnected(Disconnect::Peer) if back == 4 => return Ok(()),
                other => return Err(wrong("not the end of a peer", other)),
            }
        }
    }
}

fn slice(exposed: &dyn Exposed, offset: i64, len: u32) -> RemoteSlice {
    let address = exposed.address().wrapping_add_signed(offset);
    RemoteSlice { rkey: exposed.rkey(), address, len }
}

fn rate(what: &str, began: Instant) {
    let bytes = BULK_BYTES as f64 * BULK_ROUNDS as f64;
    println!("FIGURE {what}\t{:.1}\tMiB/s", bytes / began.elapsed().as_secs_f64() / 1_048_576.0);
}

fn send(end: &mut dyn Connection, id: u64, gather: Vec<Bytes>) -> Outcome {
    let send = Some(SendPart { gather, invalidate: None });
    let batch = SendBatch { id: WorkId(id), writes: Vec::new(), send };
    end.post_send(batch).map_err(|e| wrong("post", e))
}

async fn sent(end: &mut dyn Connection) -> Outcome {
    match end.event().await {
        Event::Sent { .. } => Ok(()),
        other => Err(wrong("not sent", other)),
    }
}

async fn receive(end: &mut End) -> Result<(WorkId, AlignedBuf, usize), String> {
    loop {
        match end.event().await {
            Event::Received { id, buffer, len, .. } => return Ok((id, buffer, len)),
            Event::Sent { .. } => {}
            other => return Err(wrong("no message", other)),
        }
    }
}

async fn fails(end: &mut dyn Connection, wanted: &[WorkStatus]) -> Outcome {
    loop {
        match end.event().await {
            Event::Failed { id: WorkId(1), status, kind, .. }
                if kind != zgate_fabric::WorkKind::Receive =>
            {
                return if wanted.contains(&status) {
                    Ok(())
                } else {
                    Err(wrong("another failure", status))
                };
            }
            Event::Failed { .. } => {}
            other => return Err(wrong("no failure", other)),
        }
    }
}

async fn ended(end: &mut dyn Connection) -> Outcome {
    loop {
        match end.event().await {
            Event::Disconnected(_) => return Ok(()),
            Event::Failed { .. } => {}
            other => return Err(wrong("not the end", other)),
        }
    }
}

fn ports(fabric: &VerbsFabric) {
    for port in fabric.ports() {
        println!(
            "{} port {}: active {}, ethernet {}, mtu {} of {}",
            port.device,
            port.port,
            port.active,
            port.ethernet,
            port.active_mtu_bytes,
            port.max_mtu_bytes
        );
        for gid in port.usable_gids() {
            println!("  {} {:?} {} {:?}", gid.index, gid.kind, gid.address, gid.interface);
        }
    }
}

async fn run(kind: &str, address: Option<SocketAddr>) -> Result<bool, String> {
    let pool = BufferPool::with_arena(8 << 20, vec![0; 16 << 20].leak());
    let fabric: Box<dyn Fabric> = match kind {
        "emulated" => Box::new(EmulatedFabric::new()),
        _ => {
            let fabric = VerbsFabric::open(pool.clone()).map_err(|error| error.to_string())?;
            ports(&fabric);
            Box::new(fabric)
        }
    };
    let Some(address) = address else { return Ok(true) };
    let listener = fabric.listen(address).map_err(|e| wrong("listening", e))?;
    let mut bench = Bench { fabric, listener, pool };
    let mut good = true;
    let mut tell = |name: &str, outcome: Outcome| {
        good &= outcome.is_ok();
        match outcome {
            Ok(()) => println!("PASS {name}"),
            Err(why) => println!("FAIL {name}: {why}"),
        }
    };
    tell("messages both ways", bench.messages().await);
    tell("a message of many pieces", bench.many_pieces().await);
    tell("RDMA Write and Read of pool buffers", bench.bulk().await);
    tell("RDMA Write and Read of plain memory", bench.plain_memory().await);
    tell("a rejection", bench.rejection().await);
    for what in ["key", "rights", "bounds"] {
        let outcome = bench.refused(what, &[WorkStatus::RemoteAccess]).await;
        tell(&format!("a write against {what} is refused"), outcome);
    }
    // Soft-RoCE returns the other error.
    let either = [WorkStatus::RemoteInvalidRequest, WorkStatus::RemoteOperation];
    let outcome = bench.refused("length", &either).await;
    tell("a message longer than its receive is refused", outcome);
    let outcome = bench.refused("receive", &[WorkStatus::ReceiverNotReady]).await;
    tell("a peer without receives is noticed", outcome);
    tell("a peer that vanishes is noticed", bench.vanishing().await);
    Ok(good)
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "ports".into());
    let address = arguments.next().and_then(|text| text.parse().ok());
    match run(&kind, address).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("UNAVAILABLE {why}");
            ExitCode::from(77)
        }
    }
}
