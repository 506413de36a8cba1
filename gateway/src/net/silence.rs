//! Sockets that give no sign, while the gateway is handed over ([ADR 31]).
//!
//! The kernel drops what arrives before it acknowledges it, so the peer sends it
//! again: to this gateway if it goes on, or to the one that has the address by
//! then, which does not know the connection and says so at once. A request that
//! were acknowledged and never answered would be waited for instead, for as long
//! as the peer's own timeouts last.
//!
//! [ADR 31]: ../../../docs/adr/0031-a-handover-holds-connections.md

use socket2::{SockFilter, SockRef};
use std::io;
use std::os::fd::AsFd;

/// Instructions of the kernel's classic packet filter (linux/bpf_common.h).
const LOAD_BYTE: u16 = 0x30;
const LOAD_LENGTH: u16 = 0x80;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const SUBTRACT_INDEX: u16 = 0x1C;
const TO_INDEX: u16 = 0x07;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Number of bytes that a packet keeps: all, or it is dropped.
const ALL: u32 = u32::MAX;
const NONE: u32 = 0;
/// Byte of the TCP header whose upper half is the header's length in words.
const DATA_OFFSET: u32 = 12;

/// Drops all packets to a listening socket: who connects is neither accepted nor
/// refused, and tries again.
pub(crate) fn be_silent(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&[SockFilter::new(RETURN, 0, 0, NONE)])
}

/// Drops packets with data to a connection. Acknowledgements pass, so that replies
/// leave completely.
pub(crate) fn refuse_data(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, DATA_OFFSET),
        SockFilter::new(AND, 0, 0, 0xF0),
        SockFilter::new(SHIFT_RIGHT, 0, 0, 2),
        SockFilter::new(TO_INDEX, 0, 0, 0),
        SockFilter::new(LOAD_LENGTH, 0, 0, 0),
        SockFilter::new(SUBTRACT_INDEX, 0, 0, 0),
        SockFilter::new(IF_EQUAL, 0, 1, 0),
        SockFilter::new(RETURN, 0, 0, ALL),
        SockFilter::new(RETURN, 0, 0, NONE),
    ])
}

/// Takes everything again.
pub(crate) fn hear(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).detach_filter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// Longer than the kernel takes to send something again.
    const AGAIN: Duration = Duration::from_secs(60);
    /// Time in which a socket that hears would have answered.
    const SOON: Duration = Duration::from_millis(300);

    fn is_late(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    }

    #[test]
    fn data_is_not_acknowledged_and_comes_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut got = [0; 5];
        refuse_data(&server).unwrap();
        client.write_all(b"again").unwrap();
        server.set_read_timeout(Some(SOON)).unwrap();
        assert!(is_late(&server.read(&mut got).unwrap_err()));
        // What the server sends is acknowledged: replies reach the client.
        server.write_all(b"reply").unwrap();
        client.set_read_timeout(Some(AGAIN)).unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"reply");
        hear(&server).unwrap();
        server.set_read_timeout(Some(AGAIN)).unwrap();
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"again");
    }

    #[test]
    fn who_connects_is_neither_accepted_nor_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        be_silent(&listener).unwrap();
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = socket().connect_timeout(&address, SOON).unwrap_err();
        assert!(is_late(&error), "{error}");
        let waiting = std::thread::spawn({
            let address = address.clone();
            move || socket().connect_timeout(&address, AGAIN)
        });
        std::thread::sleep(SOON);
        hear(&listener).unwrap();
        waiting.join().unwrap().unwrap();
    }
}
