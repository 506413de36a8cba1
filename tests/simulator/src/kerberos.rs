//! A mechanism of RPCSEC_GSS in place of Kerberos: secrets that clients share with
//! the server, tickets that end, tokens that count once, keys of their own for
//! each context.

use crate::dice::Dice;
use crate::executor::{Executor, SECOND, lock};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use zgate_rpc::auth::{GssIdentity, GssUser};
use zgate_rpc::gss::fake::FakeContext;
use zgate_rpc::gss::{FAILURE, SecurityContext, Step};
use zgate_store::Caller;

/// Shortest life of a ticket, in seconds.
const SHORTEST_LIFE_SECONDS: u64 = 2;
/// Longest one, in seconds.
const LONGEST_LIFE_SECONDS: u64 = 45;
/// Bytes of a number in a token.
const NUMBER_BYTES: usize = 8;

/// Secret of a client, as a KDC knows it.
fn secret(seed: u64, client: usize) -> FakeContext {
    FakeContext { key: Dice::new(seed, &format!("secret{client}")).u64() | 1 }
}

fn code(context: FakeContext, data: &[u8]) -> Vec<u8> {
    context.mic(data).unwrap_or_default()
}

/// Numbers, and the code over them.
fn sealed(context: FakeContext, numbers: &[u64]) -> Vec<u8> {
    let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    data.extend(code(context, &data));
    data
}

/// The numbers of a token; `None` if the other side has not made it.
fn opened<const N: usize>(context: FakeContext, token: &[u8]) -> Option<[u64; N]> {
    let (data, mic) = token.split_at_checked(N * NUMBER_BYTES)?;
    if !context.verifies(data, mic) {
        return None;
    }
    let (numbers, _) = data.as_chunks::<NUMBER_BYTES>();
    let mut numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
    Some([(); N].map(|()| numbers.next().unwrap_or_default()))
}

/// Number of the client that a first token names; the code over it is not checked.
fn named_client(token: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(*token.first_chunk()?)).ok()
}

fn session_key(secret: FakeContext, nonce: u64, challenge: u64) -> FakeContext {
    let code = code(secret, &sealed(secret, &[nonce, challenge]));
    FakeContext { key: code.first_chunk().map_or(1, |key| u64::from_be_bytes(*key) | 1) }
}

/// A client's side of a context that is being established.
pub struct Initiator {
    secret: FakeContext,
    nonce: u64,
    /// Life of the ticket, in seconds.
    pub lifetime_seconds: u64,
    first: Vec<u8>,
}

/// Reply of a client to a token of the server.
pub enum Taken {
    /// Another token.
    Next(Vec<u8>),
    /// The context is established.
    Established(FakeContext),
}

impl Initiator {
    /// A client with a ticket of some length.
    #[must_use]
    pub fn new(seed: u64, client: usize, dice: &mut Dice) -> Self {
        let (secret, nonce) = (secret(seed, client), dice.u64());
        let lifetime_seconds = dice.spread(SHORTEST_LIFE_SECONDS, LONGEST_LIFE_SECONDS);
        let asks_twice = u64::from(dice.once_in(2));
        let first = sealed(secret, &[client as u64, nonce, lifetime_seconds, asks_twice]);
        Self { secret, nonce, lifetime_seconds, first }
    }

    /// The first token.
    #[must_use]
    pub fn token(&self) -> Vec<u8> {
        self.first.clone()
    }

    /// Takes a token of the server; `None`: it is not the server's.
    #[must_use]
    pub fn take(&self, token: &[u8]) -> Option<Taken> {
        let [challenge, nonce, is_last] = opened(self.secret, token)?;
        if nonce != self.nonce {
            return None;
        }
        Some(match is_last {
            0 => Taken::Next(sealed(self.secret, &[nonce, challenge])),
            _ => Taken::Established(session_key(self.secret, nonce, challenge)),
        })
    }
}

/// The server's side of a context. It can neither sign nor verify after its end.
pub struct ServerContext {
    context: FakeContext,
    ends_nanos: u64,
    executor: Arc<Executor>,
    secret: FakeContext,
    nonce: u64,
    challenge: u64,
    lifetime_seconds: u64,
    /// The client.
    pub identity: Arc<GssIdentity>,
}

impl ServerContext {
    fn valid(&self) -> FakeContext {
        match self.executor.nanos() < self.ends_nanos {
            true => self.context,
            false => FakeContext { key: 0 },
        }
    }
}

impl SecurityContext for ServerContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.valid().verifies(message, mic)
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.valid().mic(message)
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.valid().wrap(message)
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.valid().unwrap(token)
    }
}

/// The server's keys, and the first tokens that it has seen. Both outlive a start
/// of the server: they are files.
pub struct Acceptor {
    seed: u64,
    executor: Arc<Executor>,
    seen: Mutex<BTreeSet<u64>>,
}

impl Acceptor {
    /// An acceptor that has seen no token.
    #[must_use]
    pub fn new(seed: u64, executor: &Arc<Executor>) -> Self {
        Self { seed, executor: Arc::clone(executor), seen: Mutex::default() }
    }

    /// Takes a token of a client. `random`: a number that nobody else knows.
    #[must_use]
    pub fn accept(
        &self,
        waiting: Option<ServerContext>,
        token: &[u8],
        random: u64,
    ) -> Step<ServerContext> {
        let step = match waiting {
            None => self.begin(token, random),
            Some(context) => self.proceed(context, token),
        };
        step.unwrap_or(Step::Failed { major: FAILURE, minor: 1 })
    }

    fn begin(&self, token: &[u8], challenge: u64) -> Option<Step<ServerContext>> {
        let secret = secret(self.seed, named_client(token)?);
        let [client, nonce, lifetime_seconds, asks_twice] = opened(secret, token)?;
        // Only what a client has made is remembered.
        if !lock(&self.seen).insert(nonce) {
            return None;
        }
        let identity = GssIdentity {
            principal: format!("client{client}@SIM").into(),
            acceptor: "nfs/server@SIM".into(),
            user: GssUser::User(Caller::root()),
        };
        let context = ServerContext {
            context: FakeContext { key: 0 },
            ends_nanos: 0,
            executor: Arc::clone(&self.executor),
            secret,
            nonce,
            challenge,
            lifetime_seconds,
            identity: Arc::new(identity),
        };
        if asks_twice == 0 {
            return Some(context.established());
        }
        Some(Step::Continue { token: sealed(secret, &[challenge, nonce, 0]), context })
    }

    fn proceed(&self, context: ServerContext, token: &[u8]) -> Option<Step<ServerContext>> {
        let numbers: [u64; 2] = opened(context.secret, token)?;
        (numbers == [context.nonce, context.challenge]).then(|| context.established())
    }
}

impl ServerContext {
    fn established(self) -> Step<Self> {
        let Self { secret, nonce, challenge, lifetime_seconds, .. } = self;
        let token = sealed(secret, &[challenge, nonce, 1]);
        let ends_nanos = self.executor.nanos() + lifetime_seconds * SECOND;
        let context = session_key(secret, nonce, challenge);
        let context = Self { context, ends_nanos, ..self };
        Step::Complete { context, token, lifetime_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_needs_the_clients_secret_and_counts_once() {
        let executor = Executor::new(1);
        let acceptor = Acceptor::new(1, &executor);
        let mut dice = Dice::new(1, "test");
        let (mut one, mut two) = (0, 0);
        for _ in 0..40 {
            let initiator = Initiator::new(1, 3, &mut dice);
            let mut token = initiator.token();
            let mut waiting = None;
            let key = loop {
                let answer = match acceptor.accept(waiting.take(), &token, dice.u64()) {
                    Step::Continue { context, token } => {
                        two += 1;
                        waiting = Some(context);
                        token
                    }
                    Step::Complete { context, token, .. } => {
                        one += 1;
                        let taken = initiator.take(&token);
                        let Some(Taken::Established(key)) = taken else { panic!() };
                        assert_eq!(key, context.valid());
                        break key;
                    }
                    Step::Failed { .. } => panic!("refused"),
                };
                let Some(Taken::Next(next)) = initiator.take(&answer) else { panic!() };
                token = next;
            };
            assert_ne!(key, session_key(secret(1, 4), initiator.nonce, 0));
            let again = acceptor.accept(None, &initiator.token(), 1);
            assert!(matches!(again, Step::Failed { .. }), "a replay");
            let mut changed = Initiator::new(1, 3, &mut dice).token();
            for bit in 0..changed.len() * 8 {
                changed[bit / 8] ^= 1 << (bit % 8);
                let step = acceptor.accept(None, &changed, 1);
                assert!(matches!(step, Step::Failed { .. }), "bit {bit}");
                changed[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(one == 40 && (1..40).contains(&two), "one message, or two");
    }
}
