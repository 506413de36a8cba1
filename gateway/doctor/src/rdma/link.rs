//! Data rates of links and of the slots of devices.

/// Header bytes of one packet of a RoCE v2 transfer: preamble, Ethernet, IPv4,
/// UDP, BTH, ICRC, FCS and the gap.
const PACKET_OVERHEAD_BYTES: f64 = 8.0 + 14.0 + 20.0 + 8.0 + 12.0 + 4.0 + 4.0 + 12.0;
/// Share of a slot's rate that remains for data after packet headers, with 256
/// bytes per packet.
const PCIE_EFFICIENCY: f64 = 0.88;

/// Parses the number at the beginning of a text.
fn leading(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Parses the rate of a port in sysfs ("100 Gb/sec (4X EDR)"), in Gb/s.
pub(crate) fn port_gigabits(text: &str) -> Option<f64> {
    leading(text.trim())
}

/// Returns the data rate of a slot in Gb/s, from `current_link_speed` ("16.0
/// GT/s PCIe") and `current_link_width` ("16").
pub(crate) fn pcie_gigabits(speed: &str, width: &str) -> Option<f64> {
    let transfers = leading(speed.trim())?;
    let lanes = leading(width.trim())?;
    // 8b/10b up to the second generation, 128b/130b after it.
    let coding = if transfers < 8.0 { 0.8 } else { 128.0 / 130.0 };
    Some(transfers * lanes * coding * PCIE_EFFICIENCY)
}

/// Returns the largest RDMA packet that fits into an interface's: a power of
/// two from 256 to 4096 (InfiniBand Architecture §9.7.1).
pub(crate) fn path_mtu(interface_mtu: u64) -> u64 {
    let room = interface_mtu.saturating_sub(20 + 8 + 12 + 16 + 4);
    [4096, 2048, 1024, 512].into_iter().find(|size| *size <= room).unwrap_or(256)
}

/// Returns the data rate of a link of `gigabits` with packets of `mtu` bytes,
/// in GB/s.
pub(crate) fn gigabytes(gigabits: f64, mtu: u64) -> f64 {
    gigabits / 8.0 * mtu as f64 / (mtu as f64 + PACKET_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(port_gigabits("100 Gb/sec (4X EDR)\n"), Some(100.0));
        assert_eq!(port_gigabits("2.5 Gb/sec (1X SDR)"), Some(2.5));
        assert_eq!(port_gigabits("unknown"), None);
        let gen3x16 = pcie_gigabits("8.0 GT/s PCIe", "16").unwrap();
        assert!((108.0..113.0).contains(&gen3x16), "{gen3x16}");
        let gen2x8 = pcie_gigabits("5.0 GT/s PCIe", "8").unwrap();
        assert!((27.0..29.0).contains(&gen2x8), "{gen2x8}");
    }

    #[test]
    fn packets_fit_into_those_of_the_interface() {
        assert_eq!([9000, 4200, 1500, 576].map(path_mtu), [4096, 4096, 1024, 512]);
        let (large, small) = (gigabytes(100.0, 4096), gigabytes(100.0, 1024));
        assert!((12.2..12.3).contains(&large) && (11.5..11.7).contains(&small));
    }
}
