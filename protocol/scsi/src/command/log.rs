//! LOG SENSE (SPC-4 §6.8): supported pages, Logical Block Provisioning,
//! Informational Exceptions.

use super::{Cx, Failure, Outcome, Reply};
use crate::limits::THRESHOLD_SET_BYTES;
use crate::sense::Sense;

const SUPPORTED: u8 = 0x00;
const PROVISIONING: u8 = 0x0C;
const EXCEPTIONS: u8 = 0x2F;
const ALL_SUBPAGES: u8 = 0xFF;
/// DS: the page is not saved (SPC-4 §7.3.2.1).
const DS: u8 = 0x80;
/// SPF: the page has a subpage code.
const SPF: u8 = 0x40;
/// SCOPE: this logical unit (SBC-4 table 199).
const OWN: u8 = 0x01;
/// SCOPE: this and others, which have a file system or pool in common.
const SHARED: u8 = 0x02;

pub(crate) fn log_sense(cx: &Cx<'_>) -> Outcome {
    let cdb = cx.cdb();
    let code = cdb.byte(2) & 0x3F;
    let subpage = cdb.byte(3);
    let pages = pages(cx);
    if code != SUPPORTED && !pages.contains(&code) {
        return Err(Sense::invalid_cdb(2, Some(5)).into());
    }
    let body = match (code, subpage) {
        (SUPPORTED, 0) => pages.clone(),
        (SUPPORTED, ALL_SUBPAGES) => {
            let mut list = vec![SUPPORTED, 0, SUPPORTED, ALL_SUBPAGES];
            list.extend(pages.iter().skip(1).flat_map(|page| [*page, 0]));
            list
        }
        (PROVISIONING, 0) => from_parameter(provisioning(cx), cdb.be16(5))?,
        (EXCEPTIONS, 0) => {
            // IE ASC/ASCQ 00/00; no temperature is known (FFh).
            from_parameter(vec![parameter(0, 0x03, &[0, 0, 0xFF, 0])], cdb.be16(5))?
        }
        _ => return Err(Sense::invalid_cdb(3, None).into()),
    };
    let saving = if code == SUPPORTED { 0 } else { DS };
    let format = if subpage == 0 { 0 } else { SPF };
    let mut data = vec![saving | format | code, subpage];
    data.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    data.extend(body);
    Ok(Reply::data(data, u32::from(cdb.be16(7))))
}

fn pages(cx: &Cx<'_>) -> Vec<u8> {
    let mut pages = vec![SUPPORTED];
    // With this page VPD page B2h has a THRESHOLD EXPONENT (SBC-4 §6.6.7).
    if cx.disk.provisioned(&cx.geometry).is_some() {
        pages.push(PROVISIONING);
    }
    pages.push(EXCEPTIONS);
    pages
}

/// Builds a log parameter: code, control byte, value.
fn parameter(code: u16, control: u8, value: &[u8]) -> (u16, Vec<u8>) {
    let mut data = code.to_be_bytes().to_vec();
    data.push(control);
    data.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    data.extend(value);
    (code, data)
}

/// Returns the parameters from PARAMETER POINTER on.
fn from_parameter(parameters: Vec<(u16, Vec<u8>)>, first: u16) -> Result<Vec<u8>, Failure> {
    if first > 0 && parameters.iter().all(|(code, _)| *code < first) {
        return Err(Sense::invalid_cdb(5, None).into());
    }
    let parameters = parameters.into_iter().filter(|(code, _)| *code >= first);
    Ok(parameters.flat_map(|(_, data)| data).collect())
}

fn provisioning(cx: &Cx<'_>) -> Vec<(u16, Vec<u8>)> {
    let Some(space) = cx.disk.provisioned(&cx.geometry) else {
        return Vec::new();
    };
    // Counted in threshold sets (SBC-4 §6.4.5).
    let resources = |bytes: u64, scope: u8| {
        let sets = u32::try_from(bytes / THRESHOLD_SET_BYTES).unwrap_or(u32::MAX);
        let mut value = sets.to_be_bytes().to_vec();
        value.extend([scope, 0, 0, 0]);
        value
    };
    vec![
        // Available and used LBA mapping resource counts; FORMAT AND LINKING
        // 11b: binary list.
        parameter(0x0001, 0x03, &resources(space.available_bytes, SHARED)),
        parameter(0x0002, 0x03, &resources(space.used_bytes, OWN)),
    ]
}

#[cfg(test)]
mod tests {
    use crate::disk::ThinSpace;
    use crate::sense::Asc;
    use crate::testing::Bench;
    use crate::wire::be32;

    fn cdb(page: u8, subpage: u8) -> [u8; 10] {
        [0x4D, 0, 0x40 | page, subpage, 0, 0, 0, 1, 0, 0]
    }

    const SPACE: ThinSpace =
        ThinSpace { available_bytes: 5 << 20, used_bytes: 7 << 20, threshold_bytes: 0 };

    #[test]
    fn pages_are_listed_and_readable() {
        let bench = Bench::new();
        bench.disk.set_thin_space(Some(SPACE));
        let data = bench.data(&bench.run(&cdb(0, 0), b""));
        assert_eq!(data, [0, 0, 0, 3, 0, 0x0C, 0x2F]);
        // DS, except in the list of pages.
        for (page, first) in [(0, 0), (0x0C, 0x8C), (0x2F, 0xAF)] {
            assert_eq!(bench.data(&bench.run(&cdb(page, 0), b""))[0], first);
        }
        assert_eq!(bench.data(&bench.run(&cdb(0, 0xFF), b""))[0], 0x40);
        bench.refused(&cdb(0x0D, 0), b"", Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&cdb(0x2F, 3), b"", Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn space_is_reported_once_known() {
        let bench = Bench::new();
        assert_eq!(bench.data(&bench.run(&cdb(0, 0), b"")), [0, 0, 0, 2, 0, 0x2F]);
        bench.refused(&cdb(0x0C, 0), b"", Asc::INVALID_FIELD_IN_CDB);
        bench.disk.set_thin_space(Some(SPACE));
        let data = bench.data(&bench.run(&cdb(0x0C, 0), b""));
        assert_eq!((be32(&data, 8), be32(&data, 20)), (5, 7));
        // SCOPE: what is available is shared with others, what is used is its own.
        assert_eq!((data[12], data[24]), (0x02, 0x01));
    }
}
