//! READ DEFECT DATA (10) and (12) (SBC-4 §5.21): the storage hides its defects,
//! so the lists are empty.

use super::{Cx, Outcome, Reply};

pub(crate) fn read_defect_data(cx: &Cx<'_>) -> Outcome {
    let cdb = cx.cdb();
    if cx.row.length == 10 {
        // The requested lists are valid and have no entries.
        let data = vec![0, cdb.byte(2) & 0x1F, 0, 0];
        return Ok(Reply::data(data, u32::from(cdb.be16(7))));
    }
    let data = vec![0, cdb.byte(1) & 0x1F, 0, 0, 0, 0, 0, 0];
    Ok(Reply::data(data, cdb.be32(6)))
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn there_are_no_defects() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&[0x37, 0, 0x1D, 0, 0, 0, 0, 0, 32, 0], b""));
        assert_eq!(data, [0, 0x1D, 0, 0]);
        let data = bench.data(&bench.run(&[0xB7, 0x08, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], b""));
        assert_eq!(data, [0, 0x08, 0, 0, 0, 0, 0, 0]);
    }
}
