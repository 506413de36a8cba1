//! Additional header segments (RFC 7143 §11.2.2).

use super::PduError;
use crate::limits::{MAX_AHS_BYTES, MAX_CDB_BYTES};
use bytes::{BufMut, Bytes, BytesMut};

const EXTENDED_CDB: u8 = 1;
const BIDIRECTIONAL_READ: u8 = 2;

/// Contents of the additional headers of a SCSI Command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahs {
    /// The CDB's bytes after the first 16, without padding.
    pub extended_cdb: Bytes,
    /// Expected Bidirectional Read Data Transfer Length, in bytes.
    pub bidirectional_read_bytes: Option<u32>,
}

/// Reads all additional header segments of a PDU.
///
/// # Errors
/// [`PduError::Ahs`] if a length does not fit, or a type is unknown or
/// repeated.
pub fn parse_ahs(ahs: &Bytes) -> Result<Ahs, PduError> {
    let mut found = Ahs::default();
    let mut at = 0;
    if ahs.len() > MAX_AHS_BYTES {
        return Err(PduError::Ahs);
    }
    while at < ahs.len() {
        let rest = ahs.slice(at..);
        let (&[high, low, kind], Some(body)) =
            (rest.first_chunk::<3>().ok_or(PduError::Ahs)?, rest.get(3..))
        else {
            return Err(PduError::Ahs);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len == 0 || len > body.len() {
            return Err(PduError::Ahs);
        }
        match kind {
            EXTENDED_CDB
                if found.extended_cdb.is_empty() && len > 1 && len - 1 + 16 <= MAX_CDB_BYTES =>
            {
                found.extended_cdb = rest.slice(4..3 + len);
            }
            BIDIRECTIONAL_READ if found.bidirectional_read_bytes.is_none() && len == 5 => {
                let value =
                    body.get(1..).and_then(|b| b.first_chunk::<4>()).ok_or(PduError::Ahs)?;
                found.bidirectional_read_bytes = Some(u32::from_be_bytes(*value));
            }
            _ => return Err(PduError::Ahs),
        }
        at += (3 + len).next_multiple_of(4);
    }
    Ok(found)
}

/// Writes additional header segments, padded to whole words.
#[must_use]
pub fn encode_ahs(ahs: &Ahs) -> Bytes {
    let mut out = BytesMut::new();
    if !ahs.extended_cdb.is_empty() {
        out.put_u16((ahs.extended_cdb.len() + 1) as u16);
        out.put_slice(&[EXTENDED_CDB, 0]);
        out.put_slice(&ahs.extended_cdb);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    if let Some(bytes) = ahs.bidirectional_read_bytes {
        out.put_u16(5);
        out.put_slice(&[BIDIRECTIONAL_READ, 0]);
        out.put_u32(bytes);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_segments_survive_a_round_trip() {
        let ahs = Ahs {
            extended_cdb: Bytes::from_static(&[9; 17]),
            bidirectional_read_bytes: Some(4096),
        };
        let wire = encode_ahs(&ahs);
        assert_eq!(wire.len(), 4 + 20 + 8);
        assert_eq!(parse_ahs(&wire), Ok(ahs));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in [
            &[0u8, 0, 1, 0][..],
            &[0, 9, 1, 0],
            &[0, 5, 7, 0, 0, 0, 0, 0],
            &[0, 2, 2, 0, 0],
            &[0, 5],
        ] {
            assert_eq!(parse_ahs(&Bytes::from_static(bad)), Err(PduError::Ahs), "{bad:?}");
        }
        let twice = [[0u8, 5, 2, 0, 0, 0, 0, 1], [0, 5, 2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(parse_ahs(&twice.into()), Err(PduError::Ahs));
    }
}
