//! Ports and addresses of the devices, for diagnosis.

use crate::host::{Device, Host};
use std::ffi::CStr;
use std::net::Ipv6Addr;
use zgate_rdma_sys as sys;

/// Encapsulation of packets with this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: Ethernet frames, not routable.
    RoceV1,
    /// RoCE version 2: UDP port 4791.
    RoceV2,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidReport {
    /// Index in the port's table.
    pub index: u32,
    /// The address; IPv4 addresses are mapped into IPv6.
    pub address: Ipv6Addr,
    /// Encapsulation of its packets.
    pub kind: GidKind,
    /// Network interface it belongs to.
    pub interface: Option<String>,
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Name of the device.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// Set if the port is up.
    pub active: bool,
    /// Set for Ethernet (RoCE or iWARP), clear for InfiniBand.
    pub ethernet: bool,
    /// Payload bytes of a packet in use.
    pub active_mtu_bytes: u32,
    /// Largest possible payload of a packet in bytes.
    pub max_mtu_bytes: u32,
    /// Addresses of the port.
    pub gids: Vec<GidReport>,
}

impl PortReport {
    /// Lists the addresses that kernel clients use: RoCE version 2 on Ethernet.
    pub fn usable_gids(&self) -> impl Iterator<Item = &GidReport> {
        let wanted = if self.ethernet { GidKind::RoceV2 } else { GidKind::InfiniBand };
        self.gids.iter().filter(move |gid| gid.kind == wanted)
    }
}

/// Converts the verbs number of an MTU to bytes.
fn mtu_bytes(number: u32) -> u32 {
    if (1..=5).contains(&number) { 128 << number } else { 0 }
}

pub(crate) fn ports(host: &Host) -> Vec<PortReport> {
    let mut reports = Vec::new();
    for device in host.devices() {
        for port in 1..=device.attributes.phys_port_cnt {
            reports.extend(port_report(host, device, port));
        }
    }
    reports
}

fn port_report(host: &Host, device: &Device, port: u8) -> Option<PortReport> {
    let mut attributes = sys::PortAttributes::default();
    // SAFETY: the context is open, the attributes writable.
    let failed = unsafe { (host.verbs.query_port)(device.context, port, &raw mut attributes) };
    if failed != 0 {
        return None;
    }
    let entries = u32::try_from(attributes.gid_tbl_len).unwrap_or_default();
    Some(PortReport {
        device: device.name.clone(),
        port,
        active: attributes.state == sys::PORT_ACTIVE,
        ethernet: attributes.link_layer == sys::LINK_LAYER_ETHERNET,
        active_mtu_bytes: mtu_bytes(attributes.active_mtu),
        max_mtu_bytes: mtu_bytes(attributes.max_mtu),
        gids: (0..entries).filter_map(|index| gid_report(host, device, port, index)).collect(),
    })
}

fn gid_report(host: &Host, device: &Device, port: u8, index: u32) -> Option<GidReport> {
    let mut entry = sys::GidEntry::default();
    let size = size_of::<sys::GidEntry>();
    // SAFETY: the context is open, the entry writable and of this size.
    let failed = unsafe {
        (host.verbs.query_gid)(device.context, u32::from(port), index, &raw mut entry, 0, size)
    };
    if failed != 0 || entry.gid == [0, 0] {
        return None;
    }
    let kind = match entry.gid_type {
        sys::GID_TYPE_IB => GidKind::InfiniBand,
        sys::GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        sys::GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => return None,
    };
    let mut octets = [0; 16];
    // The words are in network order in memory.
    octets[..8].copy_from_slice(&entry.gid[0].to_ne_bytes());
    octets[8..].copy_from_slice(&entry.gid[1].to_ne_bytes());
    let interface = interface_name(entry.ndev_ifindex);
    Some(GidReport { index, address: Ipv6Addr::from(octets), kind, interface })
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the function asks for.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    // SAFETY: a name that was found ends with a zero.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_by_number() {
        assert_eq!([1, 2, 3, 4, 5, 0, 6].map(mtu_bytes), [256, 512, 1024, 2048, 4096, 0, 0]);
    }

    #[test]
    fn interfaces_have_names() {
        assert_eq!(interface_name(1).as_deref(), Some("lo"));
        assert_eq!(interface_name(0), None);
    }
}
