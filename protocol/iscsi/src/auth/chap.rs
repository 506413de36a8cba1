//! The target's side of a CHAP exchange.

use super::{ChapAlgorithm, decode_binary, encode_hex};
use crate::entropy::Entropy;
use crate::limits::{CHAP_CHALLENGE_BYTES, MAX_VALUE_BYTES};
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// A CHAP secret; never printed.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// A secret from its bytes. RFC 7143 §9.2.1 wants at least 96 bits of
    /// randomness; the configuration decides whether shorter ones are allowed.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl PartialEq for Secret {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapAccount {
    /// CHAP_N.
    pub name: String,
    /// The secret.
    pub secret: Secret,
}

/// CHAP requirements of one login.
#[derive(Clone, Debug)]
pub struct ChapPolicy {
    /// Accounts of initiators that may log in.
    pub initiators: Vec<ChapAccount>,
    /// Account of the target for mutual CHAP.
    pub target: Option<ChapAccount>,
    /// Algorithms accepted.
    pub algorithms: Vec<ChapAlgorithm>,
}

/// Reason of a failed authentication: always login status 0201.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChapError {
    /// No algorithm in common.
    #[error("no CHAP algorithm in common")]
    Algorithm,
    /// A key is missing, malformed or out of turn.
    #[error("CHAP keys missing or malformed")]
    Malformed,
    /// Unknown name or wrong secret.
    #[error("CHAP name or response does not match")]
    Mismatch,
    /// The initiator sent our own challenge back (RFC 7143 §9.2.1).
    #[error("CHAP challenge reflected")]
    Reflected,
    /// The initiator requests mutual CHAP, but the target has no secret.
    #[error("mutual CHAP requested, but the target has no secret")]
    NoTargetSecret,
    /// Both directions share one secret (RFC 7143 §9.2.1).
    #[error("the same CHAP secret in both directions")]
    SharedSecret,
}

/// Answer of the target to one login request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapStep {
    /// Keys for the login response.
    pub keys: Vec<(&'static str, String)>,
    /// The authenticated name, once the exchange is complete.
    pub authenticated: Option<String>,
}

#[derive(Debug)]
enum State {
    Start,
    Challenged { algorithm: ChapAlgorithm, identifier: u8, challenge: [u8; CHAP_CHALLENGE_BYTES] },
    Done,
}

/// One CHAP exchange.
#[derive(Debug)]
pub struct ChapServer {
    policy: ChapPolicy,
    state: State,
}

impl ChapServer {
    /// An exchange that has not begun.
    #[must_use]
    pub fn new(policy: ChapPolicy) -> Self {
        Self { policy, state: State::Start }
    }

    /// True once the initiator is authenticated.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes the CHAP keys of one login request.
    ///
    /// # Errors
    /// See [`ChapError`]; the exchange is over.
    pub fn handle(
        &mut self,
        keys: &[(&str, &str)],
        entropy: &mut dyn Entropy,
    ) -> Result<ChapStep, ChapError> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Start => self.choose(keys, entropy),
            State::Challenged { algorithm, identifier, challenge } => {
                self.verify(keys, algorithm, identifier, &challenge)
            }
            State::Done => Err(ChapError::Malformed),
        }
    }

    fn choose(
        &mut self,
        keys: &[(&str, &str)],
        entropy: &mut dyn Entropy,
    ) -> Result<ChapStep, ChapError> {
        let offered = value(keys, "CHAP_A").ok_or(ChapError::Malformed)?;
        // RFC 7143 §12.1.3: the initiator lists algorithms in its order of
        // preference.
        let allowed = |text: &str| {
            ChapAlgorithm::from_text(text).filter(|a| self.policy.algorithms.contains(a))
        };
        let algorithm = offered.split(',').find_map(allowed).ok_or(ChapError::Algorithm)?;
        let mut identifier = [0];
        let mut challenge = [0; CHAP_CHALLENGE_BYTES];
        entropy.fill(&mut identifier);
        entropy.fill(&mut challenge);
        self.state = State::Challenged { algorithm, identifier: identifier[0], challenge };
        let keys = vec![
            ("CHAP_A", algorithm.number().to_string()),
            ("CHAP_I", identifier[0].to_string()),
            ("CHAP_C", encode_hex(&challenge)),
        ];
        Ok(ChapStep { keys, authenticated: None })
    }

    fn verify(
        &mut self,
        keys: &[(&str, &str)],
        algorithm: ChapAlgorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Result<ChapStep, ChapError> {
        let name = value(keys, "CHAP_N")
            .filter(|n| n.len() <= MAX_VALUE_BYTES)
            .ok_or(ChapError::Malformed)?;
        let response = value(keys, "CHAP_R").and_then(decode_binary).ok_or(ChapError::Malformed)?;
        let mutual = match (value(keys, "CHAP_I"), value(keys, "CHAP_C")) {
            (None, None) => None,
            (Some(identifier), Some(challenge)) => {
                let identifier = parse_identifier(identifier).ok_or(ChapError::Malformed)?;
                Some((identifier, decode_binary(challenge).ok_or(ChapError::Malformed)?))
            }
            _ => return Err(ChapError::Malformed),
        };
        let account = self
            .matching(name, &response, algorithm, identifier, challenge)
            .ok_or(ChapError::Mismatch)?;
        let authenticated = Some(account.name.clone());
        let Some((their_identifier, their_challenge)) = mutual else {
            return Ok(ChapStep { keys: Vec::new(), authenticated });
        };
        if their_challenge.as_slice().ct_eq(challenge).into() {
            return Err(ChapError::Reflected);
        }
        let target = self.policy.target.as_ref().ok_or(ChapError::NoTargetSecret)?;
        if target.secret.0.as_ref().ct_eq(&account.secret.0).into() {
            return Err(ChapError::SharedSecret);
        }
        let proof = algorithm.response(their_identifier, &target.secret.0, &their_challenge);
        Ok(ChapStep {
            keys: vec![("CHAP_N", target.name.clone()), ("CHAP_R", encode_hex(&proof))],
            authenticated,
        })
    }

    /// Compares with every account, so that the time taken does not reveal
    /// which names exist.
    fn matching(
        &self,
        name: &str,
        response: &[u8],
        algorithm: ChapAlgorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Option<&ChapAccount> {
        let mut found = None;
        for account in &self.policy.initiators {
            let expected = algorithm.response(identifier, &account.secret.0, challenge);
            let same: Choice = expected.as_slice().ct_eq(response)
                & account.name.as_bytes().ct_eq(name.as_bytes());
            if same.into() {
                found = Some(account);
            }
        }
        found
    }
}

fn value<'a>(keys: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

/// CHAP_I is a decimal or hexadecimal number of one byte.
fn parse_identifier(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(u8);
    impl Entropy for Counter {
        fn fill(&mut self, out: &mut [u8]) {
            for byte in out {
                self.0 = self.0.wrapping_add(1);
                *byte = self.0;
            }
        }
    }

    fn account(name: &str, secret: &str) -> ChapAccount {
        ChapAccount { name: name.into(), secret: Secret::new(secret.as_bytes()) }
    }

    fn server(target: Option<ChapAccount>) -> ChapServer {
        ChapServer::new(ChapPolicy {
            initiators: vec![account("other", "otherotherother"), account("joe", "secretsecret")],
            target,
            algorithms: ChapAlgorithm::ALL.to_vec(),
        })
    }

    fn challenge(server: &mut ChapServer, offer: &str) -> (ChapAlgorithm, u8, Vec<u8>) {
        let step = server.handle(&[("CHAP_A", offer)], &mut Counter(0)).unwrap();
        let get = |key| step.keys.iter().find(|(k, _)| *k == key).unwrap().1.clone();
        let algorithm = ChapAlgorithm::from_text(&get("CHAP_A")).unwrap();
        (algorithm, get("CHAP_I").parse().unwrap(), decode_binary(&get("CHAP_C")).unwrap())
    }

    #[test]
    fn every_algorithm_authenticates_both_ways() {
        for offer in ["5", "6", "7", "8", "9,7,5"] {
            let mut server = server(Some(account("tgt", "targetsecret")));
            let (algorithm, id, theirs) = challenge(&mut server, offer);
            let response = encode_hex(&algorithm.response(id, b"secretsecret", &theirs));
            let keys = [
                ("CHAP_N", "joe"),
                ("CHAP_R", response.as_str()),
                ("CHAP_I", "9"),
                ("CHAP_C", "0x0102"),
            ];
            let step = server.handle(&keys, &mut Counter(0)).unwrap();
            assert_eq!(step.authenticated.as_deref(), Some("joe"));
            let proof = encode_hex(&algorithm.response(9, b"targetsecret", &[1, 2]));
            assert_eq!(step.keys, [("CHAP_N", "tgt".to_owned()), ("CHAP_R", proof)]);
            assert!(server.is_done());
        }
    }

    #[test]
    fn what_must_fail_fails() {
        assert_eq!(
            server(None).handle(&[("CHAP_A", "")], &mut Counter(0)),
            Err(ChapError::Algorithm)
        );
        assert_eq!(
            server(None).handle(&[("CHAP_A", "56")], &mut Counter(0)),
            Err(ChapError::Algorithm)
        );
        let attempt = |secret: &[u8], name: &str, mutual: Option<&str>, target| {
            let mut server = server(target);
            let (algorithm, id, theirs) = challenge(&mut server, "5");
            let response = encode_hex(&algorithm.response(id, secret, &theirs));
            let reflected = encode_hex(&theirs);
            let mut keys = vec![("CHAP_N", name), ("CHAP_R", response.as_str())];
            if let Some(mutual) = mutual {
                keys.push(("CHAP_I", "1"));
                keys.push((
                    "CHAP_C",
                    if mutual == "reflect" { reflected.as_str() } else { mutual },
                ));
            }
            server.handle(&keys, &mut Counter(0)).unwrap_err()
        };
        assert_eq!(attempt(b"wrongwrong", "joe", None, None), ChapError::Mismatch);
        assert_eq!(attempt(b"secretsecret", "jim", None, None), ChapError::Mismatch);
        assert_eq!(attempt(b"secretsecret", "joe", Some("0x11"), None), ChapError::NoTargetSecret);
        let target = || Some(account("t", "targetsecret"));
        assert_eq!(
            attempt(b"secretsecret", "joe", Some("reflect"), target()),
            ChapError::Reflected
        );
        assert_eq!(attempt(b"secretsecret", "joe", Some("zz"), target()), ChapError::Malformed);
        let same = Some(account("t", "secretsecret"));
        assert_eq!(attempt(b"secretsecret", "joe", Some("0x11"), same), ChapError::SharedSecret);
    }
}
