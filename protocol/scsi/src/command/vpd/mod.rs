//! Vital product data pages.

mod block;
mod copy;
mod identity;

use super::{Cx, Failure};
use crate::disk::config::DiskConfig;
use crate::nexus::Nexus;
use crate::sense::Sense;

type Body = fn(&Cx<'_>) -> Vec<u8>;

/// Pages in ascending order, as SPC-4 §7.8.13 requires for their list.
const PAGES: &[(u8, Body)] = &[
    (0x00, supported),
    (0x80, |cx| identity::serial_number(&cx.disk.config)),
    (0x83, |cx| identity::device_identification(&cx.disk.config, &cx.command.nexus)),
    (0x86, identity::extended_inquiry),
    (0x87, identity::mode_page_policy),
    (0x88, identity::ports),
    (0x8F, copy::third_party_copy),
    (0xB0, block::limits),
    (0xB1, block::characteristics),
    (0xB2, block::provisioning),
];

/// Returns a page with its header.
pub(crate) fn page(cx: &Cx<'_>, code: u8) -> Result<Vec<u8>, Failure> {
    let Some((_, body)) = PAGES.iter().find(|(known, _)| *known == code) else {
        return Err(Sense::invalid_cdb(2, None).into());
    };
    Ok(with_header(code, body(cx)))
}

/// Returns a page that names the logical unit, also without its storage.
pub(crate) fn naming_page(config: &DiskConfig, nexus: &Nexus, code: u8) -> Result<Vec<u8>, Sense> {
    let body = match code {
        0x00 => vec![0x00, 0x80, 0x83],
        0x80 => identity::serial_number(config),
        0x83 => identity::device_identification(config, nexus),
        _ => return Err(Sense::invalid_cdb(2, None)),
    };
    Ok(with_header(code, body))
}

fn with_header(code: u8, body: Vec<u8>) -> Vec<u8> {
    let mut data = vec![0, code];
    data.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    data.extend(body);
    data
}

fn supported(_: &Cx<'_>) -> Vec<u8> {
    PAGES.iter().map(|(code, _)| *code).collect()
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;
    use crate::wire::{be16, be32};

    fn page(bench: &Bench, code: u8) -> Vec<u8> {
        let response = bench.run(&[0x12, 1, code, 0x04, 0, 0], b"");
        assert_eq!(response.status, ScsiStatus::Good, "page {code:02x}");
        let data = bench.data(&response);
        assert_eq!(data[1], code);
        assert_eq!(usize::from(be16(&data, 2)), data.len() - 4, "page {code:02x}");
        data
    }

    #[test]
    fn every_listed_page_can_be_read() {
        let bench = Bench::new();
        let listed = page(&bench, 0)[4..].to_vec();
        assert!(listed.is_sorted());
        for code in listed {
            page(&bench, code);
        }
        bench.refused(&[0x12, 1, 0xC0, 0, 255, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn limits_fit_the_geometry() {
        let bench = Bench::new();
        let data = page(&bench, 0xB0);
        assert_eq!(data.len(), 64);
        // 32 MiB in blocks of 512 bytes; granularity of 4 KiB.
        assert_eq!(be32(&data, 8), 65536);
        assert_eq!(be16(&data, 6), 8);
        assert_eq!(be32(&data, 28), 8);
        assert!(be32(&data, 20) <= 1024 * 1024);
        let thick = Bench::with(|config| config.thin = false);
        let data = page(&thick, 0xB0);
        assert_eq!((be32(&data, 20), be32(&data, 24)), (0, 0));
    }

    #[test]
    fn the_identifier_is_the_configured_one() {
        let bench = Bench::new();
        let data = page(&bench, 0x83);
        let naa = bench.disk.config().naa;
        assert!(data.windows(naa.bytes().len()).any(|window| window == naa.bytes()));
    }
}
