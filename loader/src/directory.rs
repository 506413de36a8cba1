//! Directories, and files small enough to be read at once.

use crate::backoff::patiently;
use crate::client::{Client, kind_and_size};
use crate::compound::Ops;
use crate::error::ClientError;
use crate::file::File;
use bytes::{Bytes, BytesMut};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::readdir;
use zgate_nfs_wire::v4::{Bitmap, OpNum};

/// NF4DIR.
pub const KIND_DIRECTORY: u32 = 2;
/// NF4REG.
pub const KIND_FILE: u32 = 1;
/// Size of one reply in bytes: with its header it fits into the memory that
/// RDMA offers for it.
const LIST_BYTES: u32 = 192 << 10;
const _: () = assert!((LIST_BYTES as usize) < crate::transport::rdma::REPLY_BYTES);

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name; bytes that are not UTF-8 are shown as replacement characters.
    pub name: String,
    /// nfs_ftype4.
    pub kind: u32,
    /// Length in bytes.
    pub size: u64,
}

/// Lists a directory, in the server's order.
///
/// # Errors
/// The error of the server or the connection.
pub async fn list(client: &Client, dir: &Fh) -> Result<Vec<Entry>, ClientError> {
    let mut entries = Vec::new();
    let (mut cookie, mut verifier) = (0, Default::default());
    loop {
        let args = readdir::Args {
            cookie,
            verifier,
            dircount: LIST_BYTES,
            maxcount: LIST_BYTES.min(client.max_transfer_bytes()),
            want: Bitmap::of(&[1, 4]),
        };
        let ops = Ops::new().putfh(dir).op(OpNum::Readdir, &args);
        let page = patiently(client.patience(), async || {
            let mut results = client.call(ops.clone(), false).await?;
            results.skip(OpNum::Putfh)?;
            results.next::<readdir::Res>(OpNum::Readdir)
        });
        let page = page.await?;
        let more = !page.eof && !page.entries.is_empty();
        for entry in &page.entries {
            let (kind, size) = kind_and_size(&entry.attrs)?;
            let name = String::from_utf8_lossy(&entry.name.0).into_owned();
            entries.push(Entry { name, kind, size });
        }
        if !more {
            return Ok(entries);
        }
        cookie = page.entries.last().map_or(0, |entry| entry.cookie);
        verifier = page.verifier;
    }
}

/// Reads `len` bytes of an open file at `offset`; less at its end.
///
/// # Errors
/// The error of the server or the connection.
pub async fn read_range(
    client: &Client,
    file: &File,
    offset: u64,
    len: u64,
) -> Result<Bytes, ClientError> {
    let mut all = BytesMut::new();
    while (all.len() as u64) < len {
        let count = (len - all.len() as u64).min(u64::from(client.max_transfer_bytes()));
        let (eof, data) = file.read(client, offset + all.len() as u64, count as u32).await?;
        all.extend_from_slice(&data);
        if eof || data.is_empty() {
            break;
        }
    }
    Ok(all.freeze())
}

/// Reads a whole file of at most `max_bytes`.
///
/// # Errors
/// [`ClientError::TooLarge`]; the error of the server or the connection.
pub async fn read_small(
    client: &Client,
    dir: &str,
    name: &str,
    max_bytes: u64,
) -> Result<Bytes, ClientError> {
    let dir = client.find(dir).await?;
    let file = File::open_briefly(client, &dir.fh, name).await?;
    let read = if file.size() > max_bytes {
        Err(ClientError::TooLarge { bytes: file.size(), max_bytes })
    } else {
        read_range(client, &file, 0, file.size()).await
    };
    file.close(client).await?;
    read
}
