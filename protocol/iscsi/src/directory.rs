//! The sessions of the target, by the names that identify them: what decides
//! between a new session, reinstatement and one more connection
//! (RFC 7143 §6.3.5).

use crate::entropy::Entropy;
use crate::names::{Cid, IscsiName, Isid, PortalGroup, Tsih};
use std::collections::HashMap;

/// What makes a session: initiator port and target port. Discovery sessions
/// have no target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Initiator.
    pub initiator: IscsiName,
    /// Its ISID.
    pub isid: Isid,
    /// Target, unless for discovery.
    pub target: Option<IscsiName>,
    /// Portal group.
    pub portal_group: PortalGroup,
}

/// What a finished login became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A session that was not there.
    New(Tsih),
    /// A session in place of an older one, which must end first.
    Reinstates {
        /// The session that must end.
        old: Tsih,
        /// The session that begins.
        new: Tsih,
    },
    /// One more connection, or a CID again, in an existing session: the
    /// session's `attach` tells the two apart.
    Joins(Tsih),
}

/// Why a login cannot have the session it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Status 020a.
    #[error("session does not exist")]
    NoSuchSession,
    /// Status 0206.
    #[error("too many connections")]
    TooManyConnections,
    /// Status 0302.
    #[error("out of session handles")]
    OutOfResources,
}

#[derive(Clone, Debug)]
struct Entry {
    key: SessionKey,
    max_connections: usize,
    connections: Vec<Cid>,
}

/// All sessions of one gateway.
#[derive(Debug)]
pub struct Directory {
    by_tsih: HashMap<Tsih, Entry>,
    by_key: HashMap<SessionKey, Tsih>,
    max_sessions: usize,
}

impl Directory {
    /// A directory for at most `max_sessions` sessions.
    #[must_use]
    pub fn new(max_sessions: usize) -> Self {
        Self {
            by_tsih: HashMap::new(),
            by_key: HashMap::new(),
            max_sessions: max_sessions.min(0xfffe),
        }
    }

    /// Sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_tsih.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_tsih.is_empty()
    }

    /// Checks that a login with a non-zero TSIH names a session of its own
    /// initiator and target port.
    ///
    /// # Errors
    /// [`ClaimError::NoSuchSession`].
    pub fn check_join(&self, key: &SessionKey, tsih: Tsih) -> Result<(), ClaimError> {
        match self.by_tsih.get(&tsih) {
            Some(entry) if entry.key == *key && key.target.is_some() => Ok(()),
            _ => Err(ClaimError::NoSuchSession),
        }
    }

    /// Whether the session of this key is still the one with this handle.
    #[must_use]
    pub fn holds(&self, key: &SessionKey, tsih: Tsih) -> bool {
        self.by_key.get(key) == Some(&tsih)
    }

    /// Takes the session for a login that is about to succeed.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim(
        &mut self,
        key: &SessionKey,
        tsih: Tsih,
        cid: Cid,
        max_connections: usize,
        entropy: &mut dyn Entropy,
    ) -> Result<Claim, ClaimError> {
        if tsih != Tsih(0) {
            self.check_join(key, tsih)?;
            let entry = self.by_tsih.get_mut(&tsih).ok_or(ClaimError::NoSuchSession)?;
            if !entry.connections.contains(&cid) {
                if entry.connections.len() >= entry.max_connections {
                    return Err(ClaimError::TooManyConnections);
                }
                entry.connections.push(cid);
            }
            return Ok(Claim::Joins(tsih));
        }
        let old = self.by_key.get(key).copied();
        if old.is_none() && self.by_tsih.len() >= self.max_sessions {
            return Err(ClaimError::OutOfResources);
        }
        let new = self.free_tsih(entropy).ok_or(ClaimError::OutOfResources)?;
        if let Some(old) = old {
            self.by_tsih.remove(&old);
        }
        self.by_key.insert(key.clone(), new);
        self.by_tsih
            .insert(new, Entry { key: key.clone(), max_connections, connections: vec![cid] });
        Ok(match old {
            Some(old) => Claim::Reinstates { old, new },
            None => Claim::New(new),
        })
    }

    fn free_tsih(&self, entropy: &mut dyn Entropy) -> Option<Tsih> {
        let start = entropy.next_u32() as u16;
        let free = |tsih: &Tsih| tsih.0 != 0 && !self.by_tsih.contains_key(tsih);
        (0..=u16::MAX).map(|i| Tsih(start.wrapping_add(i))).find(free)
    }

    /// Forgets a connection of a session.
    pub fn remove_connection(&mut self, tsih: Tsih, cid: Cid) {
        if let Some(entry) = self.by_tsih.get_mut(&tsih) {
            entry.connections.retain(|&c| c != cid);
        }
    }

    /// Forgets a session that has ended.
    pub fn remove(&mut self, tsih: Tsih) {
        if let Some(entry) = self.by_tsih.remove(&tsih)
            && self.by_key.get(&entry.key) == Some(&tsih)
        {
            self.by_key.remove(&entry.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);
    impl Entropy for Fixed {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill(self.0);
        }
    }

    fn key(isid: u8) -> SessionKey {
        SessionKey {
            initiator: IscsiName::parse("iqn.2000-01.a:i").unwrap(),
            isid: Isid([isid; 6]),
            target: IscsiName::parse("iqn.2000-01.a:t"),
            portal_group: PortalGroup(1),
        }
    }

    #[test]
    fn new_join_reinstate() {
        let mut directory = Directory::new(10);
        let mut entropy = Fixed(0);
        let Claim::New(first) = directory.claim(&key(1), Tsih(0), Cid(0), 2, &mut entropy).unwrap()
        else {
            panic!("new")
        };
        assert_ne!(first, Tsih(0));
        assert_eq!(
            directory.claim(&key(1), first, Cid(1), 2, &mut entropy),
            Ok(Claim::Joins(first))
        );
        let third = directory.claim(&key(1), first, Cid(2), 2, &mut entropy);
        assert_eq!(third, Err(ClaimError::TooManyConnections));
        assert_eq!(
            directory.claim(&key(1), first, Cid(1), 2, &mut entropy),
            Ok(Claim::Joins(first))
        );
        assert_eq!(
            directory.claim(&key(2), first, Cid(1), 2, &mut entropy),
            Err(ClaimError::NoSuchSession)
        );
        let Claim::Reinstates { old, new } =
            directory.claim(&key(1), Tsih(0), Cid(0), 2, &mut entropy).unwrap()
        else {
            panic!("reinstates")
        };
        assert_eq!(old, first);
        directory.remove(old);
        assert!(directory.check_join(&key(1), new).is_ok());
        directory.remove(new);
        assert!(directory.is_empty());
    }

    #[test]
    fn bounded() {
        let mut directory = Directory::new(1);
        directory.claim(&key(1), Tsih(0), Cid(0), 1, &mut Fixed(3)).unwrap();
        let second = directory.claim(&key(2), Tsih(0), Cid(0), 1, &mut Fixed(3));
        assert_eq!(second, Err(ClaimError::OutOfResources));
    }
}
