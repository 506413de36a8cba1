//! Client records in the state directory, written by a separate thread: a slow
//! disk delays only clients that need a record.

use crate::state_dir::{RecordChange, StateDir};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zgate_nfs::assurance::Assurance;
use zgate_nfs::runtime::Protection;
use zgate_nfs::v4::state::recovery::{ClientRecord, Completion, KeptRecords, RecoveryStore, Shown};
use zgate_store::StoreError;

/// Time between two log lines about records that cannot be changed: clients
/// retry meanwhile.
const LOG_PAUSE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Stored {
    name: Vec<u8>,
    minor_zero: bool,
    /// Absent in records of earlier versions, and of clients without Kerberos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    /// Absent in records of earlier versions, and of clients in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<StoredTls>,
    /// Absent in records of earlier versions, and of clients that have lost no delegation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    revoked: bool,
}

/// Proofs of a client over TLS.
#[derive(Serialize, Deserialize)]
struct StoredTls {
    verifier: [u8; 8],
    /// It has shown a certificate.
    mutual: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    users: Vec<Box<str>>,
}

impl From<Shown> for StoredTls {
    fn from(Shown { assurance, verifier }: Shown) -> Self {
        let mutual = assurance.protection() == Protection::MutualTls;
        Self { verifier, mutual, users: assurance.users().to_vec() }
    }
}

impl From<StoredTls> for Shown {
    fn from(StoredTls { verifier, mutual, users }: StoredTls) -> Self {
        let protection = if mutual { Protection::MutualTls } else { Protection::Tls };
        Self { assurance: Assurance::kept(protection, users), verifier }
    }
}

/// A change, and the receiver of its result.
type Order = (RecordChange, Completion);

/// The gateway's [`RecoveryStore`]. Its thread ends when it is dropped and all
/// changes are done.
pub(crate) struct DirRecovery {
    dir: Arc<StateDir>,
    orders: Mutex<Sender<Order>>,
}

impl DirRecovery {
    /// Starts the writing thread. Its users bound the queue: one change for
    /// each client.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(dir: Arc<StateDir>) -> io::Result<Self> {
        let (orders, incoming) = channel();
        let of_thread = Arc::clone(&dir);
        std::thread::Builder::new()
            .name("zgate-records".to_owned())
            .spawn(move || write_records(&of_thread, &incoming))?;
        Ok(Self { dir, orders: orders.into() })
    }

    fn order(&self, change: RecordChange, done: Completion) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // If the thread has ended, the change is dropped, which reports a
        // failure.
        let _ = orders.send((change, done));
    }
}

/// Writes changes to stable storage; changes that arrive during a write are
/// written together.
fn write_records(dir: &StateDir, incoming: &Receiver<Order>) {
    let mut next_line = Instant::now();
    while let Ok(first) = incoming.recv() {
        let orders = std::iter::once(first).chain(incoming.try_iter());
        let (changes, waiting): (Vec<_>, Vec<_>) = orders.unzip();
        for (outcome, done) in dir.change_clients(&changes).into_iter().zip(waiting) {
            done.report(outcome.map_err(|error| {
                if Instant::now() >= next_line {
                    tracing::error!(%error, "client record");
                    next_line = Instant::now() + LOG_PAUSE;
                }
                StoreError::Io
            }));
        }
    }
}

impl RecoveryStore for DirRecovery {
    fn load(&self) -> KeptRecords {
        let mut kept = KeptRecords::default();
        let damage = |error: &dyn std::fmt::Display| {
            tracing::error!(
                %error,
                "cannot read client records: their clients cannot reclaim, and the grace period \
                 lasts its full time; restore the file, or remove it once all clients are back"
            );
        };
        let found = self.dir.clients().unwrap_or_else(|error| vec![Err(error)]);
        for raw in found {
            let read = raw.and_then(|(path, raw)| {
                serde_json::from_slice::<Stored>(&raw).map_err(|error| {
                    io::Error::other(format!("{} is damaged: {error}", path.display()))
                })
            });
            match read {
                Ok(Stored { name, minor_zero, principal, tls, revoked }) => {
                    let shown = tls.map(Shown::from);
                    let record = ClientRecord { name, minor_zero, principal, shown, revoked };
                    kept.records.push(record);
                }
                Err(error) => {
                    damage(&error);
                    kept.damaged = true;
                }
            }
        }
        kept
    }

    fn put(&self, record: ClientRecord, done: Completion) {
        let stored = Stored {
            name: record.name.clone(),
            minor_zero: record.minor_zero,
            principal: record.principal,
            tls: record.shown.map(StoredTls::from),
            revoked: record.revoked,
        };
        // Bytes, truth values and texts always have a JSON form; otherwise the change is
        // dropped, which reports a failure.
        if let Ok(content) = serde_json::to_vec(&stored) {
            self.order(RecordChange::Put { name: record.name, content }, done);
        }
    }

    fn remove(&self, name: Vec<u8>, done: Completion) {
        self.order(RecordChange::Remove { name }, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_store::StoreResult;

    fn record(number: u32) -> ClientRecord {
        let assurance = match number % 4 {
            0 => Assurance::default(),
            1 => Assurance::kept(Protection::Tls, Vec::new()),
            2 => Assurance::kept(Protection::MutualTls, Vec::new()),
            _ => Assurance::kept(Protection::MutualTls, vec![format!("user:{number}").into()]),
        };
        ClientRecord {
            name: number.to_be_bytes().to_vec(),
            minor_zero: number.is_multiple_of(2),
            principal: number.is_multiple_of(3).then(|| format!("host/{number}@R")),
            shown: Shown::of(&assurance, [number as u8; 8]),
            revoked: number.is_multiple_of(5),
        }
    }

    fn ordered(begin: impl FnOnce(Completion)) -> Receiver<StoreResult<()>> {
        let (tell, told) = channel();
        begin(Completion::new(move |outcome| tell.send(outcome).unwrap()));
        told
    }

    #[test]
    fn records_are_there_when_their_end_is_reported() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(StateDir::open(scratch.path()).unwrap());
        let store = DirRecovery::start(Arc::clone(&dir)).unwrap();
        let told: Vec<_> = (0..50).map(|n| ordered(|done| store.put(record(n), done))).collect();
        for outcome in told {
            assert_eq!(outcome.recv().unwrap(), Ok(()));
        }
        let mut kept = store.load();
        kept.records.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(!kept.damaged);
        assert_eq!(kept.records, (0..50).map(record).collect::<Vec<_>>());
        let gone = (0..49).map(|n| ordered(|done| store.remove(record(n).name, done)));
        for outcome in gone.collect::<Vec<_>>() {
            assert_eq!(outcome.recv().unwrap(), Ok(()));
        }
        assert_eq!(store.load().records, [record(49)]);
    }

    #[test]
    fn a_record_of_an_earlier_version_names_nobody() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(StateDir::open(scratch.path()).unwrap());
        let content = br#"{"name":[7],"minor_zero":true}"#.to_vec();
        let written = dir.change_clients(&[RecordChange::Put { name: vec![7], content }]);
        assert!(written.into_iter().all(|outcome| outcome.is_ok()));
        let kept = DirRecovery::start(dir).unwrap().load();
        assert!(!kept.damaged);
        let (name, minor_zero) = (vec![7], true);
        let (principal, shown, revoked) = (None, None, false);
        assert_eq!(kept.records, [ClientRecord { name, minor_zero, principal, shown, revoked }]);
    }

    #[test]
    fn a_record_that_cannot_be_written_fails_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(StateDir::open(scratch.path()).unwrap());
        let store = DirRecovery::start(Arc::clone(&dir)).unwrap();
        assert_eq!(ordered(|done| store.put(record(1), done)).recv().unwrap(), Ok(()));
        let path = fs_path(scratch.path());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let failed = ordered(|done| store.put(record(1), done));
        let written = ordered(|done| store.put(record(2), done));
        assert_eq!(failed.recv().unwrap(), Err(StoreError::Io));
        assert_eq!(written.recv().unwrap(), Ok(()));
        let kept = store.load();
        assert!(kept.damaged, "a directory is no record");
        assert_eq!(kept.records, [record(2)], "what can be read may reclaim");
    }

    /// Returns the path of the only record.
    fn fs_path(state: &std::path::Path) -> std::path::PathBuf {
        let mut records = std::fs::read_dir(state.join("clients")).unwrap();
        records.next().unwrap().unwrap().path()
    }
}
