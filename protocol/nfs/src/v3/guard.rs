//! NFSv3 keeps no state, but must not step on what NFSv4 clients were
//! promised: delegations, share reservations and locks.

use crate::changes::Changing;
use crate::namespace::{Export, ExportId};
use crate::runtime::Call;
use std::future::Future;
use std::pin::Pin;
use zgate_store::NodeHandle;

/// A boxed future that stays on its core and may borrow.
pub type LocalBox<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What is about to change.
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

/// Asked before NFSv3 touches an object; NFSv4 state stands behind it.
pub trait ConflictGuard: Send + Sync {
    /// Whether nobody holds anything: then objects that are looked up only to
    /// be asked about need no look-up.
    fn idle(&self) -> bool;

    /// A change of a name in the export begins, where there is nobody to be
    /// given a delegation. `None` where there is: then the name is looked up.
    fn begin_change_of_name(&self, export: &Export) -> Option<Changing>;

    /// A change of `node` begins, and ends with what is returned. Said before
    /// everything else, so that nobody is promised meanwhile that it stays as
    /// it is.
    fn begin_change(&self, export: ExportId, node: NodeHandle) -> Changing;

    /// Before `node` changes (REMOVE, RENAME and LINK included, RFC 8881
    /// §10.4). Recalls what stands in the way; `false` means "not now": the
    /// client gets NFS3ERR_JUKEBOX and comes again.
    fn before_change<'a>(
        &'a self,
        call: &'a Call,
        export: ExportId,
        node: NodeHandle,
        what: Change,
    ) -> LocalBox<'a, bool>;

    /// Before data of `node` is read (a write delegation may hide newer data).
    fn before_read<'a>(
        &'a self,
        call: &'a Call,
        export: ExportId,
        node: NodeHandle,
    ) -> LocalBox<'a, bool>;
}

/// The guard of a server without NFSv4.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConflicts;

impl ConflictGuard for NoConflicts {
    fn idle(&self) -> bool {
        true
    }

    fn begin_change_of_name(&self, _: &Export) -> Option<Changing> {
        Some(Changing::of_nothing())
    }

    fn begin_change(&self, _: ExportId, _: NodeHandle) -> Changing {
        Changing::of_nothing()
    }

    fn before_change<'a>(
        &'a self,
        _: &'a Call,
        _: ExportId,
        _: NodeHandle,
        _: Change,
    ) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn before_read<'a>(&'a self, _: &'a Call, _: ExportId, _: NodeHandle) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}

#[cfg(test)]
mod tests {
    use crate::v3::proc::rig::Rig;
    use crate::v3::proc::{create, link, read, remove, rename, setattr, write};
    use crate::v3::wire::{DirOp, Fh3, Name3, SetAttributes, StableHow, Status};
    use bytes::Bytes;

    /// What each procedure answers that touches `file`, which is called
    /// `name`.
    fn answers(rig: &Rig, file: &Fh3, name: &str) -> Vec<(&'static str, Status)> {
        let at = |name: &str| DirOp { dir: rig.root(), name: Name3::from(name.as_bytes()) };
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
            answer!("READ", read::Read, read::Args { file: file(), offset: 0, count: 1 }),
            answer!("WRITE", write::Write, write),
            answer!("SETATTR", setattr::SetAttr, set),
            answer!("CREATE", create::Create, create::Args { place: at(name), how }),
            answer!("LINK", link::Link, link::Args { file: file(), link: at("second") }),
            answer!("RENAME", rename::Rename, away),
            answer!("RENAME back", rename::Rename, back),
            answer!("RENAME over", rename::Rename, over),
            answer!("REMOVE", remove::Remove, at(name)),
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
