//! Data-In: splits read data into PDUs and sequences (RFC 7143 §11.7).

use crate::pdu::{DataIn, Itt, Lun, Outgoing, Residual, Ttt};
use crate::serial::Sn;
use zgate_store::{FileSpan, Payload};

/// The status carried by the last Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collapsed {
    pub(crate) status: u8,
    pub(crate) stat_sn: Sn,
    pub(crate) residual: Residual,
}

/// Read data as it was sent, for retransmission.
#[derive(Clone, Debug)]
pub(crate) struct ReadLog {
    pub(crate) itt: Itt,
    pub(crate) lun: Lun,
    pub(crate) data: Vec<Payload>,
    pub(crate) segment_bytes: u32,
    pub(crate) burst_bytes: u32,
    /// Request DataACKs with this tag.
    pub(crate) acknowledge: Option<Ttt>,
    pub(crate) collapsed: Option<Collapsed>,
    /// DataSN up to which the initiator acknowledged data.
    pub(crate) acknowledged: u32,
}

impl ReadLog {
    /// Splits the data; passes every PDU whose DataSN is in `range` to `send`.
    /// Returns the total number of PDUs.
    pub(crate) fn cut(&self, range: std::ops::Range<u32>, mut send: impl FnMut(Outgoing)) -> u32 {
        let total: u64 = self.data.iter().map(|p| p.len() as u64).sum();
        let mut cursor = Cursor { data: &self.data, index: 0, skip: 0 };
        let (mut offset, mut data_sn, mut burst) = (0u64, 0u32, 0u32);
        while offset < total {
            let burst_left = u64::from(self.burst_bytes - burst);
            let len = u64::from(self.segment_bytes).min(burst_left).min(total - offset);
            let last = offset + len == total;
            burst += len as u32;
            let is_final = last || burst == self.burst_bytes;
            if is_final {
                burst = 0;
            }
            let slices = cursor.take(len as usize, range.contains(&data_sn));
            if range.contains(&data_sn) {
                let acknowledge = self.acknowledge.filter(|_| is_final && !last);
                let status =
                    self.collapsed.filter(|_| last).map(|c| (c.status, c.stat_sn, c.residual));
                let pdu = DataIn {
                    is_final,
                    acknowledge: acknowledge.is_some(),
                    // RFC 7143 §11.7.4: both only with the A bit.
                    lun: if acknowledge.is_some() { self.lun } else { Lun(0) },
                    itt: self.itt,
                    ttt: acknowledge.unwrap_or(Ttt::NONE),
                    data_sn,
                    offset: offset as u32,
                    status,
                };
                send(pdu.encode(slices));
            }
            offset += len;
            data_sn += 1;
        }
        data_sn
    }
}

/// Iterates over payloads.
struct Cursor<'a> {
    data: &'a [Payload],
    index: usize,
    skip: usize,
}

impl Cursor<'_> {
    fn take(&mut self, mut len: usize, wanted: bool) -> Vec<Payload> {
        let mut out = Vec::new();
        while len > 0 {
            let Some(payload) = self.data.get(self.index) else { break };
            let n = len.min(payload.len() - self.skip);
            if wanted && n > 0 {
                out.push(slice(payload, self.skip, n));
            }
            self.skip += n;
            len -= n;
            if self.skip == payload.len() {
                self.index += 1;
                self.skip = 0;
            }
        }
        out
    }
}

fn slice(payload: &Payload, start: usize, len: usize) -> Payload {
    match payload {
        Payload::Bytes(bytes) => Payload::Bytes(bytes.slice(start..start + len)),
        Payload::Span(span) => Payload::Span(FileSpan {
            file: span.file.clone(),
            offset: span.offset + start as u64,
            len,
        }),
    }
}

/// Truncates the payloads to `len` bytes.
pub(crate) fn truncate(data: &mut Vec<Payload>, len: usize) {
    let total: usize = data.iter().map(Payload::len).sum();
    if total > len {
        let kept = Cursor { data, index: 0, skip: 0 }.take(len, true);
        *data = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn log(len: usize) -> ReadLog {
        let bytes = Bytes::from(vec![3; len]);
        ReadLog {
            itt: Itt(1),
            lun: Lun(0),
            data: vec![
                Payload::Bytes(bytes.slice(..len / 3)),
                Payload::Bytes(bytes.slice(len / 3..)),
            ],
            segment_bytes: 1000,
            burst_bytes: 2500,
            acknowledge: Some(Ttt(9)),
            collapsed: Some(Collapsed { status: 0, stat_sn: Sn(4), residual: Residual::None }),
            acknowledged: 0,
        }
    }

    #[test]
    fn segments_bursts_and_status() {
        let mut seen = Vec::new();
        let count = log(6000)
            .cut(0..u32::MAX, |pdu| seen.push((DataIn::parse(&pdu.bhs), pdu.data_bytes())));
        let shape: Vec<_> =
            seen.iter().map(|(d, len)| (d.offset, *len, d.is_final, d.acknowledge)).collect();
        assert_eq!(
            shape,
            [
                (0, 1000, false, false),
                (1000, 1000, false, false),
                (2000, 500, true, true),
                (2500, 1000, false, false),
                (3500, 1000, false, false),
                (4500, 500, true, true),
                (5000, 1000, true, false),
            ]
        );
        assert_eq!((count, seen.iter().filter(|(d, _)| d.status.is_some()).count()), (7, 1));
        let mut again = Vec::new();
        log(6000).cut(2..4, |pdu| again.push(DataIn::parse(&pdu.bhs)));
        assert_eq!(again, [seen[2].0, seen[3].0]);
    }

    #[test]
    fn truncation_keeps_the_front() {
        let mut data = log(3000).data;
        truncate(&mut data, 1500);
        assert_eq!(data.iter().map(Payload::len).collect::<Vec<_>>(), [1000, 500]);
    }
}
