//! A callback service of a client, with a mechanism of the tests.

use bytes::Bytes;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zgate_rpc::auth::{OpaqueAuth, RPCSEC_GSS};
use zgate_rpc::gss::{
    COMPLETE, FAILURE, GssCredential, Handle, InitResult, Procedure, SecurityContext,
    open_arguments, seal_results, signed_header,
};
use zgate_rpc::message::{encode_accepted, encode_rejection};
use zgate_rpc::{AuthError, CallHeader, Rejection};
use zgate_test_harness::gss::FakeContext;
use zgate_xdr::{Decoder, Encode, Encoder, Message};

const WINDOW: u32 = 128;

/// Behaviour of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Good,
    /// Every call is told that its context does not exist.
    KnowsNoContext,
    /// Somebody changes a bit of the results on their way.
    ChangesResults,
    /// Or of the verifier.
    ChangesVerifier,
    RefusesTokens,
    /// The connection is closed when a token arrives, the first three times.
    ClosesAtTokens,
    /// The end of a context is not answered.
    IgnoresEnds,
}

struct Inside {
    context: FakeContext,
    conduct: Mutex<Conduct>,
    known: Mutex<HashSet<u64>>,
    begun: AtomicUsize,
    called: AtomicUsize,
    ended: AtomicUsize,
    connections: AtomicUsize,
    closed: AtomicUsize,
}

/// The service.
pub(super) struct CallbackReceiver {
    pub(super) address: SocketAddr,
    inside: Arc<Inside>,
}

impl CallbackReceiver {
    /// Starts a service that has this key.
    pub(super) async fn start(key: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::new(Inside {
            context: FakeContext { key: key.into() },
            conduct: Mutex::new(Conduct::Good),
            known: Mutex::default(),
            begun: AtomicUsize::new(0),
            called: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&inside);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(Arc::clone(&shared).serve(stream));
            }
        });
        Self { address, inside }
    }

    pub(super) fn conduct(&self, conduct: Conduct) {
        *self.inside.conduct.lock().unwrap() = conduct;
    }

    pub(super) fn forget_contexts(&self) {
        self.inside.known.lock().unwrap().clear();
    }

    /// Contexts that were begun.
    pub(super) fn begun(&self) -> usize {
        self.inside.begun.load(Ordering::Relaxed)
    }

    /// Calls that were run.
    pub(super) fn called(&self) -> usize {
        self.inside.called.load(Ordering::Relaxed)
    }

    /// Contexts that the gateway has ended.
    pub(super) fn ended(&self) -> usize {
        self.inside.ended.load(Ordering::Relaxed)
    }

    /// Contexts that are known.
    pub(super) fn known(&self) -> usize {
        self.inside.known.lock().unwrap().len()
    }

    pub(super) fn connections(&self) -> usize {
        self.inside.connections.load(Ordering::Relaxed)
    }
}

fn bytes(build: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut e = Encoder::new();
    build(&mut e);
    e.finish_bytes().unwrap().to_vec()
}

impl Inside {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        loop {
            let mut marker = [0; 4];
            if stream.read_exact(&mut marker).await.is_err() {
                return;
            }
            let mut record = vec![0; (u32::from_be_bytes(marker) & 0x7fff_ffff) as usize];
            stream.read_exact(&mut record).await.unwrap();
            if *self.conduct.lock().unwrap() == Conduct::ClosesAtTokens
                && self.closed.fetch_add(1, Ordering::Relaxed) < 3
            {
                return;
            }
            let Some(reply) = self.answer(&Bytes::from(record)) else {
                // Until the gateway closes the connection.
                let _ = stream.read(&mut [0; 1]).await;
                return;
            };
            let marker = (reply.len() as u32 | 0x8000_0000).to_be_bytes();
            if stream.write_all(&[&marker[..], &reply].concat()).await.is_err() {
                return;
            }
        }
    }

    fn verifier(&self, number: u32) -> OpaqueAuth {
        let body = self.context.mic(&number.to_be_bytes()).unwrap();
        OpaqueAuth { flavor: RPCSEC_GSS, body }
    }

    /// `None`: there is no answer.
    fn answer(&self, record: &Bytes) -> Option<Vec<u8>> {
        let mut d = Decoder::new(record);
        let header = CallHeader::decode(&mut d).unwrap();
        let credential = GssCredential::parse(&header.credential).unwrap();
        if credential.procedure == Procedure::Init {
            return Some(self.begin(header.xid));
        }
        let conduct = *self.conduct.lock().unwrap();
        let handle = credential.handle.unwrap();
        if conduct == Conduct::KnowsNoContext || !self.known.lock().unwrap().contains(&handle.0) {
            let lost = Rejection::Auth(AuthError::GssCredentialProblem);
            return Some(bytes(|e| encode_rejection(e, header.xid, lost)));
        }
        let signed = signed_header(record, &header).unwrap();
        assert!(self.context.verifies(signed, &header.verifier.body), "header");
        if credential.procedure == Procedure::Destroy {
            assert_eq!(header.procedure, 0);
            assert!(d.rest().is_empty(), "the end of a context has no arguments");
            self.known.lock().unwrap().remove(&handle.0);
            self.ended.fetch_add(1, Ordering::Relaxed);
            let verifier = self.verifier(credential.sequence);
            let reply = bytes(|e| encode_accepted(e, header.xid, &verifier, None));
            return (conduct != Conduct::IgnoresEnds).then_some(reply);
        }
        let opened = open_arguments(&self.context, &credential, record, d.position()).unwrap();
        assert_eq!(opened, &b"arguments..."[..]);
        self.called.fetch_add(1, Ordering::Relaxed);
        let mut verifier = self.verifier(credential.sequence);
        if conduct == Conduct::ChangesVerifier {
            verifier.body[0] ^= 1;
        }
        let results = Message::from(Bytes::from_static(b"results."));
        let sealed = seal_results(&self.context, &credential, results).unwrap();
        let mut reply = bytes(|e| encode_accepted(e, header.xid, &verifier, None));
        reply.extend(sealed.flatten().unwrap());
        if conduct == Conduct::ChangesResults {
            *reply.last_mut().unwrap() ^= 1;
        }
        Some(reply)
    }

    fn begin(&self, xid: u32) -> Vec<u8> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) as u64;
        if *self.conduct.lock().unwrap() == Conduct::RefusesTokens {
            return bytes(|e| {
                encode_accepted(e, xid, &OpaqueAuth::none(), None);
                InitResult::failed(FAILURE, 0).encode(e);
            });
        }
        self.known.lock().unwrap().insert(number);
        let told = InitResult {
            handle: Some(Handle(number)),
            major: COMPLETE,
            minor: 0,
            sequence_window: WINDOW,
            token: b"answer".to_vec(),
        };
        bytes(|e| {
            encode_accepted(e, xid, &self.verifier(WINDOW), None);
            told.encode(e);
        })
    }
}
