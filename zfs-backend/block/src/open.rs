//! Opening a volume: kind, exclusive use, and method of I/O.

use crate::aligned::Alignment;
use crate::backing::{Backing, SECTOR_BYTES, Shape};
use crate::device::Sysfs;
use crate::exclusive::{self, Refusal};
use crate::options::{BlockOptions, DirectIo, OpenError};
use crate::{device, file};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use zgate_io::block_ioctl;

/// Permissions of a file created here.
const NEW_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens the device or file at `path`.
pub(crate) fn open(path: &Path, options: &BlockOptions) -> Result<Backing, OpenError> {
    check_new_size(path, options.create_bytes)?;
    match rustix::fs::stat(path) {
        Ok(found) => match FileType::from_raw_mode(found.st_mode) {
            FileType::BlockDevice => open_device(path, options, &found),
            FileType::RegularFile => open_file(path, options, false),
            other => Err(wrong_type(path, other)),
        },
        Err(Errno::NOENT) if options.create_bytes.is_some() && !options.read_only => {
            refuse_among_devices(path)?;
            open_file(path, options, true)
        }
        Err(errno) => Err(unreachable_because(path, errno)),
    }
}

/// Refuses a size at which no file is created.
pub(crate) fn check_new_size(path: &Path, create_bytes: Option<u64>) -> Result<(), OpenError> {
    match create_bytes {
        Some(size_bytes)
            if size_bytes < SECTOR_BYTES || !size_bytes.is_multiple_of(SECTOR_BYTES) =>
        {
            let why = "the size to create is not a multiple of 512";
            Err(OpenError::BadSize { path: path.to_owned(), size_bytes, why })
        }
        _ => Ok(()),
    }
}

/// Refuses the size of a device or file that cannot be served as a disk in transfers of
/// `unit_bytes`.
pub(crate) fn check_size(path: &Path, size_bytes: u64, unit_bytes: u64) -> Result<(), OpenError> {
    let bad = |why| Err(OpenError::BadSize { path: path.to_owned(), size_bytes, why });
    if size_bytes < SECTOR_BYTES {
        return bad("less than one block");
    }
    if !size_bytes.is_multiple_of(unit_bytes) {
        return bad("O_DIRECT cannot reach the end; make the size a multiple of 4096");
    }
    Ok(())
}

pub(crate) fn unreachable_because(path: &Path, errno: Errno) -> OpenError {
    OpenError::Unreachable { path: path.to_owned(), source: errno.into() }
}

fn unexaminable(path: &Path, what: &'static str, source: impl Into<io::Error>) -> OpenError {
    OpenError::Unexaminable { path: path.to_owned(), what, source: source.into() }
}

pub(crate) fn wrong_type(path: &Path, found: FileType) -> OpenError {
    let what = match found {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "something else",
    };
    OpenError::WrongType { path: path.to_owned(), what }
}

/// Refuses to create a file in /dev in place of a zvol that is not there yet:
/// the file would live in memory and be lost on reboot.
pub(crate) fn refuse_among_devices(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(path);
    // For an absent directory the nearest existing ancestor counts: /dev/zvol
    // may not exist yet.
    let nearest = folder.ancestors().find_map(|place| rustix::fs::stat(place).ok());
    let devices = rustix::fs::stat("/dev").ok();
    match (nearest, devices) {
        (Some(place), Some(dev)) if place.st_dev == dev.st_dev && path.starts_with("/dev") => {
            Err(OpenError::NoSuchDevice(path.to_owned()))
        }
        _ => Ok(()),
    }
}

fn access(options: &BlockOptions) -> OFlags {
    let rights = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    rights | OFlags::CLOEXEC | OFlags::NOCTTY
}

fn not_writable(path: &Path, why: &'static str) -> OpenError {
    OpenError::NotWritable { path: path.to_owned(), why }
}

pub(crate) fn no_direct(path: &Path, why: &'static str) -> OpenError {
    OpenError::NoDirectIo { path: path.to_owned(), why }
}

/// Takes the lock; a file system without locks is used without one.
fn hold(fd: &OwnedFd, path: &Path, shared: bool) -> Result<(), OpenError> {
    match exclusive::lock(fd, shared) {
        Ok(()) => Ok(()),
        Err(Refusal::Held) => Err(OpenError::InUse {
            path: path.to_owned(),
            by: "another process, or another LUN of this process, holds its lock".to_owned(),
        }),
        Err(Refusal::Failed(error)) => {
            tracing::warn!(path = %path.display(), %error, "cannot lock; a second user will not \
                be detected");
            Ok(())
        }
    }
}

fn open_device(path: &Path, options: &BlockOptions, found: &Stat) -> Result<Backing, OpenError> {
    let sysfs = Sysfs::of(found.st_rdev);
    let (fd, past_cache) = open_device_fd(path, options, found, &sysfs)?;
    let now = rustix::fs::fstat(&fd).map_err(|errno| unexaminable(path, "stat", errno))?;
    if now.st_rdev != found.st_rdev {
        return Err(unreachable_because(path, Errno::STALE));
    }
    let link = sysfs.zvol_link(&fd, path);
    let link = link.map_err(|errno| unexaminable(path, "read the name of the zvol", errno))?;
    refuse_other_zvol(path, link)?;
    hold(&fd, path, options.read_only)?;
    let ask = |what| move |errno: Errno| unexaminable(path, what, errno);
    if !options.read_only && block_ioctl::is_read_only(&fd).map_err(ask("query"))? {
        return Err(not_writable(path, "the device is read-only"));
    }
    let direct = match past_cache {
        true => device::alignment(&fd, &sysfs).map_err(ask("read the alignment of"))?,
        false => None,
    };
    if past_cache && direct.is_none() {
        if options.direct == DirectIo::Always {
            return Err(no_direct(path, "its alignment cannot be satisfied"));
        }
        stop_direct(&fd).map_err(ask("turn O_DIRECT off for"))?;
    }
    let shape =
        device::shape(&fd, &sysfs, direct.is_some()).map_err(ask("read the geometry of"))?;
    finish(fd, path, options, shape, direct)
}

/// Refuses a zvol whose own link is not `path`: while a renamed zvol is open, udev
/// may keep its link under a name that belongs to another zvol by then.
fn refuse_other_zvol(path: &Path, link: Option<PathBuf>) -> Result<(), OpenError> {
    match link {
        Some(own) if own != path => Err(OpenError::OtherZvol { path: path.to_owned(), own }),
        _ => Ok(()),
    }
}

/// Opens the device exclusively; returns whether it was opened with O_DIRECT.
fn open_device_fd(
    path: &Path,
    options: &BlockOptions,
    found: &Stat,
    sysfs: &Sysfs,
) -> Result<(OwnedFd, bool), OpenError> {
    let flags = access(options) | OFlags::EXCL;
    let try_direct = options.direct != DirectIo::Never;
    let first = if try_direct { flags | OFlags::DIRECT } else { flags };
    let opened = match exclusive::open_when_free(|| rustix::fs::open(path, first, Mode::empty())) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) if options.direct == DirectIo::Auto => {
            rustix::fs::open(path, flags, Mode::empty()).map(|fd| (fd, false))
        }
        answer => answer.map(|fd| (fd, try_direct)),
    };
    opened.map_err(|errno| match errno {
        Errno::BUSY => {
            let by = exclusive::device_user(found.st_rdev, &sysfs.folder);
            OpenError::InUse { path: path.to_owned(), by }
        }
        Errno::ROFS => not_writable(path, "the device is read-only"),
        Errno::INVAL | Errno::OPNOTSUPP if try_direct => no_direct(
            path,
            "the device refuses \
            O_DIRECT",
        ),
        other => unreachable_because(path, other),
    })
}

fn stop_direct(fd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT)
}

fn open_file(path: &Path, options: &BlockOptions, creates: bool) -> Result<Backing, OpenError> {
    let (fd, is_new) = open_or_create(path, options, creates)?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| unexaminable(path, "stat", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        other => return Err(wrong_type(path, other)),
    }
    hold(&fd, path, options.read_only)?;
    // The lock lasts until a file that was made in vain is gone: nobody else uses it.
    let _lock = if is_new { fd.try_clone().ok() } else { None };
    let opened = prepare_file(fd, path, options);
    if opened.is_err()
        && is_new
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove a file that was made in vain");
    }
    opened
}

/// Opens a file; returns whether it is new.
fn open_or_create(
    path: &Path,
    options: &BlockOptions,
    creates: bool,
) -> Result<(OwnedFd, bool), OpenError> {
    let open = |more: OFlags| rustix::fs::open(path, access(options) | more, NEW_FILE_MODE);
    let opened = if creates {
        match open(OFlags::CREATE | OFlags::EXCL) {
            // Somebody else has just made it, or a symbolic link leads to where it is to be.
            Err(Errno::EXIST) => open(OFlags::CREATE).map(|fd| (fd, false)),
            made => made.map(|fd| (fd, true)),
        }
    } else {
        open(OFlags::empty()).map(|fd| (fd, false))
    };
    opened.map_err(|errno| match errno {
        Errno::ROFS => not_writable(path, "its file system is read-only"),
        Errno::TXTBSY => not_writable(path, "it is a running program or a swap file"),
        other => unreachable_because(path, other),
    })
}

/// Gives a file that is locked its size, and reads its geometry.
fn prepare_file(fd: OwnedFd, path: &Path, options: &BlockOptions) -> Result<Backing, OpenError> {
    if let (Some(bytes), false) = (options.create_bytes, options.read_only) {
        give_size(&fd, path, bytes)?;
    }
    let direct = match options.direct {
        DirectIo::Always => Some(start_direct(&fd, path)?),
        DirectIo::Auto | DirectIo::Never => None,
    };
    let ask = |what| move |errno: Errno| unexaminable(path, what, errno);
    let size = rustix::fs::fstat(&fd).map_err(ask("stat"))?.st_size.max(0) as u64;
    let shape = file::shape(&fd, size, options.read_only).map_err(ask("read the geometry of"))?;
    finish(fd, path, options, shape, direct)
}

/// Sets the size of an empty file and syncs file and directory, so that both
/// survive power loss.
fn give_size(fd: &OwnedFd, path: &Path, bytes: u64) -> Result<(), OpenError> {
    let ask = |what| move |errno: Errno| unexaminable(path, what, errno);
    // Checked under the lock: whoever created the file has set its size.
    if rustix::fs::fstat(fd).map_err(ask("stat"))?.st_size != 0 {
        return Ok(());
    }
    rustix::fs::ftruncate(fd, bytes).map_err(|errno| match errno {
        // ftruncate(2): larger than the largest file.
        Errno::FBIG | Errno::INVAL => {
            OpenError::TooLarge { path: path.to_owned(), size_bytes: bytes }
        }
        other => unexaminable(path, "set the size of", other),
    })?;
    rustix::fs::fsync(fd).map_err(ask("sync"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::empty())
        .and_then(rustix::fs::fsync)
        .map_err(ask("sync the directory of"))
}

fn start_direct(fd: &OwnedFd, path: &Path) -> Result<Alignment, OpenError> {
    let demands = file::alignment(fd)
        .map_err(|errno| unexaminable(path, "read the alignment of", errno))?
        .ok_or_else(|| no_direct(path, file::NO_DIRECT))?;
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|errno| unexaminable(path, "query", errno))?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)
        .map_err(|_| no_direct(path, "its file system refuses it"))?;
    Ok(demands)
}

fn finish(
    fd: OwnedFd,
    path: &Path,
    options: &BlockOptions,
    shape: Shape,
    direct: Option<Alignment>,
) -> Result<Backing, OpenError> {
    let (read_only, pool) = (options.read_only, options.pool.clone());
    let backing = Backing::new(fd, path.to_owned(), shape, direct, read_only, pool);
    let size_bytes =
        backing.size_below().map_err(|error| unexaminable(path, "read the size of", error))?;
    check_size(path, size_bytes, backing.unit_bytes())?;
    backing.set_capacity(size_bytes);
    Ok(backing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_to_another_zvol_is_refused() {
        let path = Path::new("/dev/zvol/lab/vm/a");
        assert!(refuse_other_zvol(path, None).is_ok(), "no zvol, or no link of udev");
        assert!(refuse_other_zvol(path, Some(path.to_owned())).is_ok());
        let error = refuse_other_zvol(path, Some("/dev/zvol/lab/vm/a-old".into())).unwrap_err();
        assert!(matches!(error, OpenError::OtherZvol { .. }));
        for part in ["/dev/zvol/lab/vm/a leads", "/dev/zvol/lab/vm/a-old"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
