//! Number of sent bytes that the peer of a TCP socket has not acknowledged (SIOCOUTQ).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the bytes that the socket has accepted and the peer has not acknowledged.
///
/// # Errors
/// The error of ioctl(2), for what is no TCP socket.
#[allow(unsafe_code)]
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which is live.
    let status = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if status == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn what_a_peer_reads_is_acknowledged() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged_bytes(&writer).unwrap(), 0);
        writer.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(more) = writer.write(&[0; 65536]) {
            sent += more as u64;
        }
        let before = unacknowledged_bytes(&writer).unwrap();
        assert!(before > 0 && before < sent, "{before} of {sent}");
        reader.read_exact(&mut vec![0; sent as usize]).unwrap();
        let begun = std::time::Instant::now();
        while unacknowledged_bytes(&writer).unwrap() > 0 {
            assert!(begun.elapsed().as_secs() < 60, "it stays unacknowledged");
            std::thread::yield_now();
        }
    }
}
