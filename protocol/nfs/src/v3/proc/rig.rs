//! Test server on a tree in memory, and calls like those of a client.

use crate::changes::ChangeGuard;
use crate::namespace::export::Versions;
use crate::namespace::{
    AbsentExport, ClientRule, Export, ExportId, FileHandle, HeldNamespace, Namespace,
};
use crate::runtime::{Call, ConnectionId, Peer};
use crate::v3::guard::{BorrowingFuture, Change, ConflictGuard, NoConflicts};
use crate::v3::{NamespaceSource, Server};
use crate::write_verifier::WriteVerifier;
use bytes::Bytes;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use zgate_memory::MemoryStore;
use zgate_nfs_wire::v3::proc::{Create, GetAttr, Lookup, MkDir, Read, Symlink, Write};
use zgate_nfs_wire::v3::proc::{create, mkdir, read, symlink, write};
use zgate_nfs_wire::v3::{Attributes, DirOpArgs, Fh3, Name3, SetAttributes, StableHow, Status};
use zgate_rpc::{AcceptError, AuthSys, Credential};
use zgate_store::{NodeHandle, Payload};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Runs a future that never waits for long.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// A guard that refuses access: to everything, or to one object.
#[derive(Debug)]
struct Held(Option<Fh3>);

impl Held {
    fn answer<'a>(&self, export: ExportId, node: NodeHandle) -> BorrowingFuture<'a, bool> {
        let asked = Fh3(FileHandle::Node(export, node).to_fh().0);
        let free = self.0.as_ref().is_some_and(|held| *held != asked);
        Box::pin(std::future::ready(free))
    }
}

impl ConflictGuard for Held {
    fn idle(&self) -> bool {
        false
    }
    fn begin_change_of_name(&self, _: &Export) -> Option<ChangeGuard> {
        None
    }
    fn begin_change(&self, _: &Export, _: NodeHandle) -> ChangeGuard {
        ChangeGuard::uncounted()
    }
    fn before_change<'a>(
        &'a self,
        _: &'a Call,
        e: &Export,
        n: NodeHandle,
        _: Change,
    ) -> BorrowingFuture<'a, bool> {
        self.answer(e.id, n)
    }
    fn before_read<'a>(
        &'a self,
        _: &'a Call,
        e: &Export,
        n: NodeHandle,
    ) -> BorrowingFuture<'a, bool> {
        self.answer(e.id, n)
    }
}

/// A call by root from one host.
pub(crate) fn a_call() -> Call {
    Call {
        peer: Peer {
            address: [192, 0, 2, 7].into(),
            port: 700,
            connection: ConnectionId(1),
            rdma: false,
            protection: Default::default(),
            kernel_encrypts: false,
            certificate: None,
        },
        credential: Credential::Sys(AuthSys::default()),
        xid: 1,
        span_allowed: false,
        entered: Default::default(),
        refused: Default::default(),
        groups: None,
    }
}

/// An export of a tree in memory at `/export`, open to everyone.
pub(crate) fn an_export() -> Export {
    Export {
        id: ExportId::from_pseudo_path("/export"),
        pseudo_path: "/export".to_owned(),
        source: "/tank/data".to_owned(),
        store: Arc::new(MemoryStore::new()),
        clients: vec![ClientRule::open_to_all()],
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        reserved_port_only: false,
        shares_files: false,
        delegations: true,
        delegated_times: false,
    }
}

/// A source that always returns the same exports.
pub(crate) fn source_of(exports: Vec<Export>) -> NamespaceSource {
    let exports = exports.into_iter().map(Arc::new).collect();
    let namespace = HeldNamespace::new(Namespace::new(exports, 1).unwrap());
    Arc::new(move || namespace.clone())
}

/// The server and its only export.
pub(crate) struct Rig {
    pub(crate) server: Server,
    root: Fh3,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Export)) -> Self {
        let mut export = an_export();
        change(&mut export);
        let root = Fh3(FileHandle::Node(export.id, export.store.root()).to_fh().0);
        let server = Server {
            namespace: source_of(vec![export]),
            write_verifier: WriteVerifier::new(*b"verifier"),
            guard: Arc::new(NoConflicts),
        };
        Self { server, root }
    }

    /// The same server while its export's tree cannot be opened.
    pub(crate) fn away(mut self, versions: Versions) -> Self {
        let Export { id, pseudo_path, clients, tcp, rdma, .. } = an_export();
        let absent = AbsentExport { id, pseudo_path, clients, versions, tcp, rdma };
        let namespace = Namespace::new(Vec::new(), 1).unwrap().with_absent(vec![absent]).unwrap();
        let namespace = HeldNamespace::new(namespace);
        self.server.namespace = Arc::new(move || namespace.clone());
        self
    }

    /// The same server before it knows any export.
    pub(crate) fn unknown(mut self) -> Self {
        let namespace = Namespace::new(Vec::new(), 1).unwrap().with_incomplete(true);
        let namespace = HeldNamespace::new(namespace);
        self.server.namespace = Arc::new(move || namespace.clone());
        self
    }

    /// The same tree while NFSv4 clients hold everything.
    pub(crate) fn held(mut self) -> Self {
        self.server.guard = Arc::new(Held(None));
        self
    }

    /// The same tree while NFSv4 clients hold one object.
    pub(crate) fn held_only(mut self, object: &Fh3) -> Self {
        self.server.guard = Arc::new(Held(Some(object.clone())));
        self
    }

    pub(crate) fn root(&self) -> Fh3 {
        self.root.clone()
    }

    pub(crate) fn verifier(&self) -> [u8; 8] {
        *b"verifier"
    }

    /// Sends bytes as arguments and returns the bytes of the result.
    pub(crate) fn raw(&self, procedure: u32, args: &[u8]) -> Result<Vec<u8>, AcceptError> {
        let mut e = Encoder::new();
        let call = a_call();
        let mut d = Decoder::new(args);
        let outcome = block_on(self.server.handle(&call, procedure, &mut d, &mut e));
        let bytes = e.finish().flatten().unwrap().to_vec();
        assert!(outcome.is_ok() || bytes.is_empty(), "a failure writes nothing");
        outcome.map(|()| bytes)
    }

    /// Calls a procedure over the wire.
    pub(crate) fn call<P: zgate_nfs_wire::v3::Procedure>(
        &self,
        args: &P::Args,
    ) -> Result<P::Ok, Box<(Status, P::Fail)>> {
        let mut e = Encoder::new();
        args.encode(&mut e);
        let args = e.finish().flatten().unwrap();
        let result = self.raw(P::NUMBER, &args).unwrap();
        let mut d = Decoder::new(&result);
        let decoded = match Status::decode(&mut d).unwrap() {
            Status::Ok => Ok(P::Ok::decode(&mut d).unwrap()),
            status => Err(Box::new((status, P::Fail::decode(&mut d).unwrap()))),
        };
        d.finish().unwrap();
        decoded
    }

    fn at_root(&self, name: &str) -> DirOpArgs {
        DirOpArgs { dir: self.root(), name: Name3::from(name.as_bytes()) }
    }

    /// Creates a file with contents in the root.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> Fh3 {
        let attributes = SetAttributes { mode: Some(0o644), ..Default::default() };
        let how = create::How::Guarded(attributes);
        let dir_op = self.at_root(name);
        let Ok(created) = self.call::<Create>(&create::Args { dir_op, how }) else {
            panic!("{name} was not created")
        };
        let file = created.fh.unwrap();
        if !content.is_empty() {
            let args = write::Args {
                file: file.clone(),
                offset: 0,
                count: content.len() as u32,
                stable: StableHow::Unstable,
                data: Bytes::copy_from_slice(content),
            };
            // An export with a small transfer limit takes several.
            let mut done = 0;
            while done < content.len() {
                let rest = args.data.slice(done..);
                let args = write::Args {
                    offset: done as u64,
                    count: rest.len() as u32,
                    data: rest,
                    ..args.clone()
                };
                let Ok(written) = self.call::<Write>(&args) else { panic!("{name} not written") };
                done += written.count as usize;
            }
        }
        file
    }

    /// Creates a directory in the root.
    pub(crate) fn dir(&self, name: &str) -> Fh3 {
        let attributes = SetAttributes { mode: Some(0o755), ..Default::default() };
        let args = mkdir::Args { dir_op: self.at_root(name), attributes };
        self.call::<MkDir>(&args).unwrap().fh.unwrap()
    }

    /// Creates a symbolic link in the root.
    pub(crate) fn symlink(&self, name: &str, target: &str) -> Fh3 {
        let args = symlink::Args {
            dir_op: self.at_root(name),
            attributes: SetAttributes::default(),
            target: target.as_bytes().into(),
        };
        self.call::<Symlink>(&args).unwrap().fh.unwrap()
    }

    pub(crate) fn attributes(&self, object: &Fh3) -> Attributes {
        self.call::<GetAttr>(object).unwrap()
    }

    pub(crate) fn lookup(&self, dir: &Fh3, name: &str) -> Result<Fh3, Status> {
        let args = DirOpArgs { dir: dir.clone(), name: Name3::from(name.as_bytes()) };
        self.call::<Lookup>(&args).map(|found| found.fh).map_err(|failed| failed.0)
    }

    pub(crate) fn content(&self, file: &Fh3) -> Vec<u8> {
        let args = read::Args { file: file.clone(), offset: 0, count: 1 << 20 };
        let data = self.call::<Read>(&args).map_err(|failed| failed.0).unwrap();
        let Payload::Bytes(bytes) = data.data else { panic!("the call requested bytes") };
        bytes.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::table::TABLE;
    use zgate_fuzz::{Dice, target};

    target!(any_bytes_get_an_answer, 300, any_bytes);
    target!(any_arguments_get_an_answer, 160, any_arguments);

    fn any_bytes(dice: &mut Dice<'_>) {
        let (rig, bytes) = (Rig::new(), dice.rest());
        for procedure in 0..23 {
            let _ = rig.raw(procedure, bytes);
        }
    }

    /// With a valid handle, so that the other arguments are used, too.
    fn any_arguments(dice: &mut Dice<'_>) {
        let rig = Rig::new();
        let file = if dice.once_in(2) { rig.file("f", b"content") } else { rig.root() };
        let mut e = Encoder::new();
        file.encode(&mut e);
        while !dice.is_spent() {
            e.u32(if dice.once_in(2) { dice.u32() } else { dice.below(5) as u32 });
        }
        let args = e.finish().flatten().unwrap();
        for row in &TABLE {
            if let Ok(result) = rig.raw(row.number, &args) {
                assert!(row.number == 0 || result.len() >= 4);
            }
        }
    }
}
