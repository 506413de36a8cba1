//! The host at the other end of an RPC connection: whether any export names it,
//! and the memory the connection holds of its share.

use super::fair_share::Held;
use super::service::Service;
use crate::listen::receive::Allowance;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The host, as one connection knows it.
pub(crate) struct Host {
    service: Rc<Service>,
    address: IpAddr,
    /// Exports that `named` is about: they change live.
    generation: u64,
    named: bool,
    held: Held,
}

impl Host {
    pub(crate) fn new(service: &Rc<Service>, address: IpAddr) -> Self {
        let generation = service.shared.exports_generation.load(Ordering::Acquire);
        let named = service.shared.v4.namespace().names_host(address);
        let held = service.held_by(address);
        Self { service: Rc::clone(service), address, generation, named, held }
    }

    /// Counts what the connection holds now, in bytes. A host that no export
    /// names holds next to nothing, and its weight takes no share from others.
    pub(crate) fn holds(&mut self, bytes: usize) {
        self.held.set(if self.named { bytes } else { 0 });
    }

    fn is_short(&self) -> bool {
        let shared = &self.service.shared;
        shared.pool.in_use_bytes() > shared.buffer_bytes
    }

    /// Whether another request may be taken in beside those under way.
    pub(crate) fn may_take_request(&self) -> bool {
        !self.is_short() && self.held.may_take()
    }
}

impl Allowance for Host {
    fn is_named(&mut self) -> bool {
        let shared = &self.service.shared;
        let now = shared.exports_generation.load(Ordering::Acquire);
        if now != self.generation {
            self.generation = now;
            self.named = shared.v4.namespace().names_host(self.address);
        }
        self.named
    }

    /// A host that holds nothing always may: memory that others hold comes
    /// back without it.
    fn may_take_memory(&self) -> bool {
        !self.held.client_holds_any() || (!self.is_short() && self.held.may_take_more())
    }
}
