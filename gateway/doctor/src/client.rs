//! Checks of a machine that mounts exports: its mount options.

use crate::facts::{MountsFacts, NfsMount};
use crate::{Check, Verdict};

/// All checks, in the order they are shown.
pub(crate) const CHECKS: &[Check<MountsFacts>] = &[
    Check { name: "mount-version", run: version },
    Check { name: "mount-transport", run: transport },
    Check { name: "mount-hard", run: hard },
    Check { name: "mount-sizes", run: sizes },
    Check { name: "mount-nconnect", run: nconnect },
    Check { name: "mount-caching", run: caching },
];

/// Transfer size below which requests are wasted, in bytes.
const SMALL_TRANSFER_BYTES: u64 = 256 << 10;
/// Link speed above which several connections are needed, in Mb/s.
const FAST_LINK_MEGABITS: u64 = 10_000;

/// Returns the name of a mount in reports.
fn title(mount: &NfsMount) -> String {
    format!("{} ({})", mount.mount.target.display(), mount.mount.source)
}

/// Returns the command that mounts again with other options.
fn mount_again(mount: &NfsMount, options: &str) -> String {
    let target = mount.mount.target.display();
    format!(
        "`umount {target} && mount -t nfs -o {options} {} {target}`, and in /etc/fstab",
        mount.mount.source
    )
}

fn each(facts: &MountsFacts, judge: impl Fn(&NfsMount) -> Option<Verdict>) -> Vec<Verdict> {
    facts.mounts.iter().filter_map(judge).collect()
}

fn version_of(mount: &NfsMount) -> &str {
    mount.mount.options.get("vers").map_or("", String::as_str)
}

fn version(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        Some(match version_of(mount) {
            "3" if !mount.mount.has("nolock") && !local_locks(mount) => Verdict::error(
                format!("{}: NFSv3 with network locks", title(mount)),
                "zgate serves no lock manager for version 3: programs that use locks wait or fail",
                mount_again(mount, "vers=4.2,hard"),
            ),
            "3" => Verdict::warning(
                format!("{}: NFSv3", title(mount)),
                "locks are only visible on this machine, and each change of a file costs more \
                 requests",
                mount_again(mount, "vers=4.2,hard"),
            ),
            "4.0" => Verdict::warning(
                format!("{}: NFSv4.0", title(mount)),
                "no sessions: one connection only, slower recovery, no server-side copy",
                mount_again(mount, "vers=4.2,hard"),
            ),
            version => Verdict::ok(format!("{}: NFSv{version}", title(mount))),
        })
    })
}

fn local_locks(mount: &NfsMount) -> bool {
    mount.mount.options.get("local_lock").is_some_and(|which| which == "all")
}

fn transport(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        let proto = mount.mount.options.get("proto").map_or("", String::as_str);
        proto.starts_with("udp").then(|| {
            Verdict::error(
                format!("{}: over UDP", title(mount)),
                "zgate does not serve it, and lost fragments corrupt data",
                mount_again(mount, "vers=4.2,proto=tcp,hard"),
            )
        })
    })
}

fn hard(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        let soft = ["soft", "softerr"].into_iter().find(|option| mount.mount.has(option))?;
        Some(Verdict::warning(
            format!("{}: {soft}", title(mount)),
            "when the server restarts, programs get I/O errors and lose written data instead of \
             waiting",
            mount_again(mount, "vers=4.2,hard"),
        ))
    })
}

fn sizes(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        let small = |option: &str| {
            let bytes = mount.mount.number(option).filter(|bytes| *bytes < SMALL_TRANSFER_BYTES)?;
            Some(format!("{option}={bytes}"))
        };
        let small: Vec<_> = ["rsize", "wsize"].into_iter().filter_map(small).collect();
        (!small.is_empty()).then(|| {
            Verdict::warning(
                format!("{}: {}", title(mount), small.join(", ")),
                "large files take many more requests than necessary",
                format!(
                    "{} without rsize and wsize: the client takes what the export offers \
                     (max_transfer there, 1 MiB by default)",
                    mount_again(mount, "vers=4.2,hard")
                ),
            )
        })
    })
}

fn nconnect(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        let fast = mount.link_megabits.filter(|speed| *speed >= FAST_LINK_MEGABITS)?;
        if version_of(mount) == "4.0" || mount.mount.number("nconnect").unwrap_or(1) > 1 {
            return None;
        }
        Some(Verdict::warning(
            format!("{}: one connection on a link of {} Gb/s", title(mount), fast / 1000),
            "one connection is served by one core, which is full before the link is",
            mount_again(mount, "vers=4.2,nconnect=4,hard"),
        ))
    })
}

fn caching(facts: &MountsFacts) -> Vec<Verdict> {
    each(facts, |mount| {
        let option = ["sync", "noac"].into_iter().find(|option| mount.mount.has(option))?;
        Some(Verdict::warning(
            format!("{}: {option}", title(mount)),
            "every write waits for the server's disks, attributes are requested repeatedly",
            format!(
                "{} without {option}, unless a program needs it",
                mount_again(mount, "vers=4.2,hard")
            ),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Mount;
    use crate::{Finding, Group, Level, examine};

    fn found(options: &str, link_megabits: Option<u64>) -> Vec<Finding> {
        let option = |text: &str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.to_owned(), value.to_owned())
        };
        let mount = Mount {
            source: "nas:/data".into(),
            target: "/mnt".into(),
            kind: "nfs4".into(),
            options: options.split(',').map(option).collect(),
        };
        let facts = MountsFacts { mounts: vec![NfsMount { mount, link_megabits }] };
        let mut found = examine(Group::Client, CHECKS, &facts);
        found.retain(|finding| finding.level != Level::Ok);
        found
    }

    #[test]
    fn a_good_mount_is_left_alone() {
        let options = "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=4";
        assert!(found(options, Some(100_000)).is_empty());
        assert!(found("rw,vers=4.1,hard,proto=tcp", Some(1000)).is_empty());
    }

    #[test]
    fn options_that_harm_are_named() {
        let names = |options: &str| -> Vec<&str> {
            found(options, Some(25_000)).iter().map(|finding| finding.check).collect()
        };
        assert_eq!(names("vers=4.2,soft,nconnect=2"), ["mount-hard"]);
        assert_eq!(names("vers=4.2,hard"), ["mount-nconnect"]);
        assert_eq!(names("vers=4.0,hard,noac"), ["mount-version", "mount-caching"]);
        assert_eq!(
            names("vers=3,nolock,proto=udp,rsize=8192,nconnect=4"),
            ["mount-version", "mount-transport", "mount-sizes"]
        );
        assert_eq!(found("vers=3,local_lock=none", None)[0].level, Level::Error);
        let fix = &found("vers=4.2,soft", None)[0].fix;
        assert!(fix.contains("mount -t nfs -o vers=4.2,hard nas:/data /mnt"), "{fix}");
    }
}
