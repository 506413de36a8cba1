//! Security flavours that a client entry accepts.

use zgate_rpc::Credential;
use zgate_rpc::auth::{AUTH_NONE, AUTH_SYS, PSEUDO_KRB5, PSEUDO_KRB5I, PSEUDO_KRB5P};
use zgate_rpc::gss::Service;

/// A security flavour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// AUTH_NONE: everyone is the anonymous user.
    None,
    /// AUTH_SYS: the client states who calls.
    Sys,
    /// Kerberos: the caller has proven who it is.
    Krb5,
    /// Kerberos; arguments and results are signed.
    Krb5i,
    /// Kerberos; arguments and results are encrypted.
    Krb5p,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// Those of Kerberos.
    pub const KERBEROS: [Self; 3] = [Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// The flavour of a call.
    #[must_use]
    pub fn of(credential: &Credential) -> Self {
        match credential {
            Credential::None => Self::None,
            Credential::Sys(_) => Self::Sys,
            Credential::Gss(caller) => match caller.service {
                Service::None => Self::Krb5,
                Service::Integrity => Self::Krb5i,
                Service::Privacy => Self::Krb5p,
            },
        }
    }

    /// Its number; for Kerberos the pseudo flavour (RFC 2623 §2.2.3.1).
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys => AUTH_SYS,
            Self::Krb5 => PSEUDO_KRB5,
            Self::Krb5i => PSEUDO_KRB5I,
            Self::Krb5p => PSEUDO_KRB5P,
        }
    }

    /// Its name in the configuration and in mount options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// The flavour with a name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flavor| flavor.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Flavours that a client entry accepts, the preferred one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavors {
    /// Set of them: every access asks for one.
    bits: u8,
    order: Vec<Flavor>,
}

impl Flavors {
    /// Returns whether a flavour is accepted.
    #[must_use]
    pub fn accepts(&self, flavor: Flavor) -> bool {
        self.bits & flavor.bit() != 0
    }

    /// Returns whether any flavour of Kerberos is accepted.
    #[must_use]
    pub fn accepts_kerberos(&self) -> bool {
        Flavor::KERBEROS.into_iter().any(|flavor| self.accepts(flavor))
    }

    /// The flavours in order.
    pub fn iter(&self) -> impl Iterator<Item = Flavor> {
        self.order.iter().copied()
    }

    /// The flavours that are in both sets, in the order of this one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|flavor| other.accepts(*flavor)).collect()
    }
}

impl FromIterator<Flavor> for Flavors {
    fn from_iter<I: IntoIterator<Item = Flavor>>(flavors: I) -> Self {
        let mut set = Self::default();
        for flavor in flavors {
            if !set.accepts(flavor) {
                set.bits |= flavor.bit();
                set.order.push(flavor);
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_keep_their_order_and_are_named_once() {
        let own: Flavors = [Flavor::Krb5p, Flavor::Sys, Flavor::Krb5p].into_iter().collect();
        assert_eq!(own.iter().collect::<Vec<_>>(), [Flavor::Krb5p, Flavor::Sys]);
        assert!(own.accepts(Flavor::Sys) && !own.accepts(Flavor::Krb5i) && own.accepts_kerberos());
        let other: Flavors = [Flavor::None, Flavor::Sys].into_iter().collect();
        assert_eq!(own.and(&other).iter().collect::<Vec<_>>(), [Flavor::Sys]);
        assert!(!other.accepts_kerberos());
        for flavor in Flavor::ALL {
            assert_eq!(Flavor::by_name(flavor.name()), Some(flavor));
        }
    }
}
