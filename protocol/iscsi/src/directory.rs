//! The sessions of the target, by the names that identify them. The directory
//! decides between a new session, reinstatement and an additional connection
//! (RFC 7143 §6.3.5).

use crate::entropy::Entropy;
use crate::limits::{MAX_DISCOVERY_SESSIONS, MAX_DISCOVERY_SESSIONS_PER_HOST, sessions_per_host};
use crate::names::{Cid, IscsiName, Isid, PortalGroup, Tsih};
use std::collections::HashMap;
use std::net::IpAddr;
use zgate_store::HostKey;

/// Identification of a session: initiator port and target port. Discovery
/// sessions have no target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Initiator.
    pub initiator: IscsiName,
    /// Its ISID.
    pub isid: Isid,
    /// Target; `None` for discovery.
    pub target: Option<IscsiName>,
    /// Portal group.
    pub portal_group: PortalGroup,
}

/// Result of a finished login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A new session.
    New(Tsih),
    /// A session that reinstates an older one, which must end first.
    Reinstates {
        /// The session that must end.
        old: Tsih,
        /// The session that begins.
        new: Tsih,
    },
    /// A session for which there was no place: that of one without connections is taken, which
    /// must end first.
    Displaces {
        /// The session that must end.
        old: Tsih,
        /// The session that begins.
        new: Tsih,
    },
    /// An additional connection, or a repeated CID, in an existing session: the
    /// session's `attach` tells the two apart.
    Joins(Tsih),
}

impl Claim {
    /// The session that the login gets.
    #[must_use]
    pub fn tsih(self) -> Tsih {
        match self {
            Self::New(tsih)
            | Self::Joins(tsih)
            | Self::Reinstates { new: tsih, .. }
            | Self::Displaces { new: tsih, .. } => tsih,
        }
    }
}

/// Reason why a login cannot get the requested session.
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
    /// Status 0302, too; the others have places left.
    #[error("its host has all {0} sessions that iscsi.max_sessions allows to one")]
    HostHasAll(usize),
}

#[derive(Clone, Debug)]
struct Entry {
    key: SessionKey,
    /// Address of the login that began it.
    from: Option<IpAddr>,
    max_connections: usize,
    connections: Vec<Cid>,
    /// Place of its end of connections among those of all sessions; none while it has one.
    left: Option<u64>,
}

impl Entry {
    fn new(key: &SessionKey, from: Option<IpAddr>, max_connections: usize, cid: Cid) -> Self {
        Self { key: key.clone(), from, max_connections, connections: vec![cid], left: None }
    }

    fn host(&self) -> Option<HostKey> {
        self.from.map(HostKey::from)
    }
}

/// All sessions of one gateway.
#[derive(Debug)]
pub struct Directory {
    by_tsih: HashMap<Tsih, Entry>,
    by_key: HashMap<SessionKey, Tsih>,
    /// Numbers of normal sessions, by the hosts from which they began.
    of_hosts: HashMap<Option<HostKey>, usize>,
    /// The discovery sessions, and the addresses they came from.
    discovery: HashMap<Tsih, Option<HostKey>>,
    max_sessions: usize,
    /// Number of times that a session has lost its last connection.
    departures: u64,
}

impl Directory {
    /// A directory for at most `max_sessions` normal sessions, and a few for discovery.
    #[must_use]
    pub fn new(max_sessions: usize) -> Self {
        Self {
            by_tsih: HashMap::new(),
            by_key: HashMap::new(),
            of_hosts: HashMap::new(),
            discovery: HashMap::new(),
            max_sessions: max_sessions.min(0xfffe - MAX_DISCOVERY_SESSIONS),
            departures: 0,
        }
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_tsih.len()
    }

    /// True if there are no sessions.
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

    /// True if the session of this key still has this handle.
    #[must_use]
    pub fn holds(&self, key: &SessionKey, tsih: Tsih) -> bool {
        self.by_key.get(key) == Some(&tsih)
    }

    /// Returns the address from which the session began that a login would join or
    /// reinstate; `None` if there is no such session.
    #[must_use]
    pub fn origin(&self, key: &SessionKey, tsih: Tsih) -> Option<Option<IpAddr>> {
        let tsih = if tsih == Tsih(0) { *self.by_key.get(key)? } else { tsih };
        self.by_tsih.get(&tsih).filter(|entry| entry.key == *key).map(|entry| entry.from)
    }

    /// True if a connection that logs in takes the place of others, which end: those of the
    /// session that it reinstates, or the one whose CID it has.
    #[must_use]
    pub fn replaces(&self, key: &SessionKey, tsih: Tsih, cid: Cid) -> bool {
        let reinstates = tsih == Tsih(0);
        let old = if reinstates { self.by_key.get(key).copied() } else { Some(tsih) };
        let old = old.and_then(|tsih| self.by_tsih.get(&tsih)).filter(|entry| entry.key == *key);
        old.is_some_and(|entry| match reinstates {
            true => !entry.connections.is_empty(),
            false => entry.connections.contains(&cid),
        })
    }

    /// Takes the session for a login from `from` that is about to succeed. One that reinstates a
    /// session has its place.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim(
        &mut self,
        key: &SessionKey,
        tsih: Tsih,
        cid: Cid,
        from: Option<IpAddr>,
        max_connections: usize,
        entropy: &mut dyn Entropy,
    ) -> Result<Claim, ClaimError> {
        if tsih != Tsih(0) {
            self.check_join(key, tsih)?;
            let entry = self.by_tsih.get(&tsih).ok_or(ClaimError::NoSuchSession)?;
            if !entry.connections.contains(&cid) && entry.connections.len() >= entry.max_connections
            {
                return Err(ClaimError::TooManyConnections);
            }
            self.add_connection(tsih, cid);
            return Ok(Claim::Joins(tsih));
        }
        let is_known = self.by_key.contains_key(key);
        let displaced = if is_known { None } else { self.displaced_by(from.map(HostKey::from))? };
        let claim = self.begin(Entry::new(key, from, max_connections, cid), entropy)?;
        let Some(old) = displaced else { return Ok(claim) };
        self.remove(old);
        Ok(Claim::Displaces { old, new: claim.tsih() })
    }

    /// Returns the session that gives its place to a new one of this host, one of its own if
    /// possible; `None` if there is a place.
    fn displaced_by(&self, host: Option<HostKey>) -> Result<Option<Tsih>, ClaimError> {
        let of_host = self.of_hosts.get(&host).copied().unwrap_or_default();
        let most = sessions_per_host(self.max_sessions);
        let is_full = self.by_tsih.len() - self.discovery.len() >= self.max_sessions;
        if of_host < most && !is_full {
            return Ok(None);
        }
        let found = match self.longest_left(|entry| entry.host() == host) {
            None if of_host >= most => return Err(ClaimError::HostHasAll(most)),
            None => self.longest_left(|_| true),
            own => own,
        };
        found.map(Some).ok_or(ClaimError::OutOfResources)
    }

    /// Returns the session, out of some, that has been without a connection for longest. A host
    /// decides how long its own are kept then (DefaultTime2Wait), and could take all places for
    /// an hour.
    fn longest_left(&self, is_one: impl Fn(&Entry) -> bool) -> Option<Tsih> {
        let normal = self.by_tsih.iter().filter(|(_, entry)| entry.key.target.is_some());
        let left = normal
            .filter(|(_, entry)| is_one(entry))
            .filter_map(|(tsih, entry)| Some((entry.left?, *tsih)));
        left.min().map(|(_, tsih)| tsih)
    }

    /// Takes a discovery session, for a login from `from` that is about to
    /// succeed. A discovery session has one connection; others cannot join.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim_discovery(
        &mut self,
        key: &SessionKey,
        tsih: Tsih,
        cid: Cid,
        from: Option<IpAddr>,
        entropy: &mut dyn Entropy,
    ) -> Result<Claim, ClaimError> {
        if tsih != Tsih(0) {
            return Err(ClaimError::NoSuchSession);
        }
        let host = from.map(HostKey::from);
        let of_host = self.discovery.values().filter(|known| **known == host).count();
        if !self.by_key.contains_key(key)
            && (self.discovery.len() >= MAX_DISCOVERY_SESSIONS
                || of_host >= MAX_DISCOVERY_SESSIONS_PER_HOST)
        {
            return Err(ClaimError::OutOfResources);
        }
        let claim = self.begin(Entry::new(key, from, 1, cid), entropy)?;
        self.discovery.insert(claim.tsih(), host);
        Ok(claim)
    }

    fn begin(&mut self, entry: Entry, entropy: &mut dyn Entropy) -> Result<Claim, ClaimError> {
        let old = self.by_key.get(&entry.key).copied();
        let new = self.free_tsih(entropy).ok_or(ClaimError::OutOfResources)?;
        if let Some(old) = old {
            self.take_out(old);
        }
        self.by_key.insert(entry.key.clone(), new);
        if entry.key.target.is_some() {
            *self.of_hosts.entry(entry.host()).or_default() += 1;
        }
        self.by_tsih.insert(new, entry);
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

    /// Adds a connection of a session, unless it is known.
    pub fn add_connection(&mut self, tsih: Tsih, cid: Cid) {
        if let Some(entry) = self.by_tsih.get_mut(&tsih).filter(|e| !e.connections.contains(&cid)) {
            entry.connections.push(cid);
            entry.left = None;
        }
    }

    /// Forgets a connection of a session.
    pub fn remove_connection(&mut self, tsih: Tsih, cid: Cid) {
        if let Some(entry) = self.by_tsih.get_mut(&tsih) {
            entry.connections.retain(|&c| c != cid);
            if entry.connections.is_empty() {
                self.departures += 1;
                entry.left = Some(self.departures);
            }
        }
    }

    fn take_out(&mut self, tsih: Tsih) -> Option<Entry> {
        self.discovery.remove(&tsih);
        let entry = self.by_tsih.remove(&tsih)?;
        let host = entry.host();
        if entry.key.target.is_some()
            && let Some(count) = self.of_hosts.get_mut(&host)
        {
            *count -= 1;
            if *count == 0 {
                self.of_hosts.remove(&host);
            }
        }
        Some(entry)
    }

    /// Forgets a session that has ended.
    pub fn remove(&mut self, tsih: Tsih) {
        if let Some(entry) = self.take_out(tsih)
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
        let Claim::New(first) =
            directory.claim(&key(1), Tsih(0), Cid(0), None, 2, &mut entropy).unwrap()
        else {
            panic!("new")
        };
        assert_ne!(first, Tsih(0));
        assert_eq!(
            directory.claim(&key(1), first, Cid(1), None, 2, &mut entropy),
            Ok(Claim::Joins(first))
        );
        let third = directory.claim(&key(1), first, Cid(2), None, 2, &mut entropy);
        assert_eq!(third, Err(ClaimError::TooManyConnections));
        assert_eq!(
            directory.claim(&key(1), first, Cid(1), None, 2, &mut entropy),
            Ok(Claim::Joins(first))
        );
        assert_eq!(
            directory.claim(&key(2), first, Cid(1), None, 2, &mut entropy),
            Err(ClaimError::NoSuchSession)
        );
        let Claim::Reinstates { old, new } =
            directory.claim(&key(1), Tsih(0), Cid(0), None, 2, &mut entropy).unwrap()
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
    fn discovery_takes_nobodys_place() {
        let discovery = |isid: u8, host: u8| {
            let name = IscsiName::parse(&format!("iqn.2000-01.a:{host}"));
            let key = SessionKey { initiator: name.unwrap(), target: None, ..key(isid) };
            (key, format!("2001:db8:0:{host:x}::{isid:x}").parse().ok())
        };
        let mut directory = Directory::new(1);
        let mut claim = |isid, host| {
            let (key, from) = discovery(isid, host);
            directory.claim_discovery(&key, Tsih(0), Cid(0), from, &mut Fixed(3))
        };
        let per_host = MAX_DISCOVERY_SESSIONS_PER_HOST as u8;
        (0..per_host).for_each(|isid| assert!(claim(isid, 0).is_ok(), "{isid}"));
        assert_eq!(claim(per_host, 0), Err(ClaimError::OutOfResources), "one host");
        assert!(matches!(claim(0, 0), Ok(Claim::Reinstates { .. })));
        let hosts = (MAX_DISCOVERY_SESSIONS / MAX_DISCOVERY_SESSIONS_PER_HOST) as u8;
        let others = (1..hosts).flat_map(|host| (0..per_host).map(move |isid| (isid, host)));
        others.for_each(|(isid, host)| assert!(claim(isid, host).is_ok(), "{isid} {host}"));
        assert_eq!(claim(0, hosts), Err(ClaimError::OutOfResources), "all hosts");
        assert!(directory.claim(&key(1), Tsih(0), Cid(0), None, 1, &mut Fixed(3)).is_ok());
    }

    #[test]
    fn the_origin_of_a_session_is_that_of_its_first_login() {
        let [first, second] = [1, 2].map(|host| Some(IpAddr::from([192, 0, 2, host])));
        let mut directory = Directory::new(10);
        let claim = |directory: &mut Directory, tsih, cid, from| {
            directory.claim(&key(1), tsih, cid, from, 2, &mut Fixed(0)).unwrap()
        };
        assert_eq!(directory.origin(&key(1), Tsih(0)), None);
        let Claim::New(tsih) = claim(&mut directory, Tsih(0), Cid(0), first) else { panic!("new") };
        claim(&mut directory, tsih, Cid(1), second);
        assert_eq!(directory.origin(&key(1), Tsih(0)), Some(first));
        assert_eq!(directory.origin(&key(1), tsih), Some(first));
        assert_eq!(directory.origin(&key(2), tsih), None, "of another port");
        claim(&mut directory, Tsih(0), Cid(0), second);
        assert_eq!(directory.origin(&key(1), Tsih(0)), Some(second));
    }

    #[test]
    fn bounded() {
        let mut directory = Directory::new(1);
        directory.claim(&key(1), Tsih(0), Cid(0), None, 1, &mut Fixed(3)).unwrap();
        let second = directory.claim(&key(2), Tsih(0), Cid(0), None, 1, &mut Fixed(3));
        assert_eq!(second, Err(ClaimError::OutOfResources));
    }

    #[test]
    fn one_host_does_not_take_all_places() {
        let host = |host: u8| format!("2001:db8:0:{host:x}::1").parse::<IpAddr>().ok();
        let mut directory = Directory::new(100);
        let claim = |directory: &mut Directory, isid: u8, from| {
            directory.claim(&key(isid), Tsih(0), Cid(0), from, 1, &mut Fixed(3))
        };
        let first = claim(&mut directory, 0, host(1)).unwrap().tsih();
        (1..75).for_each(|isid| assert!(claim(&mut directory, isid, host(1)).is_ok(), "{isid}"));
        assert_eq!(claim(&mut directory, 75, host(1)), Err(ClaimError::HostHasAll(75)));
        assert!(matches!(claim(&mut directory, 74, host(1)), Ok(Claim::Reinstates { .. })));
        assert_eq!(claim(&mut directory, 75, host(1)), Err(ClaimError::HostHasAll(75)));
        let others = claim(&mut directory, 100, host(2)).unwrap().tsih();
        directory.remove_connection(others, Cid(0));
        // What it has left makes room for it, and nothing of others.
        assert_eq!(claim(&mut directory, 75, host(1)), Err(ClaimError::HostHasAll(75)));
        directory.remove_connection(first, Cid(0));
        let displaced = claim(&mut directory, 75, host(1));
        assert!(matches!(displaced, Ok(Claim::Displaces { old, .. }) if old == first));
        (101..125).for_each(|isid| assert!(claim(&mut directory, isid, host(2)).is_ok(), "{isid}"));
        directory.remove(displaced.unwrap().tsih());
        assert!(matches!(claim(&mut directory, 76, host(1)), Ok(Claim::New(_))));
        let displaced = claim(&mut directory, 125, host(3));
        assert!(matches!(displaced, Ok(Claim::Displaces { old, .. }) if old == others));
        assert_eq!(claim(&mut directory, 126, host(3)), Err(ClaimError::OutOfResources));
        let all: Vec<_> = directory.by_tsih.keys().copied().collect();
        all.into_iter().for_each(|tsih| directory.remove(tsih));
        assert!(directory.of_hosts.is_empty());
    }

    #[test]
    fn a_login_may_take_the_place_of_connections() {
        let mut directory = Directory::new(10);
        assert!(!directory.replaces(&key(1), Tsih(0), Cid(0)), "a new session");
        let claim = directory.claim(&key(1), Tsih(0), Cid(0), None, 2, &mut Fixed(3));
        let tsih = claim.unwrap().tsih();
        assert!(directory.replaces(&key(1), Tsih(0), Cid(5)), "reinstatement");
        assert!(directory.replaces(&key(1), tsih, Cid(0)));
        assert!(!directory.replaces(&key(1), tsih, Cid(1)), "an additional one");
        assert!(!directory.replaces(&key(2), tsih, Cid(0)), "of another port");
        directory.remove_connection(tsih, Cid(0));
        assert!(!directory.replaces(&key(1), Tsih(0), Cid(0)), "nothing ends");
    }

    #[test]
    fn a_session_without_connections_gives_its_place() {
        let mut directory = Directory::new(3);
        let claim = |directory: &mut Directory, isid, tsih| {
            directory.claim(&key(isid), tsih, Cid(0), None, 1, &mut Fixed(3))
        };
        let [first, second, third] =
            [1, 2, 3].map(|isid| claim(&mut directory, isid, Tsih(0)).unwrap().tsih());
        for lost in [third, first, second] {
            directory.remove_connection(lost, Cid(0));
        }
        assert_eq!(claim(&mut directory, 3, third), Ok(Claim::Joins(third)), "it has one again");
        for (isid, expected) in [(4, first), (5, second)] {
            let Ok(Claim::Displaces { old, new }) = claim(&mut directory, isid, Tsih(0)) else {
                panic!("a place")
            };
            assert_eq!(old, expected);
            assert_ne!(new, old);
            assert!(directory.check_join(&key(isid), new).is_ok());
        }
        assert_eq!(claim(&mut directory, 6, Tsih(0)), Err(ClaimError::OutOfResources));
        assert_eq!(claim(&mut directory, 1, first), Err(ClaimError::NoSuchSession));
        assert_eq!(directory.len(), 3);
    }
}
