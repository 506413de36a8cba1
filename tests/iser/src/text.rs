//! Translation of login text between TCP and iSER.

use bytes::Bytes;
use zgate_iscsi::text::{TextWriter, parse_text};

/// Longest data segment that the target accepts, in bytes.
pub(crate) const TARGET_BYTES: u32 = zgate_iscsi::iser::limits::MAX_DATA_BYTES;

/// Negotiated parameters that affect data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) initiator_bytes: u32,
    pub(crate) max_burst_bytes: u32,
    pub(crate) first_burst_bytes: u32,
    pub(crate) discovery: bool,
    offered: bool,
    declared: bool,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            initiator_bytes: 8192,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            discovery: false,
            offered: false,
            declared: false,
        }
    }
}

impl Agreed {
    /// The text of a request, with the keys of iSER added in the operational
    /// stage.
    pub(crate) fn request(&mut self, text: &Bytes, operational: bool) -> Bytes {
        let Ok(pairs) = parse_text(text) else { return text.clone() };
        let mut out = TextWriter::default();
        for (key, value) in pairs {
            match (key, value) {
                ("SessionType", "Discovery") => self.discovery = true,
                ("MaxRecvDataSegmentLength", bytes) => {
                    self.initiator_bytes = bytes.parse().unwrap_or(self.initiator_bytes);
                    if !self.discovery {
                        continue;
                    }
                }
                _ => {}
            }
            out.push(key, value);
        }
        if operational && !self.discovery && !std::mem::replace(&mut self.offered, true) {
            out.push("RDMAExtensions", "Yes");
            out.push("InitiatorRecvDataSegmentLength", &self.initiator_bytes.to_string());
            out.push("TargetRecvDataSegmentLength", &TARGET_BYTES.to_string());
        }
        out.take()
    }

    /// The text of a response without the keys of iSER. The initiator may send
    /// data segments up to the target's limit.
    pub(crate) fn response(&mut self, text: &Bytes) -> Bytes {
        let Ok(pairs) = parse_text(text) else { return text.clone() };
        let mut out = TextWriter::default();
        for (key, value) in pairs {
            let number = value.parse();
            match key {
                "RDMAExtensions" | "InitiatorRecvDataSegmentLength" => continue,
                "TargetRecvDataSegmentLength" => {
                    if !std::mem::replace(&mut self.declared, true) {
                        out.push("MaxRecvDataSegmentLength", value);
                    }
                    continue;
                }
                "MaxBurstLength" => {
                    self.max_burst_bytes = number.unwrap_or(self.max_burst_bytes);
                }
                "FirstBurstLength" => {
                    self.first_burst_bytes = number.unwrap_or(self.first_burst_bytes);
                }
                _ => {}
            }
            out.push(key, value);
        }
        out.take()
    }
}
