//! File systems on disks: found, made, checked, grown.

use super::Node;
use super::host::{Disk, Held, Host, HostError};
use super::mount::{OF_NETWORK, Server, make_way, mounted_at, ours, text};
use super::record::{DiskRecord, Record};
use super::xfs;
use crate::limits::{COMMAND_SECONDS, MOUNT_SECONDS, PROBE_SECONDS};
use crate::status::invalid;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use tonic::Status;
use zgate_io::mountinfo::MountLine;

/// A file system, and the programs that make, grow and mount it.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    make: &'static [&'static str],
    /// Options of each mount. A clone has the UUID of its origin, which XFS refuses.
    options: &'static str,
    /// Options of a mount of a disk that cannot be written: no journal is replayed.
    read_only: &'static str,
    /// Program that grows it, and true if it takes the mount point, not the device.
    grow: (&'static str, bool),
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "ext4",
        make: &["mkfs.ext4", "-F", "-q", "-m", "0"],
        options: "noatime",
        read_only: "ro,noload",
        grow: ("resize2fs", false),
    },
    Kind {
        name: "xfs",
        make: &["mkfs.xfs", "-q"],
        options: "noatime,nouuid",
        read_only: "ro,norecovery,nouuid",
        grow: ("xfs_growfs", true),
    },
];

impl Kind {
    /// Returns the file system of a request; ext4 if it names none.
    pub(super) fn named(name: &str) -> Result<&'static Self, Status> {
        let name = if name.is_empty() { KINDS[0].name } else { name };
        let unknown = || invalid(format!("file system {name:?} is neither ext4 nor xfs"));
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(unknown)
    }
}

/// Exit status of `blkid`: nothing was found on the disk, also where it could not be
/// read.
const NOTHING_FOUND: i32 = 2;
/// Bytes at the head and at the end of a disk that must be readable before a file
/// system is made: those that `blkid` looks at, and more.
const READ_BYTES: &str = "1048576";

/// Returns the file system on a disk. None: the disk was read and has nothing.
async fn found(host: &dyn Host, device: &str) -> Result<Option<String>, Status> {
    let seen = look(host, device).await?;
    if seen.is_some() {
        return Ok(seen);
    }
    // Not read is not empty: nothing is made on such a disk.
    for program in ["head", "tail"] {
        let read = host.run(program, &["-c", READ_BYTES, device], COMMAND_SECONDS).await;
        read.map_err(|error| ours("the disk cannot be read", &error))?;
    }
    // It may have become readable in between.
    look(host, device).await
}

async fn look(host: &dyn Host, device: &str) -> Result<Option<String>, Status> {
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "value", device];
    match host.run("blkid", &arguments, COMMAND_SECONDS).await {
        Ok(kind) => Ok(Some(kind.trim().to_owned())),
        Err(error) if error.status() == Some(NOTHING_FOUND) => Ok(None),
        Err(error) => Err(ours("the disk cannot be read", &error)),
    }
}

/// Returns the file system of the volume that is mounted already. A mount of another disk
/// makes way, also that of a device which went with an earlier session, and so does a file
/// system that the kernel has given up.
async fn mounted(
    host: &dyn Host,
    record: &Record,
    known: &DiskRecord,
) -> Result<Option<&'static str>, Status> {
    let Some(mount) = mounted_at(host, &record.staging)? else { return Ok(None) };
    let why = if disk_of(host, known, &mount).is_some() {
        let path = text(&record.staging)?;
        let seen = given_up(host, &mount, path, PROBE_SECONDS, Box::new(())).await;
        match seen.map_err(|error| ours("the file system was not looked at", &error))? {
            Some(sign) => format!("the kernel has given the file system up: {sign}"),
            None => {
                let kind = Kind::named(&String::from_utf8_lossy(&mount.kind));
                return kind.map(|kind| Some(kind.name));
            }
        }
    } else {
        format!("{} is no disk of the volume", String::from_utf8_lossy(&mount.source))
    };
    make_way(host, record, Server::Disk(&known.target), &why).await?;
    Ok(None)
}

/// Options of a file system that the kernel has given up after an error. ext4 becomes read-only,
/// and tells the others from Linux 6.15 on (`_ext4_show_options`, fs/ext4/super.c).
const GIVEN_UP: [&str; 3] = ["ro", "emergency_ro", "shutdown"];

fn option_of_given_up(mount: &MountLine) -> Option<&'static str> {
    let options = || mount.super_options.split(|&byte| byte == b',');
    let has = |sign: &&str| options().any(|option| option == sign.as_bytes());
    // One that was mounted for reading is read-only at its mount, too.
    GIVEN_UP.into_iter().find(has).filter(|_| !mount.read_only)
}

/// Returns the sign that the kernel has given up the file system of a staged mount, if it has:
/// `path` is of the same file system. Its disk may answer all the same.
pub(super) async fn given_up(
    host: &dyn Host,
    staged: &MountLine,
    path: &str,
    limit: Duration,
    held: Held,
) -> Result<Option<String>, HostError> {
    if let Some(option) = option_of_given_up(staged) {
        return Ok(Some(format!("it is {option}")));
    }
    if staged.kind != b"xfs" {
        return Ok(None);
    }
    // XFS has no option for it; it tells nothing of an inode (`xfs_vn_getattr`).
    match host.run_holding("stat", &["-c", "%i", path], limit, held).await {
        Ok(_) => Ok(None),
        Err(error) if error.has_run() && error.status().is_some() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Returns the device of a volume that is attached and that a mount is of. None: the mount is of
/// a device that went with an earlier session, or of another target's disk with the same
/// identifier.
pub(super) fn disk_of(host: &dyn Host, known: &DiskRecord, mount: &MountLine) -> Option<Disk> {
    let (target, naa) = (&known.target, &known.naa);
    let mut devices = host.multipath(target, naa).into_iter().chain(host.paths(target, naa));
    devices.find(|disk| host.number(&disk.device) == Some(mount.device))
}

/// Mounts the disk of a volume; makes a file system first if it has none. Returns its name.
pub(super) async fn mount(
    node: &Node,
    (disk, known): (&Disk, &DiskRecord),
    record: &Record,
    wanted: &str,
    flags: &[String],
) -> Result<&'static str, Status> {
    let host = &*node.host;
    let device = text(&disk.device)?;
    let wanted = Kind::named(wanted)?;
    if let Some(name) = mounted(host, record, known).await? {
        return Ok(name);
    }
    let read_only = record.read_only;
    let (kind, is_new) = prepared(node, (device, known), wanted, read_only).await?;
    let of_kind = if read_only { kind.read_only } else { kind.options };
    let mut options = format!("{of_kind},{OF_NETWORK}");
    for flag in flags {
        options = options + "," + flag;
    }
    let arguments = ["-t", kind.name, "-o", &options, device, text(&record.staging)?];
    let mounted = host.run("mount", &arguments, MOUNT_SECONDS).await;
    mounted.map_err(|error| ours("not mounted", &error))?;
    if !read_only && !is_new {
        // The volume may be larger than the snapshot that it was made from.
        grow(node, (device, known), kind, &record.staging).await?;
    }
    Ok(kind.name)
}

/// Makes a file system on a disk that has none, or checks the one that it has. True: it is new,
/// and has all of the disk.
async fn prepared(
    node: &Node,
    (device, known): (&str, &DiskRecord),
    wanted: &'static Kind,
    read_only: bool,
) -> Result<(&'static Kind, bool), Status> {
    let host = &*node.host;
    let (kind, is_cut_off) = match found(host, device).await?.as_deref() {
        None => (wanted, false),
        Some(name) => {
            let other = |_| {
                Status::failed_precondition(format!("the disk has {name:?}, which is not mounted"))
            };
            let kind = Kind::named(name).map_err(other)?;
            if kind.name != "xfs" || !xfs::is_cut_off(host, device, &known.naa).await? {
                if kind.name == "ext4" && !read_only {
                    check(node, (device, known)).await?;
                }
                return Ok((kind, false));
            }
            (kind, true)
        }
    };
    if read_only {
        let none = "the volume is read-only and has no file system";
        return Err(Status::failed_precondition(none));
    }
    make(node, (device, known), kind, is_cut_off).await?;
    Ok((kind, true))
}

/// Makes a file system. `is_cut_off`: over the driver's own XFS, which was not made to its end.
async fn make(
    node: &Node,
    (device, known): (&str, &DiskRecord),
    kind: &Kind,
    is_cut_off: bool,
) -> Result<(), Status> {
    let uuid = format!("uuid={}", xfs::uuid_of(&known.naa));
    let mut arguments: Vec<&str> = kind.make[1..].to_vec();
    if kind.name == "xfs" {
        arguments.extend(["-m", uuid.as_str()]);
    }
    if is_cut_off {
        tracing::warn!(device, "the making of the XFS was cut off; it is made anew");
        arguments.push("-f");
    }
    arguments.push(device);
    let made = node.formats.run(&*node.host, &known.target, kind.make[0], &arguments).await;
    made.map(drop).map_err(|error| ours("no file system made", &error))
}

/// Exit statuses of `e2fsck` with which all is well or repaired. One that a signal has
/// ended has none of them.
const REPAIRED: RangeInclusive<i32> = 0..=1;

async fn check(node: &Node, (device, known): (&str, &DiskRecord)) -> Result<(), Status> {
    let checked = node.formats.run(&*node.host, &known.target, "e2fsck", &["-p", device]).await;
    let Err(error) = checked else { return Ok(()) };
    match error.status() {
        Some(status) if REPAIRED.contains(&status) => Ok(()),
        Some(_) if error.has_run() => {
            Err(ours("the file system needs repair by hand (e2fsck)", &error))
        }
        _ => Err(ours("the file system was not checked to its end", &error)),
    }
}

/// Grows the file system that is mounted at a path to the size of its disk. There may be a
/// multipath device of the disk beside the path that was mounted.
pub(super) async fn grow_mounted(
    node: &Node,
    known: &DiskRecord,
    kind: &Kind,
    path: &Path,
) -> Result<(), Status> {
    let host = &*node.host;
    let not_grown = |reason: &str| ours("the file system has not grown", &reason);
    let mount = mounted_at(host, path)?.ok_or_else(|| not_grown("it is not mounted"))?;
    let anew = "its disk was attached anew since it was mounted; delete the pod, so that it is \
                mounted again";
    let disk = disk_of(host, known, &mount).ok_or_else(|| not_grown(anew))?;
    grow(node, (text(&disk.device)?, known), kind, path).await
}

/// Grows a mounted file system to the size of its disk.
async fn grow(
    node: &Node,
    (device, known): (&str, &DiskRecord),
    kind: &Kind,
    mounted_at: &Path,
) -> Result<(), Status> {
    let (program, takes_path) = kind.grow;
    let place = if takes_path { text(mounted_at)? } else { device };
    let grown = node.formats.run(&*node.host, &known.target, program, &[place]).await;
    grown.map(drop).map_err(|error| ours("the file system has not grown", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(super_options: &str, read_only: bool) -> MountLine {
        MountLine {
            id: 1,
            device: 1,
            root: b"/".to_vec(),
            point: b"/staging".to_vec(),
            read_only,
            kind: b"ext4".to_vec(),
            source: b"/dev/sdx".to_vec(),
            super_options: super_options.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_file_system_is_given_up_by_an_option_of_its_own_unless_it_was_mounted_for_reading() {
        let sign = |options, read_only| option_of_given_up(&mount(options, read_only));
        assert_eq!(sign("rw,errors=remount-ro", false), None);
        assert_eq!(sign("ro,errors=remount-ro", false), Some("ro"));
        assert_eq!(sign("rw,emergency_ro", false), Some("emergency_ro"));
        assert_eq!(sign("rw,shutdown", false), Some("shutdown"));
        assert_eq!(sign("ro,norecovery", true), None);
    }
}
