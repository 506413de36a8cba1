//! Records of mounts, for DUMP. Informational only (RFC 1813 §5.2.2): clients
//! that crash never unmount, so the oldest records are dropped.

use crate::limits::MAX_MOUNT_RECORDS;
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
}

/// All recorded mounts, oldest first.
#[derive(Debug, Default)]
pub struct MountRecords {
    records: Mutex<VecDeque<MountRecord>>,
}

impl MountRecords {
    /// Records a mount.
    pub fn add(&self, record: MountRecord) {
        let mut records = self.lock();
        if records.contains(&record) {
            return;
        }
        if records.len() >= MAX_MOUNT_RECORDS {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Removes a mount.
    pub fn remove(&self, record: &MountRecord) {
        self.lock().retain(|known| known != record);
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
        };
        for index in 0..MAX_MOUNT_RECORDS + 5 {
            records.add(record(index));
            records.add(record(index));
        }
        let all = records.all();
        assert_eq!(all.len(), MAX_MOUNT_RECORDS);
        assert_eq!(all[0], record(5));
        records.remove(&record(5));
        assert_eq!(records.all().len(), MAX_MOUNT_RECORDS - 1);
        records.remove_client(record(0).client);
        assert!(records.all().is_empty());
    }
}
