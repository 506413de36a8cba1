//! Access to the API, the page and `/status`: by token, or from this machine.

use crate::server::limits::{MAX_TOKEN_FILE_BYTES, MIN_TOKEN_BYTES};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use subtle::ConstantTimeEq;
use zgate_config::Config;

/// A token, as its SHA-256: comparing says nothing about it, not even its
/// length, and no log can show it.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub(crate) fn is(&self, offered: &[u8]) -> bool {
        self.0.ct_eq(&Self::of(offered).0).into()
    }

    /// Reads a token: one line of a file that only its owner may use.
    ///
    /// # Errors
    /// The file, the reason and the next step.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        read(path).map_err(|error| {
            let reason = format!(
                "token file {}: {error}; create it with `openssl rand -hex 32`, owned by the \
                 gateway's user, mode 0600",
                path.display()
            );
            io::Error::new(error.kind(), reason)
        })
    }
}

/// Returns the token of a configuration, if it has one.
///
/// # Errors
/// As [`Token::read`].
pub(crate) fn configured(config: &Config) -> io::Result<Option<Token>> {
    config.server.status_token_file.as_deref().map(Token::read).transpose()
}

fn read(path: &Path) -> io::Result<Token> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MAX_TOKEN_FILE_BYTES {
        return Err(invalid("not a short regular file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(invalid("users other than its owner may use it"));
    }
    let mut text = Vec::new();
    file.by_ref().take(MAX_TOKEN_FILE_BYTES).read_to_end(&mut text)?;
    let token = text.trim_ascii();
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(invalid("a token is one line of visible ASCII characters"));
    }
    if token.len() < MIN_TOKEN_BYTES {
        return Err(invalid("the token is shorter than 16 characters"));
    }
    Ok(Token::of(token))
}

/// Reason for which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No token.
    NoToken,
    /// Another token.
    WrongToken,
    /// The address is reached from other machines, and no token is configured.
    NotConfigured,
    /// The request names a host that is not this machine: a page of another site
    /// made a browser send it.
    OtherHost,
}

/// Access rules in effect. Closed until the address is known.
#[derive(Debug, Default)]
pub(crate) struct Access(RwLock<Rules>);

#[derive(Clone, Debug, Default)]
struct Rules {
    loopback: bool,
    token: Option<Token>,
}

impl Access {
    /// Sets the address that the HTTP server listens on.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        rules.loopback = address.ip().to_canonical().is_loopback();
    }

    /// Replaces the token.
    pub(crate) fn set_token(&self, token: Option<Token>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).token = token;
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        match rules.token {
            Some(_) if !headers.contains_key(AUTHORIZATION) => Err(Refusal::NoToken),
            Some(token) if offered(headers).is_some_and(|offered| token.is(&offered)) => Ok(()),
            Some(_) => Err(Refusal::WrongToken),
            None if !rules.loopback => Err(Refusal::NotConfigured),
            None if names_this_machine(headers) => Ok(()),
            None => Err(Refusal::OtherHost),
        }
    }
}

/// Returns the token of a request: as a bearer token (RFC 6750), or as the
/// password of any user (RFC 7617), which browsers ask for.
fn offered(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.as_bytes().to_vec());
    }
    let user = scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(value));
    let mut password = user?.ok()?;
    let colon = password.iter().position(|byte| *byte == b':')?;
    password.drain(..=colon);
    Some(password)
}

/// Returns whether a request is addressed to an IP address or to `localhost`. A
/// site whose name resolves to this machine (DNS rebinding) is told apart by its
/// name. Requests without a host are of HTTP/1.0, and come from scripts.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let is_address = host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let name = host.split(':').next().unwrap_or_default();
    is_address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(pairs: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn access(address: &str, token: Option<&str>) -> Access {
        let access = Access::default();
        access.set_address(address.parse().unwrap());
        access.set_token(token.map(|token| Token::of(token.as_bytes())));
        access
    }

    #[test]
    fn other_machines_need_the_token() {
        let nothing = HeaderMap::new();
        assert_eq!(Access::default().check(&nothing), Err(Refusal::NotConfigured));
        for address in ["0.0.0.0:9469", "[::]:9469", "192.0.2.1:9469"] {
            assert_eq!(access(address, None).check(&nothing), Err(Refusal::NotConfigured));
            assert_eq!(access(address, Some(TOKEN)).check(&nothing), Err(Refusal::NoToken));
        }
        for address in ["127.0.0.1:9469", "[::1]:1", "[::ffff:127.0.0.2]:1"] {
            assert_eq!(access(address, None).check(&nothing), Ok(()));
            assert_eq!(access(address, Some(TOKEN)).check(&nothing), Err(Refusal::NoToken));
        }
        let access = access("192.0.2.1:9469", Some(TOKEN));
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for (value, admitted) in [
            (format!("Bearer {TOKEN}"), true),
            (format!("bEARER  {TOKEN}"), true),
            (basic(&format!("anybody:{TOKEN}")), true),
            (basic(&format!(":{TOKEN}")), true),
            (format!("Bearer {TOKEN}0"), false),
            (format!("Bearer {}", &TOKEN[1..]), false),
            ("Bearer ".to_owned(), false),
            ("Bearer".to_owned(), false),
            (TOKEN.to_owned(), false),
            (basic(TOKEN), false),
            (basic(&format!("{TOKEN}:x")), false),
            ("Basic %%%".to_owned(), false),
            (format!("Digest {TOKEN}"), false),
        ] {
            let found = access.check(&headers(&[(AUTHORIZATION, &value)]));
            assert_eq!(found, if admitted { Ok(()) } else { Err(Refusal::WrongToken) }, "{value}");
        }
        access.set_token(None);
        let good = headers(&[(AUTHORIZATION, &format!("Bearer {TOKEN}"))]);
        assert_eq!(access.check(&good), Err(Refusal::NotConfigured));
    }

    #[test]
    fn a_site_that_resolves_to_this_machine_is_refused() {
        let local = access("127.0.0.1:9469", None);
        for (host, admitted) in [
            ("127.0.0.1:9469", true),
            ("127.0.0.1", true),
            ("[::1]:9469", true),
            ("[::1]", true),
            ("LocalHost:9469", true),
            ("evil.example:9469", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:9469", false),
            ("", false),
        ] {
            let found = local.check(&headers(&[(HOST, host)]));
            assert_eq!(found, if admitted { Ok(()) } else { Err(Refusal::OtherHost) }, "{host}");
        }
        // With a token, the name does not matter: the site does not have it.
        let good = headers(&[(HOST, "gw"), (AUTHORIZATION, &format!("Bearer {TOKEN}"))]);
        assert_eq!(access("127.0.0.1:1", Some(TOKEN)).check(&good), Ok(()));
    }

    #[test]
    fn a_token_comes_from_a_private_file_with_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map_err(|error| error.to_string())
        };
        let token = read(&format!("{TOKEN}\n"), 0o600).unwrap();
        assert!(token.is(TOKEN.as_bytes()) && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token");
        read(TOKEN, 0o400).unwrap();
        let long = "x".repeat(MAX_TOKEN_FILE_BYTES as usize + 1);
        for (text, mode, reason) in [
            (TOKEN, 0o640, "other than its owner"),
            (TOKEN, 0o604, "other than its owner"),
            (&TOKEN[1..], 0o600, "shorter than 16"),
            ("", 0o600, "shorter than 16"),
            (&format!("{TOKEN}\n{TOKEN}\n"), 0o600, "one line"),
            (&long, 0o600, "not a short regular file"),
        ] {
            let error = read(text, mode).unwrap_err();
            assert!(error.contains(reason) && error.contains("mode 0600"), "{error}");
            assert!(!error.contains(TOKEN), "{error}");
        }
        let missing = Token::read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("none: No such file"), "{missing}");
    }
}
