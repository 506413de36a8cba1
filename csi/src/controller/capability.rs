//! Access that a request asks for, and the protocol it needs.

use crate::limits::MAX_CAPABILITIES;
use crate::proto::VolumeCapability;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;
use crate::status::{invalid, missing};
use tonic::Status;
use zgate_api::VolumeKind;

/// Access by one node or several, for reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    /// A raw device instead of a mounted file system.
    pub(crate) is_raw: bool,
}

impl Wanted {
    pub(crate) fn parse(capability: &VolumeCapability) -> Result<Self, Status> {
        let mode = capability.access_mode.as_ref().ok_or_else(|| missing("access_mode"))?;
        let mode = match mode.mode() {
            Mode::Unknown => return Err(invalid("access_mode is unknown")),
            mode => mode,
        };
        let access = capability.access_type.as_ref().ok_or_else(|| missing("access_type"))?;
        Ok(Self { mode, is_raw: matches!(access, AccessType::Block(_)) })
    }

    pub(crate) fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>, Status> {
        if capabilities.is_empty() {
            return Err(missing("volume_capabilities"));
        }
        if capabilities.len() > MAX_CAPABILITIES {
            return Err(invalid(format!("more than {MAX_CAPABILITIES} volume_capabilities")));
        }
        capabilities.iter().map(Self::parse).collect()
    }

    /// Only readers.
    pub(crate) fn reads_only(self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
    }

    /// One node at a time.
    pub(crate) fn is_single_node(self) -> bool {
        matches!(
            self.mode,
            Mode::SingleNodeWriter
                | Mode::SingleNodeReaderOnly
                | Mode::SingleNodeSingleWriter
                | Mode::SingleNodeMultiWriter
        )
    }

    /// Several nodes that write at the same time.
    pub(crate) fn has_many_writers(self) -> bool {
        self.mode == Mode::MultiNodeMultiWriter
    }

    /// Returns a reason if a volume of this kind cannot be used so.
    pub(crate) fn refusal(self, kind: VolumeKind) -> Option<&'static str> {
        match (kind, self.is_raw) {
            (VolumeKind::Filesystem, true) => {
                Some("a volume over NFS is no block device; use protocol: iscsi")
            }
            (VolumeKind::Block, false)
                if !self.is_single_node() && self.mode != Mode::MultiNodeReaderOnly =>
            {
                Some(
                    "a file system on a disk is damaged by writers on several nodes; use \
                     protocol: nfs, or volumeMode: Block",
                )
            }
            _ => None,
        }
    }
}
