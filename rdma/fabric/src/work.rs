//! What is posted to a connection, and what becomes of it.

use bytes::Bytes;
use std::fmt;
use thiserror::Error;
use zgate_store::AlignedBuf;

/// A number the poster chooses; its event carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSlice {
    /// The key it is registered under.
    pub rkey: u32,
    /// Its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// One RDMA Read: a piece of the peer's memory into a part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRead {
    /// What is read.
    pub from: RemoteSlice,
    /// Which of the batch's buffers it goes to.
    pub buffer: usize,
    /// Where in it, in bytes.
    pub offset: usize,
}

/// RDMA Reads that end together. The buffers come back with the event.
#[derive(Debug)]
pub struct ReadBatch {
    /// Chosen by the poster.
    pub id: WorkId,
    /// Memory that is written.
    pub buffers: Vec<AlignedBuf>,
    /// The reads.
    pub reads: Vec<RemoteRead>,
}

/// One RDMA Write: bytes gathered from several places into one piece of the
/// peer's memory, whose length is theirs.
#[derive(Clone, Debug)]
pub struct RemoteWrite {
    /// Where it goes.
    pub to: RemoteSlice,
    /// What is written.
    pub gather: Vec<Bytes>,
}

/// The message at the end of a batch.
#[derive(Clone, Debug, Default)]
pub struct SendPart {
    /// Its bytes.
    pub gather: Vec<Bytes>,
    /// A key of the peer that this message takes out of use.
    pub invalidate: Option<u32>,
}

/// RDMA Writes and the Send behind them, which the peer receives after all of
/// them are in its memory. They end together.
#[derive(Clone, Debug)]
pub struct SendBatch {
    /// Chosen by the poster.
    pub id: WorkId,
    /// The writes, in order.
    pub writes: Vec<RemoteWrite>,
    /// The message.
    pub send: Option<SendPart>,
}

/// What kind of work an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A posted receive.
    Receive,
    /// A batch of reads.
    Read,
    /// A batch of writes with or without a send.
    Send,
}

/// Why work failed. After any of these the connection is of no use.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WorkStatus {
    /// Other work failed first, or the connection ended.
    #[error("flushed")]
    Flushed,
    /// A message was longer than the receive posted for it.
    #[error("a message longer than its receive")]
    LocalLength,
    /// The peer's memory may not be used like this: key, bounds or rights.
    #[error("the peer refuses access to its memory")]
    RemoteAccess,
    /// The peer could not take the message.
    #[error("the peer refuses the request")]
    RemoteInvalidRequest,
    /// The peer failed while it carried the request out.
    #[error("the peer failed the request")]
    RemoteOperation,
    /// The peer had no receive posted for too long.
    #[error("the peer posts no receives")]
    ReceiverNotReady,
    /// The peer does not answer any more.
    #[error("the peer does not answer")]
    RetryExceeded,
    /// Local memory or the device failed; the device's number for it.
    #[error("the device failed with status {0}")]
    Device(u32),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// Ended from here.
    Local,
    /// The peer ended it or is gone.
    Peer,
    /// Work failed on either side.
    Error,
    /// The device was taken away or its port went down.
    DeviceGone,
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "closed here",
            Self::Peer => "closed by the peer",
            Self::Error => "broken by failed work",
            Self::DeviceGone => "the device is gone",
        })
    }
}

/// What happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// A message came in.
    Received {
        /// The receive it took.
        id: WorkId,
        /// Its buffer.
        buffer: AlignedBuf,
        /// Bytes of the message.
        len: usize,
        /// A key of ours that the peer took out of use with it.
        invalidated: Option<u32>,
    },
    /// Reads are done.
    Read {
        /// The batch.
        id: WorkId,
        /// Its buffers.
        buffers: Vec<AlignedBuf>,
    },
    /// Writes and Send are done: the peer has them.
    Sent {
        /// The batch.
        id: WorkId,
    },
    /// Work was not done. Its buffers come back; what is in them is unknown.
    Failed {
        /// The work.
        id: WorkId,
        /// Its kind.
        kind: WorkKind,
        /// Why.
        status: WorkStatus,
        /// Buffers of receives and reads.
        buffers: Vec<AlignedBuf>,
    },
    /// The connection ended; the last event. All work has come back before it.
    Disconnected(Disconnect),
}

/// Work that cannot be posted: the poster's mistake.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PostError {
    /// A part outside its buffer.
    #[error("a read into bytes that are not in its buffer")]
    OutsideBuffer,
    /// The bytes gathered are not as many as the remote piece has.
    #[error("a write of other than its length")]
    LengthMismatch,
    /// The message is longer than can be carried.
    #[error("a message beyond the limit")]
    TooLong,
}

impl ReadBatch {
    /// Checks that every read ends up inside its buffer.
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
    /// Checks that every write is as long as what it carries.
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
    /// Bytes of the message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gather.iter().map(Bytes::len).sum()
    }

    /// Whether the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
