//! Number of bytes that must arrive before a reader of a socket is woken
//! (SO_RCVLOWAT).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets the low-water mark: a wait for `socket` to be readable ends when
/// `bytes` have arrived, or the peer has ended the stream. The kernel uses less
/// if the socket's buffer is smaller. A read that does not wait still returns
/// the bytes present.
///
/// # Errors
/// The error of setsockopt(2).
#[allow(unsafe_code)]
pub fn set(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    // SAFETY: the kernel reads one int, which is live.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn a_reader_sleeps_until_enough_is_there_or_the_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        set(&reader, 4).unwrap();
        writer.set_nodelay(true).unwrap();
        let writing = std::thread::spawn(move || {
            for part in [b"ab", b"cd", b"ef"] {
                writer.write_all(part).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let mut buffer = [0; 16];
        let got = reader.read(&mut buffer).unwrap();
        assert!(got >= 4, "woken for {got} bytes");
        assert_eq!(reader.read(&mut buffer).unwrap(), 6 - got);
        writing.join().unwrap();
    }
}
