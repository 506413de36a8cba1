//! A LUN whose keys change is opened again under living sessions: what keeps
//! other hosts out goes on.

use super::{Fixture, Over, TARGET, block};
use bytes::Bytes;
use std::sync::Arc;
use zgate_config::LunConfig;

const LBA: u64 = 8;
const CONFLICT: u8 = 0x18;
/// PERSISTENT RESERVE OUT service actions.
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];

/// Gives the LUN another limit on rates, as a reload or the API does.
fn limit(fixture: &Fixture, iops_max: u64) {
    let iscsi = &fixture.gateway.shared.iscsi;
    let changed = iscsi.change(TARGET, |target| {
        let before = &target.units[&0];
        let lun = LunConfig { iops_max: Some(iops_max), ..before.config.clone() };
        let unit = iscsi.home.open(&target.settings.name, &lun, Some(before.as_ref()))?;
        assert!(!Arc::ptr_eq(before, &unit), "it is opened again");
        target.units.insert(0, unit);
        Ok(())
    });
    changed.unwrap();
}

#[test]
fn a_limit_on_rates_ends_no_reservation() {
    let fixture = Fixture::start();
    let mut one = fixture.host(Over::Tcp, "one");
    let mut other = fixture.host(Over::Tcp, "other");
    assert_eq!(one.reserve_out(REGISTER_AND_IGNORE, 0, 0x11).status, 0);
    assert_eq!(one.reserve_out(RESERVE, 0x11, 0).status, 0);
    limit(&fixture, 100_000);
    assert_eq!(other.write(LBA, &block(2, 0)).status, CONFLICT);
    assert_eq!(other.keys(), [0x11]);
    assert_eq!(one.write(LBA, &block(1, 0)).status, 0);
    assert_eq!(one.reserve_out(CLEAR, 0x11, 0).status, 0);
    assert_eq!(one.run(&RESERVE_6, &Bytes::new()).status, 0);
    limit(&fixture, 200_000);
    assert_eq!(other.write(LBA, &block(2, 1)).status, CONFLICT);
    assert_eq!(one.write(LBA, &block(1, 1)).status, 0);
    // The session that holds it is known to the LUN opened again.
    drop(one);
    fixture.until_sessions(1);
    assert_eq!(other.write(LBA, &block(2, 2)).status, 0);
}
