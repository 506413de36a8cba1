//! Configuration of a logical unit.

use thiserror::Error;

/// Asymmetric access state of a target port group (SPC-4 §5.16.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// Preferred path to the logical unit.
    ActiveOptimized = 0x0,
    /// Usable, with lower performance.
    ActiveNonOptimized = 0x1,
    /// Accepts inquiries, moves no data.
    Standby = 0x2,
    /// Accepts hardly any command.
    Unavailable = 0x3,
    /// In transition between two states.
    Transitioning = 0xF,
}

impl AccessState {
    /// Converts the four bits of SET TARGET PORT GROUPS; `None` if an initiator
    /// may not request the state.
    pub(crate) fn requested(bits: u8) -> Option<Self> {
        match bits {
            0x0 => Some(Self::ActiveOptimized),
            0x1 => Some(Self::ActiveNonOptimized),
            0x2 => Some(Self::Standby),
            0x3 => Some(Self::Unavailable),
            _ => None,
        }
    }
}

/// A target port of the logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER, not 0.
    pub relative_id: u16,
    /// iSCSI target node name.
    pub target_name: String,
    /// iSCSI target portal group tag.
    pub portal_group_tag: u16,
}

impl TargetPort {
    /// Returns the SCSI name of the port: `name,t,0xTAG` (RFC 7143 §4.2.7.1 and
    /// SPC-4 §7.8.6.9).
    pub(crate) fn scsi_name(&self) -> String {
        format!("{},t,0x{:04x}", self.target_name, self.portal_group_tag)
    }
}

/// Target ports that share one asymmetric access state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP, not 0.
    pub id: u16,
    /// PREF: initiators should use this group if they can.
    pub preferred: bool,
    /// Access state at start.
    pub state: AccessState,
    /// Its ports.
    pub ports: Vec<TargetPort>,
}

/// The NAA designator of a logical unit (SPC-4 §7.8.6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naa {
    /// Eight bytes, first digit 2, 3 or 5.
    Short([u8; 8]),
    /// Sixteen bytes, first digit 6.
    Long([u8; 16]),
}

impl Naa {
    /// Returns the bytes of the designator.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// Configuration of one logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// T10 VENDOR IDENTIFICATION, at most eight ASCII characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, at most sixteen ASCII characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL, at most four ASCII characters.
    pub revision: String,
    /// Unit serial number, at most 64 ASCII characters.
    pub serial: String,
    /// Identifies the logical unit worldwide; stable for its life.
    pub naa: Naa,
    /// Logical block size: 512 or 4096 bytes.
    pub logical_block_bytes: u32,
    /// Physical block size in bytes, in place of the store's.
    pub physical_block_bytes: Option<u32>,
    /// Refuses writes even if the store accepts them.
    pub read_only: bool,
    /// Set if the medium can be ejected (RMB=1): initiators may unload and load
    /// it.
    pub removable: bool,
    /// WCE at start; `None` for the store's own setting.
    pub write_cache: Option<bool>,
    /// Offers UNMAP if the store can discard.
    pub thin: bool,
    /// Offers SANITIZE.
    pub sanitize: bool,
    /// Offers SET TARGET PORT GROUPS.
    pub explicit_alua: bool,
    /// Set if another server has the medium, the reservations and the modes of the
    /// unit: commands about them are refused as by a port in standby.
    pub state_elsewhere: bool,
    /// Secret that makes ROD tokens hard to guess; random, new at every start.
    pub token_secret: [u8; 16],
    /// Target ports in their groups; at least one group with one port.
    pub port_groups: Vec<PortGroup>,
}

/// Reason for which a configuration cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Not 512 or 4096.
    #[error("logical block size {0} is neither 512 nor 4096 bytes")]
    BlockSize(u32),
    /// The store is too small for one logical block.
    #[error("the store holds less than one logical block")]
    NoBlocks,
    /// A text field is too long or not ASCII.
    #[error("{0} is too long, empty or not printable ASCII")]
    Text(&'static str),
    /// Port groups or ports are missing, duplicate or numbered 0.
    #[error("target port groups: {0}")]
    Ports(&'static str),
    /// The NAA designator has a wrong first digit.
    #[error("the NAA identifier does not start with a digit that fits its length")]
    Naa,
}

impl DiskConfig {
    /// Checks rules that the types cannot express.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !matches!(self.logical_block_bytes, 512 | 4096) {
            return Err(ConfigError::BlockSize(self.logical_block_bytes));
        }
        check_text("vendor", &self.vendor, 8)?;
        check_text("product", &self.product, 16)?;
        check_text("revision", &self.revision, 4)?;
        check_text("serial", &self.serial, 64)?;
        match (self.naa, self.naa.bytes().first().map_or(0, |byte| byte >> 4)) {
            (Naa::Short(_), 2 | 3 | 5) | (Naa::Long(_), 6) => {}
            _ => return Err(ConfigError::Naa),
        }
        self.check_ports()
    }

    fn check_ports(&self) -> Result<(), ConfigError> {
        let mut groups: Vec<u16> = self.port_groups.iter().map(|group| group.id).collect();
        let mut ports: Vec<u16> = self.ports().map(|port| port.relative_id).collect();
        if groups.is_empty() || ports.is_empty() {
            return Err(ConfigError::Ports("at least one group with one port is needed"));
        }
        if groups.contains(&0) || ports.contains(&0) {
            return Err(ConfigError::Ports("0 is not a number for a group or a port"));
        }
        let (group_count, port_count) = (groups.len(), ports.len());
        groups.sort_unstable();
        groups.dedup();
        ports.sort_unstable();
        ports.dedup();
        if groups.len() != group_count || ports.len() != port_count {
            return Err(ConfigError::Ports("a number is used twice"));
        }
        Ok(())
    }

    /// Returns all target ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &TargetPort> {
        self.port_groups.iter().flat_map(|group| &group.ports)
    }
}

fn check_text(field: &'static str, text: &str, max: usize) -> Result<(), ConfigError> {
    let printable = text.bytes().all(|byte| (0x20..=0x7E).contains(&byte));
    if text.is_empty() || text.len() > max || !printable {
        return Err(ConfigError::Text(field));
    }
    Ok(())
}
