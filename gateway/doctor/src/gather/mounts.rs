//! Mounts of the machine.

use super::network;
use crate::facts::{Mount, MountsFacts, NfsMount};
use std::fs;
use std::path::Path;
use zgate_control::Tool;
use zgate_io::mountinfo;

/// Unescapes a word of the table: blanks and the like are written in octal.
fn unescaped(word: &str) -> String {
    String::from_utf8_lossy(&mountinfo::unescape(word.as_bytes())).into_owned()
}

/// Parses /proc/self/mounts; later mounts cover earlier ones.
pub(super) fn parse(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (source, target, kind) = (words.next()?, words.next()?, words.next()?);
        let option = |text: &str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.to_owned(), value.to_owned())
        };
        Some(Mount {
            source: unescaped(source),
            target: unescaped(target).into(),
            kind: kind.to_owned(),
            options: words.next()?.split(',').map(option).collect(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Lists all mounts.
pub(super) fn all() -> Vec<Mount> {
    parse(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

/// Returns the mount of a path: the deepest, and of those the latest.
pub(super) fn of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.components().count())
}

/// Lists NFS mounts, with the speed of the link to their server.
pub(crate) fn nfs(tool: &dyn Tool) -> MountsFacts {
    let mounts = all().into_iter().filter(|mount| matches!(mount.kind.as_str(), "nfs" | "nfs4"));
    let with_link = |mount: Mount| {
        let address = mount.options.get("addr").and_then(|address| address.parse().ok());
        let device = address.and_then(|address| network::device(tool, address).ok());
        let link_megabits = device.and_then(|device| network::speed_megabits(&device.name));
        NfsMount { mount, link_megabits }
    };
    MountsFacts { mounts: mounts.map(with_link).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path() {
        let mounts = parse(
            "/dev/vda / ext4 rw,relatime 0 0\n\
             tank/my\\040data /tank/my\\040data zfs rw,xattr,posixacl 0 0\n\
             nas:/d /mnt nfs4 rw,vers=4.2,rsize=1048576,hard,addr=10.0.0.1 0 0\n",
        );
        let found = of(&mounts, Path::new("/tank/my data/x")).unwrap();
        assert_eq!((found.source.as_str(), found.kind.as_str()), ("tank/my data", "zfs"));
        assert_eq!(of(&mounts, Path::new("/tank/my")).unwrap().kind, "ext4");
        assert_eq!(mounts[2].number("rsize"), Some(1 << 20));
        assert!(mounts[2].has("hard") && !mounts[2].has("soft"));
        assert_eq!(unescaped("a\\b\\134"), "a\\b\\");
    }
}
