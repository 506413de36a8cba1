//! Connections to the sockets of a gateway on this machine. One that is stopped accepts
//! none: its queue fills, and whoever connects then would wait for ever.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for a place in the queue of a gateway, unless the caller names another one.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Connects to a socket of a gateway.
///
/// # Errors
/// That of the system; `TimedOut` if the gateway accepts no connection for 5 s.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    connect_within(path, CONNECT_PATIENCE)
}

/// The same within another time.
pub(super) fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // unix(7) waits this long for a place in the queue.
    socket.set_write_timeout(Some(patience))?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let reason = format!("it has accepted no connection for {} s", patience.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, reason)
        }
        _ => error,
    })?;
    socket.set_write_timeout(None)?;
    Ok(OwnedFd::from(socket).into())
}

/// Refuses the place of a socket, the setting `key`, at which a gateway listens, also one
/// that is stopped.
///
/// # Errors
/// The setting, the path and the next step.
pub(crate) fn refuse_another(path: &Path, key: &str) -> io::Result<()> {
    refuse_within(path, key, CONNECT_PATIENCE)
}

fn refuse_within(path: &Path, key: &str, patience: Duration) -> io::Result<()> {
    let state = match connect_within(path, patience) {
        Ok(_) => "answers",
        Err(error) if error.kind() == io::ErrorKind::TimedOut => "is stopped",
        Err(_) => return Ok(()),
    };
    let path = path.display();
    let reason = format!("{key}: another gateway {state} at {path}; end it, or set another path");
    Err(io::Error::new(io::ErrorKind::AddrInUse, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time in which nothing is accepted.
    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn a_gateway_whose_queue_is_full_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        refuse_within(&path, "admin_socket", SOON).unwrap();
        let stopped = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        stopped.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        stopped.listen(0).unwrap();
        let mut queue = Vec::new();
        let late = loop {
            match connect_within(&path, SOON) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
        assert!(!queue.is_empty() && late.to_string().contains("0.05 s"), "{late}");
        // Its socket is not replaced either.
        let refused = refuse_within(&path, "admin_socket", SOON).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
    }
}
