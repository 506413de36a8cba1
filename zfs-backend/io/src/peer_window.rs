//! Largest window that the peer of a TCP socket can ever announce (TCP_INFO).

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd};

/// Largest window without scaling, in bytes (RFC 7323 section 2.2).
const UNSCALED_BYTES: u64 = 65_535;

/// Returns the largest window that the peer of a connected socket can announce, in bytes.
/// Its scale is fixed by the handshake, for which a peer chooses it to fit its receive buffer.
///
/// # Errors
/// The error of getsockopt(2), for what is no TCP socket.
#[allow(unsafe_code)]
pub fn largest_window_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, all of which are live.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) <= offset_of!(libc::tcp_info, tcpi_snd_rcv_wscale) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: it is a struct of integers, and all of it was zeroed before the kernel wrote.
    let info = unsafe { info.assume_init() };
    // The lower half is the peer's scale, 14 at most.
    Ok(UNSCALED_BYTES << (info.tcpi_snd_rcv_wscale & 0xf))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn the_window_is_what_the_receive_buffer_of_the_peer_allows() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let peer = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 100_000).unwrap();
        rustix::net::connect(&peer, &address).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let of_small_buffer = largest_window_bytes(&socket).unwrap();
        assert!((65_535..1 << 19).contains(&of_small_buffer), "{of_small_buffer}");

        let _peer = TcpStream::connect(address).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(largest_window_bytes(&socket).unwrap() > of_small_buffer);

        let (no_socket, _pipe) = std::io::pipe().unwrap();
        assert!(largest_window_bytes(no_socket).is_err());
    }
}
