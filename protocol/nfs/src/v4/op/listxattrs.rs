//! LISTXATTRS (RFC 8276 §8.4.3).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Listxattrs;
use zgate_nfs_wire::v4::op::listxattrs::{Args, Res};
use zgate_nfs_wire::v4::{Component, Status};

impl Rule for Listxattrs {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Notsupp)?;
        let all = object.export.store.list_xattrs(object.who(), &object.node).await?;
        let start = usize::try_from(args.cookie).map_err(|_| Status::BadCookie)?;
        if start > all.len() {
            return Err(Status::BadCookie.into());
        }
        let asked = args.maxcount as usize;
        let given = asked.min(cx.reply_room.saturating_sub(16));
        // cookie, count of names, eof.
        let room = given.checked_sub(8 + 4 + 4);
        let mut room = room.ok_or_else(|| cx.no_room_for_entry(asked, given))?;
        let mut names = Vec::new();
        for name in &all[start..] {
            let bytes = 4 + name.len().next_multiple_of(4);
            if bytes > room {
                break;
            }
            room -= bytes;
            names.push(Component::from(name.as_slice()));
        }
        let told = start + names.len();
        if names.is_empty() && told < all.len() {
            return Err(cx.no_room_for_entry(asked, given).into());
        }
        Ok(Res { cookie: told as u64, names, eof: told == all.len() })
    }
}
