//! The iSCSI suites: libiscsi's own suite on files and on loop devices, and
//! checks of discovery, CHAP and a disk's content with its tools and qemu; the
//! suite once more over iSER on the emulated fabric.

mod checks;
pub(crate) mod disks;
mod known;
mod libiscsi;
mod sessions;

pub(crate) use disks::{Backing, Rig, Transport};

use crate::totals::Totals;
use std::io;
use std::path::Path;

/// Runs all suites.
///
/// # Errors
/// A message naming what is missing.
pub(crate) fn run(binary: &Path, totals: &mut Totals) -> io::Result<()> {
    totals.run("libiscsi suite, file LUN", |outcome| {
        libiscsi::run(&Rig::start(binary, Backing::File, Transport::Tcp)?, outcome)
    });
    totals.run("libiscsi suite, file LUN, over iSER", |outcome| {
        libiscsi::run(&Rig::start(binary, Backing::File, Transport::Iser)?, outcome)
    });
    if rustix::process::geteuid().is_root() {
        totals.run("libiscsi suite, loop device", |outcome| {
            libiscsi::run(&Rig::start(binary, Backing::Loop, Transport::Tcp)?, outcome)
        });
    } else {
        totals.skip("libiscsi suite, loop device", "only root may make loop devices");
    }
    totals.run("iSCSI tools, sessions and reservations", |outcome| {
        let rig = Rig::start(binary, Backing::File, Transport::Tcp)?;
        checks::run(&rig, outcome);
        sessions::run(&rig, outcome);
        Ok(())
    });
    Ok(())
}
