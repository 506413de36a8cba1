//! Addresses to listen on that no interface of the machine has yet. The kernel
//! lets a socket listen there in advance: connections arrive as soon as the
//! address exists.

use crate::exports::absent::{AbsentItem, AbsentKind, Fault};
use crate::exports::open::Opening;
use crate::net::accept::{bind, bind_in_advance, is_local};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Addresses that did not exist when the gateway began to listen there.
#[derive(Default)]
pub(crate) struct Awaited(Mutex<Vec<(&'static str, SocketAddr)>>);

impl Awaited {
    /// Listens at an address, which need not exist unless the start is strict.
    ///
    /// # Errors
    /// The address, the reason and the next step.
    pub(crate) fn listen(
        &self,
        service: &'static str,
        address: SocketAddr,
        how: Opening,
    ) -> io::Result<TcpListener> {
        match bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable
                    && how != Opening::StrictStart =>
            {
                let listener = bind_in_advance(address)?;
                let mut awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                awaited.push((service, address));
                Ok(listener)
            }
            bound => bound,
        }
    }

    /// Listens at several addresses of a service, as [`Self::listen`] does.
    ///
    /// # Errors
    /// The first address that cannot be used.
    pub(crate) fn listen_all(
        &self,
        service: &'static str,
        addresses: &[SocketAddr],
        how: Opening,
    ) -> io::Result<Vec<TcpListener>> {
        addresses.iter().map(|address| self.listen(service, *address, how)).collect()
    }

    /// Adds the addresses that another one awaits.
    pub(crate) fn add(&self, other: Self) {
        let mut others = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(&mut others);
    }

    /// Returns the addresses that do not exist now.
    pub(crate) fn absent(&self) -> Vec<AbsentItem> {
        let awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = awaited.iter().filter(|(_, address)| !is_local(address.ip()));
        absent.map(|(service, address)| absent_item(service, *address)).collect()
    }
}

/// Returns the item of an address that does not exist.
pub(super) fn absent_item(service: &str, address: SocketAddr) -> AbsentItem {
    let fault = Fault::absent(
        "no interface of this machine has that address".to_owned(),
        "add the address, or correct it; `ip addr` lists them",
    );
    AbsentItem::new(AbsentKind::Listen, format!("{service} address {address}"), fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve::Running;

    /// TEST-NET-1 (RFC 5737): no machine has it.
    const ABSENT: &str = "192.0.2.1:0";

    #[test]
    fn an_address_that_does_not_exist_is_listened_on_in_advance() {
        let (awaited, address) = (Awaited::default(), ABSENT.parse().unwrap());
        let strict = awaited.listen("NFS", address, Opening::StrictStart);
        assert_eq!(strict.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        let listener = awaited.listen("NFS", address, Opening::Start).unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), address.ip());
        assert!(awaited.absent()[0].name.starts_with("NFS address 192.0.2.1"));
        awaited.listen("iSCSI", "127.0.0.1:0".parse().unwrap(), Opening::Start).unwrap();
        assert_eq!(awaited.absent().len(), 1);
        let others = Awaited::default();
        assert_eq!(others.listen_all("API", &[address], Opening::Start).unwrap().len(), 1);
        awaited.add(others);
        assert!(awaited.absent()[1].name.starts_with("API address 192.0.2.1"));
    }

    #[test]
    fn an_address_of_metrics_that_is_taken_is_told_before_nfs_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        // That of NFS is taken, too, and would be told if it were the first.
        let others = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [nfs, metrics] = others.each_ref().map(|other| other.local_addr().unwrap());
        let text = format!(
            "[server]\nlisten = [\"{nfs}\"]\nmetrics_listen = \"{metrics}\"\n\
             state_dir = {state:?}\ncores = 1\n"
        );
        let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
        let refusal = Running::start(&config, false).err().unwrap().to_string();
        let said = format!("metrics_listen: cannot listen on {metrics}");
        assert!(refusal.starts_with(&said), "{refusal}");
    }
}
