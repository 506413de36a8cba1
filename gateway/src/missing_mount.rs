//! A file system that belongs at a directory, and is not mounted there: the directory is
//! its bare mount point, and what lies in the file system is hidden.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zgate_control::{SystemTool, Tool, ToolError};
use zgate_io::mountinfo::{self, MountLine, unescape};

/// Columns of `zfs list` that are asked for.
const COLUMNS: &str = "name,mounted,canmount,mountpoint";

/// A file system that is to be mounted, and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MissingMount {
    /// The dataset of this name, by its property `mountpoint`.
    Dataset(String),
    /// The source of a line of /etc/fstab.
    Listed(String),
}

/// Where file systems are mounted, and where they belong.
struct Mounts<'a> {
    /// The mount table.
    lines: &'a [MountLine],
    /// Content of /etc/fstab.
    fstab: &'a [u8],
    /// Runs `zfs`.
    tool: &'a dyn Tool,
}

impl Mounts<'_> {
    /// Returns the file system whose mount point is exactly this directory, which is free
    /// of symbolic links, if nothing is mounted there.
    ///
    /// # Errors
    /// That of ZFS, which is installed and does not tell its datasets.
    fn missing_at(&self, dir: &Path) -> Result<Option<MissingMount>, ToolError> {
        let point = dir.as_os_str().as_bytes();
        if self.lines.iter().any(|line| line.point == point) {
            return Ok(None);
        }
        match listed_at(point, self.fstab) {
            Some(source) => Ok(Some(MissingMount::Listed(source))),
            None => Ok(self.dataset_at(point)?.map(MissingMount::Dataset)),
        }
    }

    fn dataset_at(&self, point: &[u8]) -> Result<Option<String>, ToolError> {
        match self.tool.run("zfs", &["list", "-H", "-t", "filesystem", "-o", COLUMNS]) {
            Ok(list) => Ok(unmounted_at(point, &list)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Refuses a state directory that is a bare mount point on this machine. Returns the error
/// of ZFS if it does not tell its datasets within this limit: none is known to be missing
/// then.
///
/// # Errors
/// The directory, what is to be mounted there, and the next step.
pub(crate) fn check(path: &Path, limit_seconds: u64) -> io::Result<Option<ToolError>> {
    let lines = mountinfo::read().unwrap_or_default();
    let fstab = fs::read("/etc/fstab").unwrap_or_default();
    let tool = SystemTool { limit_seconds };
    refuse_bare_mount_point(path, &Mounts { lines: &lines, fstab: &fstab, tool: &tool })
}

/// Refuses a directory without state while a file system that belongs exactly there is not
/// mounted: its state would be hidden, and the gateway another server to its clients.
fn refuse_bare_mount_point(path: &Path, mounts: &Mounts<'_>) -> io::Result<Option<ToolError>> {
    if path.join("epoch").exists() {
        return Ok(None);
    }
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let missing = match mounts.missing_at(&real) {
        Ok(Some(missing)) => missing,
        Ok(None) => return Ok(None),
        Err(error) => return Ok(Some(error)),
    };
    let reason = format!(
        "state directory: {} holds no state, but {missing}; for a new gateway give it another \
         mount point, or set state_dir to another directory",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, reason))
}

/// Returns the dataset with this mount point that could be mounted, and is not.
fn unmounted_at(point: &[u8], list: &str) -> Option<String> {
    list.lines().find_map(|line| {
        let mut fields = line.splitn(4, '\t');
        let (name, mounted) = (fields.next()?, fields.next()?);
        let (can_mount, mountpoint) = (fields.next()?, fields.next()?);
        let is_missing = mounted == "no" && can_mount != "off" && mountpoint.as_bytes() == point;
        is_missing.then(|| name.to_owned())
    })
}

/// Returns the source that a file like /etc/fstab (fstab(5)) mounts here.
fn listed_at(point: &[u8], fstab: &[u8]) -> Option<String> {
    fstab.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let source = fields.next().filter(|source| !source.starts_with(b"#"))?;
        let is_here = unescape(fields.next()?) == point;
        is_here.then(|| String::from_utf8_lossy(&unescape(source)).into_owned())
    })
}

impl fmt::Display for MissingMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dataset(name) => write!(
                f,
                "dataset {name} belongs there and is not mounted: `zfs mount {name}`, with `-l` \
                 if its key is not loaded"
            ),
            Self::Listed(source) => {
                write!(f, "/etc/fstab mounts {source} there, and it is not mounted: mount it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::tool::Recorded;
    use zgate_io::mountinfo::parse;

    const LIST: &str = "zfs list -H -t filesystem -o name,mounted,canmount,mountpoint";
    const DATASETS: &str = "tank\tyes\ton\t/tank\n\
        tank/zgate\tno\tnoauto\t/tank/zgate\n\
        tank/parent\tno\toff\t/tank/parent\n\
        tank/old\tno\ton\tlegacy\n";

    #[test]
    fn a_dataset_that_is_not_mounted_is_named() {
        let lines = parse(b"50 27 0:49 / /tank rw shared:27 - zfs tank rw\n");
        let missing = |dir: &str| {
            let tool = Recorded::default().then(LIST, DATASETS);
            Mounts { lines: &lines, fstab: b"", tool: &tool }.missing_at(Path::new(dir)).unwrap()
        };
        let found = missing("/tank/zgate").unwrap();
        assert_eq!(found, MissingMount::Dataset("tank/zgate".to_owned()));
        assert!(found.to_string().contains("`zfs mount tank/zgate`"), "{found}");
        for sound in ["/tank", "/tank/zgate/state", "/tank/parent", "/tank/other"] {
            assert_eq!(missing(sound), None, "{sound}");
        }
    }

    #[test]
    fn a_line_of_fstab_that_is_not_mounted_is_named() {
        let fstab = b"# /dev/vdc /srv/state ext4\n\n\
            LABEL=state\t/srv/my\\040state  ext4 defaults 0 2\n\
            tank/old /srv/old zfs defaults 0 0\n";
        let missing = |dir: &str, lines: &[MountLine]| {
            let tool = Recorded::default().then(LIST, "");
            Mounts { lines, fstab, tool: &tool }.missing_at(Path::new(dir)).unwrap()
        };
        let listed = |source: &str| Some(MissingMount::Listed(source.to_owned()));
        assert_eq!(missing("/srv/my state", &[]), listed("LABEL=state"));
        assert_eq!(missing("/srv/old", &[]), listed("tank/old"));
        assert_eq!(missing("/srv/state", &[]), None);
        let mounted = parse(b"51 27 254:3 / /srv/my\\040state rw - ext4 /dev/vdb rw\n");
        assert_eq!(missing("/srv/my state", &mounted), None);
    }

    #[test]
    fn a_bare_mount_point_is_not_taken_for_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = fs::canonicalize(dir.path()).unwrap();
        let open = |mounted: &str| {
            let list = format!("tank/state\t{mounted}\ton\t{}\n", state.display());
            let tool = Recorded::default().then(LIST, &list);
            refuse_bare_mount_point(&state, &Mounts { lines: &[], fstab: b"", tool: &tool })
        };
        let said = open("no").unwrap_err().to_string();
        assert!(said.contains("dataset tank/state") && said.contains("zfs mount"), "{said}");
        assert!(open("yes").unwrap().is_none());
        // What has state is no bare mount point.
        fs::write(state.join("epoch"), "7").unwrap();
        assert!(open("no").unwrap().is_none());
    }

    #[test]
    fn without_an_answer_of_zfs_nothing_is_known_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let tool = Recorded::default().then_fail(LIST, 1, "no answer");
        let mounts = Mounts { lines: &[], fstab: b"", tool: &tool };
        let unknown = refuse_bare_mount_point(dir.path(), &mounts).unwrap();
        assert!(unknown.is_some_and(|error| error.to_string().contains("no answer")));
    }
}
