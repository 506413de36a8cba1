//! Identity of the logical unit: pages 80h, 83h, 86h, 87h and 88h (SPC-4 §7.8).

use crate::command::Cx;
use crate::disk::config::{DiskConfig, TargetPort};
use crate::nexus::Nexus;
use crate::wire::padded;

const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;
/// ASSOCIATION: logical unit, target port, target device.
const UNIT: u8 = 0x00;
const PORT: u8 = 0x10;
const DEVICE: u8 = 0x20;
/// PIV: the protocol identifier is valid; iSCSI is 5h.
const PIV: u8 = 0x80;
const ISCSI: u8 = 0x50;

/// Returns Unit Serial Number.
pub(super) fn serial_number(config: &DiskConfig) -> Vec<u8> {
    config.serial.clone().into_bytes()
}

fn designator(data: &mut Vec<u8>, protocol_and_set: u8, kind: u8, bytes: &[u8]) {
    data.extend([protocol_and_set, kind, 0, u8::try_from(bytes.len()).unwrap_or(u8::MAX)]);
    data.extend(bytes.iter().take(usize::from(u8::MAX)));
}

/// Encodes a SCSI name string, which ends in one to four zeros (SPC-4
/// §7.8.6.9).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(251);
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns Device Identification: the logical unit's NAA and T10 names, then
/// the port that received the command.
pub(super) fn device_identification(config: &DiskConfig, nexus: &Nexus) -> Vec<u8> {
    let mut data = Vec::new();
    designator(&mut data, BINARY, UNIT | 0x03, config.naa.bytes());
    let mut t10 = padded::<8>(&config.vendor).to_vec();
    t10.extend(config.serial.bytes());
    designator(&mut data, ASCII, UNIT | 0x01, &t10);
    let relative_id = nexus.relative_port;
    let [high, low] = relative_id.to_be_bytes();
    designator(&mut data, ISCSI | BINARY, PIV | PORT | 0x04, &[0, 0, high, low]);
    for group in &config.port_groups {
        let Some(port) = group.ports.iter().find(|port| port.relative_id == relative_id) else {
            continue;
        };
        let [high, low] = group.id.to_be_bytes();
        designator(&mut data, ISCSI | BINARY, PIV | PORT | 0x05, &[0, 0, high, low]);
        designator(&mut data, ISCSI | UTF8, PIV | PORT | 0x08, &name_string(&port.scsi_name()));
        designator(&mut data, ISCSI | UTF8, PIV | DEVICE | 0x08, &name_string(&port.target_name));
    }
    data
}

/// Returns Extended INQUIRY Data.
pub(super) fn extended_inquiry(_: &Cx<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    // SIMPSUP, ORDSUP, HEADSUP.
    body[1] = 0x07;
    // V_SUP: the unit reports a volatile write cache.
    body[2] = 0x01;
    // LUICLR: an I_T nexus is told of changed LUNs by one logical unit for all.
    body[3] = 0x01;
    // RTD_SUP=0, and the longest sense data: fixed 18, descriptors 28.
    body[9] = 36;
    body
}

/// Returns Mode Page Policy: every page is shared by all I_T nexuses.
pub(super) fn mode_page_policy(_: &Cx<'_>) -> Vec<u8> {
    vec![0x3F, 0xFF, 0x00, 0x00]
}

/// Returns SCSI Ports.
pub(super) fn ports(cx: &Cx<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    for port in cx.disk.config.ports() {
        port_entry(&mut data, port);
    }
    data
}

fn port_entry(data: &mut Vec<u8>, port: &TargetPort) {
    data.extend([0, 0]);
    data.extend(port.relative_id.to_be_bytes());
    data.extend([0; 6]);
    let mut names = Vec::new();
    designator(&mut names, ISCSI | UTF8, PIV | PORT | 0x08, &name_string(&port.scsi_name()));
    data.extend(u16::try_from(names.len()).unwrap_or(u16::MAX).to_be_bytes());
    data.extend(names);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_strings_are_padded() {
        assert_eq!(name_string("abc"), b"abc\0");
        assert_eq!(name_string("abcd"), b"abcd\0\0\0\0");
        assert!(name_string(&"x".repeat(400)).len() <= 252);
    }
}
