//! Host of an RPC connection: whether any export names it, and the memory the
//! connection holds of its share.

use super::limits::MAX_UNTOLD_BYTES;
use super::record::Allowance;
use super::service::Service;
use crate::net::memory_quota::MemoryReservation;
use std::net::IpAddr;
use std::rc::Rc;

/// Host of one connection.
pub(crate) struct Host {
    service: Rc<Service>,
    address: IpAddr,
    /// Version of the exports for which `named` is valid: they change during
    /// operation.
    generation: u64,
    named: bool,
    held: MemoryReservation,
    /// Refusals of memory that were seen at the last check.
    refusals: u64,
}

impl Host {
    pub(crate) fn new(service: &Rc<Service>, address: IpAddr) -> Self {
        let generation = service.nfs.v4.namespace_version();
        let named = service.nfs.v4.namespace().names_host(address);
        let held = service.core.network.reservation(address);
        let refusals = held.refusals();
        Self { service: Rc::clone(service), address, generation, named, held, refusals }
    }

    /// Sets the bytes the connection holds now. A host that no export names
    /// holds next to nothing, and its weight reduces no other share. Small
    /// amounts count as nothing: the connection is not told when the last small
    /// request ends on a worker.
    pub(crate) fn holds(&mut self, bytes: usize) {
        let counts = self.named && bytes >= MAX_UNTOLD_BYTES;
        self.held.set(if counts { bytes } else { 0 });
    }

    /// Returns whether anybody's large record has found no memory since the last
    /// call.
    pub(crate) fn memory_was_refused(&mut self) -> bool {
        let now = self.held.refusals();
        std::mem::replace(&mut self.refusals, now) != now
    }

    /// Returns whether a request may be accepted while none runs.
    pub(crate) fn may_begin(&self) -> bool {
        self.held.may_begin()
    }

    /// Returns whether another request may be accepted besides the running
    /// ones.
    pub(crate) fn may_take_request(&self) -> bool {
        self.held.may_take()
    }

    /// Returns whether so much data of a call may be read from the client's memory now.
    pub(crate) fn may_pull(&self, bytes: usize) -> bool {
        self.held.may_pull(bytes)
    }
}

impl Allowance for Host {
    fn is_named(&mut self) -> bool {
        let nfs = &self.service.nfs;
        let now = nfs.v4.namespace_version();
        if now != self.generation {
            self.generation = now;
            self.named = nfs.v4.namespace().names_host(self.address);
        }
        self.named
    }

    fn may_take_memory(&self, bytes: usize) -> bool {
        self.held.may_receive(bytes)
    }
}
