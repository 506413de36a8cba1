//! Losses of clients by a reload, which is refused then: exports with open
//! files, targets and LUNs of initiators that are logged in.

use super::shared::Shared;
use crate::exports::settings::ExportSettings;
use crate::iscsi::change::Prepared;
use crate::observe::printable::printable;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use zgate_nfs::namespace::{Export, ExportId, Namespace};
use zgate_nfs::runtime::Runtime;
use zgate_nfs::v4::state::view::Holder;

/// Most uses that are named; the others are counted.
const MAX_NAMED: usize = 20;

/// Refuses changes that take away what is in use.
///
/// # Errors
/// What is in use, and by whom.
pub(super) fn refuse(
    shared: &Shared,
    exports: &[ExportSettings],
    namespace: &Namespace,
    targets: &Prepared,
) -> io::Result<()> {
    let mut losses = export_losses(shared, exports, namespace);
    losses.extend(shared.iscsi.losses(targets));
    if losses.is_empty() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::ResourceBusy, told(&losses)))
    }
}

fn told(losses: &[String]) -> String {
    let mut text = "it would take away what is in use:".to_owned();
    for loss in losses.iter().take(MAX_NAMED) {
        text += &format!("\n  {loss}");
    }
    if let Some(more @ 1..) = losses.len().checked_sub(MAX_NAMED) {
        text += &format!("\n  and {more} more");
    }
    text + "\nlet these hosts unmount or log out first, or take it away by `zgate reload --force`"
}

/// Change of an export by which clients lose their files.
enum Loss {
    Removed,
    Moved,
    /// It is configured, but cannot be opened as configured now.
    Absent,
    /// Only some hosts lose it.
    Rules,
}

/// Returns the changes of exports by which clients lose their files.
fn changed(
    old: &Namespace,
    new: &Namespace,
    exports: &[ExportSettings],
) -> BTreeMap<ExportId, Loss> {
    let loss = |before: &Export| {
        let Some(now) = new.export(before.id) else {
            let is_configured = exports.iter().any(|export| export.number() == before.id);
            return Some(if is_configured { Loss::Absent } else { Loss::Removed });
        };
        let settings = exports.iter().find(|export| export.pseudo_path == now.pseudo_path);
        // A dataset may be mounted elsewhere, and its handles stay valid.
        let is_path = settings.is_some_and(|settings| settings.dataset.is_none());
        if is_path && now.source != before.source {
            return Some(Loss::Moved);
        }
        (now.clients != before.clients).then_some(Loss::Rules)
    };
    old.exports().filter_map(|before| Some((before.id, loss(before)?))).collect()
}

fn export_losses(shared: &Shared, exports: &[ExportSettings], new: &Namespace) -> Vec<String> {
    let old = shared.nfs.v4.namespace();
    let changed = changed(&old, new, exports);
    if changed.is_empty() {
        return Vec::new();
    }
    let now = shared.nfs.runtime.now().seconds();
    let holders = shared.nfs.v4.holders(&changed.keys().copied().collect(), now);
    let line = |holder: Holder| {
        let name = &old.export(holder.export)?.pseudo_path;
        let how = match changed.get(&holder.export)? {
            Loss::Removed => "",
            Loss::Moved => ", whose path changes",
            Loss::Absent => ", which would be absent",
            Loss::Rules => {
                let address: IpAddr = holder.address.parse().ok()?;
                if new.export(holder.export)?.names_host(address) {
                    return None;
                }
                ", where no rule names it any longer"
            }
        };
        let Holder { client, address, opens, delegations, .. } = holder;
        let (client, address) = (printable(&client), printable(&address));
        Some(format!(
            "export {name}{how}: client {client} at {address} ({opens} opens, {delegations} \
             delegations)"
        ))
    };
    holders.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_all_uses_are_named() {
        let uses = |number: usize| -> Vec<String> {
            (0..number).map(|number| format!("use {number}.")).collect()
        };
        let text = told(&uses(MAX_NAMED));
        assert!(text.contains("use 19.\nlet these") && !text.contains("more\n"), "{text}");
        let text = told(&uses(MAX_NAMED + 7));
        assert!(text.contains("use 19.\n  and 7 more\n") && !text.contains("use 20."), "{text}");
    }
}
