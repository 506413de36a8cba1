//! ioctls that query block devices and clear ranges of them.

use rustix::io;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use std::ffi::{c_int, c_uint};
use std::os::fd::OwnedFd;

/// `_IO(0x12, n)` and `_IOR(0x12, n, size_t)` of linux/fs.h.
const BLKROGET: Opcode = opcode::none(0x12, 94);
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKIOOPT: Opcode = opcode::none(0x12, 121);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

/// Room for the name of a zvol with its NUL.
const ZVOL_NAME_BYTES: usize = 256;
/// `_IOR(0x12, 125, char[256])` of OpenZFS's sys/fs/zfs.h.
const BLKZNAME: Opcode = opcode::read::<[u8; ZVOL_NAME_BYTES]>(0x12, 125);

/// Reads the size of the device in bytes (BLKGETSIZE64).
///
/// # Errors
/// `ENOTTY` if `fd` is not a block device.
#[allow(unsafe_code)]
pub fn size_bytes(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one u64 through its argument.
    unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Reads the logical block size in bytes: the unit of every transfer
/// (BLKSSZGET).
///
/// # Errors
/// `ENOTTY` if `fd` is not a block device.
pub fn logical_block_bytes(fd: &OwnedFd) -> io::Result<u32> {
    rustix::fs::ioctl_blksszget(fd)
}

/// Reads the physical block size in bytes (BLKPBSZGET); of a zvol, its
/// volblocksize.
///
/// # Errors
/// `ENOTTY` if `fd` is not a block device.
pub fn physical_block_bytes(fd: &OwnedFd) -> io::Result<u32> {
    rustix::fs::ioctl_blkpbszget(fd)
}

/// Reads the preferred transfer size in bytes; 0 if the device names none
/// (BLKIOOPT).
///
/// # Errors
/// `ENOTTY` if `fd` is not a block device.
#[allow(unsafe_code)]
pub fn optimal_io_bytes(fd: &OwnedFd) -> io::Result<u32> {
    // SAFETY: BLKIOOPT writes one unsigned int through its argument.
    unsafe { ioctl(fd, Getter::<BLKIOOPT, c_uint>::new()) }
}

/// Returns whether the device refuses writes (BLKROGET).
///
/// # Errors
/// `ENOTTY` if `fd` is not a block device.
#[allow(unsafe_code)]
pub fn is_read_only(fd: &OwnedFd) -> io::Result<bool> {
    // SAFETY: BLKROGET writes one int through its argument.
    let flag = unsafe { ioctl(fd, Getter::<BLKROGET, c_int>::new()) }?;
    Ok(flag != 0)
}

/// Discards the content of the range (BLKDISCARD). The range must consist of
/// whole logical blocks.
///
/// # Errors
/// `EOPNOTSUPP` if the device does not support it; `EINVAL` for a range outside
/// the device.
#[allow(unsafe_code)]
pub fn discard(fd: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 through its argument, and no memory of
    // ours is affected by what it does to the device.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// Fills the range with zeros without freeing its space (BLKZEROOUT); the
/// kernel writes zeros where the device has no command for it. The range must
/// consist of whole logical blocks.
///
/// # Errors
/// `EINVAL` for a range outside the device; errors of writing.
#[allow(unsafe_code)]
pub fn zero_out(fd: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKZEROOUT reads two u64 through its argument, and no memory of
    // ours is affected by what it does to the device.
    unsafe { ioctl(fd, Setter::<BLKZEROOUT, [u64; 2]>::new([offset, len])) }
}

/// Reads the name that a zvol has now, whatever links lead to it; of a partition,
/// that of its zvol (BLKZNAME).
///
/// # Errors
/// `ENOTTY` or `EINVAL` if `fd` is not a zvol.
#[allow(unsafe_code)]
pub fn zvol_name(fd: &OwnedFd) -> io::Result<String> {
    let mut name = [0; ZVOL_NAME_BYTES];
    // SAFETY: BLKZNAME writes 256 bytes through its argument.
    let answer = unsafe { ioctl(fd, Updater::<BLKZNAME, [u8; ZVOL_NAME_BYTES]>::new(&mut name)) };
    answer?;
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_regular_file_is_no_block_device() {
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        assert_eq!(size_bytes(&fd), Err(Errno::NOTTY));
        assert_eq!(optimal_io_bytes(&fd), Err(Errno::NOTTY));
        assert_eq!(is_read_only(&fd), Err(Errno::NOTTY));
        assert_eq!(discard(&fd, 0, 512), Err(Errno::NOTTY));
        assert_eq!(zero_out(&fd, 0, 512), Err(Errno::NOTTY));
        assert_eq!(zvol_name(&fd), Err(Errno::NOTTY));
    }
}
