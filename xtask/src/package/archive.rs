//! Archives that are the same bytes for the same files: sorted, owned by root, of
//! one time.

use flate2::{Compression, GzBuilder, write::GzEncoder};
use std::io::{self, Write};
use tar::{Builder, EntryType, Header};

/// Byte for Unix in the header of a gzip file: without it there is the system of
/// the builder.
const GZIP_UNIX: u8 = 3;

/// A file or a directory of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Absolute path.
    pub(super) path: String,
    /// Permission bits.
    pub(super) mode: u32,
    /// Role that package managers tell apart.
    pub(super) role: Role,
    /// Content of a file; empty for a directory.
    pub(super) content: Vec<u8>,
}

/// Roles of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A directory that users know as one of the package.
    Directory,
    File,
    /// A file that its users change.
    Configuration,
    Document,
    Licence,
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode, role: Role::File, content: content.into() }
    }

    pub(super) fn directory(path: impl Into<String>, mode: u32) -> Self {
        Self { path: path.into(), mode, role: Role::Directory, content: Vec::new() }
    }

    /// Returns it in this role.
    pub(super) fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Returns the path without the slash at its beginning.
    pub(super) fn relative(&self) -> &str {
        self.path.trim_start_matches('/')
    }
}

/// Returns the entries sorted, with all directories above them.
pub(super) fn with_parents(entries: &[Entry]) -> Vec<Entry> {
    let mut all = entries.to_vec();
    for entry in entries {
        let mut path = entry.path.as_str();
        while let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())
        {
            if !all.iter().any(|known| known.path == parent) {
                all.push(Entry::directory(parent, 0o755));
            }
            path = parent;
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Writes the entries, with all directories above them, as a tar archive. `prefix`
/// stands before each name; if it is a directory itself, it comes first.
///
/// # Errors
/// The error of the writer, or that a name is too long.
pub(super) fn write_tar(
    entries: &[Entry],
    prefix: &str,
    epoch: u64,
    out: impl Write,
) -> io::Result<()> {
    let mut archive = Builder::new(out);
    let mut all = with_parents(entries);
    if !prefix.is_empty() {
        all.insert(0, Entry::directory("/", 0o755));
    }
    for entry in all {
        let (kind, slash) = match entry.role {
            Role::Directory if entry.relative().is_empty() => (EntryType::Directory, ""),
            Role::Directory => (EntryType::Directory, "/"),
            _ => (EntryType::Regular, ""),
        };
        let mut header = header(kind, entry.mode, entry.content.len() as u64, epoch)?;
        let name = format!("{prefix}{}{slash}", entry.relative());
        // Not by `append_data`, which removes the "./" that dpkg's own archives have.
        let field = header.as_old_mut().name.get_mut(..name.len()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: longer than tar has room"))
        })?;
        field.copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, entry.content.as_slice())?;
    }
    archive.into_inner()?.flush()
}

/// Returns the header of an entry of root.
///
/// # Errors
/// Never: the names of root are short.
pub(super) fn header(kind: EntryType, mode: u32, bytes: u64, epoch: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_mtime(epoch);
    header.set_size(bytes);
    Ok(header)
}

/// Compresses what is written, without name and time.
pub(super) fn gzip<W: Write>(out: W, level: Compression) -> GzEncoder<W> {
    GzBuilder::new().mtime(0).operating_system(GZIP_UNIX).write(out, level)
}

/// Returns the content as `gzip -9n` has it.
///
/// # Errors
/// Never: memory is written.
pub(super) fn gzipped(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = gzip(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_directories_above_its_entries_and_its_order_is_of_no_matter() {
        let (a, b) = (Entry::file("/usr/bin/a", 0o755, "x"), Entry::file("/etc/b", 0o644, "y"));
        let pack = |entries: &[Entry]| {
            let mut out = Vec::new();
            write_tar(entries, "./", 7, &mut out).unwrap();
            out
        };
        let made = pack(&[a.clone(), b.clone()]);
        assert_eq!(made, pack(&[b, a]));
        let mut archive = tar::Archive::new(made.as_slice());
        let found: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 7));
                (String::from_utf8(entry.path_bytes().into()).unwrap(), header.mode().unwrap())
            })
            .collect();
        let named = |(path, mode): (&str, u32)| (path.to_owned(), mode);
        let wanted = [
            ("./", 0o755),
            ("./etc/", 0o755),
            ("./etc/b", 0o644),
            ("./usr/", 0o755),
            ("./usr/bin/", 0o755),
            ("./usr/bin/a", 0o755),
        ];
        assert_eq!(found, wanted.map(named));
    }

    #[test]
    fn compressed_text_does_not_name_its_time() {
        let made = gzipped(b"text").unwrap();
        assert_eq!(made[4..10], [0, 0, 0, 0, 2, GZIP_UNIX]);
    }
}
