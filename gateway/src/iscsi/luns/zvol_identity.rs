//! Identities of zvols, by which initiators know them: those of one zvol are the same whatever its
//! name is, and on every host with its pool.

use sha2::{Digest, Sha256};
use zgate_config::{LunConfig, NaaId};

/// First digits of derived NAA identifiers: type 6 and a company id with the
/// "locally administered" bit, which no registered one has.
const DERIVED_NAA: [u8; 4] = [0x60, 0x25, 0xa4, 0x70];

/// Returns serial number and NAA identifier of a zvol, the same on every host.
pub(in crate::iscsi) fn identity(guid: u64) -> (String, NaaId) {
    let digest = Sha256::digest(format!("zgate zvol\0{guid}").as_bytes());
    let mut naa = [0; 16];
    naa.copy_from_slice(&digest[..16]);
    naa[..3].copy_from_slice(&DERIVED_NAA[..3]);
    naa[3] = DERIVED_NAA[3] | naa[3] & 0x0f;
    (format!("{guid:016x}"), NaaId::Long(naa))
}

/// Returns the guid of the zvol that a logical unit has the identity of: that which a pattern or
/// the API has found. None for one that the configuration names: any zvol may be at its path.
pub(super) fn guid_of(lun: &LunConfig) -> Option<u64> {
    let (serial, naa) = (lun.serial.as_ref()?, lun.naa?);
    let guid = u64::from_str_radix(serial, 16).ok()?;
    (identity(guid) == (serial.clone(), naa)).then_some(guid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_the_zvols() {
        assert_eq!(identity(7), identity(7));
        assert_ne!(identity(7).1, identity(8).1);
        assert!(identity(7).1.to_string().starts_with("6025a47"));
        assert_eq!(identity(0xabc).0, "0000000000000abc");
    }

    #[test]
    fn a_unit_that_was_found_has_the_guid_of_its_zvol() {
        let named: LunConfig = toml::from_str("number = 0\npath = \"/dev/zvol/a/b\"\n").unwrap();
        assert_eq!(guid_of(&named), None);
        let (serial, naa) = identity(0xabc);
        let found = LunConfig { serial: Some(serial), naa: Some(naa), ..named.clone() };
        assert_eq!(guid_of(&found), Some(0xabc));
        // Chosen by an administrator.
        for serial in ["0000000000000abd", "abc", "disk"] {
            let other = LunConfig { serial: Some(serial.to_owned()), ..found.clone() };
            assert_eq!(guid_of(&other), None, "{serial}");
        }
        assert_eq!(guid_of(&LunConfig { naa: None, ..found }), None);
    }
}
