//! Frames of the emulated wire.

use crate::limits::MAX_MESSAGE_BYTES;
use crate::work::{RemoteSlice, WorkStatus};
use bytes::Bytes;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HEADER_BYTES: usize = 24;

/// One frame.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A message, and a key of the receiver to invalidate.
    Send { gather: Vec<Bytes>, invalidate: Option<u32> },
    /// An RDMA Write.
    Write { to: RemoteSlice, gather: Vec<Bytes> },
    /// An RDMA Read.
    Read { from: RemoteSlice },
    /// Completion of the oldest Send or Write.
    Ack,
    /// Data of the oldest Read.
    ReadResponse(Bytes),
    /// Failure of the oldest request.
    Nak(WorkStatus),
    /// End of the connection.
    Disconnect,
}

/// Failures and their numbers on the wire.
const STATUS: [(WorkStatus, u8); 3] = [
    (WorkStatus::RemoteAccess, 1),
    (WorkStatus::RemoteInvalidRequest, 2),
    (WorkStatus::ReceiverNotReady, 3),
];

#[derive(Default)]
struct Fields {
    op: u8,
    flag: u8,
    rkey: u32,
    address: u64,
    len: u32,
}

impl Frame {
    fn fields(&self) -> Fields {
        let none = Fields::default();
        let total = |gather: &[Bytes]| gather.iter().map(Bytes::len).sum::<usize>() as u32;
        match self {
            Self::Send { gather, invalidate } => Fields {
                op: 1,
                flag: u8::from(invalidate.is_some()),
                rkey: invalidate.unwrap_or_default(),
                len: total(gather),
                ..none
            },
            Self::Write { to, gather } => {
                Fields { op: 2, rkey: to.rkey, address: to.address, len: total(gather), ..none }
            }
            Self::Read { from } => {
                Fields { op: 3, rkey: from.rkey, address: from.address, len: from.len, ..none }
            }
            Self::Ack => Fields { op: 4, ..none },
            Self::ReadResponse(data) => Fields { op: 5, len: data.len() as u32, ..none },
            Self::Nak(status) => {
                let known = STATUS.iter().find(|(known, _)| known == status);
                Fields { op: 6, flag: known.map_or(2, |(_, number)| *number), ..none }
            }
            Self::Disconnect => Fields { op: 7, ..none },
        }
    }

    fn payload(&self) -> &[Bytes] {
        match self {
            Self::Send { gather, .. } | Self::Write { gather, .. } => gather,
            Self::ReadResponse(data) => std::slice::from_ref(data),
            _ => &[],
        }
    }

    /// Writes the frame.
    pub(crate) async fn write(&self, to: &mut (impl AsyncWriteExt + Unpin)) -> io::Result<()> {
        let fields = self.fields();
        let mut header = [0; HEADER_BYTES];
        header[0] = fields.op;
        header[1] = fields.flag;
        header[4..8].copy_from_slice(&fields.rkey.to_be_bytes());
        header[8..16].copy_from_slice(&fields.address.to_be_bytes());
        header[16..20].copy_from_slice(&fields.len.to_be_bytes());
        to.write_all(&header).await?;
        for piece in self.payload() {
            to.write_all(piece).await?;
        }
        Ok(())
    }

    /// Reads a frame.
    pub(crate) async fn read(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Self> {
        let bad = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut header = [0; HEADER_BYTES];
        from.read_exact(&mut header).await?;
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (rkey, len) = (word(4), word(16));
        let address = u64::from(word(8)) << 32 | u64::from(word(12));
        if len as usize > MAX_MESSAGE_BYTES {
            return Err(bad("a frame beyond the limit"));
        }
        let remote = RemoteSlice { rkey, address, len };
        let data = if matches!(header[0], 1 | 2 | 5) {
            let mut data = vec![0; len as usize];
            from.read_exact(&mut data).await?;
            Bytes::from(data)
        } else {
            Bytes::new()
        };
        Ok(match header[0] {
            1 => Self::Send { gather: vec![data], invalidate: (header[1] != 0).then_some(rkey) },
            2 => Self::Write { to: remote, gather: vec![data] },
            3 => Self::Read { from: remote },
            4 => Self::Ack,
            5 => Self::ReadResponse(data),
            6 => {
                let known = STATUS.iter().find(|(_, number)| *number == header[1]);
                Self::Nak(known.ok_or_else(|| bad("an unknown status"))?.0)
            }
            7 => Self::Disconnect,
            _ => return Err(bad("an unknown frame")),
        })
    }
}
