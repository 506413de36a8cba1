//! Differences between two snapshots: parsed output of `zfs diff -FHt`.
//!
//! A line is `ctime TAB change TAB type TAB path`, and then a second path after
//! a rename or `(+n)` after a change of the number of links. In paths every
//! byte that is not printable ASCII, and the backslash, is written as a
//! backslash and four octal digits (`stream_bytes` in OpenZFS's libzfs).

use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError, command_line};
use serde::{Serialize, Serializer};

/// Kind of change of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// `+`
    Created,
    /// `-`
    Removed,
    /// `M`
    Modified,
    /// `R`
    Renamed,
}

/// A path, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPath(pub Vec<u8>);

impl RawPath {
    /// Returns the path for people; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn display(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Serializes as text if it is UTF-8, else as `{"bytes": [..]}`, so that
/// nothing is lost.
impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Bytes<'a> {
            bytes: &'a [u8],
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Bytes { bytes: &self.0 }.serialize(serializer),
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Kind of change.
    pub change: ChangeKind,
    /// File type: `file`, `directory`, `symlink`, ...
    #[serde(rename = "type")]
    pub file_type: &'static str,
    /// Path; for a rename, the old path.
    pub path: RawPath,
    /// New path of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_path: Option<RawPath>,
    /// Change of the number of hard links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_change: Option<i64>,
    /// Change time of the inode, in seconds since 1970.
    pub ctime_seconds: i64,
    /// Nanoseconds of the change time.
    pub ctime_nanoseconds: u32,
}

/// Reason for which there is no diff.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// The program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// Lists the changes from `from` to `to`, or to the present state.
///
/// # Errors
/// The error of `zfs`, or an answer that cannot be parsed.
pub fn diff(
    tool: &dyn Tool,
    from: &SnapshotName,
    to: Option<&SnapshotName>,
) -> Result<Vec<Change>, DiffError> {
    let now: DatasetName = from.dataset();
    let to = to.map_or(now.as_str(), SnapshotName::as_str);
    let arguments = ["diff", "-FHt", from.as_str(), to];
    let text = tool.run("zfs", &arguments)?;
    text.lines()
        .map(|line| {
            parse(line).ok_or_else(|| {
                DiffError::Tool(ToolError::Answer {
                    command: command_line("zfs", &arguments),
                    reason: format!("{line:?} cannot be parsed"),
                })
            })
        })
        .collect()
}

fn file_type(letter: &str) -> &'static str {
    match letter {
        "F" => "file",
        "/" => "directory",
        "@" => "symlink",
        "B" => "block-device",
        "C" => "character-device",
        "|" => "fifo",
        "=" => "socket",
        ">" => "door",
        "P" => "event-port",
        _ => "unknown",
    }
}

fn parse(line: &str) -> Option<Change> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (time, change, letter, path) = match fields[..] {
        [time, change, letter, path] | [time, change, letter, path, _] => {
            (time, change, letter, path)
        }
        _ => return None,
    };
    let change = match change {
        "+" => ChangeKind::Created,
        "-" => ChangeKind::Removed,
        "M" => ChangeKind::Modified,
        "R" => ChangeKind::Renamed,
        _ => return None,
    };
    let (seconds, nanoseconds) = time.trim().split_once('.')?;
    let mut new_path = None;
    let mut link_change = None;
    match (change, fields.get(4)) {
        (ChangeKind::Renamed, Some(path)) => new_path = Some(decode(path)?),
        (ChangeKind::Renamed, None) => return None,
        (_, Some(links)) => {
            let number = links.strip_prefix('(')?.strip_suffix(')')?;
            link_change = Some(number.trim_start_matches('+').parse().ok()?);
        }
        (_, None) => {}
    }
    Some(Change {
        change,
        file_type: file_type(letter),
        path: decode(path)?,
        new_path,
        link_change,
        ctime_seconds: seconds.parse().ok()?,
        ctime_nanoseconds: nanoseconds.parse().ok()?,
    })
}

fn decode(text: &str) -> Option<RawPath> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..4)?).ok()?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 8).ok()?);
        rest = &after[4..];
    }
    Some(RawPath(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    #[test]
    fn lines_of_all_sorts() {
        let text = "1763719200.000000123\tM\t/\t/tank/test/\n\
                    1763719200.000000123\t+\tF\t/tank/test/a\\0040b\\0134c\\0303\\0244\n\
                    1763719200.000000123\tR\tF\t/tank/test/old\t/tank/test/new\\0011tab\n\
                    1763719200.000000123\tM\tF\t/tank/test/linked\t(+1)\n\
                    \x20        5.000000000\t-\t@\t/tank/test/gone\\0377\n";
        let tool = Recorded::default().then("zfs diff -FHt tank/test@a tank/test", text);
        let found = diff(&tool, &"tank/test@a".parse().unwrap(), None).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!((found[0].file_type, found[0].ctime_nanoseconds), ("directory", 123));
        assert_eq!(found[1].path.display(), "/tank/test/a b\\cä");
        assert_eq!(found[2].new_path.as_ref().unwrap().display(), "/tank/test/new\ttab");
        assert_eq!(found[3].link_change, Some(1));
        assert_eq!((found[4].change, found[4].ctime_seconds), (ChangeKind::Removed, 5));
        assert_eq!(found[4].path.0.last(), Some(&0xff));
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json[1]["path"], "/tank/test/a b\\cä");
        assert_eq!(json[2]["change"], "renamed");
        assert!(json[4]["path"]["bytes"].is_array());
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for bad in [
            "",
            "x",
            "1.0\tQ\tF\t/a",
            "1.0\tR\tF\t/a",
            "1.0\tM\tF\t/a\t(x)",
            "1.0\tM\tF\t/a\\04",
            "1.0\tM\tF\t/a\\0999",
            "1.0\tM\tF\t/a\t/b\t/c",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
