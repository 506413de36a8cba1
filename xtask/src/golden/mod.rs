//! Messages of other implementations for `tests/golden`: out of packet captures,
//! or recorded between an independent client and a gateway of its own.

mod harvest;
mod pcap;
mod proxy;
mod record;
mod stream;

use clap::{Args, Subcommand};
use harvest::{Message, harvest};
use std::io;
use std::path::{Path, PathBuf};
use stream::Stream;
use zgate_golden::Kind;

const NFS_PORT: u16 = 2049;
const ISCSI_PORT: u16 = 3260;
/// Ports of a kernel's NFS client, which need privileges; programs use others.
const RESERVED_PORTS: std::ops::Range<u16> = 1..1024;
const NFS_PROGRAM: u32 = 100_003;
/// The opcode in the first byte of a PDU, and that of a Login Request.
const OPCODE: u8 = 0x3f;
const LOGIN_REQUEST: u8 = 0x03;
const MOUNT_PROGRAM: u32 = 100_005;

/// Arguments of `cargo xtask golden`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct GoldenArgs {
    #[command(subcommand)]
    record: Option<Golden>,
    /// Packet captures: `packets.pcap` of `cargo xtask lab SCENARIO --capture`
    #[arg(required = true)]
    captures: Vec<PathBuf>,
    /// Name of the system that sent the requests, for the files
    #[arg(long, default_value = "Linux")]
    sender: String,
    /// Prefix of its iSCSI initiator name; sessions of other initiators are
    /// skipped
    #[arg(long, default_value = "iqn.2026-11.org.example:zgate-lab")]
    initiator: String,
}

/// Subcommands of `cargo xtask golden`.
#[derive(Subcommand, Debug)]
enum Golden {
    /// Runs pynfs, libiscsi and tgt and records their messages
    Record(record::RecordArgs),
}

/// Extracts messages from packet captures, or records new ones.
///
/// # Errors
/// A capture that cannot be read, a client that cannot run, a file that cannot
/// be written, or a message that our codec does not read and write as it was.
pub(crate) fn run(args: &GoldenArgs) -> io::Result<()> {
    if let Some(Golden::Record(args)) = &args.record {
        return record::run(args);
    }
    let mut found = Vec::new();
    for path in &args.captures {
        let source = source_of(path);
        let read = messages(&pcap::read(path)?, &args.initiator);
        found.extend(read.into_iter().map(|(kind, bytes)| Message {
            kind,
            bytes,
            source: source.clone(),
        }));
    }
    harvest(found, &args.sender)
}

/// The scenario of a capture: its last two folders.
fn source_of(path: &Path) -> String {
    let folders: Vec<_> = path.parent().into_iter().flat_map(Path::iter).collect();
    let last = folders.iter().skip(folders.len().saturating_sub(2));
    last.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The requests in a capture.
fn messages(segments: &[pcap::TcpSegment], initiator: &str) -> Vec<(Kind, Vec<u8>)> {
    let mut found = Vec::new();
    for stream in stream::streams(segments.to_vec()) {
        match stream.to.port() {
            NFS_PORT if RESERVED_PORTS.contains(&stream.from.port()) => {
                found.extend(calls(&stream))
            }
            ISCSI_PORT => {
                let pdus = stream.requests();
                let name = format!("InitiatorName={initiator}");
                let is_login = |pdu: &&Vec<u8>| pdu[0] & OPCODE == LOGIN_REQUEST;
                let names = |pdu: &Vec<u8>| pdu.windows(name.len()).any(|at| at == name.as_bytes());
                if pdus.iter().find(is_login).is_some_and(names) {
                    found.extend(pdus.into_iter().map(|pdu| (Kind::Iscsi, pdu)));
                }
            }
            _ => {}
        }
    }
    found
}

/// The word at an offset of a message.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes)
}

/// The callbacks of a server.
fn callbacks(stream: &Stream) -> Vec<Vec<u8>> {
    let mut records = stream.records();
    records.retain(|bytes| word(bytes, 4) == Some(0));
    records
}

/// The messages of an NFS client, by program.
fn calls(stream: &Stream) -> Vec<(Kind, Vec<u8>)> {
    let kind = |bytes: &[u8]| match (word(bytes, 4)?, word(bytes, 12)?, word(bytes, 16)?) {
        // Callbacks use the same connection: the server calls and the client
        // replies.
        (1, ..) => Some(Kind::CallbackReply),
        (0, NFS_PROGRAM, 4) => Some(Kind::Nfs4Call),
        (0, NFS_PROGRAM, 3) => Some(Kind::Nfs3Call),
        (0, MOUNT_PROGRAM, 3) => Some(Kind::MountCall),
        _ => None,
    };
    stream.records().into_iter().filter_map(|bytes| Some((kind(&bytes)?, bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_named_after_its_scenario() {
        let path = Path::new("target/lab/run-1/nfs/locks/packets.pcap");
        assert_eq!(source_of(path), "nfs/locks");
    }
}
