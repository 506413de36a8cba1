//! Conflicts of NFSv3, which keeps no state, with the state of NFSv4 clients:
//! delegations, share reservations and locks.

use crate::changes::ChangeGuard;
use crate::namespace::Export;
use crate::runtime::Call;
use std::future::Future;
use std::pin::Pin;
use zgate_store::NodeHandle;

/// A boxed future that may borrow.
pub type BorrowingFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data or size of a file.
    Data,
    /// A name of a file: REMOVE, RENAME, LINK.
    Name,
    /// Other attributes.
    Attributes,
    /// Entries of a directory.
    Entries,
}

/// Called before NFSv3 accesses an object; implemented by the NFSv4 state.
pub trait ConflictGuard: Send + Sync {
    /// True if no client holds any state: objects then need no look-up just for
    /// the guard of a change.
    fn idle(&self) -> bool;

    /// Returns whether a change must wait for the end of grace ([`Self::end_of_grace`]).
    fn waits_for_grace(&self, _: Change) -> bool {
        false
    }

    /// Waits for the end of grace, for a short time, in which the call holds that many bytes of
    /// data. To be called before a change begins: none may keep clients from taking their
    /// delegations back.
    fn end_of_grace(&self, _: usize) -> BorrowingFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Begins a change of a name in the export, if no client could get a
    /// delegation. Otherwise `None`: the name must be looked up.
    fn begin_change_of_name(&self, export: &Export) -> Option<ChangeGuard>;

    /// Begins a change of `node`, which lasts until the returned value is
    /// dropped. To be called first, so that no delegation is granted in the
    /// meantime.
    fn begin_change(&self, export: &Export, node: NodeHandle) -> ChangeGuard;

    /// Checks for conflicts before `node` changes (including REMOVE, RENAME and
    /// LINK, RFC 8881 §10.4). Recalls conflicting delegations; `false` means
    /// that the client must retry (NFS3ERR_JUKEBOX).
    fn before_change<'a>(
        &'a self,
        call: &'a Call,
        export: &Export,
        node: NodeHandle,
        what: Change,
    ) -> BorrowingFuture<'a, bool>;

    /// Checks for conflicts before data of `node` is read (a write delegation
    /// may hide newer data).
    fn before_read<'a>(
        &'a self,
        call: &'a Call,
        export: &Export,
        node: NodeHandle,
    ) -> BorrowingFuture<'a, bool>;
}

/// The guard of a server without NFSv4.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConflicts;

impl ConflictGuard for NoConflicts {
    fn idle(&self) -> bool {
        true
    }

    fn begin_change_of_name(&self, _: &Export) -> Option<ChangeGuard> {
        Some(ChangeGuard::uncounted())
    }

    fn begin_change(&self, _: &Export, _: NodeHandle) -> ChangeGuard {
        ChangeGuard::uncounted()
    }

    fn before_change<'a>(
        &'a self,
        _: &'a Call,
        _: &Export,
        _: NodeHandle,
        _: Change,
    ) -> BorrowingFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn before_read<'a>(
        &'a self,
        _: &'a Call,
        _: &Export,
        _: NodeHandle,
    ) -> BorrowingFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}

#[cfg(test)]
mod tests {
    use crate::v3::proc::rig::Rig;
    use bytes::Bytes;
    use zgate_nfs_wire::v3::proc::{self, create, link, read, rename, setattr, write};
    use zgate_nfs_wire::v3::{DirOpArgs, Fh3, Name3, SetAttributes, StableHow, Status};

    /// Answers of all procedures that access `file`, whose name is `name`.
    fn answers(rig: &Rig, file: &Fh3, name: &str) -> Vec<(&'static str, Status)> {
        let at = |name: &str| DirOpArgs { dir: rig.root(), name: Name3::from(name.as_bytes()) };
        let file = || file.clone();
        let data = Bytes::from_static(b"x");
        let write =
            write::Args { file: file(), offset: 0, count: 1, stable: StableHow::Unstable, data };
        let attributes = SetAttributes { size: Some(0), ..Default::default() };
        let how = create::How::Unchecked(attributes.clone());
        let set = setattr::Args { object: file(), attributes, guard: None };
        let away = rename::Args { from: at(name), to: at("new") };
        let back = rename::Args { from: at("new"), to: at(name) };
        let over = rename::Args { from: at("other"), to: at(name) };
        macro_rules! answer {
            ($name:literal, $procedure:ty, $args:expr) => {
                ($name, rig.call::<$procedure>(&$args).err().map_or(Status::Ok, |failed| failed.0))
            };
        }
        vec![
            answer!("READ", proc::Read, read::Args { file: file(), offset: 0, count: 1 }),
            answer!("WRITE", proc::Write, write),
            answer!("SETATTR", proc::SetAttr, set),
            answer!("CREATE", proc::Create, create::Args { dir_op: at(name), how }),
            answer!("LINK", proc::Link, link::Args { file: file(), link: at("second") }),
            answer!("RENAME", proc::Rename, away),
            answer!("RENAME back", proc::Rename, back),
            answer!("RENAME over", proc::Rename, over),
            answer!("REMOVE", proc::Remove, at(name)),
        ]
    }

    #[test]
    fn nothing_touches_a_held_file_and_everything_a_free_one() {
        let rig = Rig::new();
        let held = rig.file("held", b"h");
        let free = rig.file("free", b"f");
        rig.file("other", b"o");
        let rig = rig.held_only(&held);
        for (name, status) in answers(&rig, &held, "held") {
            assert_eq!(status, Status::Jukebox, "{name}");
        }
        for (name, status) in answers(&rig, &free, "free") {
            assert_eq!(status, Status::Ok, "{name}");
        }
        assert_eq!(rig.lookup(&rig.root(), "held"), Ok(held));
    }
}
