//! Network between two virtual machines: Ethernet frames in datagrams of two
//! sockets, so that nothing of the host's network is used or needed.

use std::io;
use std::path::PathBuf;

/// Longest IP packet, in bytes: jumbo frames, as in storage networks.
const MTU_BYTES: u32 = 9000;

/// Role of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Machine with the gateway; runs the plan.
    A,
    /// Client machine; executes commands of the first one.
    B,
}

impl Host {
    /// Returns its name in the guest's kernel arguments.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A network, removed on drop.
#[derive(Debug)]
pub(crate) struct Wire {
    dir: tempfile::TempDir,
}

impl Wire {
    /// Creates a network.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { dir: tempfile::Builder::new().prefix("zgate-lab-wire-").tempdir()? })
    }

    fn socket(&self, host: Host) -> PathBuf {
        self.dir.path().join(host.letter())
    }

    /// Returns the emulator's arguments that connect a machine to it.
    pub(crate) fn arguments(&self, host: Host) -> [String; 4] {
        let letter = host.letter();
        [
            "-netdev".to_owned(),
            format!(
                "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                self.socket(host).display(),
                self.socket(host.other()).display()
            ),
            "-device".to_owned(),
            format!(
                "virtio-net-pci,netdev=wire,mac=52:54:00:09:00:0{letter},host_mtu={MTU_BYTES},romfile="
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_sends_where_the_other_listens() {
        let wire = Wire::new().unwrap();
        let [_, a, _, _] = wire.arguments(Host::A);
        let [_, b, _, _] = wire.arguments(Host::B);
        let end = |text: &str, key: &str| {
            text.split(',').find_map(|part| part.strip_prefix(key)).unwrap().to_owned()
        };
        assert_eq!(end(&a, "remote.path="), end(&b, "local.path="));
        assert_eq!(end(&b, "remote.path="), end(&a, "local.path="));
    }
}
