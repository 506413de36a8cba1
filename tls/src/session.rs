//! TLS records of one connection. The task of the connection decrypts, any
//! thread that sends replies encrypts: a lock is held for either, never while
//! data is sent.

use crate::authorities::ClientCertificate;
use crate::certificates::Certificates;
use crate::limits::{MAX_RECEIVES_PER_READ, TLS_RECEIVE_BYTES};
use crate::offer::TlsOffer;
use crate::stream::ByteStream;
use bytes::Bytes;
use rustls::ServerConnection;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of TLS, and ciphertext that has arrived.
pub(super) struct Records {
    pub(super) tls: ServerConnection,
    received: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read ended because the reader's buffer was full, or because it had
    /// received enough.
    has_more: bool,
}

impl Records {
    pub(super) fn new(tls: ServerConnection) -> Self {
        Self { tls, received: vec![0; TLS_RECEIVE_BYTES], start: 0, end: 0, has_more: true }
    }

    /// Receives ciphertext without waiting, at most `most` bytes. `Ok(0)`: the
    /// peer closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; the socket's error.
    pub(super) fn receive(&mut self, stream: &impl ByteStream, most: usize) -> io::Result<usize> {
        let most = most.min(self.received.len());
        let got = stream.try_read(&mut self.received[..most])?;
        (self.start, self.end) = (0, got);
        Ok(got)
    }

    /// Returns whether ciphertext has arrived that TLS has not seen.
    pub(super) fn has_received(&self) -> bool {
        self.start < self.end
    }

    /// Passes ciphertext to TLS.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the peer violates the protocol; an
    /// alert waits to be sent then.
    pub(super) fn process(&mut self) -> io::Result<()> {
        let mut rest = &self.received[self.start..self.end];
        let before = rest.len();
        self.tls.read_tls(&mut rest)?;
        if rest.len() == before {
            // After the peer's farewell nothing is read.
            self.start = self.end;
        } else {
            self.start = self.end - rest.len();
        }
        let invalid = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.tls.process_new_packets().map(drop).map_err(invalid)
    }

    fn read(&mut self, stream: &impl ByteStream, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut filled, mut receives) = (0, 0);
        self.has_more = false;
        loop {
            match self.tls.reader().read(&mut buffer[filled..]) {
                Ok(0) if filled == buffer.len() => {
                    self.has_more = true;
                    return Ok(filled);
                }
                // The peer's farewell; the next read tells it.
                Ok(0) => {
                    self.has_more = filled > 0;
                    return Ok(filled);
                }
                Ok(got) => {
                    filled += got;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !self.has_received() {
                if receives == MAX_RECEIVES_PER_READ {
                    self.has_more = true;
                    // No bytes would be the end of the connection.
                    return if filled > 0 {
                        Ok(filled)
                    } else {
                        Err(io::ErrorKind::WouldBlock.into())
                    };
                }
                receives += 1;
                match self.receive(stream, TLS_RECEIVE_BYTES) {
                    Ok(0) => return Ok(filled),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => {
                        return Ok(filled);
                    }
                    Err(error) => return Err(error),
                }
            }
            self.process()?;
        }
    }

    /// Takes the ciphertext that waits to be sent.
    pub(super) fn take_ciphertext(&mut self) -> io::Result<Vec<u8>> {
        let mut ciphertext = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut ciphertext)?;
        }
        Ok(ciphertext)
    }
}

/// TLS of one connection after its handshake.
pub struct TlsSession {
    records: Mutex<Records>,
    /// The certificate of a trusted authority that the peer has shown.
    pub certificate: Option<ClientCertificate>,
    /// The kernel encrypts what is sent; nothing that rustls encrypts may be.
    pub by_kernel: bool,
    /// Number of replacements of the gateway's certificates, revocation lists
    /// among them, when the peer's was checked last.
    checked: AtomicU64,
}

impl TlsSession {
    pub(super) fn new(records: Records, certificates: &Certificates, by_kernel: bool) -> Self {
        let domain = certificates.user_domain.as_deref();
        let certificate = records.tls.peer_certificates().and_then(|chain| {
            let clients = certificates.clients.as_ref()?;
            clients.describe(chain, domain, certificates.now()?)
        });
        let checked = AtomicU64::new(certificates.number);
        Self { records: Mutex::new(records), certificate, by_kernel, checked }
    }

    /// Returns whether the peer's certificate has been revoked since the last
    /// call.
    pub fn is_revoked(&self, offer: &TlsOffer) -> bool {
        let replacements = offer.replacements();
        if self.certificate.is_none()
            || self.checked.swap(replacements, Ordering::Relaxed) == replacements
        {
            return false;
        }
        let Some(certificates) = offer.certificates() else { return false };
        let Some(clients) = &certificates.clients else { return false };
        // Without a clock nothing can be said for a certificate.
        let Some(now) = certificates.now() else { return true };
        self.lock().tls.peer_certificates().is_some_and(|chain| clients.revokes(chain, now))
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the available data without waiting, as far as a bounded number of
    /// receives brings it; [`Self::has_more`] tells whether there may be more.
    /// `Ok(0)`: the peer closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no data is available, or none so far;
    /// [`io::ErrorKind::InvalidData`] for data that is not TLS; the socket's
    /// error.
    pub fn read_some(&self, stream: &impl ByteStream, buffer: &mut [u8]) -> io::Result<usize> {
        self.lock().read(stream, buffer)
    }

    /// Returns whether the last read may have left data that the socket no longer
    /// announces.
    pub fn has_more(&self) -> bool {
        self.lock().has_more
    }

    /// Returns whether TLS itself has something to say to the peer. rustls keeps its
    /// answer to a request for other keys until it encrypts data, which it never does
    /// where the kernel encrypts: there, data of no length makes it speak.
    pub fn must_answer(&self) -> bool {
        let mut records = self.lock();
        if self.by_kernel {
            // It fails after a violation of the peer, which the read has told.
            let _ = records.tls.writer().write(&[]);
        }
        records.tls.wants_write()
    }

    /// Returns the last words to the peer: a farewell, and an alert if it has
    /// violated the protocol. There are none where the kernel encrypts.
    pub fn farewell(&self) -> Vec<u8> {
        if self.by_kernel {
            return Vec::new();
        }
        let mut records = self.lock();
        records.tls.send_close_notify();
        records.take_ciphertext().unwrap_or_default()
    }

    /// Encrypts as much as one call takes; returns the number of bytes, and what
    /// is to be sent.
    ///
    /// # Errors
    /// If the stream can carry no more data.
    pub fn seal(&self, plain: &[IoSlice<'_>]) -> io::Result<(usize, Bytes)> {
        let mut records = self.lock();
        let sealed = records.tls.writer().write_vectored(plain)?;
        Ok((sealed, records.take_ciphertext()?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ClientConnection;
    use std::cell::{Cell, RefCell};
    use zgate_config::TlsConfig;
    use zgate_test_harness::certificates::{Authority, client, server_files};

    /// Moves records from one side to the other.
    fn pass<A, B>(
        from: &mut rustls::ConnectionCommon<A>,
        to: &mut rustls::ConnectionCommon<B>,
    ) -> bool {
        let mut records = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut records).unwrap();
        }
        let mut rest = &records[..];
        while !rest.is_empty() {
            to.read_tls(&mut rest).unwrap();
            to.process_new_packets().unwrap();
        }
        !records.is_empty()
    }

    /// A client, and the session of the server after their handshake.
    fn session(by_kernel: bool) -> (ClientConnection, TlsSession) {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::new();
        let files = server_files(dir.path(), &ca, None);
        let certificates = Certificates::read(&TlsConfig {
            certificate: files.certificate,
            key: files.key,
            client_ca: None,
            client_crl: None,
            kernel_records: true,
            user_domain: None,
        });
        let certificates = certificates.unwrap();
        let mut server = ServerConnection::new(certificates.config.clone()).unwrap();
        let mut client = client(&ca, None, &[b"sunrpc"]);
        while pass(&mut client, &mut server) | pass(&mut server, &mut client) {}
        assert!(!client.is_handshaking() && !server.is_handshaking());
        (client, TlsSession::new(Records::new(server), &certificates, by_kernel))
    }

    /// Returns what a client has to send.
    fn sent(client: &mut ClientConnection) -> Vec<u8> {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        sent
    }

    /// Bytes that the peer has sent.
    struct Arrived {
        bytes: RefCell<Vec<u8>>,
        /// Most bytes that one receive gets.
        at_once: usize,
        receives: Cell<usize>,
    }

    impl Arrived {
        fn new(bytes: Vec<u8>, at_once: usize) -> Self {
            Self { bytes: RefCell::new(bytes), at_once, receives: Cell::new(0) }
        }
    }

    impl ByteStream for Arrived {
        fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            self.receives.set(self.receives.get() + 1);
            let mut bytes = self.bytes.borrow_mut();
            if bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let most = bytes.len().min(buffer.len()).min(self.at_once);
            buffer[..most].copy_from_slice(&bytes[..most]);
            bytes.drain(..most);
            Ok(most)
        }

        fn try_write(&self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// A client that asks for other keys (RFC 8446 §4.6.3) is owed an answer, by which
    /// the task of the connection sees that it must end where the kernel encrypts;
    /// what this process has encrypted for it is never sent then: it would use the
    /// kernel's nonces once more (docs/spec-exceptions/tls-key-update.md).
    #[test]
    fn who_asks_for_keys_that_the_kernel_has_gets_nothing_under_the_old_ones() {
        for by_kernel in [false, true] {
            let (mut client, session) = session(by_kernel);
            assert!(!session.must_answer());
            client.refresh_traffic_keys().unwrap();
            client.writer().write_all(b"call").unwrap();
            let stream = Arrived::new(sent(&mut client), usize::MAX);
            let mut buffer = [0; 16];
            assert_eq!(session.read_some(&stream, &mut buffer).unwrap(), 4, "under the new keys");
            // In this process the answer goes before the next reply.
            assert_eq!(session.must_answer(), by_kernel);
            assert_eq!(session.farewell().is_empty(), by_kernel);
        }
    }

    /// A peer that sends much that carries little gets no more time at once than others;
    /// what is left is read by later calls.
    #[test]
    fn one_read_receives_a_bounded_number_of_times() {
        let (mut client, session) = session(false);
        for byte in *b"call" {
            client.writer().write_all(&[byte]).unwrap();
        }
        let stream = Arrived::new(sent(&mut client), 1);
        let (mut got, mut buffer) = (Vec::new(), [0; 16]);
        while got.len() < 4 {
            stream.receives.set(0);
            match session.read_some(&stream, &mut buffer) {
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(stream.receives.get() <= MAX_RECEIVES_PER_READ);
            assert!(session.has_more() || stream.bytes.borrow().is_empty());
        }
        assert_eq!(got, b"call");
    }
}
