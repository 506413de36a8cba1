//! Requirements of a client entry for the certificate of the client, and the
//! user that the certificate names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;

/// SHA-256 of a certificate in DER form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

/// Text that is no fingerprint.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "not a SHA-256 fingerprint; `openssl x509 -noout -fingerprint -sha256 -in FILE` prints it \
     as 32 bytes in hexadecimal, with or without colons"
)]
pub struct NoFingerprint;

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b':').collect();
        let value = |digit: u8| (digit as char).to_digit(16).ok_or(NoFingerprint);
        if digits.len() != 64 {
            return Err(NoFingerprint);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            // Two digits fit a byte.
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NoFingerprint;

    fn try_from(text: String) -> Result<Self, NoFingerprint> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(value: Fingerprint) -> Self {
        value.to_string()
    }
}

/// Subject alternative name of a certificate as `kind:value`, in the form in
/// which names are compared: `dns:` and `ip:` in lower case. `dns:*.example.org`
/// stands for all names with one label more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CertificateName(String);

/// Text that is no name of a certificate.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no subject alternative name: write dns:NAME, dns:*.DOMAIN, ip:ADDRESS, email:ADDRESS, \
     uri:URI or user:USER@DOMAIN"
)]
pub struct NoCertificateName(String);

impl FromStr for CertificateName {
    type Err = NoCertificateName;

    fn from_str(text: &str) -> Result<Self, NoCertificateName> {
        let wrong = || NoCertificateName(text.to_owned());
        let (kind, value) = text.split_once(':').ok_or_else(wrong)?;
        if value.is_empty() || value.chars().any(char::is_control) {
            return Err(wrong());
        }
        let kind = kind.to_ascii_lowercase();
        let value = match kind.as_str() {
            "dns" => {
                let name = value.strip_prefix("*.").unwrap_or(value);
                if name.is_empty() || name.contains('*') {
                    return Err(wrong());
                }
                value.to_ascii_lowercase()
            }
            "ip" => value.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical().to_string(),
            "email" | "user" if value.contains('@') => value.to_owned(),
            "uri" => value.to_owned(),
            _ => return Err(wrong()),
        };
        Ok(Self(format!("{kind}:{value}")))
    }
}

impl CertificateName {
    /// Returns the text that names are compared with.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CertificateName {
    type Error = NoCertificateName;

    fn try_from(text: String) -> Result<Self, NoCertificateName> {
        text.parse()
    }
}

impl From<CertificateName> for String {
    fn from(value: CertificateName) -> Self {
        value.0
    }
}

/// Requirements for a certificate: one of each list that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateRequirement {
    /// Fingerprints of authorities of `tls.client_ca` that may have signed it, or
    /// an authority below them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<Fingerprint>,
    /// Subject alternative names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<CertificateName>,
    /// Fingerprints of the certificate itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<Fingerprint>,
}

impl CertificateRequirement {
    /// Returns whether every certificate will do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Source of the user of a client's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientIdentity {
    /// The calls.
    #[default]
    Call,
    /// The subject alternative name `user@domain` of the client's certificate:
    /// all calls are of that user.
    San,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_written_as_openssl_prints_it() {
        let colons = format!("{}0F", "ab:".repeat(31));
        let parsed: Fingerprint = colons.parse().unwrap();
        assert_eq!((parsed.0[0], parsed.0[31]), (0xab, 0x0f));
        assert_eq!(parsed.to_string().parse(), Ok(parsed));
        for wrong in ["", "ab", &"ab".repeat(33), &"zz".repeat(32), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong}");
        }
    }

    #[test]
    fn names_have_a_kind_and_one_form() {
        let form = |text: &str| text.parse::<CertificateName>().map(String::from).ok();
        for (text, expected) in [
            ("DNS:Nas.Example", Some("dns:nas.example")),
            ("dns:*.example.org", Some("dns:*.example.org")),
            ("ip:2001:DB8::1", Some("ip:2001:db8::1")),
            ("ip:::ffff:192.0.2.1", Some("ip:192.0.2.1")),
            ("user:Alice@example.org", Some("user:Alice@example.org")),
            ("email:a@b.c", Some("email:a@b.c")),
            ("uri:spiffe://x/y", Some("uri:spiffe://x/y")),
            ("nas.example", None),
            ("dns:", None),
            ("dns:*", None),
            ("dns:a.*.c", None),
            ("ip:10.0.0.0/8", None),
            ("user:alice", None),
            ("cn:alice", None),
            ("user:a@b\n", None),
        ] {
            assert_eq!(form(text).as_deref(), expected, "{text}");
        }
    }
}
