//! Parameters of StorageClasses and VolumeAttributesClasses.

use crate::status::invalid;
use std::collections::HashMap;
use tonic::Status;
use zgate_api::{Properties, Volume, VolumeKind};

/// Prefix of what the sidecars add.
const SIDECARS: &str = "csi.storage.k8s.io/";

/// Properties of ZFS and limits of the gateway that a class may set, and true if they
/// may change later.
const PROPERTIES: [(&str, bool); 9] = [
    ("atime", true),
    ("bytes_per_second_max", true),
    ("compression", true),
    ("iops_max", true),
    ("logbias", true),
    ("primarycache", true),
    ("recordsize", true),
    ("sync", true),
    ("volblocksize", false),
];

/// Parameters of a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Kind of `protocol`.
    pub(crate) kind: Option<VolumeKind>,
    pub(crate) gateway: Option<String>,
    pub(crate) parent: Option<String>,
    /// Dataset, or snapshot, whose content the volumes have.
    pub(crate) dataset: Option<String>,
    pub(crate) read_only: bool,
    /// Properties that a class names.
    pub(crate) properties: Properties,
    /// Those that no class names, and that a volume has nevertheless.
    defaults: Properties,
}

impl Parameters {
    pub(crate) fn parse(all: &HashMap<String, String>) -> Result<Self, Status> {
        let mut parsed = Self::default();
        for (key, value) in all {
            match key.as_str() {
                "protocol" => parsed.kind = Some(kind(value)?),
                "gateway" => parsed.gateway = Some(value.clone()),
                "parent" => parsed.parent = Some(value.clone()),
                "dataset" => parsed.dataset = Some(value.clone()),
                "readOnly" => parsed.read_only = flag(key, value)?,
                name if PROPERTIES.iter().any(|(known, _)| *known == name) => {
                    parsed.properties.insert(key.clone(), value.clone());
                }
                name if name.starts_with(SIDECARS) => {}
                name => return Err(unknown("parameter", name)),
            }
        }
        Ok(parsed)
    }

    /// Adds those of a VolumeAttributesClass, which come before those of the
    /// StorageClass.
    pub(crate) fn with(mut self, mutable: &HashMap<String, String>) -> Result<Self, Status> {
        self.properties.extend(mutable_properties(mutable)?);
        Ok(self)
    }

    /// Has each write of a disk on stable storage before it is answered, unless the class says
    /// otherwise. A node outlives the machine of its gateway: it believes that what the disk's
    /// cache has lost is written. A journal that a file system has given up since then lacks
    /// it, and so what a program has synced.
    pub(crate) fn default_to_stable_writes(&mut self) {
        if !self.properties.contains_key("sync") {
            self.defaults.insert("sync".to_owned(), "always".to_owned());
        }
    }

    /// Returns the properties of a new volume.
    pub(crate) fn with_defaults(&self) -> Properties {
        let mut all = self.defaults.clone();
        all.extend(self.properties.clone());
        all
    }

    /// Returns the defaults of properties that nobody has set on a volume.
    pub(crate) fn defaults_unset_on(&self, volume: &Volume) -> Properties {
        let is_unset = |name: &String| !volume.properties.contains_key(name);
        let unset = self.defaults.iter().filter(|(name, _)| is_unset(name));
        unset.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Parses the parameters of a VolumeAttributesClass.
pub(crate) fn mutable_properties(all: &HashMap<String, String>) -> Result<Properties, Status> {
    let mut properties = Properties::new();
    for (key, value) in all {
        match PROPERTIES.iter().find(|(name, _)| name == key) {
            Some((_, true)) => properties.insert(key.clone(), value.clone()),
            Some((name, false)) => {
                return Err(invalid(format!("{name} is set when a volume is made, and stays")));
            }
            None => return Err(unknown("mutable parameter", key)),
        };
    }
    Ok(properties)
}

fn kind(value: &str) -> Result<VolumeKind, Status> {
    match value {
        "nfs" => Ok(VolumeKind::Filesystem),
        "iscsi" => Ok(VolumeKind::Block),
        other => Err(invalid(format!("protocol {other:?} is neither nfs nor iscsi"))),
    }
}

fn flag(key: &str, value: &str) -> Result<bool, Status> {
    value.parse().map_err(|_| invalid(format!("{key} {value:?} is neither true nor false")))
}

fn unknown(what: &str, name: &str) -> Status {
    let known: Vec<_> = PROPERTIES.iter().map(|(name, _)| *name).collect();
    invalid(format!(
        "{what} {name:?} is unknown; known are protocol, gateway, parent, dataset, readOnly (of a \
         StorageClass), and {}",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn writes_of_a_disk_are_stable_unless_the_class_says_otherwise() {
        for (class, sync) in [(vec![], "always"), (vec![("sync", "standard")], "standard")] {
            let mut parsed = Parameters::parse(&map(&class)).unwrap();
            parsed.default_to_stable_writes();
            assert_eq!(parsed.with_defaults()["sync"], sync);
        }
    }

    #[test]
    fn a_class_is_parsed_and_what_is_unknown_is_refused() {
        let class = map(&[
            ("protocol", "iscsi"),
            ("volblocksize", "16K"),
            ("compression", "lz4"),
            ("csi.storage.k8s.io/pvc/name", "a"),
        ]);
        let parsed = Parameters::parse(&class).unwrap();
        assert_eq!((parsed.kind, parsed.properties.len()), (Some(VolumeKind::Block), 2));
        let later = map(&[("compression", "zstd"), ("iops_max", "500")]);
        let changed = parsed.with(&later).unwrap();
        assert_eq!(changed.properties["compression"], "zstd");
        assert_eq!(changed.properties["iops_max"], "500");
        for wrong in [("protokol", "nfs"), ("protocol", "smb"), ("readOnly", "yes")] {
            assert!(Parameters::parse(&map(&[wrong])).is_err(), "{wrong:?}");
        }
        for wrong in ["volblocksize", "protocol", "XXX_FakeKey"] {
            assert!(mutable_properties(&map(&[(wrong, "1")])).is_err(), "{wrong}");
        }
    }
}
