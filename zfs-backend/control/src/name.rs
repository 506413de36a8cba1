//! Names of pools, datasets and snapshots. A value of these types is safe on a
//! command line: it is never empty, never begins with `-` and holds no `@` or
//! `/` where none belongs (zfs(8), zpoolconcepts(7), `zfs_namecheck`).

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest name of a dataset or snapshot, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// Directory of the links that udev makes for zvols.
const ZVOL_LINKS: &str = "/dev/zvol";

/// Reason for which a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name, or a part between two separators, is empty.
    #[error("{0:?}: a part of the name is empty")]
    Empty(String),
    /// Longer than [`MAX_NAME_BYTES`].
    #[error("{0:?}: longer than {MAX_NAME_BYTES} bytes")]
    TooLong(String),
    /// A character that ZFS does not allow.
    #[error("{text:?}: {found:?} is not allowed; letters, digits and _ - : . are")]
    Character {
        /// The whole text.
        text: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// `.` or `..` as a part.
    #[error("{0:?}: . and .. are not names")]
    Dots(String),
    /// A pool's name must begin with a letter and must not be the name of a
    /// vdev type.
    #[error(
        "{0:?}: a pool's name must begin with a letter and must not be a vdev type (mirror, \
        raidz, ...)"
    )]
    Pool(String),
    /// A snapshot must be written `dataset@name`.
    #[error("{0:?}: a snapshot must be written dataset@name")]
    NoSnapshot(String),
}

/// Name of a pool: the first part of every dataset's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct PoolName(String);

/// Name of a file system or volume, `pool/a/b`; a pool's root dataset is one,
/// too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct DatasetName(String);

/// Name of a snapshot, `pool/a@name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SnapshotName(String);

fn check_part(whole: &str, part: &str) -> Result<(), NameError> {
    if part.is_empty() {
        return Err(NameError::Empty(whole.to_owned()));
    }
    if part == "." || part == ".." {
        return Err(NameError::Dots(whole.to_owned()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-:. ".contains(c);
    match part.chars().find(|c| !allowed(*c)) {
        Some(found) => Err(NameError::Character { text: whole.to_owned(), found }),
        None => Ok(()),
    }
}

fn check_pool(whole: &str, pool: &str) -> Result<(), NameError> {
    check_part(whole, pool)?;
    let reserved = ["mirror", "raidz", "draid", "spare"].iter().any(|r| pool.starts_with(r));
    let letter = pool.starts_with(|c: char| c.is_ascii_alphabetic());
    if reserved || pool == "log" || !letter {
        return Err(NameError::Pool(whole.to_owned()));
    }
    Ok(())
}

fn check_length(text: &str) -> Result<(), NameError> {
    if text.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(text.to_owned()));
    }
    Ok(())
}

impl FromStr for PoolName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text)?;
        check_pool(text, text)?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for DatasetName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text)?;
        for (index, part) in text.split('/').enumerate() {
            if index == 0 {
                check_pool(text, part)?;
            } else {
                check_part(text, part)?;
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for SnapshotName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text)?;
        let (dataset, name) =
            text.split_once('@').ok_or_else(|| NameError::NoSnapshot(text.to_owned()))?;
        dataset.parse::<DatasetName>()?;
        check_part(text, name)?;
        Ok(Self(text.to_owned()))
    }
}

impl DatasetName {
    /// Returns the pool of the dataset.
    #[must_use]
    pub fn pool(&self) -> PoolName {
        PoolName(self.0.split('/').next().unwrap_or_default().to_owned())
    }

    /// Returns the parent; none for a pool.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Returns the dataset `part` below this one.
    ///
    /// # Errors
    /// If `part` is not a valid name, or the whole gets too long.
    pub fn child(&self, part: &str) -> Result<Self, NameError> {
        format!("{}/{part}", self.0).parse()
    }

    /// Returns the snapshot `name` of this dataset.
    ///
    /// # Errors
    /// If `name` is not a valid name, or the whole gets too long.
    pub fn snapshot(&self, name: &str) -> Result<SnapshotName, NameError> {
        format!("{}@{name}", self.0).parse()
    }

    /// Returns whether this is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(other.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the path of the zvol with this name. udev writes `+` for a blank:
    /// no name has a `+`.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        Path::new(ZVOL_LINKS).join(self.0.replace(' ', "+"))
    }

    /// Returns the zvol of a path that [`Self::device`] may have returned; none
    /// for other paths.
    #[must_use]
    pub fn of_device(path: &Path) -> Option<Self> {
        path.strip_prefix(ZVOL_LINKS).ok()?.to_str()?.replace('+', " ").parse().ok()
    }
}

impl SnapshotName {
    /// Returns the dataset of the snapshot.
    #[must_use]
    pub fn dataset(&self) -> DatasetName {
        DatasetName(self.0.split('@').next().unwrap_or_default().to_owned())
    }

    /// Returns the part after `@`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, name)| name)
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the name as written on a command line.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
text!(PoolName, DatasetName, SnapshotName);

impl From<PoolName> for DatasetName {
    fn from(pool: PoolName) -> Self {
        Self(pool.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_zfs_has_them() {
        for good in ["llm", "llm/vm/iscsi0", "z fast/a b", "p/a:b.c-d_e"] {
            assert_eq!(good.parse::<DatasetName>().unwrap().as_str(), good);
        }
        for bad in
            ["", "/llm", "llm/", "llm//a", "llm/..", "llm/a@b", "1llm", "-o", "mirror1", "log"]
        {
            assert!(bad.parse::<DatasetName>().is_err(), "{bad:?}");
        }
        assert!(format!("p/{}", "a".repeat(254)).parse::<DatasetName>().is_err());
        assert!("logs".parse::<PoolName>().is_ok());
    }

    #[test]
    fn parts_of_a_name() {
        let name: DatasetName = "llm/vm/iscsi0".parse().unwrap();
        assert_eq!(name.pool().as_str(), "llm");
        assert_eq!(name.parent().unwrap().as_str(), "llm/vm");
        assert!(name.is_within(&"llm/vm".parse().unwrap()));
        assert!(!name.is_within(&"llm/v".parse().unwrap()));
        let snapshot = name.snapshot("hourly-1").unwrap();
        assert_eq!((snapshot.dataset(), snapshot.name()), (name, "hourly-1"));
        assert!("llm/vm".parse::<SnapshotName>().is_err());
    }

    #[test]
    fn blanks_of_a_zvols_name_are_pluses_in_its_path() {
        for (name, path) in [
            ("llm/vm/iscsi0", "/dev/zvol/llm/vm/iscsi0"),
            ("z fast/a b/c  d", "/dev/zvol/z+fast/a+b/c++d"),
        ] {
            let name: DatasetName = name.parse().unwrap();
            assert_eq!(name.device(), Path::new(path));
            assert_eq!(DatasetName::of_device(Path::new(path)), Some(name));
        }
        assert!("llm/a+b".parse::<DatasetName>().is_err(), "ambiguous otherwise");
        for other in ["/dev/zvol", "/dev/zvol/", "/dev/zd16", "/dev/zvolume/llm"] {
            assert_eq!(DatasetName::of_device(Path::new(other)), None, "{other}");
        }
    }
}
