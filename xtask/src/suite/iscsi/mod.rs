//! The iSCSI suites: libiscsi's own suite on files and on loop devices, and
//! checks of discovery, CHAP and a disk's content with its tools and qemu; the
//! suite once more over iSER on the emulated fabric.

mod checks;
pub(crate) mod disks;
mod known;
mod libiscsi;
mod sessions;

pub(crate) use disks::{Backing, Rig, Transport};

use crate::totals::{Outcome, Totals, Work};
use std::io;
use std::path::Path;

/// Runs all suites.
///
/// # Errors
/// A message naming what is missing.
pub(crate) fn run(binary: &Path, totals: &mut Totals) -> io::Result<()> {
    let mut suites = vec![
        ("libiscsi suite, file LUN", Backing::File, Transport::Tcp),
        ("libiscsi suite, file LUN, over iSER", Backing::File, Transport::Iser),
    ];
    if rustix::process::geteuid().is_root() {
        suites.push(("libiscsi suite, loop device", Backing::Loop, Transport::Tcp));
    } else {
        totals.skip("libiscsi suite, loop device", "only root may make loop devices");
    }
    // Started one after the other: each looks for free ports.
    let started = suites.into_iter().map(|(suite, backing, over)| {
        let rig = Rig::start(binary, backing, over);
        (suite, Box::new(move |outcome: &mut Outcome| libiscsi::run(&rig?, outcome)) as Work<'_>)
    });
    totals.run_at_once(started.collect());
    totals.run("iSCSI tools, sessions and reservations", |outcome| {
        let rig = Rig::start(binary, Backing::File, Transport::Tcp)?;
        checks::run(&rig, outcome);
        sessions::run(&rig, outcome);
        Ok(())
    });
    Ok(())
}
