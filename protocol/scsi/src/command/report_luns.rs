//! REPORT LUNS (SPC-4 §6.33).

use super::{Cx, Outcome, Reply};
use crate::lun::Lun;
use crate::sense::{Asc, Sense};

pub(crate) fn report_luns(cx: &Cx<'_>) -> Outcome {
    let allocation = cx.cdb().be32(6);
    let own = [Lun::ZERO];
    let listed = match cx.luns {
        Some(luns) => luns.numbers(),
        None => own.to_vec(),
    };
    let data = parameter_data(&listed, cx.cdb().byte(2))?;
    // Reporting the inventory clears this unit attention in all of them (SAM-5 §5.14).
    let nexus = cx.command.nexus.id;
    match cx.luns {
        Some(luns) => luns.attention_reported(nexus, Asc::LUNS_CHANGED),
        None => cx.disk.luns_change_is_known(nexus),
    }
    Ok(Reply::data(data, allocation))
}

/// Returns the LUN list for a SELECT REPORT value.
pub(crate) fn parameter_data(luns: &[Lun], select: u8) -> Result<Vec<u8>, Sense> {
    let listed: &[Lun] = match select {
        // All logical units: at least LUN 0, which answers INQUIRY (SPC-4 §6.33).
        0x02 if luns.is_empty() => &[Lun::ZERO],
        0x00 | 0x02 | 0x11 => luns,
        // There are no well-known, administrative or subsidiary logical units.
        0x01 | 0x10 | 0x12 => &[],
        _ => return Err(Sense::invalid_cdb(2, None)),
    };
    let bytes = u32::try_from(listed.len() * 8).unwrap_or(u32::MAX);
    let mut data = Vec::with_capacity(8 + listed.len() * 8);
    data.extend(bytes.to_be_bytes());
    data.extend([0; 4]);
    for lun in listed {
        data.extend(lun.encode());
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_complete_whatever_its_length() {
        let luns: Vec<Lun> = [0, 1, 300].into_iter().filter_map(Lun::new).collect();
        let data = parameter_data(&luns, 0).unwrap();
        assert_eq!(&data[..4], &24u32.to_be_bytes());
        assert_eq!(&data[24..26], &[0x41, 0x2C]);
        assert_eq!(parameter_data(&luns, 1).unwrap().len(), 8);
        assert!(parameter_data(&luns, 0x55).is_err());
    }

    #[test]
    fn all_logical_units_are_at_least_the_first() {
        let data = parameter_data(&[], 0x02).unwrap();
        assert_eq!(data, [[0_u8, 0, 0, 8, 0, 0, 0, 0], [0; 8]].concat());
        assert_eq!(parameter_data(&[], 0x00).unwrap(), [0; 8]);
    }
}
