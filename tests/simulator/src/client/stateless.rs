//! An NFSv3 client.

use super::{Files, NameChange, Named, Wire, Written};
use crate::gateway::Gateway;
use bytes::Bytes;
use std::sync::Arc;
use zgate_nfs_wire::v3::proc::{self, commit, mkdir, read, rename, write};
use zgate_nfs_wire::v3::{
    DirOpArgs, Fh3, Name3, Procedure, SetAttributes, StableHow, Status, VERSION,
};
use zgate_nfs_wire::v4::{Fh, Verifier};
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// A client of NFSv3.
pub struct StatelessClient {
    /// Its transport.
    pub wire: Wire,
    files: Files,
    gateway: Arc<Gateway>,
}

/// Result of a call.
struct Called<T> {
    result: Result<T, Status>,
    /// It may have run more than once: it was sent to two starts of the server.
    restarted: bool,
}

fn fh3(fh: &Fh) -> Fh3 {
    Fh3(fh.0.clone())
}

impl StatelessClient {
    /// A client that knows the handles, as if it had mounted the export.
    #[must_use]
    pub fn new(wire: Wire, files: Files, gateway: &Arc<Gateway>) -> Self {
        Self { wire, files, gateway: Arc::clone(gateway) }
    }

    /// True if the server is away, or in grace.
    pub(super) fn is_grace(&self) -> bool {
        self.gateway.totals().is_none_or(|(totals, _)| totals.grace_seconds > 0)
    }

    /// Calls a procedure; again with another transaction id if the server asks
    /// for patience.
    async fn call<P: Procedure>(&self, args: &P::Args) -> Called<P::Ok>
    where
        P::Args: Sync,
    {
        let body = {
            let mut e = Encoder::new();
            args.encode(&mut e);
            e.finish().flatten().unwrap_or_default()
        };
        // Of any attempt so far: a server that asks for patience does not tell what the
        // one before it did.
        let mut restarted = false;
        loop {
            let first_server = self.gateway.running();
            let answer = self.wire.call(VERSION, P::NUMBER, &body).await;
            restarted |= answer.sent > 1
                && (first_server.is_none() || self.gateway.running() != first_server);
            let mut d = Decoder::new(&answer.body);
            let status = Status::decode(&mut d)
                .unwrap_or_else(|error| panic!("{} has no status: {error}", P::NAME));
            if status == Status::Jukebox {
                self.wire.pause().await;
                continue;
            }
            let result = if status == Status::Ok {
                let decoded = P::Ok::decode(&mut d);
                Ok(decoded.unwrap_or_else(|error| panic!("{} answers badly: {error}", P::NAME)))
            } else {
                Err(status)
            };
            return Called { result, restarted };
        }
    }

    /// WRITE.
    pub async fn write(&self, file: usize, offset: u64, data: &[u8], stable: bool) -> Written {
        let args = write::Args {
            file: fh3(&self.files.own[file]),
            offset,
            count: data.len() as u32,
            stable: if stable { StableHow::FileSync } else { StableHow::Unstable },
            data: Bytes::copy_from_slice(data),
        };
        match self.call::<proc::Write>(&args).await.result {
            Ok(done) if done.count as usize == data.len() => Written::Done {
                stable: done.committed != StableHow::Unstable,
                verifier: done.verifier,
            },
            Ok(_) | Err(Status::Io | Status::NoSpc) => Written::Failed,
            Err(status) => panic!("WRITE: {status:?}"),
        }
    }

    /// COMMIT; `None` if it failed.
    pub async fn commit(&self, file: usize) -> Option<Verifier> {
        let args = commit::Args { file: fh3(&self.files.own[file]), offset: 0, count: 0 };
        match self.call::<proc::Commit>(&args).await.result {
            Ok(done) => Some(done.verifier),
            Err(Status::Io | Status::NoSpc) => None,
            Err(status) => panic!("COMMIT: {status:?}"),
        }
    }

    /// READ; `None` if it failed.
    pub async fn read(&self, file: usize, offset: u64, count: u32) -> Option<Bytes> {
        let args = read::Args { file: fh3(&self.files.own[file]), offset, count };
        match self.call::<proc::Read>(&args).await.result {
            Ok(done) => match done.data {
                Payload::Bytes(bytes) => Some(bytes),
                _ => panic!("a store in memory has no spans"),
            },
            Err(Status::Io) => None,
            Err(status) => panic!("READ: {status:?}"),
        }
    }

    /// MKDIR, RMDIR, RENAME.
    pub async fn change(&self, change: &NameChange) -> Named {
        let at = |name: &str| DirOpArgs {
            dir: fh3(&self.files.root),
            name: Name3::from(name.as_bytes()),
        };
        let (result, restarted) = match change {
            NameChange::Make(name) => {
                let attributes = SetAttributes { mode: Some(0o755), ..Default::default() };
                let args = mkdir::Args { dir_op: at(name), attributes };
                let called = self.call::<proc::MkDir>(&args).await;
                (called.result.map(|_| ()), called.restarted)
            }
            NameChange::Remove(name) => {
                let called = self.call::<proc::RmDir>(&at(name)).await;
                (called.result.map(|_| ()), called.restarted)
            }
            NameChange::Rename(from, to) => {
                let args = rename::Args { from: at(from), to: at(to) };
                let called = self.call::<proc::Rename>(&args).await;
                (called.result.map(|_| ()), called.restarted)
            }
        };
        match result {
            _ if restarted => Named::Unknown,
            Ok(()) => Named::Done,
            Err(Status::Exist) => Named::Exists,
            Err(Status::NoEnt) => Named::Absent,
            Err(Status::Io | Status::NoSpc) => Named::Failed,
            Err(status) => panic!("{change:?}: {status:?}"),
        }
    }
}
