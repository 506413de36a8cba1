//! Reader of /proc/self/mountinfo (proc(5)). File names are bytes: one that is
//! not UTF-8 leaves the rest of the table readable.

use std::io;

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// Id of the mount, unique among the current mounts.
    pub id: u64,
    /// Device number (`st_dev`).
    pub device: u64,
    /// Directory of the file system that is mounted.
    pub root: Vec<u8>,
    /// Mount point.
    pub point: Vec<u8>,
    /// Nothing can be written through this mount, whatever its file system allows.
    pub read_only: bool,
    /// Type of the file system.
    pub kind: Vec<u8>,
    /// Mounted device or dataset.
    pub source: Vec<u8>,
    /// Options of the file system itself, with commas between them: the same for all its mounts.
    pub super_options: Vec<u8>,
}

/// Reads the mount table of this process.
///
/// # Errors
/// The table cannot be read.
pub fn read() -> io::Result<Vec<MountLine>> {
    std::fs::read("/proc/self/mountinfo").map(|text| parse(&text))
}

/// Parses all lines; malformed ones are skipped.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<MountLine> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = parse_device(fields.nth(1)?)?;
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let read_only = fields.next()?.split(|&byte| byte == b',').any(|option| option == b"ro");
    let mut rest = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = rest.next()?.to_vec();
    let source = unescape(rest.next()?);
    let super_options = rest.next().unwrap_or_default().to_vec();
    Some(MountLine { id, device, root, point, read_only, kind, source, super_options })
}

fn parse_device(field: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Unescapes space, tab, newline and backslash, which a mount table writes as
/// three octal digits.
#[must_use]
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &rest[4..] } else { tail };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields() {
        let text = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,shutdown\n\
            36 35 98:0 /sub /mnt/a\\040b\\134 ro,noatime shared:1 master:2 - zfs tank/a\\040b rw\n\
            nonsense\n";
        let lines = parse(text);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].id, &lines[0].point[..]), (27, &b"/"[..]));
        assert_eq!((lines[0].read_only, lines[1].read_only), (false, true));
        assert_eq!(lines[1].root, b"/sub");
        assert_eq!(lines[1].point, b"/mnt/a b\\");
        assert_eq!(lines[1].source, b"tank/a b");
        assert_eq!(lines[1].kind, b"zfs");
        assert_eq!(lines[0].super_options, b"rw,shutdown");
        assert_eq!(lines[1].super_options, b"rw");
    }
}
