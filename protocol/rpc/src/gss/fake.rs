//! A mechanism for tests: its codes depend on all bytes and on a key.

use super::SecurityContext;
use super::service::Service;
use zgate_xdr::Encoder;

/// A context with a key; 0: it no longer works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FakeContext {
    pub(crate) key: u8,
}

fn code(key: u8, message: &[u8]) -> [u8; 8] {
    let seed = 0xcbf2_9ce4_8422_2325 ^ u64::from(key);
    let hash = message.iter().fold(seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3).rotate_left(7)
    });
    hash.to_be_bytes()
}

impl SecurityContext for FakeContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.key != 0 && code(self.key, message) == mic
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        (self.key != 0).then(|| code(self.key, message).to_vec())
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        let hidden = message.iter().map(|byte| byte ^ self.key);
        (self.key != 0).then(|| code(self.key, message).into_iter().chain(hidden).collect())
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        let (mic, hidden) = token.split_first_chunk::<8>()?;
        let message: Vec<u8> = hidden.iter().map(|byte| byte ^ self.key).collect();
        self.verifies(&message, mic).then_some(message)
    }
}

/// Arguments as a client protects them.
pub(crate) fn client_body(
    context: &FakeContext,
    service: Service,
    sequence: u32,
    arguments: &[u8],
) -> Vec<u8> {
    let data = [&sequence.to_be_bytes()[..], arguments].concat();
    let mut e = Encoder::new();
    match service {
        Service::None => e.raw(arguments),
        Service::Integrity => {
            e.opaque(&data);
            e.opaque(&context.mic(&data).unwrap());
        }
        Service::Privacy => e.opaque(&context.wrap(&data).unwrap()),
    }
    e.finish_bytes().unwrap().to_vec()
}
