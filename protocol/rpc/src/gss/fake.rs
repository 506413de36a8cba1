//! A mechanism of RPCSEC_GSS for tests, and a client of it: codes depend on all
//! bytes and on a key, and protect against nobody.

use super::{GssCredential, Handle, Procedure, SecurityContext, Service, signed_header};
use crate::auth::{OpaqueAuth, RPCSEC_GSS};
use crate::message::CallHeader;
use zgate_xdr::{Encode, Encoder};

/// A context with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeContext {
    /// The key; both sides have the same. 0: the context no longer works.
    pub key: u64,
}

const MIC_BYTES: usize = 8;

impl FakeContext {
    fn code(self, message: &[u8]) -> [u8; MIC_BYTES] {
        let seed = 0xcbf2_9ce4_8422_2325 ^ self.key;
        let hash = message.iter().fold(seed, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3).rotate_left(7)
        });
        hash.to_be_bytes()
    }

    /// Hides a message, or shows it again.
    fn masked(self, message: &[u8]) -> Vec<u8> {
        let mask = self.key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        message.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()
    }
}

impl SecurityContext for FakeContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.key != 0 && self.code(message) == mic
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        (self.key != 0).then(|| self.code(message).to_vec())
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        let token = || self.code(message).into_iter().chain(self.masked(message)).collect();
        (self.key != 0).then(token)
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        let (mic, hidden) = token.split_first_chunk::<MIC_BYTES>()?;
        let message = self.masked(hidden);
        self.verifies(&message, mic).then_some(message)
    }
}

/// A call of a client.
#[derive(Clone, Copy, Debug)]
pub struct FakeCall<'a> {
    /// Its context.
    pub context: FakeContext,
    /// The handle that the server has given.
    pub handle: Option<Handle>,
    /// Procedure of RPCSEC_GSS.
    pub procedure: Procedure,
    /// Sequence number.
    pub sequence: u32,
    /// Protection.
    pub service: Service,
    /// Transaction id, program, version, procedure.
    pub words: [u32; 4],
    /// Arguments, not protected yet.
    pub arguments: &'a [u8],
}

impl FakeCall<'_> {
    /// Returns the call as a client sends it, without a record mark.
    #[must_use]
    pub fn record(&self) -> Vec<u8> {
        let [xid, program, version, procedure] = self.words;
        let credential = GssCredential {
            procedure: self.procedure,
            sequence: self.sequence,
            service: self.service,
            handle: self.handle,
            has_no_handle: self.handle.is_none(),
        };
        let mut header = CallHeader {
            xid,
            program,
            version,
            procedure,
            credential: credential.to_opaque(),
            verifier: OpaqueAuth::none(),
        };
        if !credential.carries_token() {
            let unsigned = bytes(|e| header.encode(e));
            let body = signed_header(&unsigned, &header).and_then(|head| self.context.mic(head));
            header.verifier = OpaqueAuth { flavor: RPCSEC_GSS, body: body.unwrap_or_default() };
        }
        let mut raw = bytes(|e| header.encode(e));
        raw.extend(match credential.carries_token() {
            true => self.arguments.to_vec(),
            false => self.protected(),
        });
        raw
    }

    /// Returns the arguments as a client protects them.
    #[must_use]
    pub fn protected(&self) -> Vec<u8> {
        let data = [&self.sequence.to_be_bytes()[..], self.arguments].concat();
        bytes(|e| match self.service {
            Service::None => e.raw(self.arguments),
            Service::Integrity => {
                e.opaque(&data);
                e.opaque(&self.context.code(&data));
            }
            Service::Privacy => e.opaque(&self.context.wrap(&data).unwrap_or_default()),
        })
    }
}

fn bytes(build: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut e = Encoder::new();
    build(&mut e);
    e.finish_bytes().map(|bytes| bytes.to_vec()).unwrap_or_default()
}
