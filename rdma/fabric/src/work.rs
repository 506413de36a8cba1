//! Work posted to a connection, and its events.

use bytes::Bytes;
use thiserror::Error;
use zgate_store::AlignedBuf;

/// Number chosen by the poster; its event carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSlice {
    /// Key under which it is registered.
    pub rkey: u32,
    /// Address of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
}

/// One RDMA Read from a piece of the peer's memory into a part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRead {
    /// Memory to read.
    pub from: RemoteSlice,
    /// Index of the destination in the batch's buffers.
    pub buffer: usize,
    /// Offset in that buffer, in bytes.
    pub offset: usize,
}

/// RDMA Reads that complete together. The buffers are returned with the event.
#[derive(Debug)]
pub struct ReadBatch {
    /// Number chosen by the poster.
    pub id: WorkId,
    /// Buffers that are written.
    pub buffers: Vec<AlignedBuf>,
    /// The reads.
    pub reads: Vec<RemoteRead>,
}

/// One RDMA Write: bytes gathered from several places into one piece of the
/// peer's memory of the same length.
#[derive(Clone, Debug)]
pub struct RemoteWrite {
    /// Destination.
    pub to: RemoteSlice,
    /// Data.
    pub gather: Vec<Bytes>,
}

/// The message at the end of a batch.
#[derive(Clone, Debug, Default)]
pub struct SendPart {
    /// Data of the message.
    pub gather: Vec<Bytes>,
    /// Key of the peer that this message invalidates.
    pub invalidate: Option<u32>,
}

/// RDMA Writes and the Send behind them, which the peer receives after all of
/// them are in its memory. They complete together.
#[derive(Clone, Debug)]
pub struct SendBatch {
    /// Number chosen by the poster.
    pub id: WorkId,
    /// The writes, in order.
    pub writes: Vec<RemoteWrite>,
    /// The message.
    pub send: Option<SendPart>,
}

/// Kind of work of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A posted receive.
    Receive,
    /// A batch of reads.
    Read,
    /// A batch of writes with or without a send.
    Send,
}

/// Reason for which work failed. The connection is unusable after any of these.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WorkStatus {
    /// Other work failed first, or the connection ended.
    #[error("flushed")]
    Flushed,
    /// A message was longer than its posted receive.
    #[error("a message was longer than the posted receive")]
    LocalLength,
    /// The peer refused access to its memory: key, bounds or rights.
    #[error("the peer refused access to its memory")]
    RemoteAccess,
    /// The peer could not accept the message.
    #[error("the peer refused the request")]
    RemoteInvalidRequest,
    /// The peer failed while executing the request.
    #[error("the peer failed the request")]
    RemoteOperation,
    /// The peer had no receive posted for too long.
    #[error("the peer posted no receives")]
    ReceiverNotReady,
    /// The peer no longer answers.
    #[error("the peer no longer answers")]
    RetryExceeded,
    /// Local memory or the device failed, with this status of the device.
    #[error("the device failed with status {0}")]
    Device(u32),
}

/// Reason for which a connection ended.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Disconnect {
    /// Ended locally.
    #[error("closed here")]
    Local,
    /// The peer ended it or has gone.
    #[error("closed by the peer")]
    Peer,
    /// Work failed on either side.
    #[error("broken by failed work")]
    Error,
    /// The device was removed or its port went down.
    #[error("the device was removed or its port went down")]
    DeviceGone,
}

/// An event of a connection.
#[derive(Debug)]
pub enum Event {
    /// A message arrived.
    Received {
        /// Number of the receive it used.
        id: WorkId,
        /// Buffer of that receive.
        buffer: AlignedBuf,
        /// Length of the message in bytes.
        len: usize,
        /// Local key that the peer invalidated with it.
        invalidated: Option<u32>,
    },
    /// Reads completed.
    Read {
        /// Number of the batch.
        id: WorkId,
        /// Buffers of the batch.
        buffers: Vec<AlignedBuf>,
    },
    /// Writes and Send completed: the peer has the data.
    Sent {
        /// Number of the batch.
        id: WorkId,
    },
    /// Work failed. Its buffers are returned with undefined content.
    Failed {
        /// Number of the work.
        id: WorkId,
        /// Kind of the work.
        kind: WorkKind,
        /// Reason.
        status: WorkStatus,
        /// Buffers of receives and reads.
        buffers: Vec<AlignedBuf>,
    },
    /// The connection ended; the last event. All work was returned before it.
    Disconnected(Disconnect),
}

/// Work that cannot be posted: an error of the caller.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PostError {
    /// A part lies outside its buffer.
    #[error("a read into bytes that are not in its buffer")]
    OutsideBuffer,
    /// The length of the gathered bytes differs from that of the remote piece.
    #[error("a write whose length differs from its target's")]
    LengthMismatch,
    /// The message is too long.
    #[error("a message longer than the limit")]
    TooLong,
}

impl ReadBatch {
    /// Checks that every read lies within its buffer.
    ///
    /// # Errors
    /// [`PostError::OutsideBuffer`].
    pub fn check(&self) -> Result<(), PostError> {
        let inside = |read: &RemoteRead| {
            let end = read.offset.checked_add(read.from.len as usize);
            let buffer = self.buffers.get(read.buffer);
            end.zip(buffer).is_some_and(|(end, buffer)| end <= buffer.len())
        };
        if self.reads.iter().all(inside) { Ok(()) } else { Err(PostError::OutsideBuffer) }
    }
}

impl SendBatch {
    /// Checks that the length of every write matches its target.
    ///
    /// # Errors
    /// [`PostError::LengthMismatch`].
    pub fn check(&self) -> Result<(), PostError> {
        let fits = |write: &RemoteWrite| {
            write.gather.iter().map(Bytes::len).sum::<usize>() == write.to.len as usize
        };
        if self.writes.iter().all(fits) { Ok(()) } else { Err(PostError::LengthMismatch) }
    }
}

impl SendPart {
    /// Returns the length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gather.iter().map(Bytes::len).sum()
    }

    /// Returns whether the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
