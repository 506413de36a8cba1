//! Tests that are skipped or only warn, each with its reason. A failure is
//! never accepted. docs/CONFORMANCE.md lists the same codes.

use super::Security::{self, Krb5, Krb5p, Sys};

/// Code, flavours with which it is skipped, reason; all of minor version 0.
const KNOWN: &[(&str, &[Security], &str)] = &[
    ("GSS1", &[Sys], NEEDS_GSS),
    ("GSS2", &[Sys, Krb5], NEEDS_SERVICE),
    ("GSS3", &[Sys], NEEDS_GSS),
    ("GSS4", &[Sys, Krb5, Krb5p], NEEDS_SIGNATURE),
    ("GSS5", &[Sys], NEEDS_GSS),
    ("GSS6", &[Sys], NEEDS_GSS),
    ("GSS7", &[Sys], NEEDS_GSS),
    ("GSS8", &[Sys], NEEDS_GSS),
];

const NEEDS_GSS: &str = "runs only with --security krb5, krb5i or krb5p";
const NEEDS_SERVICE: &str = "runs only with --security krb5i or krb5p";
const NEEDS_SIGNATURE: &str = "runs only with --security krb5i";

/// Returns the reason for which a test may be skipped or warn.
pub(crate) fn reason(code: &str, minor: u32, security: Security) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(known, flavors, _)| *known == code && minor == 0 && flavors.contains(&security))
        .map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::super::Security::Krb5i;
    use super::*;

    #[test]
    fn the_document_names_every_code() {
        let text = include_str!("../../../../docs/CONFORMANCE.md");
        for (code, _, _) in KNOWN {
            assert!(text.contains(&format!("`{code}`")), "{code} is not in docs/CONFORMANCE.md");
        }
        assert_eq!(reason("no such test", 0, Sys), None);
        assert_eq!(reason("GSS4", 0, Krb5i), None);
    }
}
