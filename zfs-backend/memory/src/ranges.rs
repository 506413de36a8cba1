//! Operations on the bytes of open files.

use crate::content::PAGE_BYTES;
use crate::open_file::MemoryFile;
use crate::permission::{EXECUTE, READ, WRITE, permits, require};
use crate::tree::Tree;
use bytes::Bytes;
use std::ops::Range;
use zgate_store::file_store::{OpenAccess, ReadData, ReadHow, SeekWhat, Stability};
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
        let by_execute = access.stateless || access.read_by_execute;
        let readable = permits(who, inode, READ)
            || by_ownership
            || (by_execute && permits(who, inode, EXECUTE));
        if access.read && !readable {
            return Err(StoreError::AccessDenied);
        }
        let number = inode.number;
        self.at_mut(number)?.opens += 1;
        Ok(number)
    }

    /// Reads without a change of the access time, as a dataset with atime=off
    /// does.
    pub(crate) fn read(
        &self,
        file: &MemoryFile,
        (offset, len): (u64, usize),
        how: ReadHow,
    ) -> StoreResult<ReadData> {
        let content = self.at(file.readable()?)?.data()?.live();
        let size = content.size();
        if how.tells_holes && content.allocated_pages().saturating_mul(PAGE_BYTES) < size {
            return Ok(ReadData::with_holes(size, offset));
        }
        let data = content.read(offset, len);
        let eof = offset.saturating_add(data.len() as u64) >= size;
        Ok(ReadData::new(Payload::Bytes(Bytes::from(data)), eof))
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

    /// Shares a range, in whole blocks as FICLONERANGE requires.
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
        // Try it on a copy, so that a lack of space changes nothing.
        let mut tried = self.at(target)?.data()?.live().clone();
        let before = tried.allocated_pages();
        tried.copy_from(&from, &range, offset);
        if tried.allocated_pages().saturating_sub(before) > self.free_pages() {
            return Err(StoreError::NoSpace);
        }
        self.change_data(target, |data| data.copy_from(&from, &range, offset))
    }
}

#[cfg(test)]
mod tests {
    use crate::MemoryStore;
    use crate::fixture::*;
    use bytes::Bytes;
    use zgate_store::file_store::{OpenAccess, OpenFile, ReadHow, SeekWhat, Stability};
    use zgate_store::{FileStore, SetAttr, StoreError, StoreResult};

    #[test]
    fn bytes_come_back_and_the_end_is_told() {
        let s = Fixture::new();
        let (_, file) = s.file("f");
        assert_eq!(s.read(&file, 0, 10), (vec![], true));
        s.write(&file, 0, b"hello world").unwrap();
        assert_eq!(s.read(&file, 0, 5), (b"hello".to_vec(), false));
        assert_eq!(s.read(&file, 6, 5), (b"world".to_vec(), true));
        assert_eq!(s.read(&file, 6, 500), (b"world".to_vec(), true));
        assert_eq!(s.read(&file, 0, 0), (vec![], false));
        assert_eq!(s.read(&file, u64::MAX, 5), (vec![], true));
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            let data = Bytes::from(vec![7; 200_000]);
            let written = block_on(s.store.write(&file, 100, data, stability)).unwrap();
            assert!(written.0 == 200_000 && written.1 >= stability);
        }
        assert_eq!(error_of(s.write(&file, u64::MAX - 5, &[0; 10])), StoreError::TooLarge);
        assert_eq!(error_of(s.write(&file, i64::MAX as u64, b"x")), StoreError::TooLarge);
    }

    #[test]
    fn an_open_file_permits_what_was_granted() {
        let s = Fixture::new();
        let (node, _) = s.file("f");
        let open = |access| block_on(s.store.open(&root(), &node.handle, access)).unwrap();
        let reader = open(READ);
        assert_eq!(error_of(s.write(&reader, 0, b"x")), StoreError::AccessDenied);
        let allocated = block_on(s.store.allocate(&reader, 0, 10));
        assert_eq!(error_of(allocated), StoreError::AccessDenied);
        let writer = open(OpenAccess { read: false, ..READ_WRITE });
        s.write(&writer, 0, b"x").unwrap();
        let how = ReadHow { span_allowed: false, tells_holes: false };
        let read = block_on(s.store.read(&writer, 0, 1, how));
        assert_eq!(error_of(read), StoreError::AccessDenied);
        let other = MemoryStore::new();
        let foreign = block_on(other.commit(&writer));
        assert_eq!(error_of(foreign), StoreError::BadHandle);
        // A size set through a file open for writing needs no other right.
        let bob = user(5, 5);
        let cut =
            |file: &OpenFile| block_on(s.store.setattr(&bob, &node.handle, &size(0), Some(file)));
        assert_eq!(error_of(cut(&reader)), StoreError::AccessDenied);
        assert_eq!(cut(&writer).unwrap().size, 0);
    }

    #[test]
    fn space_and_holes() {
        let s = Fixture::new();
        let (node, file) = s.file("f");
        block_on(s.store.allocate(&file, 0, 1 << 20)).unwrap();
        let attr = || block_on(s.store.getattr(&node.handle)).unwrap();
        assert_eq!((attr().size, attr().used_bytes), (1 << 20, 1 << 20));
        s.write(&file, 0, &vec![1; 1 << 20]).unwrap();
        let used = attr();
        block_on(s.store.deallocate(&file, 64 << 10, 512 << 10)).unwrap();
        let after = attr();
        assert_eq!((after.size, after.used_bytes), (1 << 20, 512 << 10));
        assert!(after.change > used.change);
        assert_eq!(s.read(&file, 100 << 10, 10).0, vec![0; 10]);
        let seek = |offset, what| block_on(s.store.seek(&file, offset, what));
        assert_eq!(seek(0, SeekWhat::Hole), Ok(64 << 10));
        assert_eq!(seek(64 << 10, SeekWhat::Data), Ok(576 << 10));
        assert_eq!(seek(600 << 10, SeekWhat::Hole), Ok(1 << 20));
        assert_eq!(seek(1 << 20, SeekWhat::Data), Err(StoreError::BeyondEnd));
        let told = |file: &OpenFile, offset, tells_holes| {
            let how = ReadHow { span_allowed: false, tells_holes };
            let read = block_on(s.store.read(file, offset, 10, how)).unwrap();
            (read.data.len(), read.eof, read.size_with_holes)
        };
        assert_eq!(told(&file, 0, true), (0, false, Some(1 << 20)));
        assert_eq!(told(&file, 1 << 20, true), (0, true, Some(1 << 20)));
        assert_eq!(told(&file, 0, false), (10, false, None));
        let (_, full) = s.file("full");
        s.write(&full, 0, &[1; 20]).unwrap();
        assert_eq!(told(&full, 0, true), (10, false, None), "without a hole it is read");
        block_on(s.store.deallocate(&file, 2 << 20, u64::MAX)).unwrap();
        assert_eq!(attr(), after);
        let far = block_on(s.store.allocate(&file, u64::MAX - 1, 10));
        assert_eq!(error_of(far), StoreError::TooLarge);
    }

    #[test]
    fn copies_inside_the_store() {
        let s = Fixture::new();
        let ((_, from), (_, to)) = (s.file("from"), s.file("to"));
        let data: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
        s.write(&from, 0, &data).unwrap();
        let copy = |from: &OpenFile, at, to: &OpenFile, to_at, len| -> StoreResult<u64> {
            block_on(s.store.copy_range(from, at, to, to_at, len))
        };
        assert_eq!(copy(&from, 1000, &to, 5, 10_000_000), Ok(299_000));
        assert_eq!(s.read(&to, 5, 300_000).0, data[1000..]);
        assert_eq!(copy(&from, 400_000, &to, 0, 5), Ok(0));
        assert_eq!(copy(&from, 0, &from, 100, 1000), Err(StoreError::Invalid));
        assert_eq!(copy(&from, 0, &from, 4096, 4096), Ok(4096));
        assert_eq!(s.read(&from, 4096, 4096).0, data[..4096]);
        // An exbibyte of hole is copied at once.
        let sparse = s.file("sparse");
        block_on(s.store.setattr(&root(), &sparse.0.handle, &size(1 << 60), None)).unwrap();
        assert_eq!(copy(&sparse.1, 0, &to, 0, 1 << 60), Ok(1 << 60));
        assert_eq!(s.read(&to, 0, 10).0, vec![0; 10]);
    }

    #[test]
    fn clones_want_whole_blocks() {
        let s = Fixture::new();
        let ((_, from), (node, to)) = (s.file("from"), s.file("to"));
        let data: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        s.write(&from, 0, &data).unwrap();
        let clone = |at, to_at, len| block_on(s.store.clone_range(&from, at, &to, to_at, len));
        clone(0, 0, 0).unwrap();
        assert_eq!(s.read(&to, 0, 20_000).0, data);
        clone(4096, 0, 4096).unwrap();
        assert_eq!(s.read(&to, 0, 4096).0, data[4096..8192]);
        assert_eq!(clone(1, 0, 4096), Err(StoreError::Invalid));
        assert_eq!(clone(0, 0, 100), Err(StoreError::Invalid));
        assert_eq!(clone(8192, 4096, 4096), Err(StoreError::Invalid));
        assert_eq!(block_on(s.store.getattr(&node.handle)).unwrap().size, 10_000);
    }

    #[test]
    fn space_runs_out() {
        let store = MemoryStore::builder().capacity_bytes(3 * 4096).build();
        let s = Fixture { store };
        let (node, file) = s.file("f");
        assert_eq!(s.write(&file, 100, &[1; 20_000]), Ok(3 * 4096 - 100));
        assert_eq!(error_of(s.write(&file, 3 * 4096, b"x")), StoreError::NoSpace);
        assert_eq!(s.write(&file, 0, b"over"), Ok(4));
        let stat = block_on(s.store.statfs(&node.handle)).unwrap();
        assert_eq!((stat.total_bytes, stat.free_bytes), (3 * 4096, 0));
        let (_, other) = s.file("g");
        assert_eq!(error_of(block_on(s.store.allocate(&other, 0, 1))), StoreError::NoSpace);
        let copied = block_on(s.store.copy_range(&file, 0, &other, 0, 4096));
        assert_eq!(error_of(copied), StoreError::NoSpace);
        assert_eq!(s.read(&other, 0, 10).0, b"");
        let cut = SetAttr { size: Some(4096), ..SetAttr::default() };
        block_on(s.store.setattr(&root(), &node.handle, &cut, None)).unwrap();
        block_on(s.store.allocate(&other, 0, 8192)).unwrap();
        assert_eq!(s.write(&other, 0, &[2; 9000]), Ok(8192));
    }
}
