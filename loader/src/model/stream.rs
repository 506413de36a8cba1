//! Whole files as streams of pieces, in order: for GGUF models, and copies.

use super::LoadError;
use super::memory::Memory;
use super::regions::unchanged;
use crate::client::Client;
use crate::file::File;
use crate::transport::ReadBuffer;
use bytes::BytesMut;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// Most bytes of a piece; as many pieces as requests in flight are in memory.
const PIECE_BYTES: u64 = 1 << 20;

/// A file being read. The bytes in flight are bounded by its depth.
#[derive(Debug)]
pub struct FileStream {
    client: Arc<Client>,
    name: String,
    file: File,
    /// Next offset to request.
    ahead: u64,
    /// Next offset to return.
    at: u64,
    size: u64,
    depth: usize,
    memory: Arc<Memory>,
    running: VecDeque<AbortOnDropHandle<Result<BytesMut, LoadError>>>,
}

impl FileStream {
    /// Streams bytes `offset..size` of an open file with `depth` requests in
    /// flight; needs a tokio runtime. `name` is for messages.
    #[must_use]
    pub fn start(
        client: Arc<Client>,
        name: &str,
        file: File,
        range: std::ops::Range<u64>,
        depth: usize,
    ) -> Self {
        let depth = depth.max(1);
        let mut stream = Self {
            client,
            name: name.to_owned(),
            file,
            ahead: range.start,
            at: range.start,
            size: range.end,
            depth,
            memory: Arc::new(Memory::new((depth as u64).saturating_mul(PIECE_BYTES))),
            running: VecDeque::new(),
        };
        stream.ask();
        stream
    }

    fn ask(&mut self) {
        while self.running.len() < self.depth && self.ahead < self.size {
            let len = (self.size - self.ahead)
                .min(PIECE_BYTES)
                .min(self.client.max_transfer_bytes().into());
            let (client, file, name) =
                (Arc::clone(&self.client), self.file.clone(), self.name.clone());
            let (offset, memory) = (self.ahead, Arc::clone(&self.memory));
            self.running.push_back(AbortOnDropHandle::new(tokio::spawn(async move {
                fill(&client, &file, &name, offset, memory.take(len as usize)).await
            })));
            self.ahead += len;
        }
    }

    /// Returns the next piece; none at the end.
    ///
    /// # Errors
    /// The reason for which the rest cannot be read; at the end,
    /// [`LoadError::Changed`] if the pieces may be of several versions of the
    /// file.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, LoadError> {
        let Some(first) = self.running.pop_front() else {
            return unchanged(&self.client, &self.name, &self.file).await.map(|()| None);
        };
        let stopped = |_| LoadError::Ended(format!("{}: the load was stopped", self.name));
        let data = first.await.map_err(stopped)??;
        self.at += data.len() as u64;
        self.ask();
        Ok(Some(data))
    }

    /// Returns the offset up to which bytes were returned.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }
}

/// Fills `memory` from `offset` on.
pub(super) async fn fill(
    client: &Client,
    file: &File,
    name: &str,
    offset: u64,
    mut memory: BytesMut,
) -> Result<BytesMut, LoadError> {
    let mut filled: Option<BytesMut> = None;
    loop {
        let at = offset + filled.as_ref().map_or(0, BytesMut::len) as u64;
        let (result, read_buffer) = file.read_into(client, at, ReadBuffer::new(memory)).await;
        let (_, got) =
            result.map_err(|source| LoadError::Client { what: name.to_owned(), source })?;
        let mut part = read_buffer
            .and_then(ReadBuffer::into::<BytesMut>)
            .ok_or_else(|| LoadError::Ended(format!("{name}: the load was stopped")))?;
        if got == 0 {
            let reason = format!("the file ends at byte {at}: it was truncated while it was read");
            return Err(LoadError::Format { file: name.to_owned(), reason });
        }
        let rest = part.split_off(got);
        let whole = match filled.take() {
            None => part,
            Some(mut first) => {
                first.unsplit(part);
                first
            }
        };
        if rest.is_empty() {
            return Ok(whole);
        }
        (filled, memory) = (Some(whole), rest);
    }
}
