//! Mounts and unmounts with bounds.

use super::host::{Host, HostError};
use super::record::Record;
use crate::limits::{
    COMMAND_SECONDS, FLUSH_SECONDS, FORCED_UNMOUNT_SECONDS, PROBE_SECONDS, UNMOUNT_SECONDS,
};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tonic::Status;
use zgate_io::mountinfo::MountLine;

/// Error of this machine: a command, a mount, a file. Part of the call may be done, and
/// the same call may succeed later. After a code that is final, Kubernetes would take the
/// call for undone: a volume that is half staged would never be unstaged.
pub(super) fn ours(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::unavailable(format!("{what}: {error}"))
}

/// Returns the uppermost mount at a path. The path itself is not looked at.
pub(super) fn mounted_at(host: &dyn Host, path: &Path) -> Result<Option<MountLine>, Status> {
    let all = host.mounts().map_err(|error| ours("mount table", &error))?;
    Ok(all.into_iter().rev().find(|mount| mount.point == path.as_os_str().as_bytes()))
}

/// Returns the paths of pods at which a volume is mounted. Others of its record were published
/// before a restart of the machine, or were about to be.
pub(super) fn users<'a>(host: &dyn Host, record: &'a Record) -> Result<Vec<&'a Path>, Status> {
    let all = host.mounts().map_err(|error| ours("mount table", &error))?;
    let is_mounted =
        |path: &&Path| all.iter().any(|mount| mount.point == path.as_os_str().as_bytes());
    Ok(record.published.keys().map(PathBuf::as_path).filter(is_mounted).collect())
}

/// Returns whether a mount is what [`bind`] makes of a path: of the same place, and read-only
/// if that was wanted or is what the place is mounted as.
pub(super) fn is_bind(
    host: &dyn Host,
    mount: &MountLine,
    from: &Path,
    read_only: bool,
) -> Result<bool, Status> {
    let all = host.mounts().map_err(|error| ours("mount table", &error))?;
    // The mount that the path is in; of several at one place, the last is the uppermost.
    let below = |point: &[u8]| from.strip_prefix(OsStr::from_bytes(point)).ok();
    let inner = all.iter().filter_map(|one| Some((one, below(&one.point)?)));
    let Some((of, rest)) = inner.max_by_key(|(one, _)| one.point.len()) else { return Ok(false) };
    let place = Path::new(OsStr::from_bytes(&of.root)).join(rest);
    let is_same = of.device == mount.device && Path::new(OsStr::from_bytes(&mount.root)) == place;
    Ok(is_same && mount.read_only == (read_only || of.read_only))
}

/// Option by which systemd ends a mount before the network when the machine shuts down. It knows
/// only the types of network file systems by themselves, and takes a disk for a local one: what was
/// not written yet would be lost. A bind has an entry of its own (`/run/mount/utab`), without the
/// options of what it binds.
pub(super) const OF_NETWORK: &str = "_netdev";

pub(super) fn text(path: &Path) -> Result<&str, Status> {
    path.to_str().ok_or_else(|| crate::status::invalid("a path is not UTF-8"))
}

/// Binds a path to another.
pub(super) async fn bind(
    host: &dyn Host,
    from: &Path,
    to: &Path,
    read_only: bool,
) -> Result<(), Status> {
    let failed = |error: HostError| ours("bind mount", &error);
    let (from, to) = (text(from)?, text(to)?);
    let arguments = ["--bind", "-o", OF_NETWORK, from, to];
    host.run("mount", &arguments, COMMAND_SECONDS).await.map_err(failed)?;
    if read_only {
        let options = format!("remount,bind,ro,{OF_NETWORK}");
        let options = ["-o", &options, to];
        if let Err(error) = host.run("mount", &options, COMMAND_SECONDS).await {
            unmount(host, Path::new(to)).await?;
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Server of a volume's mount.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server<'a> {
    /// NFS.
    Files,
    /// A disk of this iSCSI target.
    Disk(&'a str),
}

impl Server<'_> {
    async fn answers(self, host: &dyn Host, mount: &str) -> Result<bool, Status> {
        match self {
            Self::Files => answers(host, mount).await,
            Self::Disk(target) => Ok(host.is_logged_in(target)),
        }
    }
}

/// Returns whether the server of a mount answers.
///
/// # Errors
/// UNAVAILABLE if it was not asked: then it is not taken for dead.
async fn answers(host: &dyn Host, mount: &str) -> Result<bool, Status> {
    match host.run("stat", &["-f", mount], PROBE_SECONDS).await {
        Ok(_) => Ok(true),
        Err(error) if error.has_run() => Ok(false),
        Err(error) => Err(ours(&format!("the server of {mount} was not asked"), &error)),
    }
}

/// Unmounts a volume. What was written reaches its server first: an unmount that is
/// forced while the kernel still writes, or a disk that is taken away meanwhile, would
/// lose it. On a live server this takes as many calls as it needs.
pub(super) async fn unmount_volume(
    host: &dyn Host,
    path: &Path,
    server: Server<'_>,
) -> Result<(), Status> {
    let name = text(path)?;
    if mounted_at(host, path)?.is_none() {
        return Ok(());
    }
    match host.run("sync", &["-f", name], FLUSH_SECONDS).await {
        Err(error @ HostError::TimedOut { .. }) => {
            if server.answers(host, name).await? {
                return Err(Status::unavailable(format!(
                    "{name}: data is still being written to the gateway; unstage it again"
                )));
            }
            return detach(host, path, error).await;
        }
        // Nothing was flushed yet, and nobody knows of the server.
        Err(error) if !error.has_run() => {
            return Err(ours(&format!("{name} was not flushed"), &error));
        }
        // The kernel has told the program that wrote it.
        Err(error) => tracing::warn!(path = name, %error, "not all data was written"),
        Ok(_) => {}
    }
    unmount(host, path).await
}

/// Removes a mount at the staging path that is not the volume's, or of no use any more. While a
/// pod uses it, it stays.
pub(super) async fn make_way(
    host: &dyn Host,
    record: &Record,
    server: Server<'_>,
    why: &str,
) -> Result<(), Status> {
    let staging = record.staging.display();
    if let Some(pod) = users(host, record)?.first() {
        return Err(Status::unavailable(format!(
            "{staging}: {why}; {} uses it: delete its pod, so that the volume is mounted again",
            pod.display()
        )));
    }
    tracing::warn!(path = %staging, why, "a mount makes way");
    unmount_volume(host, &record.staging, server).await
}

/// Unmounts a path until nothing is mounted there. If the server of the mount does
/// not answer, it is forced, and then detached from the tree.
pub(super) async fn unmount(host: &dyn Host, path: &Path) -> Result<(), Status> {
    let name = text(path)?;
    let Some(mount) = mounted_at(host, path)? else { return Ok(()) };
    // Without helpers and without a look at the path: both wait for the server.
    let error = match host.run("umount", &["-i", "-c", name], UNMOUNT_SECONDS).await {
        Ok(_) => return gone(host, path, None),
        Err(error) if !error.has_run() => {
            return Err(ours(&format!("{name} stays mounted"), &error));
        }
        Err(error) => error,
    };
    if mounted_at(host, path)?.is_none() {
        return Ok(());
    }
    // Force ends what all mounts of an NFS server still write. A file system on a disk answers
    // from memory, also if its disk is gone; it loses nothing when it is detached.
    let timed_out = matches!(error, HostError::TimedOut { .. });
    if (!timed_out || mount.kind.starts_with(b"nfs")) && answers(host, name).await? {
        return Err(ours("the server answers, but the mount is in use", &error));
    }
    detach(host, path, error).await
}

/// Ends a mount whose server does not answer. Force is for NFS alone: it ends no request of a
/// file system on a disk, and such an unmount would wait for the disk, too.
async fn detach(host: &dyn Host, path: &Path, error: HostError) -> Result<(), Status> {
    let name = text(path)?;
    let Some(mount) = mounted_at(host, path)? else { return Ok(()) };
    tracing::warn!(path = name, %error, "its server does not answer: detached");
    let options: &[&str] = if mount.kind.starts_with(b"nfs") { &["-f", "-l"] } else { &["-l"] };
    for &option in options {
        let done = host.run("umount", &["-i", "-c", option, name], FORCED_UNMOUNT_SECONDS).await;
        if done.is_ok() && mounted_at(host, path)?.is_none() {
            return Ok(());
        }
    }
    gone(host, path, Some(error))
}

fn gone(host: &dyn Host, path: &Path, error: Option<HostError>) -> Result<(), Status> {
    if mounted_at(host, path)?.is_none() {
        return Ok(());
    }
    let reason = error.map_or_else(|| "another mount is below it".to_owned(), |e| e.to_string());
    Err(ours(&format!("{} stays mounted", path.display()), &reason))
}

/// Removes an unmounted target: a file or an empty directory.
pub(super) fn remove_target(path: &Path) -> Result<(), Status> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    end_of_removal(path, removed)
}

/// Removes an unmounted target that nobody has unpublished, if it is as it was made: an empty
/// directory, or an empty file. Other content is not the volume's. It stays, and the rest of an
/// unstage does not wait for it.
pub(super) fn remove_left_target(path: &Path) -> Result<(), Status> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(found) if found.is_file() && found.len() == 0 => fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let path = path.display();
            tracing::warn!(%path, "what lies at the path of a pod is not the volume's, and stays");
            Ok(())
        }
        removed => end_of_removal(path, removed),
    }
}

fn end_of_removal(path: &Path, removed: io::Result<()>) -> Result<(), Status> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ours(&format!("{}", path.display()), &error))
        }
        _ => Ok(()),
    }
}
