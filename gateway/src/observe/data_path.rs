//! Evidence of zero copy: for each transport and direction, the bytes of file
//! and block data transferred, and the bytes of them that this process copied
//! from one place of its memory to another.
//!
//! Reading from a file into a buffer, `sendfile`, and the kernel's work on a
//! socket are the transfer itself and not copies. Headers are not data.

use super::sharded::Sharded;
use std::sync::atomic::{AtomicU64, Ordering};
use utoipa::ToSchema;

/// Transport of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// NFS over TCP.
    Tcp,
    /// NFS over RDMA.
    Rdma,
    /// iSCSI over TCP.
    Iscsi,
    /// iSCSI over RDMA (RFC 7145).
    Iser,
}

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataDirection {
    /// From storage to the client.
    Read,
    /// From the client to storage.
    Write,
}

const TRANSPORTS: [(Transport, &str); 4] = [
    (Transport::Tcp, "tcp"),
    (Transport::Rdma, "rdma"),
    (Transport::Iscsi, "iscsi"),
    (Transport::Iser, "iser"),
];
const DIRECTIONS: [(DataDirection, &str); 2] =
    [(DataDirection::Read, "read"), (DataDirection::Write, "write")];

#[derive(Debug, Default)]
struct Cell {
    moved: AtomicU64,
    copied: AtomicU64,
}

/// The counters of one shard of the threads.
#[derive(Debug, Default)]
struct Cells([[Cell; DIRECTIONS.len()]; TRANSPORTS.len()]);

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct DataPath {
    cells: Sharded<Cells>,
}

/// Snapshot of one transport's counters in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
pub(crate) struct DataFigures {
    pub transport: &'static str,
    pub direction: &'static str,
    pub moved_bytes: u64,
    pub copied_bytes: u64,
}

impl DataPath {
    /// Counts transferred and copied bytes. A byte that is copied twice counts
    /// twice.
    pub(crate) fn carried(
        &self,
        transport: Transport,
        direction: DataDirection,
        moved_bytes: usize,
        copied_bytes: usize,
    ) {
        if moved_bytes == 0 && copied_bytes == 0 {
            return;
        }
        let cell = &self.cells.here().0[transport as usize][direction as usize];
        if moved_bytes > 0 {
            cell.moved.fetch_add(moved_bytes as u64, Ordering::Relaxed);
        }
        if copied_bytes > 0 {
            cell.copied.fetch_add(copied_bytes as u64, Ordering::Relaxed);
        }
    }

    /// Returns all counters, including those that are zero.
    pub(crate) fn figures(&self) -> Vec<DataFigures> {
        let mut figures = Vec::with_capacity(TRANSPORTS.len() * DIRECTIONS.len());
        for (transport, transport_name) in TRANSPORTS {
            for (direction, direction_name) in DIRECTIONS {
                let sum = |number: fn(&Cell) -> &AtomicU64| {
                    let cell = |cells: &Cells| {
                        let cell = &cells.0[transport as usize][direction as usize];
                        number(cell).load(Ordering::Relaxed)
                    };
                    self.cells.sum(cell)
                };
                figures.push(DataFigures {
                    transport: transport_name,
                    direction: direction_name,
                    moved_bytes: sum(|cell| &cell.moved),
                    copied_bytes: sum(|cell| &cell.copied),
                });
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_and_direction_has_its_own() {
        let path = DataPath::default();
        path.carried(Transport::Rdma, DataDirection::Write, 4096, 0);
        path.carried(Transport::Iser, DataDirection::Read, 512, 100);
        let figures = path.figures();
        assert_eq!(figures.len(), 8);
        let of = |transport: &str, direction: &str| {
            let found =
                figures.iter().find(|one| (one.transport, one.direction) == (transport, direction));
            found.map(|one| (one.moved_bytes, one.copied_bytes)).unwrap()
        };
        assert_eq!(of("rdma", "write"), (4096, 0));
        assert_eq!(of("iser", "read"), (512, 100));
        assert_eq!(of("tcp", "read"), (0, 0));
    }
}
