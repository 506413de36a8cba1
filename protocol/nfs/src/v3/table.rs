//! All 22 procedures (RFC 1813 §3.3).

use super::cx::Cx;
use super::guard::BorrowingFuture;
use super::proc::{self, Rule, run};
use zgate_nfs_wire::v3::proc as wire;
use zgate_xdr::{Decoder, Encoder, XdrError};

/// Reads the arguments at once and returns a future for the rest.
pub type Runner = for<'a, 'b, 'c> fn(
    &'a Cx<'a>,
    &'b mut Decoder<'c>,
    &'a mut Encoder,
) -> Result<BorrowingFuture<'a, ()>, XdrError>;

/// One procedure.
#[derive(Debug)]
pub struct Row {
    /// Its number.
    pub number: u32,
    /// Its name, for logs and metrics.
    pub name: &'static str,
    /// True for an idempotent procedure. Replies of the others are kept in the
    /// duplicate request cache. WRITE is one of the others: a late repetition
    /// would undo a newer write.
    pub idempotent: bool,
    /// Runs it.
    pub run: Runner,
}

const fn entry<P: Rule>(idempotent: bool) -> Row {
    Row { number: P::NUMBER, name: P::NAME, idempotent, run: run::<P> }
}

const AGAIN: bool = true;
const ONCE: bool = false;

/// The procedures by number.
pub static TABLE: [Row; 22] = [
    Row { number: 0, name: "NULL", idempotent: AGAIN, run: proc::null::run },
    entry::<wire::GetAttr>(AGAIN),
    entry::<wire::SetAttr>(ONCE),
    entry::<wire::Lookup>(AGAIN),
    entry::<wire::Access>(AGAIN),
    entry::<wire::ReadLink>(AGAIN),
    entry::<wire::Read>(AGAIN),
    entry::<wire::Write>(ONCE),
    entry::<wire::Create>(ONCE),
    entry::<wire::MkDir>(ONCE),
    entry::<wire::Symlink>(ONCE),
    entry::<wire::MkNod>(ONCE),
    entry::<wire::Remove>(ONCE),
    entry::<wire::RmDir>(ONCE),
    entry::<wire::Rename>(ONCE),
    entry::<wire::Link>(ONCE),
    entry::<wire::ReadDir>(AGAIN),
    entry::<wire::ReadDirPlus>(AGAIN),
    entry::<wire::FsStat>(AGAIN),
    entry::<wire::FsInfo>(AGAIN),
    entry::<wire::PathConf>(AGAIN),
    entry::<wire::Commit>(AGAIN),
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
