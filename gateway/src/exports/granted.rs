//! Volumes that the API made, as exports and disks: those to which a node has
//! access are served, to these nodes alone.

use super::settings::{DatasetRef, ExportSettings, export};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use zgate_config::{
    AccessMode, ByteSize, Cidr, ClientMatch, ExportClient, ExportConfig, Rates, VolumeParent,
    VolumesConfig,
};
use zgate_control::volume::{Grant, RateLimits, VolumeKind, VolumeRecord};
use zgate_control::{Dataset, DatasetName};
use zgate_iscsi::names::IscsiName;

/// A parent of the configuration.
#[derive(Clone)]
pub(crate) struct ParentPlan {
    /// The dataset.
    pub dataset: DatasetName,
    /// Its configuration.
    pub config: VolumeParent,
    template: Option<ExportSettings>,
}

/// A zvol to be served as a target of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrantedDisk {
    pub guid: u64,
    pub name: DatasetName,
    pub device: PathBuf,
    /// Name of its target.
    pub target: String,
    pub grants: Vec<Grant>,
    pub unit: VolumesConfig,
}

/// Digits of a guid in the name of a target.
const GUID_DIGITS: usize = 16;

/// Targets of disks that nobody knows, because their pools have not told them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AwaitedTargets {
    /// Beginnings of the names of those that disks of the API may have.
    prefixes: BTreeSet<String>,
    /// Those whose patterns may find further zvols.
    of_patterns: BTreeSet<IscsiName>,
}

impl AwaitedTargets {
    /// Returns the targets of the disks below these parents.
    pub(crate) fn below<'a>(parents: impl Iterator<Item = &'a ParentPlan>) -> Self {
        let prefixes = parents.filter_map(|parent| parent.config.target.clone()).collect();
        Self { prefixes, of_patterns: BTreeSet::new() }
    }

    /// Adds targets whose patterns may find further zvols, by their names in the configuration.
    pub(crate) fn with_patterns_of<'a>(self, targets: impl Iterator<Item = &'a str>) -> Self {
        Self { of_patterns: targets.filter_map(IscsiName::parse).collect(), ..self }
    }

    /// Returns whether the patterns of this target may find further zvols.
    pub(crate) fn has_patterns_of(&self, target: &IscsiName) -> bool {
        self.of_patterns.contains(target)
    }

    /// Returns whether a target has the name of such a disk, in normal form.
    pub(crate) fn may_include(&self, target: &str) -> bool {
        let Some((prefix, guid)) = target.rsplit_once(':') else { return false };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        guid.len() == GUID_DIGITS && guid.bytes().all(is_digit) && self.prefixes.contains(prefix)
    }
}

impl ParentPlan {
    /// Reads a parent of the configuration.
    ///
    /// # Errors
    /// The parent, the reason and the next step.
    pub(crate) fn of(config: &VolumeParent) -> io::Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| {
            let reason = format!("volumes parent {}: {error}", config.dataset);
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        };
        let dataset = config.dataset.parse().map_err(|error| wrong(&error))?;
        let template = config.pseudo.as_ref().map(|pseudo| {
            // The defaults of an export.
            let text = format!("pseudo = {pseudo:?}");
            toml_of::<ExportConfig>(&text).map(|config| export(&config))
        });
        let template = template.transpose().map_err(|error| wrong(&error))?;
        Ok(Self { dataset, config: config.clone(), template })
    }

    /// Returns the path at which clients find a file system.
    pub(crate) fn pseudo_path(&self, volume: &VolumeRecord) -> Option<String> {
        let pseudo = &self.template.as_ref()?.pseudo_path;
        Some(format!("{}/{}", pseudo.trim_end_matches('/'), volume.name))
    }

    /// Returns the target of a block device. A volume that is deleted and made
    /// again has another one, so that no host takes it for the former.
    pub(crate) fn target(&self, volume: &VolumeRecord) -> Option<String> {
        let (prefix, width) = (self.config.target.as_ref()?, GUID_DIGITS);
        Some(format!("{prefix}:{:0width$x}", volume.guid))
    }

    /// Returns the export of a file system to which a node has access.
    pub(super) fn export_of(
        &self,
        volume: &VolumeRecord,
        dataset: &Dataset,
        id: u32,
    ) -> Option<ExportSettings> {
        let path = dataset.mounted_at()?;
        let template = self.template.as_ref()?;
        if volume.grants.is_empty() {
            return None;
        }
        let clients = volume.grants.iter().flat_map(|grant| self.clients(grant));
        Some(ExportSettings {
            path: path.to_owned(),
            pseudo_path: self.pseudo_path(volume)?,
            id: Some(id),
            read_only: volume.read_only,
            rates: rates(volume),
            clients: clients.collect(),
            dataset: Some(DatasetRef {
                name: dataset.name.clone(),
                guid: dataset.guid,
                away: false,
            }),
            ..template.clone()
        })
    }

    fn clients(&self, grant: &Grant) -> impl Iterator<Item = ExportClient> {
        let access = if grant.read_only { AccessMode::Ro } else { AccessMode::Rw };
        let squash = self.config.squash;
        grant.addresses.iter().map(move |address| ExportClient {
            matches: ClientMatch::Network(Cidr((*address).into())),
            access,
            squash,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
            security: vec!["sys".to_owned()],
            transport: zgate_config::ClientTransport::Any,
            certificate: zgate_config::CertificateRequirement::default(),
            identity: zgate_config::ClientIdentity::default(),
            map_uids: Vec::new(),
            map_gids: Vec::new(),
            manage_groups: false,
        })
    }

    /// Returns the disk of a zvol to which a node has access.
    pub(super) fn disk_of(&self, volume: &VolumeRecord, dataset: &Dataset) -> Option<GrantedDisk> {
        let mut grants = volume.grants.clone();
        grants.retain(|grant| grant.initiator.is_some());
        if grants.is_empty() || volume.kind != VolumeKind::Block {
            return None;
        }
        let unit =
            format!("dataset = {:?}\nread_only = {}\n", dataset.name.as_str(), volume.read_only);
        let Rates { iops_max, bytes_per_second_max } = rates(volume);
        let unit = VolumesConfig {
            iops_max,
            bytes_per_second_max: bytes_per_second_max.map(ByteSize),
            ..toml_of(&unit).ok()?
        };
        Some(GrantedDisk {
            guid: dataset.guid,
            name: dataset.name.clone(),
            device: dataset.device()?,
            target: self.target(volume)?,
            grants,
            unit,
        })
    }
}

fn rates(volume: &VolumeRecord) -> Rates {
    let RateLimits { iops_max, bytes_per_second_max } = volume.rates();
    Rates { iops_max, bytes_per_second_max }
}

/// Id of the anonymous user and group.
const NOBODY: u32 = 65_534;

/// Reads an entry of a configuration, with the defaults of what it leaves out.
fn toml_of<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
    toml::from_str(text)
}
