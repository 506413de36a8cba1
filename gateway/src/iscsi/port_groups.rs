//! Target port groups: those of this machine, and in a pair those of the other one
//! (SPC-4 §5.15, asymmetric access; [ADR 32]).
//!
//! [ADR 32]: ../../../docs/adr/0032-port-groups-of-a-pair.md

use super::settings::{IscsiSettings, Portal};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{AccessState, PortGroup, TargetPort};

/// Access states by portal group tag.
type States = BTreeMap<u16, AccessState>;

/// A portal group and its state, in `zgate status`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortGroupStatus {
    tag: u16,
    portals: Vec<String>,
    /// `active` or `standby`.
    state: &'static str,
}

/// The groups and their present states.
#[derive(Debug)]
pub(crate) struct PortGroups {
    portals: Vec<Portal>,
    /// Set if groups without an address of this machine are another machine's.
    asymmetric: bool,
    /// Set if this process answers for a machine that serves.
    pub(super) standby: bool,
    states: Mutex<States>,
}

impl PortGroups {
    pub(crate) fn new(settings: &IscsiSettings, is_local: impl Fn(IpAddr) -> bool) -> Self {
        let IscsiSettings { portals, asymmetric, standby, .. } = settings;
        let groups = Self {
            portals: portals.clone(),
            asymmetric: *asymmetric,
            standby: *standby,
            states: Mutex::default(),
        };
        groups.follow(is_local);
        groups
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the states from the addresses of this machine; returns those that
    /// have changed.
    pub(crate) fn follow(&self, is_local: impl Fn(IpAddr) -> bool) -> Vec<(u16, AccessState)> {
        let now = self.states(is_local);
        let before = std::mem::replace(&mut *self.lock(), now.clone());
        now.into_iter().filter(|(tag, state)| before.get(tag) != Some(state)).collect()
    }

    /// Returns the present states.
    pub(crate) fn present(&self) -> Vec<(u16, AccessState)> {
        self.lock().iter().map(|(&tag, &state)| (tag, state)).collect()
    }

    fn states(&self, is_local: impl Fn(IpAddr) -> bool) -> States {
        let mut states = States::new();
        for portal in &self.portals {
            let ip = portal.address.ip();
            let is_here = !self.asymmetric || ip.is_unspecified() || is_local(ip);
            // In standby it is the other machine that serves.
            let state = match is_here != self.standby {
                true => AccessState::ActiveOptimized,
                false => AccessState::Standby,
            };
            let known = states.entry(portal.group).or_insert(state);
            // One address of this machine makes the group its own.
            if is_here {
                *known = state;
            }
        }
        if states.is_empty() {
            // Without portals there are no initiators; a disk needs a port anyway.
            states.insert(1, AccessState::ActiveOptimized);
        }
        states
    }

    /// Returns whether the states follow the addresses of this machine.
    pub(crate) fn is_asymmetric(&self) -> bool {
        self.asymmetric
    }

    /// Returns the groups of a target's disk. Within a machine all lead to the same
    /// storage, so all are preferred alike. In a pair none is: multipath-tools ranks a
    /// preferred group in standby above an active one. Each portal group forms a target
    /// port with the target's name (RFC 7143 §4.2.6); its tag is the RELATIVE TARGET PORT
    /// IDENTIFIER and TARGET PORT GROUP, by which saved reservations name the port.
    pub(crate) fn of(&self, target: &IscsiName) -> Vec<PortGroup> {
        let group = |(&tag, &state): (&u16, &AccessState)| PortGroup {
            id: tag,
            preferred: !self.asymmetric,
            state,
            ports: vec![TargetPort {
                relative_id: tag,
                target_name: target.as_str().to_owned(),
                portal_group_tag: tag,
            }],
        };
        self.lock().iter().map(group).collect()
    }

    /// Returns the groups for people; none unless they are those of a pair.
    pub(crate) fn status(&self) -> Vec<PortGroupStatus> {
        if !self.asymmetric {
            return Vec::new();
        }
        let portals = |tag| {
            let own = self.portals.iter().filter(move |portal| portal.group == tag);
            own.map(|portal| portal.address.to_string()).collect()
        };
        let shown = |(&tag, &state): (&u16, &AccessState)| PortGroupStatus {
            tag,
            portals: portals(tag),
            state: if state == AccessState::Standby { "standby" } else { "active" },
        };
        self.lock().iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_iscsi::login::Transport;

    fn settings(asymmetric: bool, standby: bool) -> IscsiSettings {
        let portal = |address: &str, group| Portal {
            address: address.parse().unwrap(),
            group,
            transport: Transport::Tcp,
        };
        let portals = vec![
            portal("10.0.0.1:3260", 1),
            portal("10.1.0.1:3260", 1),
            portal("10.0.0.2:3260", 2),
        ];
        IscsiSettings { portals, asymmetric, standby, ..IscsiSettings::default() }
    }

    fn states(groups: &PortGroups) -> Vec<(u16, AccessState)> {
        let target = IscsiName::parse("iqn.2026-11.test:vm").unwrap();
        groups.of(&target).into_iter().map(|group| (group.id, group.state)).collect()
    }

    use AccessState::{ActiveOptimized as Active, Standby};

    #[test]
    fn groups_of_the_other_machine_are_in_standby() {
        let here = |ip: IpAddr| ip == IpAddr::from([10, 1, 0, 1]);
        let groups = PortGroups::new(&settings(true, false), here);
        assert_eq!(states(&groups), [(1, Active), (2, Standby)]);
        assert!(groups.follow(here).is_empty(), "nothing has changed");
        let there = |ip: IpAddr| ip == IpAddr::from([10, 0, 0, 2]);
        assert_eq!(groups.follow(there), [(1, Standby), (2, Active)]);
        assert_eq!(groups.status()[0].state, "standby");
    }

    #[test]
    fn a_machine_in_standby_has_it_the_other_way_round() {
        let here = |ip: IpAddr| ip == IpAddr::from([10, 0, 0, 2]);
        let groups = PortGroups::new(&settings(true, true), here);
        assert_eq!(states(&groups), [(1, Active), (2, Standby)]);
    }

    #[test]
    fn no_group_of_a_pair_is_preferred() {
        let target = IscsiName::parse("iqn.2026-11.test:vm").unwrap();
        let preferred = |asymmetric, standby| -> Vec<bool> {
            let groups = PortGroups::new(&settings(asymmetric, standby), |_| false);
            groups.of(&target).iter().map(|group| group.preferred).collect()
        };
        assert_eq!(preferred(true, false), [false, false]);
        assert_eq!(preferred(true, true), [false, false]);
        assert_eq!(preferred(false, false), [true, true]);
    }

    #[test]
    fn without_a_pair_every_group_is_active() {
        let groups = PortGroups::new(&settings(false, false), |_| false);
        assert_eq!(states(&groups), [(1, Active), (2, Active)]);
        assert!(groups.status().is_empty());
        let none = PortGroups::new(&IscsiSettings::default(), |_| false);
        assert_eq!(states(&none), [(1, Active)]);
    }
}
