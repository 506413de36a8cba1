//! Registered memory of the emulated fabric.

use crate::foreign::Foreign;
use crate::traits::{Access, Exposed};
use crate::work::WorkStatus;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::AlignedBuf;

/// Location of a region's bytes.
#[derive(Debug)]
enum Holder {
    Host(AlignedBuf),
    /// Memory of another device, from this byte on.
    Foreign(Arc<dyn Foreign>, usize),
}

#[derive(Debug)]
struct Region {
    bytes: Holder,
    len: usize,
    address: u64,
    access: Access,
    valid: bool,
}

#[derive(Debug, Default)]
struct Table {
    regions: HashMap<u32, Region>,
    made: u32,
}

/// Memory registered for peers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    table: Mutex<Table>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().regions.len()
    }

    /// Writes on behalf of a peer.
    pub(crate) fn write(&self, rkey: u32, address: u64, data: &[u8]) -> Result<(), WorkStatus> {
        // A device does not check the key of a write without bytes.
        if data.is_empty() {
            return Ok(());
        }
        let mut table = self.lock();
        let region = table.regions.get_mut(&rkey).ok_or(WorkStatus::RemoteAccess)?;
        let range = region.range(address, data.len())?;
        if !region.access.write {
            return Err(WorkStatus::RemoteAccess);
        }
        match &mut region.bytes {
            Holder::Host(buffer) => buffer[range].copy_from_slice(data),
            Holder::Foreign(memory, start) => {
                memory.write(*start + range.start, data).map_err(|_| WorkStatus::RemoteAccess)?;
            }
        }
        Ok(())
    }

    /// Reads on behalf of a peer.
    pub(crate) fn read(&self, rkey: u32, address: u64, len: usize) -> Result<Bytes, WorkStatus> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let table = self.lock();
        let region = table.regions.get(&rkey).ok_or(WorkStatus::RemoteAccess)?;
        let range = region.range(address, len)?;
        if !region.access.read {
            return Err(WorkStatus::RemoteAccess);
        }
        match &region.bytes {
            Holder::Host(buffer) => Ok(Bytes::copy_from_slice(&buffer[range])),
            Holder::Foreign(..) => Err(WorkStatus::RemoteAccess),
        }
    }

    /// Invalidates a key on behalf of a peer.
    pub(crate) fn invalidate(&self, rkey: u32) -> Result<(), WorkStatus> {
        match self.lock().regions.get_mut(&rkey) {
            Some(region) if region.valid => {
                region.valid = false;
                Ok(())
            }
            _ => Err(WorkStatus::RemoteInvalidRequest),
        }
    }
}

impl Region {
    fn range(&self, address: u64, len: usize) -> Result<Range<usize>, WorkStatus> {
        let start = address.checked_sub(self.address).and_then(|start| usize::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(len));
        match start.zip(end) {
            Some((start, end)) if self.valid && end <= self.len => Ok(start..end),
            _ => Err(WorkStatus::RemoteAccess),
        }
    }
}

/// Handle of one region.
#[derive(Debug)]
pub(crate) struct EmulatedExposed {
    memory: Arc<Memory>,
    rkey: u32,
    address: u64,
    len: usize,
}

pub(crate) fn expose(memory: &Arc<Memory>, buffer: AlignedBuf, access: Access) -> EmulatedExposed {
    let (address, len) = (buffer.as_ptr() as u64, buffer.len());
    insert(memory, Region { bytes: Holder::Host(buffer), len, address, access, valid: true })
}

pub(crate) fn expose_foreign(
    memory: &Arc<Memory>,
    foreign: Arc<dyn Foreign>,
    range: Range<usize>,
) -> EmulatedExposed {
    let (address, len) = (foreign.address() + range.start as u64, range.len());
    let bytes = Holder::Foreign(foreign, range.start);
    let access = Access { read: false, write: true };
    insert(memory, Region { bytes, len, address, access, valid: true })
}

fn insert(memory: &Arc<Memory>, region: Region) -> EmulatedExposed {
    let (address, len) = (region.address, region.len);
    let mut table = memory.lock();
    // No key is reused soon, so that a stale key is detected.
    table.made = table.made.wrapping_add(1);
    let rkey = table.made.rotate_left(8) ^ 0x5a;
    table.regions.insert(rkey, region);
    drop(table);
    EmulatedExposed { memory: Arc::clone(memory), rkey, address, len }
}

impl Exposed for EmulatedExposed {
    fn rkey(&self) -> u32 {
        self.rkey
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn withdraw(self: Box<Self>) -> AlignedBuf {
        let region = self.memory.lock().regions.remove(&self.rkey);
        match region.map(|region| region.bytes) {
            Some(Holder::Host(buffer)) => buffer,
            _ => AlignedBuf::zeroed(0),
        }
    }
}

impl Drop for EmulatedExposed {
    fn drop(&mut self) {
        self.memory.lock().regions.remove(&self.rkey);
    }
}
