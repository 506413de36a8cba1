//! Registration with the machine's port mapper (RFC 1833, version 2), for NFSv3
//! clients that query it instead of using `port=` and `mountport=`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use zgate_loader::blocking::Connection;
use zgate_rpc::Credential;
use zgate_xdr::{Encode, Encoder};

const PORT_MAPPER: (u32, u32) = (100_000, 2);
/// Port of rpcbind.
pub const PORT: u16 = 111;
const SET: u32 = 1;
const UNSET: u32 = 2;
const TCP: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(5);

/// Program and version of all services on the NFS port.
const SERVED: [(u32, u32); 3] = [
    (zgate_nfs_wire::PROGRAM, zgate_nfs_wire::v3::VERSION),
    (zgate_nfs_wire::PROGRAM, zgate_nfs_wire::v4::VERSION),
    (zgate_nfs_wire::mount::PROGRAM, zgate_nfs_wire::mount::VERSION),
];

/// The `mapping` structure of RFC 1833 §3.1.
struct Mapping {
    program: u32,
    version: u32,
    port: u16,
}

impl Encode for Mapping {
    fn encode(&self, e: &mut Encoder) {
        for word in [self.program, self.version, TCP, u32::from(self.port)] {
            e.u32(word);
        }
    }
}

fn ask(
    mapper: SocketAddr,
    procedure: u32,
    (program, version): (u32, u32),
    port: u16,
) -> io::Result<bool> {
    let other = |error: zgate_loader::ClientError| io::Error::other(error.to_string());
    let mut connection = Connection::connect(mapper, PATIENCE).map_err(other)?;
    let target = (PORT_MAPPER.0, PORT_MAPPER.1, procedure);
    let answer = connection.call(target, &Credential::None, &Mapping { program, version, port });
    Ok(answer.map_err(other)?.first_chunk::<4>() == Some(&[0, 0, 0, 1]))
}

fn register_at(mapper: SocketAddr, port: u16) -> io::Result<()> {
    for (program, version) in SERVED {
        // A registration left behind by a crashed server would refuse ours.
        ask(mapper, UNSET, (program, version), 0)?;
        if !ask(mapper, SET, (program, version), port)? {
            let what = format!("rpcbind refused program {program} version {version}");
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}

/// Registers the NFS port. Clients that specify the port do not need the
/// registration, so a failure is only logged.
pub(crate) fn register(port: u16) {
    let mapper = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    match register_at(mapper, port) {
        Ok(()) => tracing::info!(port, "registered with rpcbind"),
        Err(error) => {
            tracing::warn!(%error, "cannot register with rpcbind; clients must specify the port");
        }
    }
}

/// Removes the registration.
pub(crate) fn unregister() {
    let mapper = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    for served in SERVED {
        if let Err(error) = ask(mapper, UNSET, served, 0) {
            tracing::debug!(%error, "rpcbind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A port mapper that accepts everything and records its requests.
    fn mapper() -> (SocketAddr, std::thread::JoinHandle<Vec<Vec<u32>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..2 * SERVED.len() {
                let (mut stream, _) = listener.accept().unwrap();
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).unwrap();
                let mut raw = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
                stream.read_exact(&mut raw).unwrap();
                let words: Vec<u32> =
                    raw.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect();
                let reply: Vec<u8> = [0x8000_001c, words[0], 1, 0, 0, 0, 0, 1]
                    .iter()
                    .flat_map(|word: &u32| word.to_be_bytes())
                    .collect();
                stream.write_all(&reply).unwrap();
                asked.push(words);
            }
            asked
        });
        (address, thread)
    }

    #[test]
    fn everything_served_is_registered_after_what_was_left_is_removed() {
        let (address, asked) = mapper();
        register_at(address, 2049).unwrap();
        let asked = asked.join().unwrap();
        assert_eq!(asked[0][3..6], [100_000, 2, UNSET]);
        assert_eq!(asked[1][3..6], [100_000, 2, SET]);
        assert_eq!(asked[1][10..], [100_003, 3, TCP, 2049]);
        assert_eq!(asked[5][10..], [100_005, 3, TCP, 2049]);
    }

    #[test]
    fn a_machine_without_a_port_mapper_is_said() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        assert!(register_at(free, 2049).is_err());
    }
}
