//! User and group ids of clients, and those of the server that stand for them.

use std::sync::Arc;
use zgate_store::Caller;
use zgate_store::file_store::{PosixAcl, PosixAclEntry, PosixAclTag};
use zgate_store::{Attr, SetAttr};

/// Consecutive ids of clients, and as many of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id of the clients.
    pub client: u32,
    /// Id of the server for it.
    pub server: u32,
    /// Number of ids beyond the first.
    pub more: u32,
}

/// Map between ids of clients and of the server, one to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    by_client: Box<[IdRange]>,
    by_server: Box<[IdRange]>,
}

/// Finds an id in ranges sorted by their first id; returns the range, and the
/// distance from its first id.
fn find(ranges: &[IdRange], first: fn(&IdRange) -> u32, id: u32) -> Option<(&IdRange, u32)> {
    let range = ranges[..ranges.partition_point(|range| first(range) <= id)].last()?;
    let distance = id - first(range);
    (distance <= range.more).then_some((range, distance))
}

impl IdMap {
    /// Builds a map of disjoint ranges.
    #[must_use]
    pub fn new(ranges: &[IdRange]) -> Self {
        let sorted = |first: fn(&IdRange) -> u32| {
            let mut ranges = ranges.to_vec();
            ranges.sort_by_key(first);
            ranges.into_boxed_slice()
        };
        Self { by_client: sorted(|range| range.client), by_server: sorted(|range| range.server) }
    }

    /// Returns whether nothing is mapped: ids are the same on both sides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Returns the server's id for one of a client; `None`: it has none.
    #[must_use]
    pub fn to_server(&self, id: u32) -> Option<u32> {
        if self.is_empty() {
            return Some(id);
        }
        let (range, distance) = find(&self.by_client, |range| range.client, id)?;
        Some(range.server + distance)
    }

    /// Returns the clients' id for one of the server; `None`: they have none.
    #[must_use]
    pub fn to_client(&self, id: u32) -> Option<u32> {
        if self.is_empty() {
            return Some(id);
        }
        let (range, distance) = find(&self.by_server, |range| range.server, id)?;
        Some(range.client + distance)
    }
}

/// Ids as the clients of an entry see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdView {
    /// Users.
    pub users: IdMap,
    /// Groups.
    pub groups: IdMap,
    /// User that stands for all that have no id on the other side.
    pub anon_uid: u32,
    /// Group that stands for all that have no id on the other side.
    pub anon_gid: u32,
}

/// An id that the server has no counterpart for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchId;

impl IdView {
    /// Maps a user and its groups as a client states them. A user without a
    /// counterpart is anonymous, a primary group without one too; other groups are
    /// left out.
    #[must_use]
    pub fn caller(&self, client: &Caller) -> Caller {
        let Some(uid) = self.users.to_server(client.uid) else {
            return Caller { uid: self.anon_uid, gid: self.anon_gid, groups: Arc::from([]) };
        };
        let gid = self.groups.to_server(client.gid).unwrap_or(self.anon_gid);
        let groups = client.groups.iter().filter_map(|&gid| self.groups.to_server(gid)).collect();
        Caller { uid, gid, groups }
    }

    /// Returns a user's id for clients.
    #[must_use]
    pub fn shown_user(&self, uid: u32) -> u32 {
        self.users.to_client(uid).unwrap_or(self.anon_uid)
    }

    /// Returns a group's id for clients.
    #[must_use]
    pub fn shown_group(&self, gid: u32) -> u32 {
        self.groups.to_client(gid).unwrap_or(self.anon_gid)
    }

    /// Puts the ids of clients into attributes.
    pub fn show(&self, attr: &mut Attr) {
        attr.uid = self.shown_user(attr.uid);
        attr.gid = self.shown_group(attr.gid);
    }

    /// Puts the ids of clients into an ACL. Entries of users and groups that the
    /// clients have no ids for are left out: one id must not appear twice.
    pub fn show_acl(&self, acl: &mut PosixAcl) {
        for entries in [&mut acl.access, &mut acl.default] {
            entries.retain_mut(|entry| match self.shown_tag(entry.tag) {
                Some(tag) => {
                    entry.tag = tag;
                    true
                }
                None => false,
            });
            // The order is that of the ids (acl(5)).
            entries.sort_by_key(|entry| entry.tag);
        }
    }

    fn shown_tag(&self, tag: PosixAclTag) -> Option<PosixAclTag> {
        Some(match tag {
            PosixAclTag::User(uid) => PosixAclTag::User(self.users.to_client(uid)?),
            PosixAclTag::Group(gid) => PosixAclTag::Group(self.groups.to_client(gid)?),
            other => other,
        })
    }

    /// Puts the server's ids into attributes that a client sets.
    ///
    /// # Errors
    /// [`NoSuchId`].
    pub fn accept(&self, set: &mut SetAttr) -> Result<(), NoSuchId> {
        if let Some(uid) = &mut set.uid {
            *uid = self.users.to_server(*uid).ok_or(NoSuchId)?;
        }
        if let Some(gid) = &mut set.gid {
            *gid = self.groups.to_server(*gid).ok_or(NoSuchId)?;
        }
        Ok(())
    }

    /// Puts the server's ids into an ACL that a client sets.
    ///
    /// # Errors
    /// [`NoSuchId`].
    pub fn accept_acl(&self, acl: &mut PosixAcl) -> Result<(), NoSuchId> {
        for entries in [&mut acl.access, &mut acl.default] {
            for PosixAclEntry { tag, .. } in entries.iter_mut() {
                *tag = match *tag {
                    PosixAclTag::User(uid) => {
                        PosixAclTag::User(self.users.to_server(uid).ok_or(NoSuchId)?)
                    }
                    PosixAclTag::Group(gid) => {
                        PosixAclTag::Group(self.groups.to_server(gid).ok_or(NoSuchId)?)
                    }
                    other => other,
                };
            }
            entries.sort_by_key(|entry| entry.tag);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(client: u32, last: u32, server: u32) -> IdRange {
        IdRange { client, server, more: last - client }
    }

    fn a_view() -> IdView {
        IdView {
            users: IdMap::new(&[range(1000, 1999, 101_000), range(5, 5, 7)]),
            groups: IdMap::new(&[range(100, 199, 5100)]),
            anon_uid: 65_534,
            anon_gid: 65_533,
        }
    }

    #[test]
    fn ids_are_mapped_both_ways_and_one_to_one() {
        let map = a_view().users;
        for (client, server) in
            [(1000, Some(101_000)), (1999, Some(101_999)), (2000, None), (999, None), (5, Some(7))]
        {
            assert_eq!(map.to_server(client), server);
            if let Some(server) = server {
                assert_eq!(map.to_client(server), Some(client));
            }
        }
        // An id of a client is not by itself one of the server.
        assert_eq!(map.to_client(1000), None);
        assert_eq!(map.to_client(u32::MAX), None);
        let same = IdMap::default();
        assert_eq!((same.to_server(9), same.to_client(9)), (Some(9), Some(9)));
    }

    #[test]
    fn a_caller_without_a_counterpart_is_anonymous() {
        let of =
            |uid, gid, groups: &[u32]| a_view().caller(&Caller { uid, gid, groups: groups.into() });
        let mapped = of(1001, 150, &[100, 4, 199]);
        assert_eq!(mapped, Caller { uid: 101_001, gid: 5150, groups: Arc::from([5100, 5199]) });
        let unknown = of(101_001, 150, &[100]);
        assert_eq!(unknown, Caller { uid: 65_534, gid: 65_533, groups: Arc::from([]) });
        assert_eq!(of(5, 4, &[]).gid, 65_533);
    }

    #[test]
    fn attributes_are_shown_and_accepted_in_the_clients_ids() {
        let view = a_view();
        assert_eq!((view.shown_user(101_500), view.shown_user(3)), (1500, 65_534));
        assert_eq!((view.shown_group(5100), view.shown_group(100)), (100, 65_533));
        let mut set = SetAttr { uid: Some(1002), gid: Some(101), ..SetAttr::default() };
        assert_eq!(view.accept(&mut set), Ok(()));
        assert_eq!((set.uid, set.gid), (Some(101_002), Some(5101)));
        for set in [
            SetAttr { uid: Some(0), ..SetAttr::default() },
            SetAttr { gid: Some(5100), ..SetAttr::default() },
        ] {
            assert_eq!(view.accept(&mut set.clone()), Err(NoSuchId));
        }
    }

    #[test]
    fn an_acl_makes_the_round_trip() {
        let view = a_view();
        let entry = |tag, perms| PosixAclEntry { tag, perms };
        let own = PosixAcl {
            access: vec![
                entry(PosixAclTag::UserObj, 7),
                entry(PosixAclTag::User(7), 4),
                entry(PosixAclTag::User(101_000), 6),
                entry(PosixAclTag::GroupObj, 5),
                entry(PosixAclTag::Group(5101), 1),
                entry(PosixAclTag::Mask, 7),
                entry(PosixAclTag::Other, 0),
            ],
            default: Vec::new(),
        };
        let mut shown = own.clone();
        // One that the clients have no id for is not shown.
        shown.access.insert(3, entry(PosixAclTag::User(300_000), 7));
        view.show_acl(&mut shown);
        assert_eq!(shown.access[1], entry(PosixAclTag::User(5), 4));
        assert_eq!(shown.access.len(), own.access.len());
        view.accept_acl(&mut shown).unwrap();
        assert_eq!(shown, own);
        let mut foreign = PosixAcl { access: vec![entry(PosixAclTag::User(9), 7)], ..own };
        assert_eq!(view.accept_acl(&mut foreign), Err(NoSuchId));
    }
}
