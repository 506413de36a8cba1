//! Requirements of client entries for the certificate of a client.

use crate::runtime::{CertificateDigest, PeerCertificate};

/// Requirement of a client entry: one of each list that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRule {
    /// Authorities.
    pub authorities: Vec<CertificateDigest>,
    /// Names, in the form of [`PeerCertificate::names`]; `dns:*.` stands for one
    /// label.
    pub names: Vec<Box<str>>,
    /// Certificates.
    pub digests: Vec<CertificateDigest>,
}

impl CertificateRule {
    /// Returns whether a certificate meets it.
    #[must_use]
    pub fn admits(&self, certificate: &PeerCertificate) -> bool {
        let has_name = |wanted: &str| certificate.names.iter().any(|name| stands_for(wanted, name));
        met(&self.authorities, |wanted| certificate.authorities.contains(wanted))
            && met(&self.names, |wanted| has_name(wanted))
            && met(&self.digests, |wanted| certificate.digest == *wanted)
    }
}

/// Returns whether one item suffices, or none is required.
fn met<T>(required: &[T], suffices: impl Fn(&T) -> bool) -> bool {
    required.is_empty() || required.iter().any(suffices)
}

/// Returns whether a name of a rule stands for a name of a certificate. A
/// wildcard in the certificate stands for nothing but itself.
fn stands_for(wanted: &str, name: &str) -> bool {
    let Some(domain) = wanted.strip_prefix("dns:*.") else { return wanted == name };
    let Some((label, rest)) = name.strip_prefix("dns:").and_then(|name| name.split_once('.'))
    else {
        return false;
    };
    !label.is_empty() && label != "*" && rest == domain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_wants_one_of_each_list() {
        let certificate = PeerCertificate {
            digest: [1; 32],
            authorities: vec![[2; 32], [3; 32]],
            names: vec!["dns:a.hpc.example".into(), "user:alice@example".into()],
            ..Default::default()
        };
        let rule = |authorities: &[u8], names: &[&str], digests: &[u8]| {
            let digest = |&byte: &u8| [byte; 32];
            CertificateRule {
                authorities: authorities.iter().map(digest).collect(),
                names: names.iter().map(|&name| name.into()).collect(),
                digests: digests.iter().map(digest).collect(),
            }
            .admits(&certificate)
        };
        assert!(rule(&[], &[], &[]));
        assert!(rule(&[3], &[], &[]) && rule(&[9, 2], &[], &[]) && !rule(&[1], &[], &[]));
        assert!(rule(&[], &[], &[9, 1]) && !rule(&[], &[], &[2]));
        assert!(rule(&[], &["dns:a.hpc.example"], &[]) && rule(&[], &["dns:*.hpc.example"], &[]));
        assert!(rule(&[], &["ip:10.0.0.1", "user:alice@example"], &[]));
        for other in ["dns:hpc.example", "dns:*.example", "dns:*.a.hpc.example", "user:alice"] {
            assert!(!rule(&[], &[other], &[]), "{other}");
        }
        assert!(rule(&[2], &["dns:a.hpc.example"], &[1]) && !rule(&[2], &["dns:b"], &[1]));
    }

    #[test]
    fn a_wildcard_in_a_certificate_stands_for_nothing() {
        let certificate =
            PeerCertificate { names: vec!["dns:*.hpc.example".into()], ..Default::default() };
        let rule = |name: &str| CertificateRule { names: vec![name.into()], ..Default::default() };
        assert!(!rule("dns:*.hpc.example").admits(&certificate));
        assert!(!rule("dns:a.hpc.example").admits(&certificate));
    }
}
