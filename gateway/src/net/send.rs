//! Sender of replies: header bytes and payloads in one gathering send, file
//! spans by sendfile, pipes by splice.

use super::limits::SEAL_BYTES;
use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use zgate_io::{FilledPipe, forget_pages};
use zgate_store::{FileSpan, Payload};

/// Most pieces gathered into one send.
const MAX_PIECES: usize = 64;
/// Pieces that are gathered in a small place: that of [`MAX_PIECES`] has a kilobyte.
const FEW_PIECES: usize = 4;

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    /// Marker of a record, or what is left of it.
    Marker {
        word: [u8; 4],
        sent: u8,
    },
    Span {
        file: Arc<OwnedFd>,
        offset: u64,
        len: usize,
    },
    /// Bytes claimed by this sender.
    Pipe {
        data: Arc<FilledPipe>,
        len: usize,
    },
    /// Data that another sender has claimed: the stream ends here.
    Lost {
        len: usize,
    },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Marker { word, sent } => word.len() - usize::from(*sent),
            Self::Span { len, .. } | Self::Pipe { len, .. } | Self::Lost { len } => *len,
        }
    }

    /// Drops the first `sent` bytes, fewer than there are.
    fn advance(&mut self, sent: usize) {
        match self {
            Self::Bytes(bytes) => bytes.advance(sent),
            // Less than four bytes are sent of it.
            Self::Marker { sent: before, .. } => *before += sent as u8,
            Self::Span { offset, len, .. } => {
                *offset += sent as u64;
                *len -= sent;
            }
            Self::Pipe { len, .. } | Self::Lost { len } => *len -= sent,
        }
    }
}

/// Encryption of a stream.
pub(crate) trait Seal {
    /// Encrypts as much as one call takes; returns the number of bytes, and what
    /// is to be sent.
    ///
    /// # Errors
    /// If the stream can carry no more data.
    fn seal(&self, plain: &[IoSlice<'_>]) -> io::Result<(usize, Bytes)>;
}

/// Sending side of one connection.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pieces: VecDeque<Piece>,
    queued_bytes: usize,
    /// The first piece is ciphertext.
    is_sealed: bool,
    /// The stream ends where a file has been cut.
    ends_at_cut: bool,
}

impl Sender {
    /// Creates a sender that ends the stream where a file has been cut, instead
    /// of sending zeros: for data of disks, which nobody may invent.
    pub(crate) fn of_disks() -> Self {
        Self { ends_at_cut: true, ..Self::default() }
    }

    /// Queues a record marker.
    pub(crate) fn push_marker(&mut self, word: [u8; 4]) {
        self.queued_bytes += word.len();
        self.pieces.push_back(Piece::Marker { word, sent: 0 });
    }

    /// Queues a piece of a message that frames itself.
    pub(crate) fn push_payload(&mut self, payload: Payload) {
        self.queued_bytes += payload.len();
        match payload {
            Payload::Bytes(bytes) => self.pieces.push_back(Piece::Bytes(bytes)),
            Payload::Span(span) => self.push_span(span),
        }
    }

    fn push_span(&mut self, span: FileSpan) {
        let FileSpan { file, offset, len } = span;
        let file = match file.downcast::<OwnedFd>() {
            Ok(file) => return self.pieces.push_back(Piece::Span { file, offset, len }),
            Err(other) => other,
        };
        match file.downcast::<FilledPipe>() {
            Ok(data) if data.claim(offset, len) => self.pieces.push_back(Piece::Pipe { data, len }),
            Ok(_) => self.pieces.push_back(Piece::Lost { len }),
            // An error of the store; zeros keep the stream framed.
            Err(_) => self.push_zeros(len),
        }
    }

    fn push_zeros(&mut self, len: usize) {
        self.pieces.push_back(Piece::Bytes(Bytes::from(vec![0; len])));
    }

    /// Queues what another sender holds behind what this one holds.
    pub(crate) fn append(&mut self, later: &mut Self) {
        debug_assert!(!later.is_sealed, "what was encrypted is sent first");
        self.pieces.append(&mut later.pieces);
        self.queued_bytes += std::mem::take(&mut later.queued_bytes);
    }

    /// Returns the number of bytes waiting.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Sends as much as the socket accepts. Returns bytes sent.
    pub(crate) fn flush(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let mut total = 0;
        while let Some(first) = self.pieces.front_mut() {
            let sent = match first {
                Piece::Span { file, offset, len } => match send_span(stream, file, *offset, *len) {
                    Ok(0) if self.ends_at_cut => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(0) => {
                        // The file was truncated while it was sent: the
                        // missing part is sent as zeros, so that the
                        // announced length is kept.
                        let missing = *len;
                        self.pieces.pop_front();
                        let zeros = Piece::Bytes(Bytes::from(vec![0; missing]));
                        self.pieces.push_front(zeros);
                        continue;
                    }
                    Err(error) if is_of_the_disk(&error) => {
                        // The stream ends, and the client reads again: without these
                        // pages, which would be sent again, it is told of the error.
                        let (file, offset, len) = (Arc::clone(file), *offset, *len as u64);
                        spawn_blocking(move || forget_pages(&file, offset, len));
                        Err(error)
                    }
                    other => other,
                },
                Piece::Pipe { data, len } => {
                    match stream.try_io(Interest::WRITABLE, || data.send(stream, *len)) {
                        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                        other => other,
                    }
                }
                Piece::Lost { .. } => Err(io::ErrorKind::UnexpectedEof.into()),
                Piece::Bytes(_) | Piece::Marker { .. } => self.send_bytes(stream),
            };
            match sent {
                Ok(sent) => {
                    total += sent;
                    self.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Encrypts and sends as much as the socket accepts. Returns bytes sent. File
    /// spans cannot be encrypted: no reply over TLS has one.
    pub(crate) fn flush_sealed(
        &mut self,
        stream: &TcpStream,
        seal: &impl Seal,
    ) -> io::Result<usize> {
        let mut total = 0;
        loop {
            if !self.is_sealed {
                if self.pieces.is_empty() {
                    return Ok(total);
                }
                self.seal_some(seal)?;
                continue;
            }
            let Some(Piece::Bytes(ciphertext)) = self.pieces.front() else {
                self.is_sealed = false;
                continue;
            };
            match stream.try_write(ciphertext) {
                Ok(sent) => {
                    total += sent;
                    self.is_sealed = sent < ciphertext.len();
                    self.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces the first pieces by their ciphertext.
    fn seal_some(&mut self, seal: &impl Seal) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); MAX_PIECES];
        let (mut count, mut room) = (0, SEAL_BYTES);
        for piece in &self.pieces {
            let bytes = match piece {
                _ if count == MAX_PIECES || room == 0 => break,
                Piece::Bytes(bytes) => &bytes[..],
                Piece::Marker { word, sent } => &word[usize::from(*sent)..],
                _ => return Err(io::ErrorKind::Unsupported.into()),
            };
            let bytes = &bytes[..bytes.len().min(room)];
            room -= bytes.len();
            slices[count] = IoSlice::new(bytes);
            count += 1;
        }
        let is_plain = room < SEAL_BYTES;
        let (sealed, ciphertext) = seal.seal(&slices[..count])?;
        if is_plain && sealed == 0 && ciphertext.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(sealed);
        if !ciphertext.is_empty() {
            self.queued_bytes += ciphertext.len();
            self.pieces.push_front(Piece::Bytes(ciphertext));
            self.is_sealed = true;
        }
        Ok(())
    }

    fn send_bytes(&self, stream: &TcpStream) -> io::Result<usize> {
        if self.pieces.len() <= FEW_PIECES {
            self.gather::<FEW_PIECES>(stream)
        } else {
            self.gather::<MAX_PIECES>(stream)
        }
    }

    /// Sends the bytes of the first pieces, `MOST` at most.
    fn gather<const MOST: usize>(&self, stream: &TcpStream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MOST];
        let mut count = 0;
        let mut more = SendFlags::empty();
        for piece in &self.pieces {
            let bytes = match piece {
                _ if count == MOST => break,
                Piece::Bytes(bytes) => &bytes[..],
                Piece::Marker { word, sent } => &word[usize::from(*sent)..],
                Piece::Span { .. } | Piece::Pipe { .. } | Piece::Lost { .. } => {
                    more = SendFlags::MORE;
                    break;
                }
            };
            slices[count] = IoSlice::new(bytes);
            count += 1;
        }
        stream.try_io(Interest::WRITABLE, || {
            let flags = SendFlags::NOSIGNAL | more;
            let mut none = SendAncillaryBuffer::default();
            rustix::net::sendmsg(stream, &slices[..count], &mut none, flags)
                .map_err(io::Error::from)
        })
    }

    fn advance(&mut self, mut sent: usize) {
        self.queued_bytes -= sent;
        while let Some(first) = self.pieces.front_mut() {
            let len = first.len();
            if sent < len {
                first.advance(sent);
                return;
            }
            sent -= len;
            self.pieces.pop_front();
        }
    }
}

fn send_span(stream: &TcpStream, file: &OwnedFd, offset: u64, len: usize) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || {
        let mut at = offset;
        rustix::fs::sendfile(stream, file, Some(&mut at), len).map_err(io::Error::from)
    })
}

/// Returns whether an error of sendfile(2) is one of the file: a socket has none like it.
fn is_of_the_disk(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// A file system in an image, unmounted when dropped.
    struct Disk {
        at: PathBuf,
        image: PathBuf,
    }

    impl Disk {
        /// Needs root, loop devices and the tools of ext4: a test that lacks them fails where
        /// everything is required.
        fn new(dir: &Path) -> Option<Self> {
            let (at, image) = (dir.join("mounted"), dir.join("image"));
            std::fs::create_dir(&at).unwrap();
            std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
            let (from, to) = (image.to_str()?, at.to_str()?);
            let made = run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", "-m0", from])
                && run("mount", &["-o", "loop", from, to]);
            if !made {
                let needs = "it needs root, loop devices and the tools of ext4";
                zgate_test_harness::not_run("a test of a disk that cannot be read", needs);
            }
            made.then_some(Self { at, image })
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            run("umount", &["-l", self.at.to_str().unwrap_or_default()]);
        }
    }

    fn run(program: &str, args: &[&str]) -> bool {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    #[test]
    fn what_a_disk_cannot_read_is_not_sent_again() {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = Disk::new(dir.path()) else { return };
        std::fs::write(disk.at.join("f"), vec![7; 8 << 20]).unwrap();
        let file = std::fs::File::open(disk.at.join("f")).unwrap();
        file.sync_all().unwrap();
        // Truncate the disk, and drop the page cache of the file: a read leaves empty pages.
        std::fs::File::options().write(true).open(&disk.image).unwrap().set_len(1 << 20).unwrap();
        forget_pages(&OwnedFd::from(file.try_clone().unwrap()), 0, u64::MAX);
        assert!(file.read_exact_at(&mut [0; 4096], 4 << 20).is_err());
        let file = Arc::new(OwnedFd::from(file));
        if !zgate_io::is_resident(&file, 4 << 20, 4096) {
            return;
        }
        // One thread for what blocks: what is spawned later runs later.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = TcpStream::from_std(ours).unwrap();
            let mut sender = Sender::default();
            let span = FileSpan { file: Arc::clone(&file) as _, offset: 4 << 20, len: 1 << 20 };
            sender.push_payload(Payload::Span(span));
            ours.writable().await.unwrap();
            assert!(is_of_the_disk(&sender.flush(&ours).unwrap_err()));
            spawn_blocking(|| ()).await.unwrap();
            assert!(!zgate_io::is_resident(&file, 4 << 20, 4096));
        });
    }

    /// Takes a hundred bytes at most, and puts the number of bytes in front.
    struct Counting;

    impl Seal for Counting {
        fn seal(&self, plain: &[IoSlice<'_>]) -> io::Result<(usize, Bytes)> {
            let bytes = plain.iter().flat_map(|slice| slice.iter().copied());
            let mut plain: Vec<u8> = bytes.take(100).collect();
            let taken = plain.len();
            if taken > 0 {
                plain.insert(0, taken as u8);
            }
            Ok((taken, plain.into()))
        }
    }

    #[test]
    fn ciphertext_takes_the_place_of_what_was_encrypted() {
        let mut sender = Sender::default();
        sender.push_payload(Payload::Bytes(Bytes::new()));
        sender.push_marker([1, 2, 3, 4]);
        sender.push_payload(Payload::Bytes(Bytes::from(vec![9; 150])));
        assert_eq!(sender.queued_bytes(), 154);
        sender.seal_some(&Counting).unwrap();
        assert!(sender.is_sealed);
        assert_eq!((sender.pieces.len(), sender.queued_bytes()), (2, 101 + 54));
        assert!(
            matches!(&sender.pieces[0], Piece::Bytes(sealed) if sealed[..6] == [100, 1, 2, 3, 4, 9])
        );
        sender.advance(101);
        sender.seal_some(&Counting).unwrap();
        assert_eq!((sender.pieces.len(), sender.queued_bytes()), (1, 55));
        // What TLS has nothing to say about leaves nothing.
        sender.advance(55);
        (sender.is_sealed, sender.pieces) = (false, [Piece::Bytes(Bytes::new())].into());
        sender.seal_some(&Counting).unwrap();
        assert!(sender.is_empty() && !sender.is_sealed);
    }

    #[tokio::test]
    async fn a_full_socket_keeps_the_order_of_ciphertext() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = TcpStream::from_std(ours).unwrap();
        let plain: Vec<u8> = (0..16_u32 << 20).map(|at| (at / 100 % 251) as u8).collect();
        let mut sender = Sender::default();
        sender.push_payload(Payload::Bytes(plain.clone().into()));
        ours.writable().await.unwrap();
        sender.flush_sealed(&ours, &Counting).unwrap();
        assert!(!sender.is_empty(), "the socket is full");
        let mut later = Sender::default();
        later.push_payload(Payload::Bytes(Bytes::from_static(b"the end")));
        sender.append(&mut later);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut theirs, &mut all).unwrap();
            all
        });
        while !sender.is_empty() {
            ours.writable().await.unwrap();
            sender.flush_sealed(&ours, &Counting).unwrap();
        }
        assert_eq!(sender.queued_bytes(), 0);
        drop(ours);
        let (sealed, mut opened) = (reader.join().unwrap(), Vec::new());
        let mut rest = &sealed[..];
        while let Some((taken, more)) = rest.split_first() {
            let (part, more) = more.split_at(usize::from(*taken));
            opened.extend_from_slice(part);
            rest = more;
        }
        assert!(opened == [&plain[..], b"the end"].concat());
    }

    #[tokio::test]
    async fn data_in_a_pipe_is_sent_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = TcpStream::from_std(ours).unwrap();
        let content: Vec<u8> = (0..900_000_u32).map(|at| (at / 100 % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &content).unwrap();
        let pipes = Arc::new(zgate_io::Pipes::new());
        let filled = pipes.read(&file.into(), 0, content.len()).unwrap().unwrap();
        let span = FileSpan { file: Arc::new(filled), offset: 0, len: content.len() };
        let mut sender = Sender::default();
        sender.push_marker([1, 2, 3, 4]);
        sender.push_payload(Payload::Span(span.clone()));
        sender.push_payload(Payload::Bytes(Bytes::from_static(b"pad")));
        assert_eq!(sender.queued_bytes(), 4 + content.len() + 3);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut theirs, &mut all).unwrap();
            all
        });
        while !sender.is_empty() {
            ours.writable().await.unwrap();
            sender.flush(&ours).unwrap();
        }
        // What another sender has taken must not become other data.
        sender.push_payload(Payload::Span(span));
        assert_eq!(sender.flush(&ours).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(ours);
        assert!(reader.join().unwrap() == [&[1, 2, 3, 4], &content[..], b"pad"].concat());
    }

    /// Few pieces are gathered in a smaller place than many.
    #[tokio::test]
    async fn any_number_of_pieces_is_sent_in_order() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for count in [1, FEW_PIECES, FEW_PIECES + 1, MAX_PIECES, MAX_PIECES + 1] {
            let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = TcpStream::from_std(ours).unwrap();
            let mut sender = Sender::default();
            for number in 0..count {
                sender.push_payload(Payload::Bytes(Bytes::from(vec![number as u8; 3])));
            }
            ours.writable().await.unwrap();
            assert_eq!(sender.flush(&ours).unwrap(), 3 * count);
            assert!(sender.is_empty() && sender.queued_bytes() == 0);
            drop(ours);
            let mut got = Vec::new();
            std::io::Read::read_to_end(&mut theirs, &mut got).unwrap();
            let expected: Vec<u8> = (0..count).flat_map(|number| [number as u8; 3]).collect();
            assert_eq!(got, expected, "{count} pieces");
        }
    }

    /// A reply of NFS keeps its length; a disk's data ends with its connection.
    #[tokio::test]
    async fn a_file_that_was_cut_is_filled_up_or_ends_the_stream() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for mut sender in [Sender::default(), Sender::of_disks()] {
            let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = TcpStream::from_std(ours).unwrap();
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, &[7; 1000]).unwrap();
            let file = Arc::new(OwnedFd::from(file));
            sender.push_payload(Payload::Span(FileSpan { file, offset: 0, len: 3000 }));
            ours.writable().await.unwrap();
            let sent = sender.flush(&ours);
            drop(ours);
            let mut got = Vec::new();
            std::io::Read::read_to_end(&mut theirs, &mut got).unwrap();
            assert!(got[..1000] == [7; 1000]);
            if sender.ends_at_cut {
                assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                assert_eq!(got.len(), 1000);
            } else {
                assert_eq!(sent.unwrap(), 3000);
                assert!(got[1000..] == [0; 2000]);
            }
        }
    }

    #[test]
    fn a_marker_may_leave_in_two_parts() {
        let mut sender = Sender::default();
        sender.push_marker([1, 2, 3, 4]);
        sender.push_payload(Payload::Bytes(Bytes::from_static(b"five")));
        sender.advance(3);
        assert!(matches!(sender.pieces[0], Piece::Marker { word: [1, 2, 3, 4], sent: 3 }));
        sender.advance(3);
        assert!(matches!(&sender.pieces[0], Piece::Bytes(rest) if &rest[..] == b"ve"));
        assert_eq!((sender.pieces.len(), sender.queued_bytes()), (1, 2));
        let mut later = Sender::default();
        later.push_marker([0; 4]);
        sender.append(&mut later);
        assert_eq!((sender.queued_bytes(), later.queued_bytes()), (6, 0));
        sender.advance(6);
        assert!(sender.is_empty() && later.is_empty());
    }
}
