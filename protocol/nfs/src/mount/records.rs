//! Records of mounts, for DUMP. Informational only (RFC 1813 §5.2.2): clients
//! that crash never unmount, so the oldest records are dropped.

use crate::limits::MAX_MOUNT_RECORDS;
use crate::namespace::ExportId;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// The client.
    pub client: IpAddr,
    /// The requested path.
    pub path: Vec<u8>,
    /// The export that it led to: the path may lead elsewhere by now, and to look for it
    /// takes as long as there are exports.
    pub export: ExportId,
}

impl MountRecord {
    /// Returns whether it is the record of this client's mount of a path.
    fn is_of(&self, client: IpAddr, path: &[u8]) -> bool {
        self.client == client && self.path == path
    }
}

/// All recorded mounts, oldest first.
#[derive(Debug, Default)]
pub struct MountRecords {
    records: Mutex<VecDeque<MountRecord>>,
}

impl MountRecords {
    /// Records a mount. A client has one for each path.
    pub fn add(&self, record: MountRecord) {
        let mut records = self.lock();
        let known = records.iter_mut().find(|known| known.is_of(record.client, &record.path));
        if let Some(known) = known {
            known.export = record.export;
            return;
        }
        if records.len() >= MAX_MOUNT_RECORDS {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Removes a client's mount of a path.
    pub fn remove(&self, client: IpAddr, path: &[u8]) {
        self.lock().retain(|known| !known.is_of(client, path));
    }

    /// Removes all mounts of a client.
    pub fn remove_client(&self, client: IpAddr) {
        self.lock().retain(|known| known.client != client);
    }

    /// All mounts.
    #[must_use]
    pub fn all(&self) -> Vec<MountRecord> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<MountRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_give_way() {
        let records = MountRecords::default();
        let record = |index: usize| MountRecord {
            client: IpAddr::from([10, 0, 0, 1]),
            path: index.to_string().into_bytes(),
            export: ExportId(1),
        };
        for index in 0..MAX_MOUNT_RECORDS + 5 {
            records.add(record(index));
            records.add(record(index));
        }
        let all = records.all();
        assert_eq!(all.len(), MAX_MOUNT_RECORDS);
        assert_eq!(all[0], record(5));
        records.remove(record(5).client, &record(5).path);
        assert_eq!(records.all().len(), MAX_MOUNT_RECORDS - 1);
        records.remove_client(record(0).client);
        assert!(records.all().is_empty());
    }

    #[test]
    fn a_path_that_leads_elsewhere_now_is_recorded_once() {
        let records = MountRecords::default();
        let client = IpAddr::from([10, 0, 0, 1]);
        let record = |export| MountRecord { client, path: b"/a".to_vec(), export };
        records.add(record(ExportId(1)));
        records.add(record(ExportId(2)));
        assert_eq!(records.all(), [record(ExportId(2))]);
    }
}
