//! Memory limit of the process's control group.

use std::fs;
use std::path::Path;

/// Returns the smallest memory limit of the process's control group and those
/// above it, in bytes.
pub(super) fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit(&groups, Path::new("/sys/fs/cgroup"))
}

/// `groups` is the content of `/proc/self/cgroup`.
fn limit(groups: &str, root: &Path) -> Option<u64> {
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let mut least: Option<u64> = None;
    for (controllers, group) in groups.lines().filter_map(fields) {
        let (root, files) = match controllers.as_str() {
            // Version 2, where a process beyond `high` is slowed down until it stands still.
            "" => (root.to_owned(), &["memory.max", "memory.high"][..]),
            version_1 if version_1.split(',').any(|one| one == "memory") => {
                (root.join("memory"), &["memory.limit_in_bytes"][..])
            }
            _ => continue,
        };
        // In a container the path may be one of the host: only the root is there.
        let mut place = root.join(group.trim_start_matches('/'));
        loop {
            for file in files {
                // A limit that does not exist is `max`, or larger than any memory.
                let text = fs::read_to_string(place.join(file)).unwrap_or_default();
                let found = text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED);
                least = least.into_iter().chain(found).min();
            }
            if place == root || !place.pop() {
                break;
            }
        }
    }
    least
}

/// Version 1 has a number near this one where there is no limit.
const UNLIMITED: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_applies() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let groups = "0::/system.slice/zgate.service\n";
        assert_eq!(limit(groups, root), None);
        put(root, "system.slice/zgate.service/memory.max", "max\n");
        assert_eq!(limit(groups, root), None);
        put(root, "system.slice/memory.max", "2147483648\n");
        assert_eq!(limit(groups, root), Some(2 << 30));
        put(root, "system.slice/zgate.service/memory.high", "1073741824\n");
        assert_eq!(limit(groups, root), Some(1 << 30));
        // The name space of a container.
        put(root, "memory.max", "536870912\n");
        assert_eq!(limit("0::/\n", root), Some(512 << 20));
        assert_eq!(limit("0::/../elsewhere\n", root), Some(512 << 20));
    }

    #[test]
    fn version_1_has_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let groups = "5:cpu,cpuacct:/x\n4:memory:/docker/1\n";
        put(dir.path(), "memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(groups, dir.path()), None);
        put(dir.path(), "memory/memory.limit_in_bytes", "268435456\n");
        assert_eq!(limit(groups, dir.path()), Some(256 << 20));
    }
}
