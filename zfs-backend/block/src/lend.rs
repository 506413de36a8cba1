//! Reads for a socket: a range of a file in the page cache, or a pipe that the
//! kernel has filled, in place of bytes in memory.

use crate::backing::{Backing, BackingKind};
use crate::span::Span;
use crate::volume::BlockVolume;
use std::io;
use std::sync::Arc;
use zgate_io::forget_pages;
use zgate_store::{FileSpan, MIN_SPAN_BYTES, Payload, StoreError, StoreResult};

impl BlockVolume {
    /// Reads for a transport that can send a span.
    pub(crate) async fn get_to_send(&self, offset: u64, len: usize) -> StoreResult<Payload> {
        if len >= MIN_SPAN_BYTES {
            let span = self.span(offset, len as u64)?;
            if let Some(lent) = self.lend(span, len).await? {
                return Ok(Payload::Span(lent));
            }
        }
        self.get(offset, len).await
    }

    /// Returns a range of a file or of a pipe from which a socket can take the
    /// data; `None` if it has to be read into memory.
    async fn lend(&self, span: Span, len: usize) -> StoreResult<Option<FileSpan>> {
        let (fd, offset) = (&self.backing.fd, span.offset);
        if lends_pages(&self.backing)
            && self.engine.is_resident(fd, offset, span.len)
            // Pages may reach beyond the end of a file that was cut.
            && self.backing.size_below().is_ok_and(|size| span.end() <= size)
        {
            return Ok(Some(FileSpan { file: Arc::clone(fd) as _, offset, len }));
        }
        let filled = match self.backing.direct {
            None => self.engine.read_to_pipe(fd, offset, len).await,
            Some(alignment) if waits_in_the_kernel(&self.backing) => {
                if !span.is_aligned(u64::from(alignment.offset_bytes)) {
                    return Ok(None);
                }
                self.engine.read_direct_to_pipe(fd, offset, len).await
            }
            Some(_) => return Ok(None),
        };
        let filled = filled.map_err(|error| self.fault("read", span, &error))?;
        Ok(filled.map(|pipe| FileSpan { file: Arc::new(pipe), offset: 0, len }))
    }

    /// Returns the error of a read. The pages that the disk could not fill stay in the
    /// page cache, and the next read would lend them: they are dropped.
    pub(crate) async fn failed_read(&self, span: Span, error: &io::Error) -> StoreError {
        let named = self.fault("read", span, error);
        if lends_pages(&self.backing) {
            let backing = Arc::clone(&self.backing);
            let forget = move || forget_pages(&backing.fd, span.offset, span.len);
            let _ = self.engine.run_long(forget).await;
        }
        named
    }
}

/// Returns whether pages of the page cache may be sent: not those of a device,
/// whose cache belongs to others as well.
fn lends_pages(backing: &Backing) -> bool {
    backing.direct.is_none() && backing.shape.kind == BackingKind::File
}

/// Returns whether reads of the device keep a worker of the kernel waiting, so
/// that one of ours can as well fill a pipe.
fn waits_in_the_kernel(backing: &Backing) -> bool {
    backing.shape.kind == BackingKind::Zvol
}
