//! Handshake of a connection: request, answer, and private data in both
//! directions.

use super::connection::EmulatedConnection;
use super::memory::Memory;
use super::plug::Plug;
use crate::limits::{
    MAX_ACCEPT_PRIVATE_BYTES, MAX_REJECT_PRIVATE_BYTES, MAX_REQUEST_PRIVATE_BYTES,
};
use crate::traits::{ConnectError, Connection, Established, Request, Setup};
use futures_util::future::BoxFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const REQUEST: [u8; 4] = *b"zgF1";
const ACCEPT: u8 = 1;
const REJECT: u8 = 2;
/// Time limit for the peer's part of the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads private data, padded as connection managers pad it.
async fn read_private(stream: &mut TcpStream, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::from(stream.read_u8().await?);
    if len > max {
        return Err(invalid("too much private data"));
    }
    let mut data = vec![0; len];
    stream.read_exact(&mut data).await?;
    data.resize(max, 0);
    Ok(data)
}

fn with_private(head: &[u8], data: &[u8], max: usize) -> io::Result<Vec<u8>> {
    if data.len() > max {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too much private data"));
    }
    Ok([head, &[data.len() as u8], data].concat())
}

pub(crate) async fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    setup: Setup,
    memory: Arc<Memory>,
    plug: Arc<Plug>,
) -> Result<Established, ConnectError> {
    plug.check()?;
    let request = with_private(&REQUEST, &setup.private_data, MAX_REQUEST_PRIVATE_BYTES)?;
    let exchange = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let mut stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&request).await?;
        let answer = stream.read_u8().await?;
        let max = match answer {
            ACCEPT => MAX_ACCEPT_PRIVATE_BYTES,
            REJECT => MAX_REJECT_PRIVATE_BYTES,
            _ => return Err(invalid("an unknown answer")),
        };
        let private_data = read_private(&mut stream, max).await?;
        Ok((stream, answer, private_data))
    };
    let exchanged = tokio::time::timeout(HANDSHAKE_TIME, exchange).await;
    let (stream, answer, private_data) = exchanged.map_err(io::Error::from)??;
    if answer == REJECT {
        return Err(ConnectError::Rejected(private_data));
    }
    let connection = Box::new(EmulatedConnection::new(stream, to, setup, memory, &plug));
    Ok(Established { connection, private_data })
}

#[derive(Debug)]
pub(crate) struct EmulatedRequest {
    stream: TcpStream,
    peer: SocketAddr,
    private_data: Vec<u8>,
    memory: Arc<Memory>,
    plug: Arc<Plug>,
}

pub(crate) async fn receive_request(
    mut stream: TcpStream,
    peer: SocketAddr,
    memory: Arc<Memory>,
    plug: Arc<Plug>,
) -> io::Result<EmulatedRequest> {
    let receive = async {
        stream.set_nodelay(true)?;
        let mut head = [0; REQUEST.len()];
        stream.read_exact(&mut head).await?;
        if head != REQUEST {
            return Err(invalid("no connection request"));
        }
        read_private(&mut stream, MAX_REQUEST_PRIVATE_BYTES).await
    };
    let private_data = tokio::time::timeout(HANDSHAKE_TIME, receive).await??;
    Ok(EmulatedRequest { stream, peer, private_data, memory, plug })
}

impl Request for EmulatedRequest {
    fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn accept(
        mut self: Box<Self>,
        setup: Setup,
    ) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let answer = with_private(&[ACCEPT], &setup.private_data, MAX_ACCEPT_PRIVATE_BYTES)?;
            self.stream.write_all(&answer).await?;
            let connection =
                EmulatedConnection::new(self.stream, self.peer, setup, self.memory, &self.plug);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn reject(mut self: Box<Self>, private_data: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Ok(answer) = with_private(&[REJECT], &private_data, MAX_REJECT_PRIVATE_BYTES) {
                // A failed write does not matter: the peer has gone.
                let _ = self.stream.write_all(&answer).await;
            }
        })
    }
}
