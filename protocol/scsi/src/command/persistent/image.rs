//! Format of the registry on stable storage.

use super::ReservationType;
use super::state::{Registrant, Registration, Registry, Reservation};
use crate::limits::MAX_REGISTRATIONS;
use crate::nexus::TransportId;
use crate::wire::{be16, be32, be64};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// First bytes of an image, with its version.
const MAGIC: [u8; 4] = *b"zpr1";
const DIGEST_BYTES: usize = 32;
const NO_RESERVATION: u8 = 0;
const NO_HOLDER: u16 = 0xFFFF;

impl Registry {
    /// Encodes the registrations that survive a power loss.
    pub(crate) fn encode(&self) -> Bytes {
        let mut image = MAGIC.to_vec();
        let holder = self.reservation.as_ref().and_then(|reservation| {
            let holder = reservation.holder.as_ref()?;
            self.registrations.iter().position(|one| one.who == *holder)
        });
        let kind = self.reservation.as_ref().map_or(NO_RESERVATION, |held| held.kind as u8);
        image.push(kind);
        let holder = holder.and_then(|at| u16::try_from(at).ok()).unwrap_or(NO_HOLDER);
        image.extend(holder.to_be_bytes());
        image.extend(u32::try_from(self.registrations.len()).unwrap_or(0).to_be_bytes());
        for one in &self.registrations {
            image.extend(one.key.to_be_bytes());
            image.extend(one.who.relative_port.to_be_bytes());
            image.extend(one.who.initiator.encode());
        }
        let digest = Sha256::digest(&image);
        image.extend(digest);
        Bytes::from(image)
    }

    /// Decodes an image; `None` if it is damaged.
    pub(crate) fn decode(image: &[u8]) -> Option<Self> {
        let (body, digest) = image.split_at_checked(image.len().checked_sub(DIGEST_BYTES)?)?;
        if Sha256::digest(body).as_slice() != digest || !body.starts_with(&MAGIC) {
            return None;
        }
        let kind = *body.get(4)?;
        let holder = be16(body, 5);
        let count = usize::try_from(be32(body, 7)).ok()?;
        if count > MAX_REGISTRATIONS {
            return None;
        }
        let mut rest = body.get(11..)?;
        let mut registrations = Vec::with_capacity(count);
        for _ in 0..count {
            let (initiator, used) = TransportId::parse(rest.get(10..)?)?;
            let who = Registrant { initiator, relative_port: be16(rest, 8) };
            registrations.push(Registration { key: be64(rest, 0), who });
            rest = rest.get(10 + used..)?;
        }
        if !rest.is_empty() {
            return None;
        }
        let reservation = match kind {
            NO_RESERVATION => None,
            kind => {
                let kind = ReservationType::from_bits(kind)?;
                let holder = match holder {
                    NO_HOLDER if kind.is_held_by_all() => None,
                    at => Some(registrations.get(usize::from(at))?.who.clone()),
                };
                Some(Reservation { kind, holder })
            }
        };
        // PRGENERATION starts at zero after a loss of power (SPC-4 §6.15.2).
        Some(Self { generation: 0, aptpl: true, registrations, reservation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let who = Registrant {
            initiator: TransportId::iscsi_port("iqn.2026-01.test:a", [1; 6]),
            relative_port: 1,
        };
        Registry {
            generation: 0,
            aptpl: true,
            registrations: vec![Registration { key: 7, who: who.clone() }],
            reservation: Some(Reservation {
                kind: ReservationType::ExclusiveAccess,
                holder: Some(who),
            }),
        }
    }

    #[test]
    fn images_are_read_back() {
        let image = registry().encode();
        assert_eq!(Registry::decode(&image), Some(registry()));
    }

    #[test]
    fn damage_is_noticed() {
        let image = registry().encode();
        for at in 0..image.len() {
            let mut damaged = image.to_vec();
            damaged[at] ^= 1;
            assert_eq!(Registry::decode(&damaged), None);
            assert_eq!(Registry::decode(&image[..at]), None);
        }
    }
}
