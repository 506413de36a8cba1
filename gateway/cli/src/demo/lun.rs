//! Disk of the demo: written and read back over iSCSI, and compared.

use super::model::{Noise, hex};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;
use zgate_config::TargetConfig;
use zgate_initiator::pdu::Itt;
use zgate_initiator::{LoginScript, Lun, Session, read16, synchronize16, write16};

/// Name of the demo's target.
pub(super) const TARGET: &str = "iqn.2026-11.io.zgate:demo";
const INITIATOR: &str = "iqn.2026-11.io.zgate:demo-client";
/// Size of the disk in bytes.
const DISK_BYTES: u64 = 256 << 20;
/// Bytes that are written and read.
pub(super) const MOVED_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 512;
/// Bytes per command.
const COMMAND_BYTES: u64 = 256 << 10;
/// Number of commands in flight.
const DEPTH: u64 = 8;

/// Result of the test.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LunReport {
    bytes: u64,
    write_gigabytes_per_second: f64,
    read_gigabytes_per_second: f64,
    sha256: String,
    pub(super) agrees: bool,
}

impl fmt::Display for LunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MB over iSCSI: written at {:.2} GB/s, read back at {:.2} GB/s, {}",
            self.bytes as f64 / 1e6,
            self.write_gigabytes_per_second,
            self.read_gigabytes_per_second,
            if self.agrees { "the checksum matches" } else { "the checksum DIFFERS" }
        )
    }
}

/// Returns one target with one file below `scratch`.
pub(super) fn target(scratch: &Path) -> io::Result<TargetConfig> {
    let target = format!(
        "name = \"{TARGET}\"\nalias = \"zgate demo\"\nallow_any_initiator = true\n\
         max_connections = 4\nerror_recovery_level = 2\n\
         [[lun]]\nnumber = 0\npath = \"/disk.img\"\nsize = {DISK_BYTES}\n\
         block_bytes = {BLOCK_BYTES}\nthin = true\n"
    );
    let mut target: TargetConfig = toml::from_str(&target).map_err(io::Error::other)?;
    target.luns.iter_mut().for_each(|lun| lun.path = scratch.join("disk.img"));
    Ok(target)
}

/// Writes noise, syncs it, reads it back and compares.
pub(super) fn verify(portal: SocketAddr) -> io::Result<LunReport> {
    let mut session = Session::login(portal, &LoginScript::normal(INITIATOR, TARGET))?;
    let mut noise = Noise::new(7);
    let mut written = Sha256::new();
    let pieces: Vec<Bytes> = (0..MOVED_BYTES / COMMAND_BYTES)
        .map(|_| {
            let mut piece = vec![0; COMMAND_BYTES as usize];
            noise.fill(&mut piece);
            written.update(&piece);
            Bytes::from(piece)
        })
        .collect();
    // The first command of a session gets a unit attention.
    session.run(Lun(0), &[0; 6], 0, &Bytes::new())?;
    let begun = Instant::now();
    pipelined(&mut session, &pieces, |session, lba, piece| {
        session.start(Lun(0), &write16(lba, blocks(), false), 0, piece.clone())
    })?;
    session.run(Lun(0), &synchronize16(), 0, &Bytes::new())?;
    let write_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut read = Sha256::new();
    for data in pipelined(&mut session, &pieces, |session, lba, _| {
        session.start(Lun(0), &read16(lba, blocks()), COMMAND_BYTES as u32, Bytes::new())
    })? {
        read.update(&data);
    }
    let read_seconds = begun.elapsed().as_secs_f64();
    let (written, read) = (hex(&written.finalize()), hex(&read.finalize()));
    Ok(LunReport {
        bytes: MOVED_BYTES,
        write_gigabytes_per_second: MOVED_BYTES as f64 / 1e9 / write_seconds,
        read_gigabytes_per_second: MOVED_BYTES as f64 / 1e9 / read_seconds,
        agrees: written == read,
        sha256: read,
    })
}

fn blocks() -> u32 {
    (COMMAND_BYTES / BLOCK_BYTES) as u32
}

/// Runs a command for each piece, several at a time; returns their data in
/// order.
fn pipelined(
    session: &mut Session,
    pieces: &[Bytes],
    start: impl Fn(&mut Session, u64, &Bytes) -> Itt,
) -> io::Result<Vec<Bytes>> {
    let mut tags = std::collections::HashMap::new();
    let mut data = vec![Bytes::new(); pieces.len()];
    let mut done = 0;
    let mut next = 0;
    while done < pieces.len() {
        while next < pieces.len() && (next - done) < DEPTH as usize {
            let lba = next as u64 * (COMMAND_BYTES / BLOCK_BYTES);
            tags.insert(start(session, lba, &pieces[next]), next);
            next += 1;
        }
        let ended = session.wait()?;
        if ended.status != 0 {
            return Err(io::Error::other(format!("SCSI status {:#04x}", ended.status)));
        }
        if let Some(at) = tags.remove(&ended.itt) {
            data[at] = ended.data;
            done += 1;
        }
    }
    Ok(data)
}
