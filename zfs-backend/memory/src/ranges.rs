//! Operations on the bytes of open files.

use crate::open_file::MemoryFile;
use crate::permission::{EXECUTE, READ, WRITE, permits, require};
use crate::tree::Tree;
use bytes::Bytes;
use std::ops::Range;
use zgate_store::file_store::{OpenAccess, ReadData, SeekWhat, Stability};
use zgate_store::{Caller, NodeHandle, Payload, StoreError, StoreResult};

impl Tree {
    /// Checks an open and counts it; returns the file's number.
    pub(crate) fn open(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<u64> {
        let inode = self.inode(node)?;
        inode.data()?;
        let by_ownership = access.stateless && who.uid == inode.uid;
        if access.write {
            self.require_writable()?;
            if !by_ownership {
                require(who, inode, WRITE)?;
            }
        }
        let readable = permits(who, inode, READ)
            || by_ownership
            || (access.stateless && permits(who, inode, EXECUTE));
        if access.read && !readable {
            return Err(StoreError::AccessDenied);
        }
        let number = inode.number;
        self.at_mut(number)?.opens += 1;
        Ok(number)
    }

    /// Reads; leaves the access time alone, as a dataset with atime=off does.
    pub(crate) fn read(&self, file: &MemoryFile, offset: u64, len: usize) -> StoreResult<ReadData> {
        let content = self.at(file.readable()?)?.data()?.live();
        let data = content.read(offset, len);
        let eof = offset.saturating_add(data.len() as u64) >= content.size();
        Ok(ReadData { data: Payload::Bytes(Bytes::from(data)), eof })
    }

    /// Writes as much as there is space for.
    pub(crate) fn write(
        &mut self,
        file: &MemoryFile,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> StoreResult<(usize, Stability)> {
        let number = file.writable()?;
        self.check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok((0, stability));
        }
        let content = self.at(number)?.data()?.live();
        let fits = content.writable(offset, data.len() as u64, self.free_pages()) as usize;
        if fits == 0 {
            return Err(StoreError::NoSpace);
        }
        self.change_data(number, |file| file.write(offset, &data[..fits], stability))?;
        self.data_changed(number, file)?;
        Ok((fits, stability))
    }

    fn data_changed(&mut self, number: u64, file: &MemoryFile) -> StoreResult<()> {
        self.modified(number)?;
        if !file.privileged {
            self.at_mut(number)?.drop_set_id();
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, len: u64) -> StoreResult<Range<u64>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.traits.max_file_bytes => Ok(offset..end),
            _ => Err(StoreError::TooLarge),
        }
    }

    /// Makes all earlier writes stable.
    pub(crate) fn commit(&mut self, file: &MemoryFile) -> StoreResult<()> {
        self.change_data(file.number, |data| data.commit())
    }

    /// Reserves space.
    pub(crate) fn allocate(&mut self, file: &MemoryFile, offset: u64, len: u64) -> StoreResult<()> {
        let number = file.writable()?;
        if len == 0 {
            return Ok(());
        }
        self.check_range(offset, len)?;
        let content = self.at(number)?.data()?.live();
        if content.pages_to_reserve(offset, len) > self.free_pages() {
            return Err(StoreError::NoSpace);
        }
        self.change_data(number, |data| data.reserve(offset, len))?;
        self.data_changed(number, file)
    }

    /// Punches a hole.
    pub(crate) fn deallocate(
        &mut self,
        file: &MemoryFile,
        offset: u64,
        len: u64,
    ) -> StoreResult<()> {
        let number = file.writable()?;
        if len == 0 || offset >= self.at(number)?.data()?.live().size() {
            return Ok(());
        }
        self.change_data(number, |data| data.punch(offset, len))?;
        self.data_changed(number, file)
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, file: &MemoryFile, offset: u64, what: SeekWhat) -> StoreResult<u64> {
        self.at(file.number)?.data()?.live().seek(offset, what)
    }

    /// Copies a range; short at the source's end.
    pub(crate) fn copy(
        &mut self,
        from: &MemoryFile,
        from_offset: u64,
        to: &MemoryFile,
        to_offset: u64,
        len: u64,
    ) -> StoreResult<u64> {
        let (source, target) = (from.readable()?, to.writable()?);
        self.check_range(to_offset, len)?;
        let size = self.at(source)?.data()?.live().size();
        let len = len.min(size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        self.transfer(source, from_offset..from_offset + len, target, to_offset)?;
        self.data_changed(target, to)?;
        Ok(len)
    }

    /// Shares a range, in whole blocks as FICLONERANGE wants them.
    pub(crate) fn clone(
        &mut self,
        from: &MemoryFile,
        from_offset: u64,
        to: &MemoryFile,
        to_offset: u64,
        len: u64,
    ) -> StoreResult<()> {
        let block = match self.traits.clone_block_bytes {
            Some(bytes) if bytes > 0 => u64::from(bytes),
            _ => return Err(StoreError::NotSupported),
        };
        let (source, target) = (from.readable()?, to.writable()?);
        let size = self.at(source)?.data()?.live().size();
        let left = size.checked_sub(from_offset).ok_or(StoreError::Invalid)?;
        let len = if len == 0 { left } else { len };
        let to_end = self.check_range(to_offset, len)?.end;
        let ends_both = len == left && to_end >= self.at(target)?.data()?.live().size();
        let aligned = from_offset.is_multiple_of(block)
            && to_offset.is_multiple_of(block)
            && (len.is_multiple_of(block) || ends_both);
        if len > left || !aligned {
            return Err(StoreError::Invalid);
        }
        if len == 0 {
            return Ok(());
        }
        self.transfer(source, from_offset..from_offset + len, target, to_offset)?;
        self.data_changed(target, to)
    }

    fn transfer(
        &mut self,
        source: u64,
        range: Range<u64>,
        target: u64,
        offset: u64,
    ) -> StoreResult<()> {
        let len = range.end - range.start;
        if source == target && range.start.abs_diff(offset) < len {
            return Err(StoreError::Invalid);
        }
        let from = self.at(source)?.data()?.live().clone();
        // Tried on a copy, so that a lack of space changes nothing.
        let mut tried = self.at(target)?.data()?.live().clone();
        let before = tried.allocated_pages();
        tried.copy_from(&from, &range, offset);
        if tried.allocated_pages().saturating_sub(before) > self.free_pages() {
            return Err(StoreError::NoSpace);
        }
        self.change_data(target, |data| data.copy_from(&from, &range, offset))
    }
}
