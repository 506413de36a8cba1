//! All 22 procedures (RFC 1813 §3.3).

use super::cx::Cx;
use super::guard::LocalBox;
use super::proc::{self, Procedure, run};
use zgate_xdr::{Decoder, Encoder, XdrError};

/// Reads the arguments at once and returns the work still to do.
pub type Runner = for<'a, 'b, 'c> fn(
    &'a Cx<'a>,
    &'b mut Decoder<'c>,
    &'a mut Encoder,
) -> Result<LocalBox<'a, ()>, XdrError>;

/// One procedure.
#[derive(Debug)]
pub struct Row {
    /// Its number.
    pub number: u32,
    /// Its name, for logs and metrics.
    pub name: &'static str,
    /// Whether running it twice is the same as once. Replies of the others
    /// belong in the duplicate request cache. WRITE is among those: repeated
    /// late, it would undo a newer write.
    pub idempotent: bool,
    /// Runs it.
    pub run: Runner,
}

const fn entry<P: Procedure>(name: &'static str, idempotent: bool) -> Row {
    Row { number: P::NUMBER, name, idempotent, run: run::<P> }
}

const AGAIN: bool = true;
const ONCE: bool = false;

/// The procedures by number.
pub static TABLE: [Row; 22] = [
    Row { number: 0, name: "NULL", idempotent: AGAIN, run: proc::null::run },
    entry::<proc::getattr::GetAttr>("GETATTR", AGAIN),
    entry::<proc::setattr::SetAttr>("SETATTR", ONCE),
    entry::<proc::lookup::Lookup>("LOOKUP", AGAIN),
    entry::<proc::access::Access>("ACCESS", AGAIN),
    entry::<proc::readlink::ReadLink>("READLINK", AGAIN),
    entry::<proc::read::Read>("READ", AGAIN),
    entry::<proc::write::Write>("WRITE", ONCE),
    entry::<proc::create::Create>("CREATE", ONCE),
    entry::<proc::mkdir::MkDir>("MKDIR", ONCE),
    entry::<proc::symlink::Symlink>("SYMLINK", ONCE),
    entry::<proc::mknod::MkNod>("MKNOD", ONCE),
    entry::<proc::remove::Remove>("REMOVE", ONCE),
    entry::<proc::rmdir::RmDir>("RMDIR", ONCE),
    entry::<proc::rename::Rename>("RENAME", ONCE),
    entry::<proc::link::Link>("LINK", ONCE),
    entry::<proc::readdir::ReadDir>("READDIR", AGAIN),
    entry::<proc::readdirplus::ReadDirPlus>("READDIRPLUS", AGAIN),
    entry::<proc::fsstat::FsStat>("FSSTAT", AGAIN),
    entry::<proc::fsinfo::FsInfo>("FSINFO", AGAIN),
    entry::<proc::pathconf::PathConf>("PATHCONF", AGAIN),
    entry::<proc::commit::Commit>("COMMIT", AGAIN),
];

/// The procedure with a number.
#[must_use]
pub fn row(number: u32) -> Option<&'static Row> {
    TABLE.get(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_stands_at_its_number() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.number as usize, index, "{}", row.name);
        }
        assert_eq!(row(21).unwrap().name, "COMMIT");
        assert!(row(22).is_none());
    }
}
