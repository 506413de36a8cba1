//! Addresses of the host names in client entries. A name is resolved at every
//! start and reload; one that has no address is tried again until it has one.

use super::absent::{AbsentItem, AbsentKind, Fault};
use super::attempts::{Attempts, Job, Progress, Wake};
use super::limits::NAME_PATIENCE;
use super::settings::ExportSet;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::ToSocketAddrs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_config::{ClientMatch, ExportClient};

/// Addresses of host names at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTable(BTreeMap<String, Vec<IpNet>>);

impl HostTable {
    /// Returns the addresses of a host, if they are known.
    pub(crate) fn networks(&self, name: &str) -> Option<&[IpNet]> {
        self.0.get(name).map(Vec::as_slice)
    }

    #[cfg(test)]
    pub(super) fn of<const N: usize>(hosts: [(&str, Vec<IpNet>); N]) -> Self {
        Self(hosts.into_iter().map(|(name, networks)| (name.to_owned(), networks)).collect())
    }
}

/// Result of the last attempts for one name.
#[derive(Default)]
struct Host {
    /// Addresses found last.
    networks: Option<Vec<IpNet>>,
    /// Reason for which the latest attempt found none.
    fault: Option<Fault>,
}

/// Host names and their addresses.
pub(crate) struct Hosts {
    attempts: Attempts<Vec<IpNet>>,
    known: Mutex<BTreeMap<String, Host>>,
    resolve: fn(&str) -> Result<Vec<IpNet>, Fault>,
}

/// Host names of exports, with the exports that use them.
pub(crate) type HostNames = BTreeMap<String, BTreeSet<String>>;

/// Returns the host names of exports.
pub(crate) fn names(exports: &ExportSet) -> HostNames {
    let mut names = HostNames::new();
    let mut add = |clients: &[ExportClient], export: Option<&str>| {
        for client in clients {
            if let ClientMatch::Host(name) = &client.matches {
                names.entry(name.clone()).or_default().extend(export.map(str::to_owned));
            }
        }
    };
    exports.iter().for_each(|export| add(&export.clients, Some(&export.pseudo_path)));
    add(&exports.pattern_clients, None);
    names
}

impl Hosts {
    pub(crate) fn new(wake: Wake) -> Self {
        Self::with(wake, addresses)
    }

    fn with(wake: Wake, resolve: fn(&str) -> Result<Vec<IpNet>, Fault>) -> Self {
        Self { attempts: Attempts::new(wake), known: Mutex::default(), resolve }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job(&self, name: &str, begins: bool) -> Job<Vec<IpNet>> {
        let (resolve, key) = (self.resolve, name.to_owned());
        let name = key.clone();
        Job { key, work: Box::new(move || resolve(&name)), begins }
    }

    /// Returns the names whose latest attempt found no address.
    fn failed(&self, names: &HostNames) -> Vec<String> {
        let known = self.known();
        let failed = |name: &&String| known.get(*name).is_none_or(|host| host.fault.is_some());
        names.keys().filter(failed).cloned().collect()
    }

    /// Resolves all names again.
    pub(crate) fn resolve(&self, names: &HostNames) {
        self.attempt(names.keys().cloned().collect(), true);
    }

    /// Uses the results of [`Self::retry`].
    pub(crate) fn collect(&self, names: &HostNames) {
        self.attempt(self.failed(names), false);
    }

    fn attempt(&self, names: Vec<String>, begins: bool) {
        let jobs = names.iter().map(|name| self.job(name, begins)).collect();
        let results = self.attempts.attempt(jobs, NAME_PATIENCE);
        let mut known = self.known();
        for (name, result) in names.into_iter().zip(results) {
            let host = known.entry(name).or_default();
            match result {
                Ok(networks) => *host = Host { networks: Some(networks), fault: None },
                // Addresses from before stay in effect.
                Err(fault) => host.fault = Some(fault),
            }
        }
    }

    /// Begins the attempts that are due for names without an address.
    pub(crate) fn retry(&self, names: &HostNames) -> Progress {
        let failed = self.failed(names);
        self.attempts.retry(failed.iter().map(|name| self.job(name, true)).collect())
    }

    /// Returns the addresses of all names.
    pub(crate) fn table(&self) -> HostTable {
        let known = self.known();
        let found = known.iter().filter_map(|(name, host)| {
            let networks = host.networks.as_ref()?;
            Some((name.clone(), networks.clone()))
        });
        HostTable(found.collect())
    }

    /// Returns the names that did not resolve at the last attempt.
    pub(crate) fn absent(&self, names: &HostNames) -> Vec<AbsentItem> {
        let known = self.known();
        let item = |(name, exports): (&String, &BTreeSet<String>)| {
            let host = known.get(name)?;
            let mut fault = host.fault.clone()?;
            if !exports.is_empty() {
                let exports: Vec<_> = exports.iter().map(String::as_str).collect();
                fault.reason += &format!(" (clients of {})", exports.join(", "));
            }
            if host.networks.is_some() {
                fault.reason += "; its earlier addresses stay in effect";
            }
            Some(AbsentItem::new(AbsentKind::Client, format!("client {name}"), fault))
        };
        names.iter().filter_map(item).collect()
    }

    /// Forgets names that no export in effect has.
    pub(crate) fn keep(&self, names: &HostNames) {
        self.known().retain(|name, _| names.contains_key(name));
    }
}

/// Resolves all addresses of a host. Blocks. A host without addresses is a fault:
/// it must not open the export to everyone.
pub(crate) fn addresses(name: &str) -> Result<Vec<IpNet>, Fault> {
    const NEXT_STEP: &str = "correct the name, or use an address";
    let found = (name, 0).to_socket_addrs();
    let found = found.map_err(|error| Fault::absent(error.to_string(), NEXT_STEP))?;
    let networks: Vec<_> = found.map(|found| found.ip().to_canonical().into()).collect();
    if networks.is_empty() {
        return Err(Fault::absent("the name has no address".to_owned(), NEXT_STEP));
    }
    Ok(networks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    static RESOLVES: AtomicBool = AtomicBool::new(true);

    fn resolver(name: &str) -> Result<Vec<IpNet>, Fault> {
        let found = name == "always" || RESOLVES.load(Ordering::Acquire);
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        if found { Ok(vec![address.into()]) } else { Err(Fault::unknown()) }
    }

    #[test]
    fn a_name_that_fails_keeps_its_addresses_and_is_retried() {
        let exports = BTreeSet::from(["/a".to_owned()]);
        let names =
            HostNames::from([("gpu".to_owned(), exports.clone()), ("always".into(), exports)]);
        let wake = Wake::default();
        let hosts = Hosts::with(wake.clone(), resolver);
        RESOLVES.store(false, Ordering::Release);
        hosts.resolve(&names);
        let networks = |hosts: &Hosts, name: &str| hosts.table().networks(name).map(<[_]>::len);
        assert_eq!((networks(&hosts, "gpu"), networks(&hosts, "always")), (None, Some(1)));
        let absent = hosts.absent(&names);
        assert_eq!((absent.len(), absent[0].name.as_str()), (1, "client gpu"));
        assert!(absent[0].reason.ends_with("(clients of /a)"), "{absent:?}");
        // Nothing is attempted without a retry.
        RESOLVES.store(true, Ordering::Release);
        hosts.collect(&names);
        assert_eq!(networks(&hosts, "gpu"), None);
        hosts.attempts.make_due();
        while !hosts.retry(&names).news {
            wake.wait(None);
        }
        hosts.collect(&names);
        assert_eq!((networks(&hosts, "gpu"), hosts.absent(&names).len()), (Some(1), 0));
        RESOLVES.store(false, Ordering::Release);
        hosts.resolve(&names);
        assert_eq!(networks(&hosts, "gpu"), Some(1), "addresses from before");
        assert!(hosts.absent(&names)[0].reason.ends_with("stay in effect"));
        hosts.keep(&HostNames::new());
        assert_eq!(networks(&hosts, "gpu"), None);
    }

    #[test]
    fn a_name_that_cannot_exist_has_no_address() {
        assert!(addresses("no-such-host.invalid").is_err());
        assert_eq!(addresses("127.0.0.1").unwrap().len(), 1);
    }
}
