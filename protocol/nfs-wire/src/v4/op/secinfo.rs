//! SECINFO (RFC 8881 §18.29).

use zgate_rpc::auth::{PSEUDO_KRB5, PSEUDO_KRB5I, PSEUDO_KRB5P, RPCSEC_GSS};
use zgate_rpc::gss::{KERBEROS_OID, Service};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Most flavours of one answer.
const MAX_FLAVORS: usize = 16;
/// Longest object identifier of a mechanism, in bytes.
const MAX_OID_BYTES: usize = 64;
/// Quality of protection: the mechanism's default.
const DEFAULT_QOP: u32 = 0;

/// Services of Kerberos by pseudo flavour.
const SERVICES: [(u32, Service); 3] = [
    (PSEUDO_KRB5, Service::None),
    (PSEUDO_KRB5I, Service::Integrity),
    (PSEUDO_KRB5P, Service::Privacy),
];

fn service_of(flavor: u32) -> Option<Service> {
    SERVICES.iter().find(|(pseudo, _)| *pseudo == flavor).map(|(_, service)| *service)
}

/// secinfo4.
fn one(d: &mut Decoder<'_>) -> Result<u32, XdrError> {
    let flavor = d.u32()?;
    if flavor != RPCSEC_GSS {
        return Ok(flavor);
    }
    let is_kerberos = d.opaque(MAX_OID_BYTES)? == KERBEROS_OID;
    d.u32()?;
    let service = Service::decode(d)?;
    let row = SERVICES.iter().find(|(_, known)| is_kerberos && *known == service);
    row.map(|(pseudo, _)| *pseudo).ok_or(XdrError::BadValue)
}

/// The flavours a client may use, preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// Flavour numbers; Kerberos by its pseudo flavours (RFC 2623 §2.2.3.1).
    pub flavors: Vec<u32>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.flavors.len() as u32);
        for flavor in &self.flavors {
            match service_of(*flavor) {
                None => e.u32(*flavor),
                Some(service) => {
                    e.u32(RPCSEC_GSS);
                    // Without tag and length of DER, as all implementations have it.
                    e.opaque(&KERBEROS_OID);
                    e.u32(DEFAULT_QOP);
                    e.u32(service as u32);
                }
            }
        }
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let count = d.length(MAX_FLAVORS)?;
        let flavors = (0..count).map(|_| one(d)).collect::<Result<_, _>>()?;
        Ok(Self { flavors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kerberos_is_named_by_mechanism_and_service() {
        let res = Res { flavors: vec![PSEUDO_KRB5P, 1, PSEUDO_KRB5, PSEUDO_KRB5I, 0] };
        let mut e = Encoder::new();
        res.encode(&mut e);
        let raw = e.finish_bytes().unwrap();
        // Count; RPCSEC_GSS; 9 bytes and three of padding; quality; service.
        let first = [
            0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1,
        ];
        assert_eq!(raw[..first.len()], first);
        let mut d = Decoder::new(&raw);
        assert_eq!((Res::decode(&mut d), d.finish()), (Ok(res), Ok(())));
    }
}
