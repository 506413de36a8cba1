//! Tests that are skipped or only warn, each with its reason. A failure is
//! never accepted. docs/CONFORMANCE.md lists the same codes.

/// Code, lowest minor version, reason.
const KNOWN: &[(&str, u32, &str)] = &[
    ("GSS1", 0, NEEDS_GSS),
    ("GSS2", 0, NEEDS_GSS),
    ("GSS3", 0, NEEDS_GSS),
    ("GSS4", 0, NEEDS_GSS),
    ("GSS5", 0, NEEDS_GSS),
    ("GSS6", 0, NEEDS_GSS),
    ("GSS7", 0, NEEDS_GSS),
    ("GSS8", 0, NEEDS_GSS),
];

const NEEDS_GSS: &str = "runs only with RPCSEC_GSS, which is not offered yet";

/// Returns the reason for which a test may be skipped or warn.
pub(crate) fn reason(code: &str, minor: u32) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(known, from, _)| *known == code && (*from == 0) == (minor == 0))
        .map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_every_code() {
        let text = include_str!("../../../../docs/CONFORMANCE.md");
        for (code, _, _) in KNOWN {
            assert!(text.contains(&format!("`{code}`")), "{code} is not in docs/CONFORMANCE.md");
        }
        assert_eq!(reason("no such test", 0), None);
    }
}
