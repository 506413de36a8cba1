//! Data items of NFS that may travel in separate chunks (RFC 8267).

/// Port of NFS over RDMA (RFC 8267 §9).
pub const PORT: u16 = 20_049;

/// A data item of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Data of a WRITE.
    WriteData,
    /// Target of a new symbolic link.
    SymlinkTarget,
    /// Data of a READ.
    ReadData,
    /// Target of a symbolic link that was read.
    ReadlinkTarget,
}

/// A row of the table: an operation with an item that may be reduced.
#[derive(Clone, Copy, Debug)]
struct Row {
    version: u32,
    /// Procedure of version 3, or operation of version 4.
    operation: u32,
    item: Item,
}

/// Eligible items of RFC 8267 §4 and §6.1. Nothing else is eligible: not
/// READ_PLUS, not directories or attributes, and nothing of MOUNT, NLM or
/// callbacks.
const ELIGIBLE: [Row; 8] = [
    Row { version: 3, operation: 5, item: Item::ReadlinkTarget },
    Row { version: 3, operation: 6, item: Item::ReadData },
    Row { version: 3, operation: 7, item: Item::WriteData },
    Row { version: 3, operation: 10, item: Item::SymlinkTarget },
    Row { version: 4, operation: 6, item: Item::SymlinkTarget },
    Row { version: 4, operation: 25, item: Item::ReadData },
    Row { version: 4, operation: 27, item: Item::ReadlinkTarget },
    Row { version: 4, operation: 38, item: Item::WriteData },
];

fn find(program: u32, version: u32, operation: u32) -> Option<Item> {
    let row = ELIGIBLE.iter().find(|row| row.version == version && row.operation == operation)?;
    (program == crate::PROGRAM).then_some(row.item)
}

/// Returns the item of a call that the requester may put into a read chunk.
/// `operation` is the procedure of version 3 or the operation of version 4.
#[must_use]
pub fn eligible_argument(program: u32, version: u32, operation: u32) -> Option<Item> {
    find(program, version, operation)
        .filter(|item| matches!(item, Item::WriteData | Item::SymlinkTarget))
}

/// Returns the item of a reply that the responder puts into a write chunk.
#[must_use]
pub fn eligible_result(program: u32, version: u32, operation: u32) -> Option<Item> {
    find(program, version, operation)
        .filter(|item| matches!(item, Item::ReadData | Item::ReadlinkTarget))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROGRAM;

    #[test]
    fn the_binding() {
        assert_eq!(eligible_argument(PROGRAM, 4, 38), Some(Item::WriteData));
        assert_eq!(eligible_argument(PROGRAM, 3, 7), Some(Item::WriteData));
        assert_eq!(eligible_argument(PROGRAM, 4, 25), None);
        assert_eq!(eligible_result(PROGRAM, 4, 25), Some(Item::ReadData));
        assert_eq!(eligible_result(PROGRAM, 3, 5), Some(Item::ReadlinkTarget));
        assert_eq!(eligible_result(PROGRAM, 4, 38), None);
        // READ_PLUS, READDIR, another program.
        assert_eq!(eligible_result(PROGRAM, 4, 68), None);
        assert_eq!(eligible_result(PROGRAM, 3, 16), None);
        assert_eq!(eligible_result(100_005, 3, 6), None);
    }
}
