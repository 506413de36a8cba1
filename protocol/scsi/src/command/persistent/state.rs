//! Registrations and the reservation of one logical unit (SPC-4 §5.13), as a
//! value from which every service action derives the next one.

use super::ReservationType;
use crate::command::Failure;
use crate::limits::MAX_REGISTRATIONS;
use crate::nexus::{Nexus, TransportId};
use crate::sense::{Asc, Sense};

/// Position of the TransportIDs in the parameter list (SPC-4 §6.16.3).
const TRANSPORT_IDS_AT: u16 = 28;

/// SCOPE and TYPE of a command, or the complaint about them. A wrong key comes first (SPC-4
/// §6.16.3), and a preempt that takes no reservation over ignores them (§5.13.11.2.5).
pub(crate) type Kind = Result<ReservationType, Sense>;

/// REGISTER, or REGISTER AND IGNORE EXISTING KEY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    /// RESERVATION KEY; `None` if it is ignored.
    pub(crate) key: Option<u64>,
    /// SERVICE ACTION RESERVATION KEY; 0 unregisters.
    pub(crate) new_key: u64,
    pub(crate) aptpl: bool,
    pub(crate) all_ports: bool,
    /// Initiator ports to register as well (SPEC_I_PT).
    pub(crate) others: Vec<TransportId>,
    pub(crate) names_others: bool,
}

/// REGISTER AND MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) key: u64,
    pub(crate) new_key: u64,
    pub(crate) unregister: bool,
    pub(crate) aptpl: bool,
    pub(crate) relative_port: u16,
    pub(crate) initiator: TransportId,
}

/// An I_T nexus in terms of reservations: identified by port names, which
/// outlive sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub(crate) initiator: TransportId,
    pub(crate) relative_port: u16,
}

impl Registrant {
    /// Returns whether this is, or covers, the nexus of a session.
    pub(crate) fn is(&self, nexus: &Nexus) -> bool {
        self.relative_port == nexus.relative_port && self.initiator.covers(&nexus.initiator)
    }
}

/// A registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) key: u64,
    pub(crate) who: Registrant,
}

/// The reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) kind: ReservationType,
    /// Holder of the reservation; none if all registrants hold it.
    pub(crate) holder: Option<Registrant>,
}

/// Recipient of a unit attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) who: Registrant,
    pub(crate) asc: Asc,
}

/// Effects of a service action on other nexuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) told: Vec<Told>,
    /// Registrants whose registrations were preempted or cleared.
    pub(crate) unregistered: Vec<Registrant>,
}

impl Effects {
    fn tell<'a>(&mut self, who: impl IntoIterator<Item = &'a Registration>, asc: Asc) {
        self.told.extend(who.into_iter().map(|one| Told { who: one.who.clone(), asc }));
    }
}

/// All registrations and the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    pub(super) generation: u32,
    pub(super) aptpl: bool,
    pub(super) registrations: Vec<Registration>,
    pub(super) reservation: Option<Reservation>,
}

type Changed = Result<Effects, Failure>;

impl Registry {
    /// Returns whether the state survives a power loss.
    pub(crate) fn aptpl(&self) -> bool {
        self.aptpl
    }

    pub(crate) fn has_registrations(&self) -> bool {
        !self.registrations.is_empty()
    }

    fn find(&self, nexus: &Nexus) -> Option<&Registration> {
        self.registrations.iter().find(|one| one.who.is(nexus))
    }

    /// Returns whether the registration holds the reservation.
    pub(super) fn holds(&self, one: &Registration) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            reservation.kind.is_held_by_all() || reservation.holder.as_ref() == Some(&one.who)
        })
    }

    /// Returns whether there is a reservation that this nexus holds, or that
    /// gives it the holder's access as a registrant.
    pub(crate) fn admits(&self, nexus: &Nexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            self.find(nexus)
                .is_some_and(|one| reservation.kind.admits_registrants() || self.holds(one))
        })
    }

    /// Returns the reservation that restricts this nexus's access to the
    /// medium.
    pub(crate) fn reserved_against(&self, nexus: &Nexus) -> Option<ReservationType> {
        let kind = self.reservation.as_ref()?.kind;
        (!self.admits(nexus)).then_some(kind)
    }

    /// Returns the registration of the sender, whose key must match.
    fn sender(&self, nexus: &Nexus, key: u64) -> Result<Registration, Failure> {
        self.find(nexus).filter(|one| one.key == key).cloned().ok_or(Failure::Conflict)
    }

    fn others(&self, than: &Registrant) -> impl Iterator<Item = &Registration> {
        self.registrations.iter().filter(move |one| one.who != *than)
    }

    pub(crate) fn register(&mut self, nexus: &Nexus, wanted: &Register, ports: &[u16]) -> Changed {
        match self.find(nexus).cloned() {
            None => self.register_new(nexus, wanted, ports),
            Some(mine) => {
                if wanted.key.is_some_and(|key| key != mine.key) {
                    return Err(Failure::Conflict);
                }
                // SPC-4 §5.13.7: only new registrants may register other ports.
                if wanted.names_others {
                    return Err(Sense::invalid_parameter(20).into());
                }
                self.generation = self.generation.wrapping_add(1);
                self.aptpl = wanted.aptpl;
                if wanted.new_key == 0 {
                    return Ok(self.unregister(&mine, ports));
                }
                for one in &mut self.registrations {
                    let same_port = one.who == mine.who;
                    let all_ports = one.who.initiator == mine.who.initiator
                        && ports.contains(&one.who.relative_port);
                    if same_port || all_ports {
                        one.key = wanted.new_key;
                    }
                }
                self.add(&mine.who.initiator, wanted.new_key, ports)?;
                Ok(Effects::default())
            }
        }
    }

    fn register_new(&mut self, nexus: &Nexus, wanted: &Register, ports: &[u16]) -> Changed {
        if wanted.key.is_some_and(|key| key != 0) {
            return Err(Failure::Conflict);
        }
        if wanted.new_key == 0 {
            return Ok(Effects::default());
        }
        // SPC-4 table 67: if one of the others is registered already, nobody is registered.
        // A TransportID without an ISID names all ports of its node.
        let registered = self.registrations.iter().any(|one| {
            let known = &one.who.initiator;
            ports.contains(&one.who.relative_port)
                && wanted.others.iter().any(|other| known.covers(other) || other.covers(known))
        });
        if registered {
            return Err(Sense::invalid_parameter(TRANSPORT_IDS_AT).into());
        }
        self.add(&nexus.initiator, wanted.new_key, ports)?;
        for other in &wanted.others {
            self.add(other, wanted.new_key, ports)?;
        }
        self.generation = self.generation.wrapping_add(1);
        self.aptpl = wanted.aptpl;
        Ok(Effects::default())
    }

    /// Registers an initiator port on those target ports where it is not
    /// registered yet.
    fn add(&mut self, initiator: &TransportId, key: u64, ports: &[u16]) -> Result<(), Failure> {
        for &relative_port in ports {
            let who = Registrant { initiator: initiator.clone(), relative_port };
            if self.registrations.iter().any(|one| one.who == who) {
                continue;
            }
            if self.registrations.len() >= MAX_REGISTRATIONS {
                return Err(Asc::REGISTRATION_RESOURCES.into());
            }
            self.registrations.push(Registration { key, who });
        }
        Ok(())
    }

    fn unregister(&mut self, mine: &Registration, ports: &[u16]) -> Effects {
        let gone = |one: &Registration| {
            one.who == mine.who
                || (one.who.initiator == mine.who.initiator
                    && ports.contains(&one.who.relative_port))
        };
        let released = self.registrations.iter().any(|one| {
            gone(one)
                && self.reservation.as_ref().is_some_and(|r| r.holder.as_ref() == Some(&one.who))
        });
        self.registrations.retain(|one| !gone(one));
        let mut effects = Effects::default();
        if released && let Some(reservation) = self.reservation.take() {
            // SPC-4 §5.13.11.2.3: registrants are informed of the release.
            if reservation.kind.admits_registrants() {
                effects.tell(&self.registrations, Asc::RESERVATIONS_RELEASED);
            }
        }
        self.drop_orphan();
        effects
    }

    /// Ends a reservation of all registrants with the last of them.
    fn drop_orphan(&mut self) {
        if self.registrations.is_empty() {
            self.reservation = None;
        }
    }

    pub(crate) fn reserve(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Changed {
        let mine = self.sender(nexus, key)?;
        let kind = kind?;
        match &self.reservation {
            None => {
                let holder = (!kind.is_held_by_all()).then_some(mine.who);
                self.reservation = Some(Reservation { kind, holder });
                Ok(Effects::default())
            }
            Some(held) if held.kind == kind && self.holds(&mine) => Ok(Effects::default()),
            Some(_) => Err(Failure::Conflict),
        }
    }

    pub(crate) fn release(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Changed {
        let mine = self.sender(nexus, key)?;
        let Some(reservation) = &self.reservation else {
            return Ok(Effects::default());
        };
        if !self.holds(&mine) {
            return Ok(Effects::default());
        }
        let held = reservation.kind;
        // An unknown type or scope is another one, too (SPC-4 §5.13.11.2.2).
        if kind != Ok(held) {
            return Err(Asc::INVALID_RELEASE.into());
        }
        self.reservation = None;
        let mut effects = Effects::default();
        if held.admits_registrants() {
            effects.tell(self.others(&mine.who), Asc::RESERVATIONS_RELEASED);
        }
        Ok(effects)
    }

    pub(crate) fn clear(&mut self, nexus: &Nexus, key: u64) -> Changed {
        let mine = self.sender(nexus, key)?;
        let mut effects = Effects::default();
        effects.tell(self.others(&mine.who), Asc::RESERVATIONS_PREEMPTED);
        effects.unregistered = self.registrations.drain(..).map(|one| one.who).collect();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// Performs PREEMPT and PREEMPT AND ABORT (SPC-4 §5.13.11.2.4,
    /// §5.13.11.2.6).
    pub(crate) fn preempt(&mut self, nexus: &Nexus, key: u64, victim: u64, kind: Kind) -> Changed {
        let mine = self.sender(nexus, key)?;
        let held_by_all =
            self.reservation.as_ref().is_some_and(|reservation| reservation.kind.is_held_by_all());
        if victim == 0 && !held_by_all {
            return Err(Sense::invalid_parameter(8).into());
        }
        let takes_over = if held_by_all {
            victim == 0
        } else {
            self.registrations.iter().any(|one| one.key == victim && self.holds(one))
        };
        let everyone = held_by_all && victim == 0;
        let (gone, kept): (Vec<_>, Vec<_>) = self.registrations.drain(..).partition(|one| {
            let named = everyone || one.key == victim;
            // A nexus that takes over the reservation keeps its registration.
            named && !(takes_over && one.who == mine.who)
        });
        self.registrations = kept;
        if gone.is_empty() && !takes_over {
            return Err(Failure::Conflict);
        }
        let unregistered = gone.iter().map(|one| one.who.clone()).collect();
        let mut effects = Effects { unregistered, ..Effects::default() };
        effects.tell(gone.iter().filter(|one| one.who != mine.who), Asc::REGISTRATIONS_PREEMPTED);
        if takes_over {
            let kind = kind?;
            let before = self.reservation.as_ref().map(|reservation| reservation.kind);
            // Whatever the type was (SPC-4 §5.13.11.2.4.3).
            if before != Some(kind) {
                effects.tell(self.others(&mine.who), Asc::RESERVATIONS_RELEASED);
            }
            let holder = (!kind.is_held_by_all()).then_some(mine.who);
            self.reservation = Some(Reservation { kind, holder });
        }
        self.drop_orphan();
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// Performs REGISTER AND MOVE (SPC-4 §5.13.8).
    pub(crate) fn move_to(&mut self, nexus: &Nexus, wanted: &Move) -> Changed {
        let mine = self.sender(nexus, wanted.key)?;
        let kind = match &self.reservation {
            Some(held) if !held.kind.is_held_by_all() && self.holds(&mine) => held.kind,
            Some(_) => return Err(Failure::Conflict),
            // There is nothing to move.
            None => return Err(Sense::invalid_cdb(1, Some(4)).into()),
        };
        if wanted.new_key == 0 {
            return Err(Sense::invalid_parameter(8).into());
        }
        // To another initiator port, whatever the target port (SPC-4 §5.13.8).
        if wanted.initiator.covers(&nexus.initiator) {
            return Err(Sense::invalid_parameter(24).into());
        }
        let target =
            Registrant { initiator: wanted.initiator.clone(), relative_port: wanted.relative_port };
        match self.registrations.iter_mut().find(|one| one.who == target) {
            Some(one) => one.key = wanted.new_key,
            None => self.add(&target.initiator, wanted.new_key, &[target.relative_port])?,
        }
        if wanted.unregister {
            self.registrations.retain(|one| one.who != mine.who);
        }
        self.reservation = Some(Reservation { kind, holder: Some(target) });
        self.aptpl = wanted.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(Effects::default())
    }
}
