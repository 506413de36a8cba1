//! Names and numbers that identify initiators, targets, sessions, connections.

use crate::limits::MAX_NAME_BYTES;
use std::fmt;
use std::sync::Arc;

/// An iSCSI name in normal form: `iqn.`, `eui.` or `naa.` (RFC 7143 §4.2.7).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IscsiName(Arc<str>);

impl IscsiName {
    /// Checks and normalises a name: letters become lower case, as the
    /// stringprep profile of RFC 3722 folds them. Returns `None` for a name
    /// that is empty, too long, or has characters the profile prohibits. The
    /// underscore is accepted, because real names contain it in host names.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return None;
        }
        let allowed = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, '-' | '.' | ':' | '_')
                || (c > '\u{7f}' && c.is_alphanumeric())
        };
        if !text.chars().all(allowed) {
            return None;
        }
        let folded = text.to_lowercase();
        let known = |p: &str| folded.starts_with(p) && folded.len() > p.len();
        ["iqn.", "eui.", "naa."].iter().any(|p| known(p)).then(|| Self(folded.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The initiator's part of a session identifier (RFC 7143 §11.12.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The target's session handle; 0 asks for a new session (RFC 7143 §11.12.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tsih(pub u16);

/// A connection's number within its session (RFC 7143 §11.12.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cid(pub u16);

/// A target portal group's tag (RFC 7143 §13.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortalGroup(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_folded() {
        assert_eq!(
            IscsiName::parse("IQN.2001-04.com.Example:Disk").unwrap().as_str(),
            "iqn.2001-04.com.example:disk"
        );
        assert!(IscsiName::parse("eui.02004567A425678D").is_some());
        for bad in ["", "iqn.", "disk", "iqn.a b", "iqn.a\nb", "iqn.a/b"] {
            assert!(IscsiName::parse(bad).is_none(), "{bad:?}");
        }
        assert!(IscsiName::parse(&format!("iqn.{}", "a".repeat(220))).is_none());
    }
}
