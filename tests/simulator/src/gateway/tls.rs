//! The server's end of TCP connections that may go into TLS, as
//! `gateway/src/nfs/tcp.rs` and `starttls.rs` serve them. The rules, the handshake
//! and the records are the product's; what is repeated is the order of steps of
//! such a connection.

use super::{Gateway, Instance};
use crate::executor::{Domain, lock};
use crate::loader::LOADER;
use crate::mutant::Mutant;
use crate::network::{Network, Pipe, is_reply, next_record, xid_of};
use crate::tls::TlsSetup;
use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use zgate_nfs::Peer;
use zgate_nfs::dispatch::serves;
use zgate_nfs::namespace::ClientRule;
use zgate_nfs::runtime::{CallbackFailure, ConnectionId, PeerCertificate, Protection};
use zgate_rpc::record::Marker;
use zgate_tls::limits::HANDSHAKE_PATIENCE;
use zgate_tls::{Handshake, StartTls, TlsOffer, TlsSession};

/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// The entries of clients where the export admits nothing less than TLS; the loader
/// has none.
pub(super) fn rules(setup: &TlsSetup, open: &[ClientRule]) -> Vec<ClientRule> {
    let loader = vec![IpNet::from(Network::address(LOADER).0)];
    let of_loader =
        open.iter().cloned().map(|rule| ClientRule { networks: loader.clone(), ..rule });
    let others = open.iter().cloned();
    let others = others.map(|rule| ClientRule { protection: setup.least, ..rule });
    of_loader.chain(others).collect()
}

/// TLS of one start of the server.
pub(super) struct TlsService {
    pub(super) offer: Arc<TlsOffer>,
    ends: Mutex<BTreeMap<u64, ServerEnd>>,
}

impl TlsService {
    pub(super) fn new(setup: &TlsSetup) -> Self {
        let offer = Arc::<TlsOffer>::default();
        offer.replace(Some(setup.certificates()));
        Self { offer, ends: Mutex::default() }
    }
}

/// The server's end of a connection.
struct ServerEnd {
    peer: Peer,
    start_tls: StartTls,
    session: Option<TlsSession>,
    /// Bytes of records, in the clear or decrypted.
    received: BytesMut,
    /// Requests in the clear that run.
    running: usize,
    /// The server's calls that wait for their replies.
    callbacks: BTreeMap<u32, oneshot::Sender<Bytes>>,
}

/// Reason for which the server ends a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    ByPeer,
    Misbehaved,
    Slow,
    Revoked,
    Overloaded,
}

impl ServerEnd {
    fn new(peer: Peer) -> Self {
        let (start_tls, session) = (StartTls::Idle, None);
        let (received, callbacks) = (BytesMut::new(), BTreeMap::new());
        Self { peer, start_tls, session, received, running: 0, callbacks }
    }

    /// Reads what has arrived; `false`: nothing has.
    fn read(&mut self, pipe: &Pipe<'_>) -> Result<bool, End> {
        let mut buffer = [0; READ_BYTES];
        let read = match &self.session {
            Some(session) => session.read_some(pipe, &mut buffer),
            None => zgate_tls::ByteStream::try_read(pipe, &mut buffer),
        };
        match read {
            Ok(0) => Err(End::ByPeer),
            Ok(got) => {
                self.received.extend_from_slice(&buffer[..got]);
                Ok(true)
            }
            // A read of a session ends early where much carries little.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(self.session.as_ref().is_some_and(TlsSession::has_more))
            }
            Err(_) => Err(End::Misbehaved),
        }
    }

    /// Encrypts a record, if TLS has begun, and sends it.
    fn send(&self, pipe: &Pipe<'_>, record: &Bytes) {
        let Some(marker) = Marker::whole(record.len()) else { return };
        let framed = [&marker[..], record].concat();
        let Some(session) = &self.session else { return pipe.send(framed.into()) };
        pipe.promise(record.clone());
        let (mut at, mut sealed) = (0, BytesMut::new());
        while at < framed.len() {
            match session.seal(&[IoSlice::new(&framed[at..])]) {
                Ok((taken, bytes)) => {
                    at += taken;
                    sealed.extend_from_slice(&bytes);
                }
                // It takes no more: the next read tells the reason.
                Err(_) => return,
            }
        }
        pipe.send(sealed.freeze());
    }
}

impl Gateway {
    fn tls_of(&self, server: u32) -> Option<Arc<Instance>> {
        self.instance(server).filter(|instance| instance.tls.is_some())
    }

    /// Bytes of a connection, or its end, have arrived.
    pub fn bytes_arrived(self: &Arc<Self>, server: u32, number: u64, peer: &Peer) {
        let Some(instance) = self.tls_of(server) else { return };
        if instance.drains.load(Ordering::Acquire) {
            return;
        }
        let Some(tls) = &instance.tls else { return };
        let advanced = {
            let mut ends = lock(&tls.ends);
            let end = ends.entry(number).or_insert_with(|| ServerEnd::new(self.seen_as(peer)));
            let mut records = Vec::new();
            let advanced = self.advance(&instance, number, end, &mut records);
            let served = (end.peer.clone(), end.session.is_some());
            advanced.map(|()| (records, served))
        };
        match advanced {
            Ok((records, (peer, is_secure))) => {
                for record in records {
                    self.begin(server, number, (peer.clone(), is_secure), record);
                }
            }
            Err(end) => self.end_connection(&instance, number, end),
        }
    }

    /// A peer, as the exports see it before its handshake.
    fn seen_as(&self, peer: &Peer) -> Peer {
        match self.mutant {
            Some(Mutant::PlainServed) => Peer { protection: Protection::MutualTls, ..peer.clone() },
            _ => peer.clone(),
        }
    }

    /// Makes all progress that is possible; `records` are to be served.
    fn advance(
        self: &Arc<Self>,
        instance: &Instance,
        number: u64,
        end: &mut ServerEnd,
        records: &mut Vec<Bytes>,
    ) -> Result<(), End> {
        let Some(tls) = &instance.tls else { return Ok(()) };
        let pipe = self.network.server_pipe(number);
        loop {
            if end.start_tls.is_under_way() {
                let advanced = end.start_tls.advance(&pipe, end.running == 0);
                match advanced.map_err(|_| End::Misbehaved)? {
                    Some(handshake) => self.complete(number, end, *handshake),
                    None => return Ok(()),
                }
            } else if !end.read(&pipe)? {
                return Ok(());
            }
            if end.session.as_ref().is_some_and(|session| session.is_revoked(&tls.offer))
                && self.mutant != Some(Mutant::RevokedServes)
            {
                return Err(End::Revoked);
            }
            if end.session.as_ref().is_some_and(TlsSession::must_answer) {
                // The answer to a request for other keys goes before the next reply.
                let sealed = end.session.as_ref().map(|session| session.seal(&[]));
                if let Some(Ok((_, bytes))) = sealed {
                    pipe.send(bytes);
                }
            }
            self.take_records(instance, (number, &pipe), end, records)?;
        }
    }

    /// Takes the whole records that have arrived.
    fn take_records(
        self: &Arc<Self>,
        instance: &Instance,
        (number, pipe): (u64, &Pipe<'_>),
        end: &mut ServerEnd,
        records: &mut Vec<Bytes>,
    ) -> Result<(), End> {
        while let Some(record) = next_record(&mut end.received) {
            if end.session.is_some() {
                self.check_authentic(end, pipe, &record);
                if is_reply(&record) {
                    let waiting = xid_of(&record).and_then(|xid| end.callbacks.remove(&xid));
                    // The server may have given up.
                    let _ = waiting.map(|waiting| waiting.send(record));
                    continue;
                }
            } else if self.grant(instance, (number, pipe), end, &record)? {
                return Ok(());
            }
            end.running += usize::from(end.session.is_none());
            records.push(record);
        }
        Ok(())
    }

    /// Grants a request for TLS; `false` for any other record.
    fn grant(
        self: &Arc<Self>,
        instance: &Instance,
        (number, pipe): (u64, &Pipe<'_>),
        end: &mut ServerEnd,
        record: &Bytes,
    ) -> Result<bool, End> {
        let Some(tls) = &instance.tls else { return Ok(false) };
        let Some(xid) = zgate_tls::request(record, serves) else { return Ok(false) };
        let Some(certificates) = tls.offer.certificates() else { return Ok(false) };
        let slot = tls.offer.admit(end.peer.address).ok_or(End::Overloaded)?;
        let now = Duration::from_nanos(self.executor.nanos());
        let handshake =
            Handshake::new(certificates, slot, None, now).map_err(|_| End::Misbehaved)?;
        if !end.received.is_empty() && self.mutant != Some(Mutant::InjectedBeforeTls) {
            // The client has not waited, or somebody else has added it.
            return Err(End::Misbehaved);
        }
        end.send(pipe, &zgate_tls::reply(xid).flatten().unwrap_or_default());
        end.start_tls = StartTls::granted(handshake);
        self.limit_handshake(instance.number, number);
        Ok(true)
    }

    /// Ends a handshake that takes too long.
    fn limit_handshake(self: &Arc<Self>, server: u32, number: u64) {
        if self.mutant == Some(Mutant::StallKept) {
            return;
        }
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Server(server), async move {
            me.executor.sleep(HANDSHAKE_PATIENCE.as_nanos() as u64).await;
            let Some(instance) = me.tls_of(server) else { return };
            let now = Duration::from_nanos(me.executor.nanos());
            let is_late = instance.tls.as_ref().is_some_and(|tls| {
                let ends = lock(&tls.ends);
                let left = ends.get(&number).and_then(|end| end.start_tls.left(now));
                left.is_some_and(|left| left.is_zero())
            });
            if is_late {
                me.end_connection(&instance, number, End::Slow);
            }
        });
    }

    /// A handshake is complete.
    fn complete(&self, number: u64, end: &mut ServerEnd, handshake: Handshake) {
        let (session, slot) = handshake.finish(false);
        drop(slot);
        end.peer = match &session.certificate {
            None => Peer { protection: Protection::Tls, ..end.peer.clone() },
            Some(shown) => {
                let certificate = PeerCertificate {
                    digest: shown.digest,
                    authorities: shown.authorities.clone(),
                    names: shown.names.clone(),
                    user: std::sync::OnceLock::from(None),
                };
                Peer {
                    protection: Protection::MutualTls,
                    certificate: Some(Arc::new(certificate)),
                    ..end.peer.clone()
                }
            }
        };
        let how = end.peer.protection;
        self.trace.note("server", format_args!("#{number} is secure: {how:?}"));
        if self.mutant == Some(Mutant::CertificateIgnored) {
            end.peer.protection = Protection::MutualTls;
        }
        end.session = Some(session);
    }

    /// Checks that the peer has sent this record, and may still send.
    fn check_authentic(&self, end: &ServerEnd, pipe: &Pipe<'_>, record: &Bytes) {
        let is_revoked = end.peer.certificate.as_ref().is_some_and(|shown| {
            self.tls_setup.as_ref().is_some_and(|setup| setup.is_revoked(&shown.digest))
        });
        if is_revoked {
            self.network.fail_authentic("a call under a revoked certificate is taken");
        }
        if !pipe.keeps(record) {
            self.network.fail_authentic("a record is taken that the client has not sent now");
        }
    }

    /// Serves a record.
    fn begin(
        self: &Arc<Self>,
        server: u32,
        number: u64,
        (peer, is_secure): (Peer, bool),
        record: Bytes,
    ) {
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Server(server), async move {
            let client = peer.clone();
            let reply = me.answer(server, peer, record).await;
            let reply = reply.filter(|_| !me.network.loses_reply());
            if let Some(instance) = me.tls_of(server)
                && let Some(tls) = &instance.tls
            {
                let mut ends = lock(&tls.ends);
                let Some(end) = ends.get_mut(&number) else { return };
                if let Some(reply) = &reply {
                    end.send(&me.network.server_pipe(number), reply);
                }
                end.running -= usize::from(!is_secure);
            }
            if !is_secure {
                // A handshake waits for the end of what runs in the clear.
                me.bytes_arrived(server, number, &client);
            }
        });
    }

    fn end_connection(&self, instance: &Instance, number: u64, end: End) {
        let Some(tls) = &instance.tls else { return };
        if lock(&tls.ends).remove(&number).is_some() {
            self.trace.note("server", format_args!("#{number} ends: {end:?}"));
            instance.v4.connection_closed(ConnectionId(number));
            self.network.closed_by_server(number);
        }
    }

    /// The peer's end of a connection is known to be gone.
    pub(super) fn forget_connection(&self, instance: &Instance, connection: ConnectionId) {
        let end = instance.tls.as_ref().and_then(|tls| lock(&tls.ends).remove(&connection.0));
        drop(end);
    }

    /// The server calls a client over one of its connections.
    ///
    /// # Errors
    /// If the server has no such connection.
    pub fn call_over(
        &self,
        server: u32,
        number: u64,
        call: &Bytes,
    ) -> Result<oneshot::Receiver<Bytes>, CallbackFailure> {
        let instance = self.tls_of(server).ok_or(CallbackFailure::Unreachable)?;
        let tls = instance.tls.as_ref().ok_or(CallbackFailure::Unreachable)?;
        let mut ends = lock(&tls.ends);
        let end = ends.get_mut(&number).ok_or(CallbackFailure::Unreachable)?;
        let (tell, told) = oneshot::channel();
        let xid = xid_of(call).ok_or(CallbackFailure::Unreachable)?;
        end.callbacks.insert(xid, tell);
        end.send(&self.network.server_pipe(number), call);
        Ok(told)
    }

    /// The server reads its certificates again.
    pub fn reload_certificates(&self) {
        let Some(setup) = &self.tls_setup else { return };
        let instance = lock(&self.inside).1.clone();
        if let Some(tls) = instance.as_ref().and_then(|instance| instance.tls.as_ref()) {
            tls.offer.replace(Some(setup.certificates()));
        }
    }

    /// Handshakes of the running server that are in progress.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        let instance = lock(&self.inside).1.clone();
        let tls = instance.as_ref().and_then(|instance| instance.tls.as_ref());
        tls.map_or(0, |tls| tls.offer.counts().in_progress)
    }
}
