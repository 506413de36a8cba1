//! A client's way through TLS: connections in the clear to the tunnel continue
//! in TLS to a server (RFC 9289).

use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Longest piece that is passed on, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// A call of NULL of NFSv4 with the flavor AUTH_TLS, as a record.
const REQUEST: [u32; 11] = [0x8000_0028, 1, 0, 2, 100_003, 4, 0, 7, 0, 0, 0];
/// Bytes of its reply, with the marker.
const REPLY_BYTES: usize = 36;

/// A tunnel on the loopback interface. Its threads end with their connections.
pub struct TlsTunnel {
    pub address: SocketAddr,
}

impl TlsTunnel {
    /// Starts to listen; `client` makes the client of each connection.
    pub fn to(server: SocketAddr, client: impl Fn() -> ClientConnection + Send + 'static) -> Self {
        Self::listen(move || begin(server, client()))
    }

    /// As [`TlsTunnel::to`], to a proxy that expects a handshake as the first
    /// bytes.
    pub fn to_proxy(
        proxy: SocketAddr,
        client: impl Fn() -> ClientConnection + Send + 'static,
    ) -> Self {
        Self::listen(move || begin_at_once(proxy, client()))
    }

    fn listen(begin: impl Fn() -> io::Result<Secure> + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for plain in listener.incoming().map_while(Result::ok) {
                // A server that refuses closes the connection; its client sees that.
                if let Ok(secure) = begin() {
                    let _ = pass_on(plain, secure);
                }
            }
        });
        Self { address }
    }
}

/// TLS of one connection, and its socket.
pub struct Secure {
    pub tls: ClientConnection,
    pub socket: TcpStream,
}

/// Connects, asks for TLS and makes the handshake.
///
/// # Errors
/// If the server refuses.
pub fn begin(server: SocketAddr, tls: ClientConnection) -> io::Result<Secure> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let request: Vec<u8> = REQUEST.iter().flat_map(|word| word.to_be_bytes()).collect();
    socket.write_all(&request)?;
    let mut reply = [0; REPLY_BYTES];
    socket.read_exact(&mut reply)?;
    if &reply[24..32] != b"STARTTLS" {
        return Err(io::Error::other("TLS is not offered"));
    }
    shake_hands(socket, tls)
}

/// Connects and makes the handshake.
///
/// # Errors
/// If the proxy refuses.
pub fn begin_at_once(proxy: SocketAddr, tls: ClientConnection) -> io::Result<Secure> {
    let socket = TcpStream::connect(proxy)?;
    socket.set_nodelay(true)?;
    shake_hands(socket, tls)
}

fn shake_hands(mut socket: TcpStream, mut tls: ClientConnection) -> io::Result<Secure> {
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(Secure { tls, socket })
}

/// Passes on both directions, on threads of their own.
fn pass_on(plain: TcpStream, secure: Secure) -> io::Result<()> {
    let Secure { tls, socket } = secure;
    plain.set_nodelay(true)?;
    let tls = Arc::new(Mutex::new(tls));
    let (sending, from, to) = (Arc::clone(&tls), plain.try_clone()?, socket.try_clone()?);
    std::thread::spawn(move || {
        // Either end may close.
        let _ = encrypt(&sending, &from, &to);
        let _ = to.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let _ = decrypt(&tls, &socket, &plain);
        let _ = plain.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn encrypt(
    tls: &Mutex<ClientConnection>,
    mut from: &TcpStream,
    mut to: &TcpStream,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let got = from.read(&mut piece)?;
        if got == 0 {
            return Ok(());
        }
        let mut ciphertext = Vec::new();
        let mut tls = tls.lock().unwrap();
        let mut rest = &piece[..got];
        while !rest.is_empty() {
            let taken = tls.writer().write(rest)?;
            rest = &rest[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut ciphertext)?;
            }
        }
        drop(tls);
        to.write_all(&ciphertext)?;
    }
}

fn decrypt(
    tls: &Mutex<ClientConnection>,
    mut from: &TcpStream,
    mut to: &TcpStream,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let got = from.read(&mut piece)?;
        if got == 0 {
            return Ok(());
        }
        let mut rest = &piece[..got];
        let mut plaintext = Vec::new();
        let mut tls = tls.lock().unwrap();
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let at = plaintext.len();
            plaintext.resize(at + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut plaintext[at..])?;
        }
        drop(tls);
        to.write_all(&plaintext)?;
    }
}
