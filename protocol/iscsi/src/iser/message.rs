//! One Send: iSER header, basic header segment, additional header segments,
//! data.

use super::header::{Header, HeaderError};
use super::limits::{HEADER_BYTES, MAX_PADDING_BYTES};
use crate::limits::{BHS_BYTES, MAX_AHS_BYTES};
use crate::pdu::{Bhs, Outgoing};
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;
use zgate_store::Payload;

/// Error in the format of a message; an error of the peer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    /// Error in the iSER header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The lengths in the PDU differ from that of the message.
    #[error("a PDU of {stated} bytes in a message of {sent}")]
    Length {
        /// Length according to the PDU's header, with the iSER header.
        stated: usize,
        /// Length of the received message.
        sent: usize,
    },
    /// More additional header bytes than accepted.
    #[error("{0} bytes of additional headers")]
    AhsTooLong(usize),
}

/// A received message, by reference.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// The PDU's basic header; zeros in a Hello.
    pub bhs: Bhs,
    /// The additional headers.
    pub ahs: &'a [u8],
    /// The data segment.
    pub data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// See [`MessageError`]: the connection must be closed.
    pub fn decode(message: &'a [u8]) -> Result<Self, MessageError> {
        let header = Header::decode(message)?;
        if !matches!(header, Header::Control { .. }) {
            return Ok(Self { header, bhs: Bhs([0; BHS_BYTES]), ahs: &[], data: &[] });
        }
        let sent = message.len();
        let length = |stated| MessageError::Length { stated, sent };
        let least = HEADER_BYTES + BHS_BYTES;
        let (bhs, rest) = message
            .get(HEADER_BYTES..)
            .and_then(|rest| rest.split_first_chunk::<BHS_BYTES>())
            .ok_or(length(least))?;
        let bhs = Bhs(*bhs);
        let (ahs_bytes, data_bytes) = (bhs.ahs_bytes(), bhs.data_bytes());
        if ahs_bytes > MAX_AHS_BYTES {
            return Err(MessageError::AhsTooLong(ahs_bytes));
        }
        // RFC 7145 §6.1: no digests. Padding is of no use here, but RFC 7143
        // §11.1 requires it at the end of every data segment.
        let stated = ahs_bytes + data_bytes;
        if rest.len() < stated || rest.len() > stated + MAX_PADDING_BYTES {
            return Err(length(least + stated));
        }
        let (ahs, rest) = rest.split_at(ahs_bytes);
        Ok(Self { header, bhs, ahs, data: &rest[..data_bytes] })
    }
}

/// The headers of a message that carries a PDU, followed by its data. `None` if
/// some of the data is not in memory.
pub(crate) fn encode(header: &Header, pdu: Outgoing) -> Option<Vec<Bytes>> {
    let mut bhs = pdu.bhs;
    bhs.set_ahs_bytes(pdu.ahs.len());
    bhs.set_data_bytes(pdu.data_bytes());
    let mut head = BytesMut::with_capacity(HEADER_BYTES + BHS_BYTES + pdu.ahs.len());
    head.put_slice(&header.encode());
    head.put_slice(&bhs.0);
    head.put_slice(&pdu.ahs);
    let mut out = vec![head.freeze()];
    out.extend(in_memory(pdu.data)?);
    Some(out)
}

/// Payloads as bytes. `None` if some are not in memory.
pub(crate) fn in_memory(data: Vec<Payload>) -> Option<Vec<Bytes>> {
    let bytes = data.into_iter().map(|payload| match payload {
        Payload::Bytes(bytes) => Some(bytes),
        Payload::Span(_) => None,
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::{Itt, Lun, NopOut, Ttt};
    use crate::serial::Sn;

    fn nop(len: usize) -> Vec<u8> {
        let pdu = NopOut {
            immediate: true,
            lun: Lun(0),
            itt: Itt(1),
            ttt: Ttt::NONE,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(2),
        };
        let pieces = encode(&Header::PLAIN, pdu.encode(Bytes::from(vec![7; len]))).unwrap();
        pieces.concat()
    }

    #[test]
    fn lengths_must_add_up() {
        let good = nop(9);
        assert_eq!(Message::decode(&good).unwrap().data, [7; 9]);
        let mut padded = good.clone();
        padded.extend([0; 3]);
        assert_eq!(Message::decode(&padded).unwrap().data, [7; 9]);
        padded.push(0);
        assert!(matches!(Message::decode(&padded), Err(MessageError::Length { .. })));
        assert!(matches!(Message::decode(&good[..84]), Err(MessageError::Length { .. })));
        assert!(matches!(Message::decode(&good[..60]), Err(MessageError::Length { .. })));
    }

    zgate_fuzz::target!(any_bytes_are_refused_or_read, 200, any_bytes);

    fn any_bytes(dice: &mut zgate_fuzz::Dice<'_>) {
        let bytes = dice.rest();
        if let Ok(message) = Message::decode(bytes) {
            assert!(message.data.len() + message.ahs.len() <= bytes.len());
        }
    }
}
